"""From the sample to a plan for each store: what stands in its rows decides what can be planted there."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from twinstore_backfill.selftest.moving import settle
from twinstore_backfill.selftest.planning import Plan, Surroundings

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from twinstore.catalog import Entity
    from twinstore.keys import Key
    from twinstore.planting import RawRow
    from twinstore_backfill.selftest.herd import Herd
    from twinstore_backfill.selftest.scratch import ScratchSide
    from twinstore_backfill.stopping import StopSwitch

__all__ = ["SidePlan", "plans_for", "surroundings"]

# One for the row doubled under another key, one for that under another tenant.
SPARE: int = 2


@dataclass(frozen=True, slots=True)
class SidePlan:
    """What is planted into one store, entity by entity."""

    side: ScratchSide
    plans: Mapping[str, Plan]

    @property
    def kinds(self) -> frozenset[str]:
        """The kinds of corruptions among them."""
        return frozenset(item.identity[1] for plan in self.plans.values() for item in plan.planned)


def plans_for(
    sides: tuple[ScratchSide, ScratchSide], herd: Herd, corrupts: Callable[[str], bool], stop: StopSwitch
) -> tuple[tuple[SidePlan, SidePlan], dict[tuple[str, Key, int], Key]]:
    """Plan for both stores and make the copies of rows that they need.

    Args:
        sides: source and target of the first copy; both hold the sample and its variants.
        herd: makes rows.
        corrupts: whether an entity is to be corrupted, by name.
        stop: asks for the end.

    Returns:
        the plans in the order of the sides, and the copies by entity, row and number.
    """
    first, second = (_planned(side, herd, corrupts) for side in sides)
    copies: dict[tuple[str, Key, int], Key] = {}
    for entity in sides[0].entities:
        # One copy serves both stores, because each is corrupted while the other is not.
        needed = first.plans[entity.name].needed() | second.plans[entity.name].needed()
        for like, count in sorted(needed.items()):
            for number in range(1, count + 1):
                made = herd.copy_of(entity, like)
                if made is not None:
                    copies[entity.name, like, number] = made
    settle(herd, *sides, stop)
    return (first, second), copies


def _planned(side: ScratchSide, herd: Herd, corrupts: Callable[[str], bool]) -> SidePlan:
    rows = {entity.name: side.rows(entity) for entity in side.entities}
    around = surroundings(side, rows, herd)
    plans = {
        entity.name: Plan.of(around[entity.name], rows[entity.name], herd.made[entity.name])
        if corrupts(entity.name)
        else Plan(around[entity.name])
        for entity in side.entities
    }
    return SidePlan(side, plans)


def surroundings(
    side: ScratchSide, rows: Mapping[str, Sequence[RawRow]], herd: Herd
) -> dict[str, Surroundings]:
    """Return what the rows of each entity have in common."""
    parents = {entity.name: referenced(side, entity, rows) for entity in side.entities}
    found: dict[str, Surroundings] = {}
    for entity in side.entities:
        spare: list[Key] = []
        if entity.parent is not None and entity.parent.entity.name in parents:
            above = entity.parent.entity.name
            spare = sorted(herd.made[above] - parents[above])[:SPARE]
            parents[above] |= set(spare)
        places = side.planter.places(entity)
        found[entity.name] = Surroundings(
            entity,
            side.planter,
            places,
            taken(rows[entity.name]),
            parents[entity.name],
            herd.tenants(),
            spare,
        )
    # The spare rows of a parent are known only after its children.
    return {name: replace(around, referenced=parents[name]) for name, around in found.items()}


def taken(rows: Sequence[RawRow]) -> dict[str, set[object]]:
    """Return the texts that stand in the rows, by name of the place."""
    texts: dict[str, set[object]] = {}
    for row in rows:
        for name, value in row.values.items():
            if isinstance(value, str):
                texts.setdefault(name, set()).add(value)
    return texts


def referenced(side: ScratchSide, entity: Entity, rows: Mapping[str, Sequence[RawRow]]) -> set[Key]:
    """Return the keys of rows that other rows name as their parent."""
    found: set[Key] = set()
    for child in side.entities:
        parent = child.parent
        if parent is None or parent.entity != entity:
            continue
        place = next(place.name for place in side.planter.places(child) if place.field == parent.field)
        values = (row.values.get(place) for row in rows[child.name])
        found |= {(value,) for value in values if isinstance(value, str | int)}
    return found
