"""Dropping every key, index and policy of a target: rows are equal without them, and the switch must wait."""

from __future__ import annotations

import re
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from twinstore.planting import PlantRefusedError
from twinstore_backfill.outcome import PreflightError
from twinstore_backfill.selftest.kinds import Kind
from twinstore_backfill.selftest.moving import verified
from twinstore_backfill.stores import preflight
from twinstore_backfill.verify.schema import SCHEMA

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from twinstore.catalog import Entity
    from twinstore.planting import SchemaPart
    from twinstore_backfill.report.model import ParityReport
    from twinstore_backfill.selftest.scratch import ScratchSide
    from twinstore_backfill.stopping import StopSwitch

__all__ = ["DroppedPart", "schema_dropped"]

BEFORE: Final = "refused before comparing"
KINDS: Final = {"index": Kind.INDEX, "unique index": Kind.KEY}


@dataclass(frozen=True, slots=True)
class DroppedPart:
    """One part of the schema that was dropped.

    Attributes:
        entity: whose part it is.
        named: how the verification named it; empty where it did not.
        refused: what kept the server from dropping it.
    """

    entity: Entity
    part: SchemaPart
    kind: Kind
    named: str = ""
    refused: str = ""


def schema_dropped(
    source: ScratchSide, target: ScratchSide, corrupts: Callable[[str], bool], stop: StopSwitch
) -> list[DroppedPart]:
    """Drop every part of the schema of a target, see whether it is named, and make it again.

    Of the entities only those that are to be corrupted take part.
    What makes a target unsafe to read ends a verification before it begins, so such a part is made again at
    once; the others stay away until a verification of all together has named each.
    """
    found: list[DroppedPart] = []
    with ExitStack() as dropped:
        for entity in filter(lambda entity: corrupts(entity.name), target.store.bulk.entities()):
            for part in list(target.planter.parts(entity)):
                stop.check()
                found.append(_dropped(target, entity, part, dropped))
        report = verified(source, target, stop).report
    named = list(_named(report))
    return [
        item
        if item.named or item.refused
        else replace(item, named=next((text for text in named if names(item, text)), ""))
        for item in found
    ]


def _dropped(target: ScratchSide, entity: Entity, part: SchemaPart, dropped: ExitStack) -> DroppedPart:
    """Drop one part; where the target is refused for it, make it again.

    No target was refused for what was dropped before, so the refusal is for this part.
    """
    kind = kind_of(part)
    with ExitStack() as own:
        try:
            own.callback(target.planter.drop(entity, part))
        except PlantRefusedError as error:
            return DroppedPart(entity, part, kind, refused=error.constraint)
        try:
            preflight(target.store.storage.check_ready)
        except PreflightError as error:
            named = BEFORE if entity.name in error.message else ""
            return DroppedPart(entity, part, kind, named)
        dropped.push(own.pop_all())
    return DroppedPart(entity, part, kind)


def _named(report: ParityReport) -> Iterator[str]:
    """Yield what a verification says of the schema; nothing where it says ready."""
    if report.cutover_ready or report.verdict == "PASS":
        return
    for check in report.checks:
        if check.title == SCHEMA and check.result != "pass":
            yield from (f"{check.id}: {text}" for text in check.findings)


def names(item: DroppedPart, text: str) -> bool:
    """Whether a finding names a part and whose it is, and not one of which the name is a part."""
    return all(re.search(rf"\b{re.escape(name)}\b", text) for name in (item.entity.name, item.part.name))


def kind_of(part: SchemaPart) -> Kind:
    """Return what dropping a part is called."""
    if "policy" in part.kind or "security" in part.kind:
        return Kind.POLICY
    return KINDS.get(part.kind, Kind.KEY)
