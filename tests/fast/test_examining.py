"""What a copy wants to know of packed rows: whose they are, which are due, and whether their keys rise."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime, timedelta
from random import Random
from typing import TYPE_CHECKING, Any, Final

import bson
import pytest
from bson import Int64

from tests.fast.hand_made import ANY_TEXT, NativeRows, packed_values, program_with
from twinstore.bulk.port import Record
from twinstore.fast.nodes import DueWhere, Node, NodeField, NodeKind, NodeText, Presence
from twinstore.fast.records import Identity, PackedBatch, Stored

if TYPE_CHECKING:
    from collections.abc import Sequence

    from twinstore.fast.program import Program

NOON: Final = datetime(2025, 10, 26, 12, tzinfo=UTC)
STATES: Final = ("open", "closed", "gone")
MODEL: Final = Node(
    kind=NodeKind.OBJECT,
    fields=(
        NodeField(name="id", node=1, presence=Presence.REQUIRED),
        NodeField(name="owner", node=1),
        NodeField(name="end", node=2),
        NodeField(name="state", node=3),
    ),
)
NODES: Final = (
    MODEL,
    ANY_TEXT,
    Node(kind=NodeKind.INSTANT),
    Node(kind=NodeKind.ENUM, texts=tuple(NodeText(text, number) for number, text in enumerate(STATES))),
)
ROLES: Final[dict[str, Any]] = {"tenant": 1, "tenant_may_lack": True, "expires": 2}
NAMES: Final = ("", "owner", "end", "state")


def batch_of(
    program: Program, documents: Sequence[dict[str, object]], names: Sequence[str] = NAMES
) -> PackedBatch:
    """Return a batch of documents that are all packed."""
    raw = b"".join(map(bson.encode, documents))
    identity = Identity.SLOT if "" in names else Identity.JOINED
    found = NativeRows(program, names, identity).documents.read(raw)
    assert found is not None
    assert not found.declined

    def record_of(stored: bytes) -> Record:
        raise AssertionError(stored)

    return PackedBatch(program, found.rows, Stored(raw, found.places, record_of))


def documents_of(count: int, owners: int) -> list[dict[str, object]]:
    """Return documents whose keys rise, by several owners; one in seven has none."""
    seeded = Random(count)
    found = list[dict[str, object]]()
    for number in range(count):
        owner = seeded.randrange(owners)
        row: dict[str, object] = {"_id": f"k{number:06}"}
        if owner % 7:
            row["owner"] = f"owner {owner}"
        if number % 3:
            row["end"] = NOON + timedelta(milliseconds=seeded.randrange(-3, 4))
        found.append(row)
    return found


@pytest.mark.parametrize("owners", [1, 3, 700])
def test_rows_are_counted_by_owner_and_those_that_are_due_are_told(owners: int) -> None:
    documents = documents_of(1500, owners)
    found = batch_of(program_with(NODES, **ROLES), documents).examined(NOON)
    assert found is not None
    labels = [str(item.get("owner", ":none")) for item in documents]
    ends = [item.get("end") for item in documents]
    due = [number for number, end in enumerate(ends) if isinstance(end, datetime) and end <= NOON]
    assert found.read == Counter(labels)
    assert list(found.due) == due
    assert found.expired == Counter(labels[number] for number in due)
    assert 0 < len(due) < len(documents)


def test_without_a_limit_nothing_is_due() -> None:
    found = batch_of(program_with(NODES, **ROLES), documents_of(100, 2)).examined()
    assert found is not None
    assert not found.due
    assert found.read.total() == 100


def test_without_an_instant_of_removal_nothing_is_due() -> None:
    found = batch_of(program_with(NODES, tenant=1, tenant_may_lack=True), documents_of(100, 2)).examined(NOON)
    assert found is not None
    assert not found.due


def test_rows_are_due_where_all_conditions_hold() -> None:
    conditions = (DueWhere(3, (1, 2)), DueWhere(1, ()))
    program = program_with(NODES, **ROLES, due_where=conditions)
    documents = list[dict[str, object]]()
    for number, owned in enumerate((True, False, True)):
        for state in ("", "closed", "gone", "open"):
            row: dict[str, object] = {"_id": f"{number}{state}", "end": NOON + timedelta(milliseconds=number)}
            documents.append(row | ({"state": state} if state else {}) | ({"owner": "a"} if owned else {}))
    documents.sort(key=lambda item: str(item["_id"]))
    found = batch_of(program, documents).examined(NOON)
    assert found is not None
    assert [documents[number]["_id"] for number in found.due] == ["0closed", "0gone"]


def keyed(*keys: tuple[object, ...]) -> bool:
    """Tell whether rows with these keys, of a text and a number, are examined."""
    fields = (
        NodeField(name="a", node=1, presence=Presence.REQUIRED),
        NodeField(name="b", node=2, presence=Presence.REQUIRED),
    )
    nodes = (Node(kind=NodeKind.OBJECT, fields=fields), ANY_TEXT, Node(kind=NodeKind.INT, low=-9, high=99))
    documents: list[dict[str, object]] = [{"_id": "x", "a": text, "b": number} for text, number in keys]
    return batch_of(program_with(nodes, key=(0, 1)), documents, ("a", "b")).examined() is not None


def test_keys_rise_part_by_part_texts_by_bytes_and_numbers_as_numbers() -> None:
    assert keyed(
        ("a", -1), ("a", 2), ("a", Int64(10)), ("aa", 1), ("b", 0), ("ä", -9), ("\uffff", 0), ("😀", 0)
    )
    for later, sooner in (
        (("a", 10), ("a", 9)),
        (("a", 1), ("a", 1)),
        (("b", 1), ("a", 2)),
        (("aa", 1), ("a", 2)),
    ):
        assert keyed(sooner, later) is (later != sooner)
        assert not keyed(later, sooner)


def test_members_are_compared_by_their_texts() -> None:
    fields = (NodeField(name="s", node=2, presence=Presence.REQUIRED),)
    program = program_with([Node(kind=NodeKind.OBJECT, fields=fields), ANY_TEXT, NODES[3]])
    for states, rises in ((("closed", "gone", "open"), True), (STATES, False)):
        documents: list[dict[str, object]] = [{"_id": "x", "s": state} for state in states]
        assert (batch_of(program, documents, ["s"]).examined() is not None) is rises


@pytest.mark.parametrize("due", [[0], [1], [0, 1, 2], [2, 5, 9], [9], list(range(10))])
def test_rows_are_left_out_by_number(due: list[int]) -> None:
    documents = documents_of(10, 1)
    batch = batch_of(program_with(NODES, **ROLES), documents)
    rows = packed_values(batch.rows.tobytes(), 4)
    left = batch.without(due)
    assert packed_values(left.rows.tobytes(), 4) == [
        row for number, row in enumerate(rows) if number not in due
    ]
    assert len(left) == 10 - len(due)


def test_a_batch_without_packed_rows_has_nothing_to_examine() -> None:
    batch = batch_of(program_with(NODES, **ROLES), [])
    found = batch.examined(NOON)
    assert found is not None
    assert (found.read, found.expired, list(found.due)) == (Counter(), Counter(), [])
    left = batch_of(program_with(NODES, **ROLES), documents_of(1, 1)).without([0])
    assert (len(left), left.rows.tobytes()) == (0, b"")
    assert left.examined() is not None
