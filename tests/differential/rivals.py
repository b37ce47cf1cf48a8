"""Two units of work on two storages and in two threads, interleaved step by step, and what comes of them.

Which of two rivals loses, and at which call, is left to the driver. What must hold on each is judged by what
each unit does alone, in memory:

- a unit that commits has seen what it sees alone: one state and its own writes;
- stored is what was before, changed by the units that committed and by nothing else;
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

from tests.differential.generators import BAD_IDS, IDS, Dice
from tests.differential.machine import DivergenceError
from tests.differential.operations import OPERATIONS, MethodCall, Operation, any_operation, seeds
from tests.differential.outcomes import Outcome, Raised, observe
from twinstore.scheduler.enums import RunState
from twinstore.testing.scheduler.builders import make_impact_set, make_run_summary, make_schedule

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from tests.differential.sides import Contents, Side

T = TypeVar("T")
Maker: TypeAlias = "Callable[[Dice], Operation]"
Commits: TypeAlias = tuple[bool, bool]

TENANT: Final = "ta"
PATIENCE: Final = 30
LONGEST: Final = 4
# Errors of the store: the unit cannot go on, and the rival leaves it.
FATAL: Final = frozenset({"ConcurrencyError", "DuplicateError"})
READING: Final = ("get", "list")
# What creates a row mostly finds it stored already, which ends the unit before it meets its rival.
CREATING: Final = frozenset({"create_run", "create_any_run", "retry", "append_audit", "write_audit"})
ALL: Final[list[tuple[int, Maker]]] = list(OPERATIONS.values())
WRITERS: Final[list[tuple[int, Maker]]] = [
    (1 if name in CREATING else 2 * weight, make)
    for name, (weight, make) in OPERATIONS.items()
    if not any(word in name for word in READING)
]

Rows = dict[tuple[object, ...], tuple[object, ...]]


class NarrowDice(Dice):
    """Picks among few ids of one tenant, mostly the first one, so that units meet in the same rows."""

    def an_id(self) -> str:
        (key,) = self.choices(IDS[:3], (6, 3, 1))
        return key

    def id(self) -> object:
        return self.mostly((self.an_id(),), BAD_IDS, one_in=40)


def stored_before(history: Sequence[int]) -> list[Operation]:
    """Return what two units find: a row of each entity for two ids, and what follows from some seeds."""
    dice = NarrowDice(0, TENANT)
    rows: list[Operation] = []
    for key in IDS[:2]:
        rows += [
            MethodCall("schedules.upsert", (make_schedule(TENANT, key),)),
            MethodCall("runs.create", (dice.a_run((RunState.PLANNING,), TENANT, key),)),
            MethodCall("run_summaries.upsert", (make_run_summary(TENANT, key),)),
            MethodCall("impact_snapshots.upsert", (TENANT, make_impact_set(snapshot_id=key))),
        ]
    return [*rows, *(step for seed in history for step in any_operation(NarrowDice(seed, TENANT)))]


class OneIdDice(NarrowDice):
    """Picks one id."""

    def an_id(self) -> str:
        return IDS[0]


def a_step(seed: int) -> Operation:
    """Return what a unit does; three of four steps write."""
    dice = NarrowDice(seed, TENANT)
    return a_maker(dice, WRITERS if dice.randrange(4) else ALL)(dice)


def a_maker(dice: Dice, among: Sequence[tuple[int, Maker]]) -> Maker:
    """Return what makes operations of one kind."""
    (found,) = dice.choices([make for _, make in among], [weight for weight, _ in among])
    return found


def a_duel(  # noqa: PLR0917  # what a duel is drawn from
    history: list[int], kind: int, first: list[int], second: list[int], turns: list[int], commits: Commits
) -> Duel:
    """Return two plans that begin with the same kind of write of the same row, with other values."""
    meeting = a_maker(NarrowDice(kind), WRITERS)
    plans = [
        Plan([meeting(OneIdDice(seeds[0], TENANT)), *map(a_step, seeds[1:])], commit)
        for seeds, commit in zip((first, second), commits, strict=True)
    ]
    return Duel(stored_before(history), (plans[0], plans[1]), turns)


class Fate(StrEnum):
    """What became of a unit."""

    OPEN = "open"
    COMMITTED = "committed"
    WITHDRAWN = "withdrawn"
    LOST = "lost"


@dataclass(frozen=True)
class Plan:
    """What a unit does, and whether it wants to commit."""

    steps: Sequence[Operation]
    commit: bool


@dataclass(frozen=True)
class Duel:
    """Two plans, and whose turn it is at each step; a rival that has ended is passed over."""

    history: Sequence[Operation]
    plans: tuple[Plan, Plan]
    turns: Sequence[int]


class Rival:
    """A unit of work in a thread of its own, which does one step at a time when it is told."""

    def __init__(self, side: Side, plan: Plan) -> None:
        """Open the unit and fix the state that it reads."""
        self.fate = Fate.OPEN
        self.outcomes: list[Outcome] = []
        self._side = side
        self._plan = plan
        self._left = list(plan.steps)
        self._thread = ThreadPoolExecutor(1)
        self._told(lambda: side.enter(lambda storage: storage.transaction(TENANT)))
        self._told(lambda: side.target.runs.get(TENANT, IDS[0]))

    def proceed(self) -> None:
        """Do the next step, or end the unit after the last one."""
        if not self._left:
            self._end()
            return
        outcome = self._told(partial(observe, partial(self._left.pop(0), self._side.target)))
        self.outcomes.append(outcome)
        if isinstance(outcome, Raised) and outcome.kind in FATAL:
            self._leave(Fate.LOST)

    def close(self) -> None:
        """Give up an open unit, and the thread."""
        if self.fate is Fate.OPEN:
            self._leave(Fate.WITHDRAWN)
        self._thread.shutdown()

    def _end(self) -> None:
        if not self._plan.commit:
            self._leave(Fate.WITHDRAWN)
            return
        ended = self._told(partial(observe, self._side.leave))
        self.fate = Fate.LOST if isinstance(ended, Raised) else Fate.COMMITTED

    def _leave(self, fate: Fate) -> None:
        self._told(partial(self._side.leave, commit=False))
        self.fate = fate

    def _told(self, action: Callable[[], T]) -> T:
        return self._thread.submit(action).result(PATIENCE)


@contextmanager
def rivals(sides: Sequence[Side], plans: Sequence[Plan]) -> Iterator[list[Rival]]:
    """Open a unit for each plan; whatever is open at the end is given up."""
    opened: list[Rival] = []
    try:
        for side, plan in zip(sides, plans, strict=True):
            opened.append(Rival(side, plan))
        yield opened
    finally:
        for rival in opened:
            rival.close()


def begin(side: Side, history: Sequence[Operation]) -> None:
    """Empty the store of a side and store what was before."""
    side.wipe()
    for operation in history:
        observe(partial(operation, side.storage))


def play(sides: Sequence[Side], duel: Duel) -> list[Rival]:
    """Perform both plans, one step at a time."""
    begin(sides[0], duel.history)
    with rivals(sides, duel.plans) as both:
        for turn in duel.turns:
            still = [rival for rival in both if rival.fate is Fate.OPEN]
            if still:
                (both[turn] if both[turn] in still else still[0]).proceed()
        for rival in both:
            while rival.fate is Fate.OPEN:
                rival.proceed()
    return both


@dataclass(frozen=True)
class Alone:
    """What a unit comes to when nobody else is there: its outcomes, and the rows that it changes."""

    fate: Fate
    outcomes: list[Outcome]
    changes: Rows = field(default_factory=dict)


def rows_of(contents: Contents) -> Rows:
    """Return rows by entity and key."""
    return {(row[0], row[1]): row for row in contents}


def perform_alone(side: Side, history: Sequence[Operation], plan: Plan) -> tuple[Rows, Alone]:
    """Return the rows before, and what a unit does to them alone; a removed row is an empty one."""
    begin(side, history)
    before = rows_of(side.stored())
    with rivals([side], [plan]) as (rival,):
        while rival.fate is Fate.OPEN:
            rival.proceed()
    after = rows_of(side.stored())
    changes = {key: after.get(key, ()) for key in before | after if before.get(key) != after.get(key)}
    return before, Alone(rival.fate, rival.outcomes, changes)


def judge(name: str, duel: Duel, both: Sequence[Rival], stored: Rows, oracle: Side) -> None:
    """Raise ``DivergenceError`` when what came of two rivals follows from no order of their commits."""
    expected: Rows = {}
    alone: list[Alone] = []
    for plan in duel.plans:
        expected, found = perform_alone(oracle, duel.history, plan)
        alone.append(found)
    committed = [number for number, rival in enumerate(both) if rival.fate is Fate.COMMITTED]
    for number in committed:
        if both[number].outcomes != alone[number].outcomes:
            fail(name, duel, f"unit {number} saw", both[number].outcomes, alone[number].outcomes)
        expected = expected | alone[number].changes
    expected = {key: row for key, row in expected.items() if row}
    if stored != expected:
        differing = {key for key in stored | expected if stored.get(key) != expected.get(key)}
        rows = [{key: rows.get(key) for key in differing} for rows in (stored, expected)]
        fail(name, duel, f"stored after {committed} committed", *rows)
    able = [number for number, found in enumerate(alone) if found.fate is Fate.COMMITTED]
    clash = alone[0].changes.keys() & alone[1].changes.keys()
    if len(able) == len(both) and (not committed or (clash and len(committed) > 1)):
        wanted = "exactly one" if clash else "at least one"
        fail(name, duel, f"committed, where both change {clash}", committed, wanted)


def fail(name: str, duel: Duel, what: str, found: object, expected: object) -> NoReturn:
    raise DivergenceError(f"{name}: {what}\n{found!r}\nexpected\n{expected!r}\n{duel!r}")


duels: Final = st.builds(
    a_duel,
    st.lists(seeds, max_size=6),
    seeds,
    st.lists(seeds, min_size=1, max_size=LONGEST),
    st.lists(seeds, min_size=1, max_size=LONGEST),
    st.lists(st.integers(0, 1), min_size=2 * LONGEST, max_size=2 * LONGEST + 2),
    st.sampled_from(((True, True), (True, True), (True, True), (True, False), (False, True))),
)


def run_rivals(pairs: Sequence[Sequence[Side]], oracle: Side, profile: hypothesis_settings) -> None:
    """Search for two units that come to something on a pair of storages that their order cannot explain."""

    @hypothesis_settings(profile)
    @given(duel=duels)
    def compare(duel: Duel) -> None:
        note(duel)
        for sides in pairs:
            both = play(sides, duel)
            judge(sides[0].name, duel, both, rows_of(sides[0].stored()), oracle)

    compare()
