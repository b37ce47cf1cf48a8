"""A state machine that drives several drivers with one sequence of operations and compares what they do."""

from __future__ import annotations

from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NoReturn, Protocol, TypeAlias, TypeVar

import orjson
import pydantic
from hypothesis import note
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    precondition,
    rule,
    run_state_machine_as_test,
)
from typing_extensions import override

from tools.differential.operations import (
    MethodCall,
    Operation,
    a_list,
    any_read,
    histories,
    operations,
    seeds,
)
from twinstore.access.paging import Page
from twinstore.catalog.keys import KeyRange
from twinstore.catalog.row import Row
from twinstore.errors import InvalidTransitionError, TwinstoreError
from twinstore.models.canonical import CanonicalJsonSerializer, CanonicalModel
from twinstore.scheduler.storage import SchedulerStorage

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from contextlib import AbstractContextManager

    from hypothesis import settings

    from twinstore.bulk.rows import ScanRow
    from twinstore.clock import Clock
    from twinstore.scheduler.repositories import Repositories
    from twinstore.scheduler.storage import SchedulerSession
    from twinstore_memory.backend import MemoryBackend


@dataclass(frozen=True, slots=True)
class Returned:
    """The call returned: models as canonical bytes, pages with their token."""

    value: object


@dataclass(frozen=True, slots=True)
class Raised:
    """The call raised; everything but the name of the driver counts."""

    kind: str
    message: str
    details: tuple[object, ...] = ()


Outcome = Returned | Raised


def observe(action: Callable[[], object]) -> Outcome:
    """Return the outcome of a call; an error that no caller expects is passed on."""
    try:
        return Returned(comparable(action()))
    except TwinstoreError as error:
        return Raised(type(error).__name__, error.message, details(error))
    except pydantic.ValidationError as error:
        return Raised(type(error).__name__, str(error))


def details(error: TwinstoreError) -> tuple[object, ...]:
    """Return what an error carries in addition to its message, without the driver."""
    moves = (error.from_state, error.to_state) if isinstance(error, InvalidTransitionError) else ()
    return (error.code, error.http_status, error.retryable, error.entity, error.key, *moves)


def comparable(value: object) -> object:
    """Return a result in a form that is equal exactly when the results are."""
    if isinstance(value, CanonicalModel):
        return (type(value).__name__, CanonicalJsonSerializer.serialize(value))
    if isinstance(value, Page):
        passed = [(row.entity, row.tenant, row.key) for row in value.undecodable]
        return ("page", [comparable(item) for item in value], value.next_page_token, passed)
    if isinstance(value, Row):
        return (comparable(value.model), sorted(value.storage.items()))
    if isinstance(value, tuple):
        return [comparable(item) for item in value]
    return (type(value).__name__, value)


# Bound to a tenant, or in system scope; the last ones are refused.
BINDINGS: Final = st.sampled_from(
    (
        *([{"tenant_id": "ta"}] * 9),
        {"tenant_id": "tb"},
        {"purpose": "test"},
        {},
        {"tenant_id": "system"},
        {"tenant_id": "ta", "purpose": "test"},
    )
)
# An error ends the unit, so more would hardly ever be reached.
MOST_IN_ONE: Final = 4


class Storing(Protocol):
    """A side whose rows can be read."""

    def stored(self) -> Sequence[object]:
        """Return all rows in order."""
        ...


S = TypeVar("S", bound=Storing)


def differing(sides: Sequence[S]) -> Iterator[tuple[S, object, object]]:
    """Yield each side that does not store what the first one does, with the rows of one of both alone."""
    first = sides[0].stored()
    for side in sides[1:]:
        found = side.stored()
        if found != first:
            mine = [row for row in first if row not in found]
            yield side, mine or "the same in another order", [row for row in found if row not in first]


class DivergenceError(AssertionError):
    """Two drivers answered differently, or store different rows."""


