"""Planting one corruption at a time: a verification that finds a thousand says FAIL for the first of them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from twinstore_backfill.selftest.judging import judge
from twinstore_backfill.selftest.kinds import Kind
from twinstore_backfill.selftest.moving import verified
from twinstore_backfill.selftest.planting import Planted, Refused, plant, undo
from twinstore_backfill.selftest.preparing import surroundings

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from collections.abc import Set as AbstractSet

    from twinstore_backfill.selftest.herd import Herd
    from twinstore_backfill.selftest.scratch import ScratchSide
    from twinstore_backfill.stopping import StopSwitch

__all__ = ["Single", "alone", "once_more", "one_of_each"]


@dataclass(frozen=True, slots=True)
class Single:
    """One corruption that stood alone.

    Attributes:
        planted: what was planted.
        verdict: how the verification of its entity, and of its tenant unless that changed, ended.
        ready: whether the report said that the switch may follow.
        problem: what is wrong with that; empty when nothing is.
    """

    planted: Planted
    verdict: str
    ready: bool
    problem: str


def alone(
    source: ScratchSide,
    target: ScratchSide,
    planted: Iterable[Planted],
    stop: StopSwitch,
) -> list[Single]:
    """Plant corruptions one by one and verify their entity each time.

    Args:
        source: the side that is right.
        target: the side that is corrupted; it holds what was copied.
        planted: what stood there together and was taken back, each with the row as it stands since.
        stop: asks for the end.
    """
    return [_judged(source, target, _again(target, item), stop)[0] for item in planted]


def one_of_each(planted: Sequence[Planted], elsewhere: AbstractSet[str], turn: int) -> Iterator[Planted]:
    """Yield the first corruption of each kind; of those that the other store has too, of every second one.

    Args:
        planted: what was planted.
        elsewhere: the kinds that are planted into the other store.
        turn: 0 for the first store, 1 for the second; a verdict does not depend on the store.
    """
    seen: set[tuple[Kind, bool]] = set()
    for item in planted:
        kind = item.mutation.kind
        mine = kind.value not in elsewhere or list(Kind).index(kind) % 2 == turn
        if mine and (kind, bool(item.expected)) not in seen:
            seen.add((kind, bool(item.expected)))
            yield item


def once_more(
    source: ScratchSide, target: ScratchSide, refused: Sequence[Refused], herd: Herd, stop: StopSwitch
) -> tuple[list[Single], list[Refused]]:
    """Plant alone what was refused because another row was in the way, which may have been a planted one.

    Returns:
        what could be planted now, and what is still refused.
    """
    stored = {entity.name: target.rows(entity) for entity in target.entities}
    around = surroundings(target, stored, herd)
    rows = {name: {row.key: row for row in found if row.key is not None} for name, found in stored.items()}
    singles: list[Single] = []
    left: list[Refused] = []
    for item in refused:
        own = rows[item.entity]
        done = item if item.again is None else plant(around[item.entity], own, item.again)
        if isinstance(done, Planted):
            single, restored = _judged(source, target, done, stop)
            singles.append(single)
            if restored.before is not None:
                # What is taken back stands elsewhere in its table.
                own[done.key] = restored.before
        else:
            left.append(done or item)
    return singles, left


def _again(target: ScratchSide, item: Planted) -> Planted:
    """Plant a corruption that was taken back."""
    # Built again: of a name that stands twice the values that were read back tell one.
    values = None if item.mutation.kind is Kind.ROW_MISSING else item.mutation.build(item.origin.values)
    return replace(item, after=target.planter.change(item.entity, item.before, values))


def _judged(
    source: ScratchSide, target: ScratchSide, item: Planted, stop: StopSwitch
) -> tuple[Single, Planted]:
    """Verify what is planted alone, and take it back; return that with the row as it stands again."""
    try:
        tenants = () if item.tenant is None else (item.tenant,)
        found = verified(source, target, stop, entities=(item.entity.name,), tenants=tenants)
    finally:
        (restored,) = undo(target.planter, [item])
    judgement = judge([item], found.lines)
    wanted = "FAIL" if item.expected else "PARTIAL"
    problems = [text for _, text in judgement.missed]
    problems += [f"{line.kind} {line.key} is a false alarm" for line in judgement.false_alarms]
    if found.report.verdict != wanted:
        problems.append(f"the verdict is {found.report.verdict}, not {wanted}")
    if item.expected and found.report.cutover_ready:
        problems.append("the report says that the switch may follow")
    return Single(item, found.report.verdict, found.report.cutover_ready, "; ".join(problems)), restored
