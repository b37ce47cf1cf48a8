"""Every entity has a reader program or a stated reason, and a change of a program shows in review."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final, TypeVar

import pytest

from tests.unit.fast.programs import ENTITIES, SNAPSHOT, described, programs
from twinstore.fast.nodes import (
    ExpiryCondition,
    ListRule,
    MarkerNode,
    Node,
    NodeField,
    NodeKind,
    NodeRule,
    NodeText,
    Operand,
    Presence,
    RuleOp,
    SortKey,
)
from twinstore.fast.program import VERSION, NoProgram, Program, program_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from twinstore.catalog.entity import Entity

T = TypeVar("T")
REASONS: Final = {
    "scheduler.workers": "its rows are skipped and counted on both sides",
    "scheduler.locks": "its rows are copied as released",
    "scheduler.impact_snapshots": "its key is computed from the content of a row",
    "scheduler.run_summaries": "RunSummary has the rule",
    "scheduler.graph_jobs": "functions compute values stored with its rows: type, uuid",
    "scheduler.graph_job_events": "functions compute values stored with its rows: jobUuid, status",
    "kit.devices": "functions compute values stored with its rows: contentDigest, spotCount",
    "kit.lines": "the field extra of Line keeps unknown properties",
    "kit.tickets": "documents hold its key as their id",
    "kit.stubs": "documents hold its key as their id",
    "kit.crates": "the field extra of Crate keeps unknown properties",
}


@pytest.mark.parametrize("entity", ENTITIES, ids=lambda entity: f"{entity.module}.{entity.name}")
def test_every_entity_has_a_program_or_a_stated_reason(entity: Entity) -> None:
    found = program_of(entity)
    reason = REASONS.get(f"{entity.module}.{entity.name}")
    if reason is None:
        assert isinstance(found, Program), str(found)
    else:
        assert isinstance(found, NoProgram)
        assert found.reason.startswith(reason)
        assert str(found) == found.reason


def test_no_reason_is_given_for_an_entity_that_does_not_exist() -> None:
    assert {f"{entity.module}.{entity.name}" for entity in ENTITIES} >= REASONS.keys()


def test_the_programs_are_those_that_were_reviewed() -> None:
    wanted = SNAPSHOT.read_text("utf-8")
    assert described() == wanted, "review the change, then run: python -m tests.unit.fast.programs"


def test_a_program_is_made_once() -> None:
    for entity in ENTITIES:
        assert program_of(entity) is program_of(entity)


@pytest.mark.parametrize("name", programs())
def test_the_bytes_hold_all_of_a_program(name: str) -> None:
    program = programs()[name]
    read = Bytes(program.data)
    assert read.number() == VERSION
    assert read.many(lambda: node_in(read)) == list(program.nodes)
    assert read.number() == program.root
    assert read.many(lambda: MarkerNode(read.text(), read.number(), bool(read.number()))) == list(
        program.markers
    )
    assert read.many(read.number) == list(program.key)
    assert read.number() == (-1 if program.tenant is None else program.tenant)
    assert read.number() == program.tenant_may_lack
    assert read.number() == (-1 if program.expires is None else program.expires)
    where = read.many(lambda: ExpiryCondition(read.number(), tuple(read.many(read.number))))
    assert where == list(program.expiry_conditions)
    assert read.at == len(program.data)


class Bytes:
    """Reads what the encoding says, written a second time."""

    def __init__(self, data: bytes) -> None:
        """Begin with the first byte."""
        self.data, self.at = data, 0

    def number(self) -> int:
        """Read a number of 64 bits."""
        (found,) = struct.unpack_from("<q", self.data, self.at)
        self.at += 8
        return int(found)

    def text(self) -> str:
        """Read a text."""
        size = self.number()
        self.at += size
        return self.data[self.at - size : self.at].decode()

    def many(self, read: Callable[[], T]) -> list[T]:
        """Read a list."""
        return [read() for _ in range(self.number())]


def node_in(read: Bytes) -> Node:
    kind, flags, low, high = (read.number() for _ in range(4))
    texts = read.many(lambda: NodeText(read.text(), read.number(), read.number()))
    fields = read.many(lambda: field_in(read))
    rules = read.many(lambda: NodeRule(RuleOp(read.number()), tuple(read.many(lambda: operand_in(read)))))
    item, list_rule, list_flags, limit = (read.number() for _ in range(4))
    keys = read.many(lambda: key_in(read.number()))
    return Node(
        kind=NodeKind(kind),
        flags=flags,
        low=low,
        high=high,
        texts=tuple(texts),
        fields=tuple(fields),
        rules=tuple(rules),
        item=item,
        list_rule=ListRule(list_rule),
        descending=bool(list_flags & 1),
        unique=bool(list_flags & 2),
        limit=limit,
        keys=tuple(keys),
        distinct=read.number(),
    )


def field_in(read: Bytes) -> NodeField:
    name = read.text()
    node, presence, left_out = read.number(), Presence(read.number()), bool(read.number())
    return NodeField(
        name=name,
        node=node,
        presence=presence,
        left_out=left_out,
        default=read.text().encode(),
        number=read.number(),
    )


def operand_in(read: Bytes) -> Operand:
    return Operand(tuple(read.many(read.number)), tuple(read.many(read.number)))


def key_in(number: int) -> SortKey:
    return SortKey(number & (2**32 - 1), bool(number >> 32))