class DriversAgree(RuleBasedStateMachine):
    """Performs each operation on every side; each difference is a failure.

    A session or unit of work is open on all sides or on none.
    """

    def __init__(self, sides: Sequence[Side]) -> None:
        super().__init__()
        self.sides = sides
        self.in_unit = False
        self.home: str | None = None
        self.latest_list: MethodCall | None = None

    @initialize(history=histories)
    def start(self, history: list[int]) -> None:
        for side in self.sides:
            side.wipe()
            side.token = None
        self.perform_all(history)

    @rule(history=histories)
    def perform_all(self, history: list[int]) -> None:
        """Perform some operations where calls go now, and compare the stored rows at the end."""
        for operation in operations(history, self.home):
            note(operation)
            self.perform(operation)
        self.compare_stored("these operations")

    def perform(self, operation: Operation) -> None:
        """Perform one operation."""

        def act(side: Side) -> object:
            result = operation(side.target)
            if isinstance(result, Page) and isinstance(operation, MethodCall):
                side.token, self.latest_list = result.next_page_token, operation
            return result

        self.compare(operation, act)

    @property
    def is_open(self) -> bool:
        """Whether a session or unit of work is open."""
        return self.sides[0].session is not None

    def compare(self, what: object, act: Callable[[Side], object]) -> None:
        """Do something on every side and compare what a caller observes."""
        outcomes = [observe(partial(act, side)) for side in self.sides]
        self.demand_equal(what, outcomes)

    def compare_stored(self, what: object) -> None:
        """Compare what is really stored, past the repositories and past an open unit of work."""
        for side, mine, other in differing(self.sides):
            self.fail(f"rows after {what}", mine, side, other)

    def demand_equal(self, what: object, outcomes: Sequence[Outcome]) -> None:
        """Fail when a caller observes a difference."""
        for side, outcome in zip(self.sides[1:], outcomes[1:], strict=True):
            if outcome != outcomes[0]:
                self.fail(what, outcomes[0], side, outcome)

    def fail(self, what: object, mine: object, side: Side, other: object) -> NoReturn:
        raise DivergenceError(f"{what}\n{self.sides[0].name}: {mine!r}\n{side.name}: {other!r}")

    @precondition(lambda self: self.latest_list is not None and self.sides[0].token is not None)
    @rule(foreign=st.sampled_from((False, False, False, True)), seed=seeds)
    def fetch_next_page(self, *, foreign: bool, seed: int) -> None:
        """Hand each side the token that its other_tenant issued, for the same list or for another one."""
        base = a_list(seed) if foreign else self.latest_list
        assert isinstance(base, MethodCall)
        tokens = [side.token for side in self.sides]
        calls = {
            side.name: base.after(token or "")
            for side, token in zip(self.sides, [*tokens[1:], tokens[0]], strict=True)
        }

        def act(side: Side) -> object:
            result = calls[side.name](side.target)
            if isinstance(result, Page):
                side.token = result.next_page_token
            return result

        self.compare(base, act)
        self.latest_list = base

    @precondition(lambda self: not self.is_open)
    @rule(binding=BINDINGS, read_only=st.sampled_from((False, False, False, True)))
    def begin(self, binding: dict[str, str], *, read_only: bool) -> None:
        self.enter(lambda storage: storage.transaction(**binding, read_only=read_only), binding)
        self.in_unit = self.is_open

    @precondition(lambda self: not self.is_open)
    @rule(binding=BINDINGS, causal=st.booleans())
    def open_session(self, binding: dict[str, str], *, causal: bool) -> None:
        self.enter(lambda storage: storage.sessions.open(**binding, causal_consistency=causal), binding)

    def enter(self, opener: Opener, binding: dict[str, str]) -> None:
        self.compare(("open", binding), lambda side: side.enter(opener))
        self.home = binding.get("tenant_id") if self.is_open else None

    @precondition(lambda self: self.is_open)
    @rule(commit=st.sampled_from((True, True, False)))
    def end(self, *, commit: bool) -> None:
        """End a session, or commit or roll back a unit, also one that failed; no handle works afterwards."""
        ended = {side.name: side.session for side in self.sides}
        self.in_unit, self.home = False, None
        self.compare(("end", commit), lambda side: side.leave(commit=commit))
        self.compare_stored("the end")
        self.compare("use after the end", lambda side: used(ended[side.name]))

    @precondition(lambda self: self.in_unit)
    @rule(seed=seeds)
    def read_outside_unit(self, seed: int) -> None:
        """Read past the open unit: what it wrote must not be seen yet."""
        operation = any_read(seed, self.home)
        self.compare(operation, lambda side: operation(side.storage))

    @precondition(lambda self: not self.is_open)
    @rule(binding=BINDINGS, history=histories)
    def transact(self, binding: dict[str, Any], history: list[int]) -> None:
        steps = operations(history, binding.get("tenant_id"))[:MOST_IN_ONE]

        def together(unit: SchedulerSession) -> object:
            return tuple(step(unit) for step in steps)

        self.compare(steps, lambda side: side.storage.transact(together, **binding))
        self.compare_stored(steps)

    @override
    def teardown(self) -> None:
        for side in self.sides:
            side.leave(commit=False)


