"""A self-test from beginning to end.

sample of the source -> scratch source -> variants and copies of rows -> copy -> verification: PASS
-> plant into the target -> verification: names each of them and nothing else -> take back
-> the same with the roles exchanged
"""

from __future__ import annotations

from dataclasses import dataclass
from time import monotonic
from typing import TYPE_CHECKING

from twinstore_backfill.ignoring import check_ignored
from twinstore_backfill.outcome import InterruptedRunError, PreflightError
from twinstore_backfill.selftest.alone import Single, alone, once_more, one_of_each
from twinstore_backfill.selftest.herd import Herd
from twinstore_backfill.selftest.judging import Judgement, judge
from twinstore_backfill.selftest.moving import Verified, copy_all, settle, verified
from twinstore_backfill.selftest.planting import AT_ONCE, Planted, Refused, plant_all, undo
from twinstore_backfill.selftest.preparing import plans_for, surroundings
from twinstore_backfill.selftest.sampling import sampled
from twinstore_backfill.selftest.schema import DroppedPart, schema_dropped
from twinstore_backfill.selftest.watch import Watch, told
from twinstore_backfill.stopping import StopRequestedError
from twinstore_backfill.stores import select_entities

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from twinstore.keys import Key
    from twinstore_backfill.progress import Progress
    from twinstore_backfill.selftest.options import SelftestOptions
    from twinstore_backfill.selftest.planning import Planned
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


def run_selftest(  # noqa: PLR0917  # the three stores, what is asked, and who is told
    source: Store,
    left: ScratchSide,
    right: ScratchSide,
    options: SelftestOptions,
    progress: Progress,
    stop: StopSwitch,
) -> Outcome:
    """Run the self-test between two empty scratch databases.

    Args:
        source: gives the sample; it is only read.
        left: the scratch database of the source's driver.
        right: that of the target's.
        options: what is asked.
        progress: who is told.
        stop: who may stop it.

    Raises:
        PreflightError: the source has no row that a copy takes.
        ValidationError: an entity is unknown, or an ignored property is none.
        TwinstoreError: a store failed.
        InterruptedRunError: a signal asked for the stop.
    """
    started = monotonic()
    try:
        select_entities(source.bulk, options.entities)
        check_ignored(options.ignored, source.bulk.entities())
        samples = sampled(source.bulk, options.sample, options.seed, options.ignored)
        require_rows(source, samples)
        herd = Herd(samples)
        plans, copies = _prepared(herd, (left, right), options, stop)
        test = Selftest(herd, copies, options, progress, stop)
        sides = _both(test, *plans)
    except (StopRequestedError, InterruptedRunError):
        # Also where a copy was interrupted: what it has saved goes with the scratch databases.
        stop.raise_if_interrupted("The scratch databases were emptied; run the same command again.")
        raise
    return Outcome(samples, dict(herd.added), sides, monotonic() - started)


def require_rows(source: Store, samples: Mapping[str, Sample]) -> None:
    """Refuse a source without a row to corrupt.

    Raises:
        PreflightError: names the source.
    """
    if not any(sample.records for sample in samples.values()):
        raise PreflightError(
            f"{source.bulk.place} has no row to test with; name a source that holds some.",
            driver=source.backend,
        )


def _prepared(
    herd: Herd, sides: tuple[ScratchSide, ScratchSide], options: SelftestOptions, stop: StopSwitch
) -> tuple[tuple[SidePlan, SidePlan], dict[tuple[str, Key, int], Key]]:
    """Bring the rows to both sides and plan for them."""
    herd.vary(options.corrupts)
    settle(herd, *sides, stop)
    return plans_for(sides, herd, options.corrupts, stop)


def _both(test: Selftest, left: SidePlan, right: SidePlan) -> list[SideOutcome]:
    """Corrupt each side once, each as it was copied into."""
    forth = test.of(right, left, 0)
    for entity in reversed(left.side.entities):
        left.side.planter.clear(entity)
    copy_all(right.side, left.side, test.stop)
    return [forth, test.of(left, right, 1)]


@dataclass(frozen=True, slots=True)
class Selftest:
    """What the tests of both stores have in common."""

    herd: Herd
    copies: Mapping[tuple[str, Key, int], Key]
    options: SelftestOptions
    progress: Progress
    stop: StopSwitch

    def of(self, plan: SidePlan, other: SidePlan, turn: int) -> SideOutcome:
        """Corrupt one store, verify it against the other one, and take everything back."""
        source = other.side
        target, watch = plan.side, Watch()
        clean = watch.timed("verification before planting", lambda: verified(source, target, self.stop))
        planted, refused, unplaced = watch.timed("planting", lambda: self._plant(plan))
        try:
            everything = watch.timed("verification", lambda: verified(source, target, self.stop))
        finally:
            restored = watch.timed("taking back", lambda: undo(target.planter, planted))
        apart, refused = watch.timed(
            "planting apart", lambda: once_more(source, target, refused, self.herd, self.stop)
        )
        everyone = self.options.thorough
        chosen = restored if everyone else list(one_of_each(restored, other.kinds, turn))
        singles = told(self.progress, f"planting alone into {target.store.backend}", chosen)
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
            singles=watch.timed("alone", lambda: alone(source, target, singles, self.stop)),
            schema=watch.timed(
                "schema", lambda: schema_dropped(source, target, self.options.corrupts, self.stop)
            ),
            seconds=watch.seconds,
        )

    def _plant(self, plan: SidePlan) -> tuple[list[Planted], list[Refused], list[Unplaced]]:
        side = plan.side
        stored = {entity.name: side.rows(entity) for entity in side.entities}
        around = surroundings(side, stored, self.herd)
        found: list[Planted | Refused | Unplaced] = []
        rows = {
            name: {row.key: row for row in found if row.key is not None} for name, found in stored.items()
        }
        todo = {entity.name: self._settled(plan, entity.name) for entity in side.entities}
        title = f"planting into {side.store.backend}"
        self.progress.start(title, sum(map(len, todo.values())))
        for name, items in todo.items():
            for start in range(0, len(items), AT_ONCE):
                self.stop.check()
                together = items[start : start + AT_ONCE]
                done = plant_all(around[name], rows[name], together)
                found += (
                    result or Unplaced(name, item.identity)
                    for item, result in zip(together, done, strict=True)
                )
                self.progress.advance(title, len(together))
        self.progress.finish(title)
        return sorted_out(found)

    def _settled(self, plan: SidePlan, entity: str) -> list[Planned]:
        """Return what is planted into an entity, with the rows that were made for it."""
        own = {(like, number): key for (name, like, number), key in self.copies.items() if name == entity}
        return plan.plans[entity].settled(own)


def sorted_out(
    found: Sequence[Planted | Refused | Unplaced],
) -> tuple[list[Planted], list[Refused], list[Unplaced]]:
    """Return what was planted, what was refused and what had no place."""
    return (
        [item for item in found if isinstance(item, Planted)],
        [item for item in found if isinstance(item, Refused)],
        [item for item in found if isinstance(item, Unplaced)],
    )
