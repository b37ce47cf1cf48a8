"""Dropping every key, index and policy of a target: rows are equal without them, and the switch must wait."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from twinstore.planting import PlantRefusedError
from twinstore_backfill.outcome import PreflightError
from twinstore_backfill.selftest.kinds import Kind
from twinstore_backfill.selftest.moving import verified
from twinstore_backfill.stores import preflight
from twinstore_backfill.verify.schema import SCHEMA

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from twinstore.catalog import Entity
    from twinstore.planting import SchemaPart
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


def schema_dropped(source: ScratchSide, target: ScratchSide, stop: StopSwitch) -> list[DroppedPart]:
    """Drop every part of the schema of a target, see whether it is named, and make it again.

    What makes a target unsafe to read ends a verification before it begins, so such parts are dropped one by
    one; the others all together, for one verification.
    """
    entities = target.store.bulk.entities()
    found = [_alone(target, entity, part) for entity in entities for part in target.planter.parts(entity)]
    named = _together(source, target, [item for item in found if not (item.named or item.refused)], stop)
    return [
        item
        if item.named or item.refused
        else replace(item, named=next((text for text in named if names(item, text)), ""))
        for item in found
    ]


def _alone(target: ScratchSide, entity: Entity, part: SchemaPart) -> DroppedPart:
    """Drop one part and tell whether the target is refused for it."""
    kind = kind_of(part)
    try:
        make = target.planter.drop(entity, part)
    except PlantRefusedError as error:
        return DroppedPart(entity, part, kind, refused=error.constraint)
    try:
        preflight(target.store.storage.check_ready)
    except PreflightError as error:
        named = BEFORE if entity.name in error.message else ""
        return DroppedPart(entity, part, kind, named)
    finally:
        make()
    return DroppedPart(entity, part, kind)


def _together(
    source: ScratchSide, target: ScratchSide, parts: Sequence[DroppedPart], stop: StopSwitch
) -> list[str]:
    """Drop some parts and return what a verification says of the schema; nothing where it says ready."""
    makes: list[Callable[[], None]] = []
    try:
        # One by one, so that what was dropped before one fails is made again.
        makes.extend(target.planter.drop(item.entity, item.part) for item in parts)
        report = verified(source, target, stop).report
    finally:
        for make in reversed(makes):
            make()
    checks = [check for check in report.checks if check.title == SCHEMA and check.result != "pass"]
    if report.cutover_ready or report.verdict == "PASS":
        return []
    return [f"{check.id}: {text}" for check in checks for text in check.findings]


def names(item: DroppedPart, text: str) -> bool:
    """Whether a finding names a part and whose it is, and not one of which the name is a part."""
    return all(re.search(rf"\b{re.escape(name)}\b", text) for name in (item.entity.name, item.part.name))


def kind_of(part: SchemaPart) -> Kind:
    """Return what dropping a part is called."""
    if "policy" in part.kind or "security" in part.kind:
        return Kind.POLICY
    return KINDS.get(part.kind, Kind.KEY)