def used(session: SchedulerSession | None) -> object:
    """Use a session that has ended."""
    assert session is not None
    return session.runs.get("ta", "a")


def run_machine(sides: Sequence[Side], profile: settings) -> None:
    """Search for a sequence of operations after which the sides differ."""
    run_state_machine_as_test(partial(DriversAgree, sides), settings=profile)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]  # any factory will do


Opener: TypeAlias = "Callable[[SchedulerStorage], AbstractContextManager[SchedulerSession]]"
Contents: TypeAlias = "list[tuple[object, ...]]"
WHOLE = KeyRange()
EVENTS = "graph_job_events"
OWN_CLOCK = frozenset({"graph_jobs", EVENTS})


class RollBackError(Exception):
    """Leaves a unit of work without committing it."""


@dataclass(slots=True)
class Side:
    """One driver.

    Attributes:
        name: name in reports.
        storage: the storage under comparison.
        wipe: empties the store; every example starts with it.
        session: where calls go while a session or unit of work is open.
        token: the page token of the latest list.
    """

    name: str
    storage: SchedulerStorage
    wipe: Callable[[], object]
    session: SchedulerSession | None = None
    token: str | None = None
    _open: ExitStack = field(default_factory=ExitStack)

    @property
    def target(self) -> SchedulerSession | SchedulerStorage:
        """Where the next call goes."""
        return self.session or self.storage

    def on_same_store(self, storage: SchedulerStorage) -> Side:
        """Return another side on the same store."""
        return Side(self.name, storage, self.wipe)

    def enter(self, opener: Opener) -> None:
        """Open a session or unit of work."""
        self.session = self._open.enter_context(opener(self.storage))

    def leave(self, *, commit: bool = True) -> None:
        """Close it; a unit of work is committed or rolled back."""
        opened, self._open, self.session = self._open, ExitStack(), None
        if commit:
            opened.close()
            return
        with suppress(RollBackError), opened:
            raise RollBackError

    def stored(self) -> Contents:
        """Return all rows of all entities in order, as the verifier of the backfill reads them."""
        bulk = self.storage.bulk
        with bulk.view() as view:
            found = [
                comparable_row(entity.name, row)
                for entity in bulk.entities()
                for batch in view.rows(entity, WHOLE)
                for row in batch
            ]
        # Events that a store writes have random ids, by which they come.
        events = sorted((row for row in found if row[0] == EVENTS), key=str)
        return [row for row in found if row[0] != EVENTS] + events


def comparable_row(entity: str, row: ScanRow) -> tuple[object, ...]:
    """Return a row as it is compared: without what each store sets by its own clock or counts by itself."""
    if entity not in OWN_CLOCK:
        return (entity, row.key, row.owner, row.content, row.expires)
    doc = orjson.loads(row.content)["doc"]
    if entity == "graph_jobs":
        return (entity, row.key, row.owner, doc)
    return (entity, row.owner, doc["kind"], doc["payload"]["job"])


def memory_side(name: str, backend: MemoryBackend[Repositories], clock: Clock) -> Side:
    """Return a side in memory."""
    return Side(name, SchedulerStorage(backend, clock), backend.store.clear)
