"""Two units of work on two storages and in two threads, interleaved step by step, and their outcome.

Which of two concurrent units fails, and at which call, depends on the driver. The oracle for every driver is
what each unit does alone, in memory:

- a unit that commits has seen what it sees alone: one state and its own writes;
- the stored rows are those from before, changed only by the units that committed;
- of two units that change one row exactly one commits, and of any two that want to, at least one.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import StrEnum
from functools import partial
from typing import TYPE_CHECKING, Final, NoReturn, TypeAlias, TypeVar

from hypothesis import given, note
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from typing_extensions import override

from tools.differential.generators import BAD_IDS, IDS, ValueGenerator
from tools.differential.machine import EVENTS, DivergenceError, Outcome, Raised, observe
from tools.differential.operations import OPERATIONS, MethodCall, Operation, any_operation, seeds
from twinstore.scheduler.enums import RunState
from twinstore.testing.scheduler.builders import make_impact_set, make_run_summary, make_schedule

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from tools.differential.machine import Contents, Side

T = TypeVar("T")
Maker: TypeAlias = "Callable[[ValueGenerator], Operation]"
Commits: TypeAlias = tuple[bool, bool]

TENANT: Final = "ta"
TIMEOUT_SECONDS: Final = 30
LONGEST: Final = 4
# Errors of the store: the unit cannot continue and is left.
FATAL: Final = frozenset({"ConcurrencyError", "DuplicateError"})
READING: Final = ("get", "list")
# A step that creates a row mostly finds it stored already, which ends the unit before it meets the other one.
CREATING: Final = frozenset({"create_run", "create_any_run", "retry", "append_audit", "write_audit"})
ALL: Final[list[tuple[int, Maker]]] = list(OPERATIONS.values())
WRITERS: Final[list[tuple[int, Maker]]] = [
    (1 if name in CREATING else 2 * weight, make)
    for name, (weight, make) in OPERATIONS.items()
    if not any(word in name for word in READING)
]

Rows = dict[tuple[object, ...], tuple[object, ...]]


class NarrowGenerator(ValueGenerator):
    """Picks among few ids of one tenant, mostly the first one, so that units meet in the same rows."""

    @override
    def an_id(self) -> str:
        (key,) = self.choices(IDS[:3], (6, 3, 1))
        return key

    @override
    def id(self) -> object:
        return self.mostly((self.an_id(),), BAD_IDS, one_in=40)


def stored_before(history: Sequence[int]) -> list[Operation]:
    """Return what two units find: a row of each entity for two ids, and what follows from some seeds."""
    generator = NarrowGenerator(0, TENANT)
    rows: list[Operation] = []
    for key in IDS[:2]:
        rows += [
            MethodCall("schedules.upsert", (make_schedule(TENANT, key),)),
            MethodCall("runs.create", (generator.a_run((RunState.PLANNING,), TENANT, key),)),
            MethodCall("run_summaries.upsert", (make_run_summary(TENANT, key),)),
            MethodCall("impact_snapshots.upsert", (TENANT, make_impact_set(snapshot_id=key))),
        ]
    return [*rows, *(step for seed in history for step in any_operation(NarrowGenerator(seed, TENANT)))]


class OneIdGenerator(NarrowGenerator):
    """Picks one id."""

    @override
    def an_id(self) -> str:
        return IDS[0]


def a_step(seed: int) -> Operation:
    """Return what a unit does; three of four steps write."""
    generator = NarrowGenerator(seed, TENANT)
    return a_maker(generator, WRITERS if generator.randrange(4) else ALL)(generator)


def a_maker(generator: ValueGenerator, among: Sequence[tuple[int, Maker]]) -> Maker:
    """Return what makes operations of one kind."""
    (found,) = generator.choices([make for _, make in among], [weight for weight, _ in among])
    return found


def an_interleaving(  # noqa: PLR0917  # what an interleaving is drawn from
    history: list[int], kind: int, first: list[int], second: list[int], turns: list[int], commits: Commits
) -> Interleaving:
    """Return two plans that begin with the same kind of write of the same row, with other values."""
    shared_step = a_maker(NarrowGenerator(kind), WRITERS)
    plans = [
        Plan([shared_step(OneIdGenerator(seeds[0], TENANT)), *map(a_step, seeds[1:])], commit)
        for seeds, commit in zip((first, second), commits, strict=True)
    ]
    return Interleaving(stored_before(history), (plans[0], plans[1]), turns)


class UnitStatus(StrEnum):
    """The outcome of a unit."""

    OPEN = "open"
    COMMITTED = "committed"
    ROLLED_BACK = "withdrawn"
    LOST = "lost"


@dataclass(frozen=True)
class Plan:
    """What a unit does, and whether it wants to commit."""

    steps: Sequence[Operation]
    commit: bool


@dataclass(frozen=True)
class Interleaving:
    """Two plans, and whose turn it is at each step; a unit that has ended is skipped."""

    history: Sequence[Operation]
    plans: tuple[Plan, Plan]
    turns: Sequence[int]


class ConcurrentUnit:
    """A unit of work in its own thread, which does one step at a time on request."""

    def __init__(self, side: Side, plan: Plan) -> None:
        """Open the unit and fix the state that it reads."""
        self.status = UnitStatus.OPEN
        self.outcomes: list[Outcome] = []
        self._side = side
        self._plan = plan
        self._remaining = list(plan.steps)
        self._thread = ThreadPoolExecutor(1)
        self._run_in_thread(lambda: side.enter(lambda storage: storage.transaction(TENANT)))
        self._run_in_thread(lambda: side.target.runs.get(TENANT, IDS[0]))

    def proceed(self) -> None:
        """Do the next step, or end the unit after the last one."""
        if not self._remaining:
            self._end()
            return
        outcome = self._run_in_thread(partial(observe, partial(self._remaining.pop(0), self._side.target)))
        self.outcomes.append(outcome)
        if isinstance(outcome, Raised) and outcome.kind in FATAL:
            self._leave(UnitStatus.LOST)

    def close(self) -> None:
        """Give up an open unit, and the thread."""
        if self.status is UnitStatus.OPEN:
            self._leave(UnitStatus.ROLLED_BACK)
        self._thread.shutdown()

    def _end(self) -> None:
        if not self._plan.commit:
            self._leave(UnitStatus.ROLLED_BACK)
            return
        ended = self._run_in_thread(partial(observe, self._side.leave))
        self.status = UnitStatus.LOST if isinstance(ended, Raised) else UnitStatus.COMMITTED

    def _leave(self, status: UnitStatus) -> None:
        self._run_in_thread(partial(self._side.leave, commit=False))
        self.status = status

    def _run_in_thread(self, action: Callable[[], T]) -> T:
        return self._thread.submit(action).result(TIMEOUT_SECONDS)


@contextmanager
def open_units(sides: Sequence[Side], plans: Sequence[Plan]) -> Iterator[list[ConcurrentUnit]]:
    """Open a unit for each plan; abandon units that are open at the end."""
    opened: list[ConcurrentUnit] = []
    try:
        for side, plan in zip(sides, plans, strict=True):
            opened.append(ConcurrentUnit(side, plan))
        yield opened
    finally:
        for unit in opened:
            unit.close()


def begin(side: Side, history: Sequence[Operation]) -> None:
    """Empty the store of a side and store what was before."""
    side.wipe()
    for operation in history:
        observe(partial(operation, side.storage))


def run_interleaved(sides: Sequence[Side], interleaving: Interleaving) -> list[ConcurrentUnit]:
    """Perform both plans, one step at a time."""
    begin(sides[0], interleaving.history)
    with open_units(sides, interleaving.plans) as both:
        for turn in interleaving.turns:
            still = [unit for unit in both if unit.status is UnitStatus.OPEN]
            if still:
                (both[turn] if both[turn] in still else still[0]).proceed()
        for unit in both:
            while unit.status is UnitStatus.OPEN:
                unit.proceed()
    return both


@dataclass(frozen=True)
class SoloResult:
    """The result of a unit without concurrent units: its outcomes, and the rows that it changes."""

    status: UnitStatus
    outcomes: list[Outcome]
    changes: Rows = field(default_factory=dict)


def rows_of(contents: Contents) -> Rows:
    """Return rows by entity and key; events, whose ids are random, by what they say."""
    return {(row[0], str(row) if row[0] == EVENTS else row[1]): row for row in contents}


def perform_solo(side: Side, history: Sequence[Operation], plan: Plan) -> tuple[Rows, SoloResult]:
    """Return the rows before, and what a unit does to them alone; a removed row is an empty one."""
    begin(side, history)
    before = rows_of(side.stored())
    with open_units([side], [plan]) as (unit,):
        while unit.status is UnitStatus.OPEN:
            unit.proceed()
    after = rows_of(side.stored())
    changes = {key: after.get(key, ()) for key in before | after if before.get(key) != after.get(key)}
    return before, SoloResult(unit.status, unit.outcomes, changes)


def check_outcome(
    name: str, interleaving: Interleaving, both: Sequence[ConcurrentUnit], stored: Rows, oracle: Side
) -> None:
    """Raise ``DivergenceError`` if the outcome of two units follows from no order of their commits."""
    expected: Rows = {}
    solo: list[SoloResult] = []
    for plan in interleaving.plans:
        expected, found = perform_solo(oracle, interleaving.history, plan)
        solo.append(found)
    committed = [number for number, unit in enumerate(both) if unit.status is UnitStatus.COMMITTED]
    for number in committed:
        if both[number].outcomes != solo[number].outcomes:
            fail(name, interleaving, f"unit {number} saw", both[number].outcomes, solo[number].outcomes)
        expected = expected | solo[number].changes
    expected = {key: row for key, row in expected.items() if row}
    if stored != expected:
        differing = {key for key in stored | expected if stored.get(key) != expected.get(key)}
        rows = [{key: rows.get(key) for key in differing} for rows in (stored, expected)]
        fail(name, interleaving, f"stored after {committed} committed", *rows)
    able = [number for number, found in enumerate(solo) if found.status is UnitStatus.COMMITTED]
    clash = solo[0].changes.keys() & solo[1].changes.keys()
    if len(able) == len(both) and (not committed or (clash and len(committed) > 1)):
        wanted = "exactly one" if clash else "at least one"
        fail(name, interleaving, f"committed, where both change {clash}", committed, wanted)


def fail(name: str, interleaving: Interleaving, what: str, found: object, expected: object) -> NoReturn:
    raise DivergenceError(f"{name}: {what}\n{found!r}\nexpected\n{expected!r}\n{interleaving!r}")


interleavings: Final = st.builds(
    an_interleaving,
    st.lists(seeds, max_size=6),
    seeds,
    st.lists(seeds, min_size=1, max_size=LONGEST),
    st.lists(seeds, min_size=1, max_size=LONGEST),
    st.lists(st.integers(0, 1), min_size=2 * LONGEST, max_size=2 * LONGEST + 2),
    st.sampled_from(((True, True), (True, True), (True, True), (True, False), (False, True))),
)


def run_concurrent_units(pairs: Sequence[Sequence[Side]], oracle: Side, profile: hypothesis_settings) -> None:
    """Search for two units that come to something on a pair of storages that their order cannot explain."""

    @hypothesis_settings(profile)
    @given(interleaving=interleavings)
    def compare(interleaving: Interleaving) -> None:
        note(interleaving)
        for sides in pairs:
            both = run_interleaved(sides, interleaving)
            check_outcome(sides[0].name, interleaving, both, rows_of(sides[0].stored()), oracle)

    compare()
