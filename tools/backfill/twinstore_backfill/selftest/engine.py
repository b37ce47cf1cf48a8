"""A self-test from beginning to end.

sample of the source -> scratch source -> variants and copies of rows -> copy -> verification: PASS
-> plant into the target -> verification: names each of them and nothing else -> take back
-> the same with the roles exchanged
"""

from __future__ import annotations

from dataclasses import dataclass, field
from time import monotonic
from typing import TYPE_CHECKING

from twinstore_backfill.selftest.alone import alone
from twinstore_backfill.selftest.herd import Herd
from twinstore_backfill.selftest.judging import Judgement, judge
from twinstore_backfill.selftest.moving import Verified, copy_all, settle, verified
from twinstore_backfill.selftest.planting import Planted, Refused, plant, undo
from twinstore_backfill.selftest.preparing import plans_for, surroundings
from twinstore_backfill.selftest.sampling import sampled
from twinstore_backfill.selftest.watch import Watch

if TYPE_CHECKING:
    from collections.abc import Mapping

    from twinstore.keys import Key
    from twinstore_backfill.selftest.alone import Single
    from twinstore_backfill.selftest.options import SelftestOptions
    from twinstore_backfill.selftest.preparing import SidePlan
    from twinstore_backfill.selftest.sampling import Sample
    from twinstore_backfill.selftest.scratch import ScratchSide
    from twinstore_backfill.stopping import StopSwitch
    from twinstore_backfill.stores import Store

__all__ = ["Outcome", "SideOutcome", "run_selftest"]


@dataclass(slots=True)
class SideOutcome:
    """What was found in one store as the corrupted target.

    Attributes:
        clean: the verification before anything was planted.
        everything: the one with everything planted.
        free: what the definition leaves open and nothing named.
        unplaced: corruptions for which no row could be made.
        seconds: by step.
    """

    source: str
    target: str
    clean: Verified
    everything: Verified
    judgement: Judgement
    refused: list[Refused]
    free: list[Planted]
    unplaced: list[tuple[str, tuple[str, str, str]]]
    singles: list[Single] = field(default_factory=list["Single"])
    seconds: dict[str, float] = field(default_factory=dict[str, float])


@dataclass(slots=True)
class Outcome:
    """What a self-test found."""

    samples: Mapping[str, Sample]
    added: Mapping[str, int]
    sides: list[SideOutcome]
    seconds: float


def run_selftest(
    source: Store, left: ScratchSide, right: ScratchSide, options: SelftestOptions, stop: StopSwitch
) -> Outcome:
    """Run the self-test between two empty scratch databases; the source is only read.

    Raises:
        TwinstoreError: a store failed.
    """
    started = monotonic()
    samples = sampled(source.bulk, options.sample, options.seed)
    herd = Herd(samples)
    herd.vary()
    settle(herd, left, right, stop)
    plans, copies = plans_for((left, right), herd, stop)
    outcomes = [_tested(left, plans[1], copies, herd, options, stop)]
    for entity in reversed(left.entities):
        left.planter.clear(entity)
    copy_all(right, left, stop)
    outcomes.append(_tested(right, plans[0], copies, herd, options, stop))
    return Outcome(samples, dict(herd.added), outcomes, monotonic() - started)


def _tested(
    source: ScratchSide,
    plan: SidePlan,
    copies: Mapping[tuple[str, Key, int], Key],
    herd: Herd,
    options: SelftestOptions,
    stop: StopSwitch,
) -> SideOutcome:
    """Corrupt one store, verify it, and take everything back."""
    target, watch = plan.side, Watch()
    clean = watch.timed("verification before planting", lambda: verified(source, target, stop))
    planted, refused, unplaced = watch.timed("planting", lambda: _plant(plan, copies, herd))
    everything = watch.timed("verification", lambda: verified(source, target, stop))
    watch.timed("taking back", lambda: undo(target.planter, planted))
    judgement = judge(planted, everything.lines)
    outcome = SideOutcome(
        source.store.backend,
        target.store.backend,
        clean,
        everything,
        judgement,
        refused,
        [item for item in planted if not item.expected],
        unplaced,
    )
    outcome.singles = watch.timed("alone", lambda: alone(source, target, planted, options, stop))
    outcome.seconds = watch.seconds
    return outcome


def _plant(
    plan: SidePlan, copies: Mapping[tuple[str, Key, int], Key], herd: Herd
) -> tuple[list[Planted], list[Refused], list[tuple[str, tuple[str, str, str]]]]:
    side = plan.side
    stored = {entity.name: side.planter.rows(entity) for entity in side.entities}
    around = surroundings(side, stored, herd)
    planted: list[Planted] = []
    refused: list[Refused] = []
    unplaced: list[tuple[str, tuple[str, str, str]]] = []
    for entity in side.entities:
        rows = {row.key: row for row in stored[entity.name] if row.key is not None}
        own = {(like, number): key for (name, like, number), key in copies.items() if name == entity.name}
        for item in plan.plans[entity.name].settled(own):
            done = plant(around[entity.name], rows, item)
            if isinstance(done, Planted):
                planted.append(done)
            elif done is not None:
                refused.append(done)
            else:
                unplaced.append((entity.name, item.identity))
    return planted, refused, unplaced
