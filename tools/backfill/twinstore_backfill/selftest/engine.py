"""A self-test from beginning to end.

sample of the source -> scratch source -> variants and copies of rows -> copy -> verification: PASS
-> plant into the target -> verification: names each of them and nothing else -> take back
-> the same with the roles exchanged
"""

from __future__ import annotations

from dataclasses import dataclass
from time import monotonic
from typing import TYPE_CHECKING

from twinstore_backfill.selftest.alone import Single, alone, once_more
from twinstore_backfill.selftest.herd import Herd
from twinstore_backfill.selftest.judging import Judgement, judge
from twinstore_backfill.selftest.moving import Verified, copy_all, settle, verified
from twinstore_backfill.selftest.planting import Planted, Refused, plant, undo
from twinstore_backfill.selftest.preparing import plans_for, surroundings
from twinstore_backfill.selftest.sampling import sampled
from twinstore_backfill.selftest.schema import DroppedPart, schema_dropped
from twinstore_backfill.selftest.watch import Watch
from twinstore_backfill.stopping import StopRequestedError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from twinstore.keys import Key
    from twinstore_backfill.selftest.options import SelftestOptions
    from twinstore_backfill.selftest.preparing import SidePlan
    from twinstore_backfill.selftest.sampling import Sample
    from twinstore_backfill.selftest.scratch import ScratchSide
    from twinstore_backfill.stopping import StopSwitch
    from twinstore_backfill.stores import Store

__all__ = ["Outcome", "SideOutcome", "Unplaced", "run_selftest"]


@dataclass(frozen=True, slots=True)
class Unplaced:
    """A corruption for which no row could be made: field, kind and form."""

    entity: str
    identity: tuple[str, str, str]


@dataclass(slots=True)
class SideOutcome:
    """What was found in one store as the corrupted target.

    Attributes:
        source, target: the drivers.
        clean: the verification before anything was planted.
        everything: the one with everything planted.
        judgement: what that one found of it.
        refused: what the server does not hold.
        free: what the definition leaves open and nothing named.
        unplaced: corruptions for which no row could be made.
        apart: what found no place beside the others and was planted alone.
        singles: what was planted once more alone.
        schema: the parts of the schema that were dropped.
        seconds: by step.
    """

    source: str
    target: str
    clean: Verified
    everything: Verified
    judgement: Judgement
    refused: list[Refused]
    free: list[Planted]
    unplaced: list[Unplaced]
    apart: list[Single]
    singles: list[Single]
    schema: list[DroppedPart]
    seconds: dict[str, float]


@dataclass(slots=True)
class Outcome:
    """What a self-test found.

    Attributes:
        samples: what was taken of each entity.
        added: how many rows of each entity were made beside them.
        sides: each store once as the corrupted target.
    """

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
        InterruptedRunError: a signal asked for the stop.
    """
    started = monotonic()
    try:
        samples = sampled(source.bulk, options.sample, options.seed)
        herd = Herd(samples)
        sides = _both(herd, left, right, options, stop)
    except StopRequestedError:
        stop.raise_if_interrupted("The scratch databases were emptied; run the same command again.")
        raise
    return Outcome(samples, dict(herd.added), sides, monotonic() - started)


def _both(
    herd: Herd, left: ScratchSide, right: ScratchSide, options: SelftestOptions, stop: StopSwitch
) -> list[SideOutcome]:
    """Corrupt each side once."""
    herd.vary()
    settle(herd, left, right, stop)
    plans, copies = plans_for((left, right), herd, stop)
    test = Selftest(herd, copies, options, stop)
    forth = test.of(left, plans[1])
    for entity in reversed(left.entities):
        left.planter.clear(entity)
    copy_all(right, left, stop)
    return [forth, test.of(right, plans[0])]


@dataclass(frozen=True, slots=True)
class Selftest:
    """What the tests of both stores have in common."""

    herd: Herd
    copies: Mapping[tuple[str, Key, int], Key]
    options: SelftestOptions
    stop: StopSwitch

    def of(self, source: ScratchSide, plan: SidePlan) -> SideOutcome:
        """Corrupt one store, verify it, and take everything back."""
        target, watch = plan.side, Watch()
        clean = watch.timed("verification before planting", lambda: verified(source, target, self.stop))
        planted, refused, unplaced = watch.timed("planting", lambda: self._plant(plan))
        try:
            everything = watch.timed("verification", lambda: verified(source, target, self.stop))
        finally:
            watch.timed("taking back", lambda: undo(target.planter, planted))
        apart, refused = watch.timed(
            "planting apart", lambda: once_more(source, target, refused, self.herd, self.stop)
        )
        return SideOutcome(
            source=source.store.backend,
            target=target.store.backend,
            clean=clean,
            everything=everything,
            judgement=judge(planted, everything.lines),
            refused=refused,
            free=[item for item in planted if not item.expected],
            unplaced=unplaced,
            apart=apart,
            singles=watch.timed("alone", lambda: alone(source, target, planted, self.options, self.stop)),
            schema=watch.timed("schema", lambda: schema_dropped(source, target, self.stop)),
            seconds=watch.seconds,
        )

    def _plant(self, plan: SidePlan) -> tuple[list[Planted], list[Refused], list[Unplaced]]:
        side = plan.side
        stored = {entity.name: side.planter.rows(entity) for entity in side.entities}
        around = surroundings(side, stored, self.herd)
        planted: list[Planted] = []
        refused: list[Refused] = []
        unplaced: list[Unplaced] = []
        for entity in side.entities:
            rows = {row.key: row for row in stored[entity.name] if row.key is not None}
            own = {
                (like, number): key
                for (name, like, number), key in self.copies.items()
                if name == entity.name
            }
            for item in plan.plans[entity.name].settled(own):
                self.stop.check()
                done = plant(around[entity.name], rows, item)
                if isinstance(done, Planted):
                    planted.append(done)
                elif done is not None:
                    refused.append(done)
                else:
                    unplaced.append(Unplaced(entity.name, item.identity))
        return planted, refused, unplaced
