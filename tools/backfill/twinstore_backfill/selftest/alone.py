"""Planting one corruption at a time: a verification that finds a thousand says FAIL for the first of them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from twinstore_backfill.selftest.judging import judge
from twinstore_backfill.selftest.moving import verified
from twinstore_backfill.selftest.planting import Planted, undo

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from twinstore_backfill.selftest.options import SelftestOptions
    from twinstore_backfill.selftest.scratch import ScratchSide
    from twinstore_backfill.stopping import StopSwitch

__all__ = ["Single", "alone"]


@dataclass(frozen=True, slots=True)
class Single:
    """One corruption that stood alone.

    Attributes:
        planted: what was planted.
        verdict: how the verification of its entity ended.
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
    planted: Sequence[Planted],
    options: SelftestOptions,
    stop: StopSwitch,
) -> list[Single]:
    """Plant corruptions one by one and verify their entity each time.

    Args:
        source: the side that is right.
        target: the side that is corrupted; it holds what was copied.
        planted: what stood there together and was taken back.
        options: tell whether all of them, or one of each kind.
        stop: asks for the end.
    """
    chosen = planted if options.thorough else list(one_of_each(planted))
    return [_single(source, target, item, stop) for item in chosen]


def one_of_each(planted: Sequence[Planted]) -> Iterator[Planted]:
    """Yield the first corruption of each kind."""
    seen: set[tuple[str, bool]] = set()
    for item in planted:
        kind = (item.mutation.kind.value, bool(item.expected))
        if kind not in seen:
            seen.add(kind)
            yield item


def _single(source: ScratchSide, target: ScratchSide, item: Planted, stop: StopSwitch) -> Single:
    entity, change = item.entity, target.planter.change
    # Taking it back has moved the row.
    row = None
    if item.before is not None:
        row = next((row for row in target.planter.rows(entity) if row.key == item.key), None)
    # Built again: of a name that stands twice the values that were read back tell one.
    values = None if item.after is None else item.mutation.build(item.origin.values)
    after = change(entity, row, values)
    again = replace(item, before=row, after=after)
    found = verified(source, target, stop, (entity.name,))
    undo(target.planter, [again])
    judgement = judge([again], found.lines)
    wanted = "FAIL" if item.expected else "PARTIAL"
    problems = [text for _, text in judgement.missed]
    problems += [f"{line.kind} {line.key} is a false alarm" for line in judgement.false_alarms]
    if found.report.verdict != wanted:
        problems.append(f"the verdict is {found.report.verdict}, not {wanted}")
    if item.expected and found.report.cutover_ready:
        problems.append("the report says that the switch may follow")
    return Single(again, found.report.verdict, found.report.cutover_ready, "; ".join(problems))
