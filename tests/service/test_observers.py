"""What observers get, what their failures do, and that calls are not wrapped without an observer.

Calls from asyncio are observed in the context of the task that makes them.
"""

from __future__ import annotations

import asyncio
import copy
import logging
import pickle
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextvars import ContextVar
from dataclasses import dataclass, fields
from enum import Enum
from inspect import getmro
from threading import Barrier
from typing import TYPE_CHECKING, Any, Final, Protocol, cast, runtime_checkable

import pytest
from pydantic import BaseModel
from typing_extensions import override

import twinstore
from twinstore import aio, errors
from twinstore.access import scope
from twinstore.errors import (
    ConcurrencyError,
    ConfigurationError,
    DuplicateError,
    NotFoundError,
    TenantScopeError,
    TwinstoreError,
)
from twinstore.observing import Call, CallOutcome, Counters, LockWait, Observer, Operation
from twinstore.observing.counters import OPERATION_BUCKETS
from twinstore.observing.observer import (
    CURRENT_NOTIFIER,
    Notifier,
    Observers,
    observed,
    observed_class,
    observed_session,
)
from twinstore.runtime.forks import _renew_all
from twinstore.scheduler import Run, RunRepository
from twinstore.scheduler.repositories import Runs
from twinstore.scheduler.repositories.locks import Locks
from twinstore.testing.scheduler.builders import make_run
from twinstore.testing.workspace import unique

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from twinstore.observing import Ending, SystemScopeOpening
    from twinstore.scheduler.aio import AsyncSchedulerSession
    from twinstore.scheduler.storage import SchedulerSession, SchedulerStorage

REQUEST: Final[ContextVar[str]] = ContextVar("request", default="")


class Watch(Observer):
    """Keeps everything in the order of the reports, and the request in whose context a call began."""

    def __init__(self) -> None:
        self.requests: list[tuple[str, str]] = []
        self.calls: list[Call] = []
        self.waits: list[LockWait] = []
        self.openings: list[SystemScopeOpening] = []

    @override
    def started(self, operation: Operation) -> Ending:
        self.requests.append((operation.operation, REQUEST.get()))
        return self.calls.append

    @override
    def lock_waited(self, wait: LockWait) -> None:
        self.waits.append(wait)

    @override
    def system_scope_opened(self, opening: SystemScopeOpening) -> None:
        self.openings.append(opening)

    def clear(self) -> None:
        """Forget everything."""
        self.__init__()  # type: ignore[misc]  # the state is what it starts with

    @property
    def names(self) -> list[str]:
        """The ended calls by entity and operation."""
        return [f"{call.entity}.{call.operation}" for call in self.calls]

    @property
    def outcomes(self) -> list[tuple[str, str]]:
        """The ended calls by operation and outcome."""
        return [(call.operation, call.outcome.value) for call in self.calls]


def opened(observer: Observer) -> aio.AsyncStorage:
    settings = {"Persistence": {"Scheduler": "Memory", "Memory": {"Store": unique("observing")}}}
    return aio.open_storage(settings, observers=[observer])


def complete(work: Coroutine[object, object, None]) -> None:
    asyncio.run(asyncio.wait_for(work, timeout=100))


def test_a_call_has_the_context_variables_of_its_task() -> None:
    watch = Watch()

    async def ask(storage: aio.AsyncStorage, request: str) -> None:
        REQUEST.set(request)
        await storage.scheduler.runs.get("t", "r")
        async with storage.scheduler.transaction("t") as unit:
            await unit.runs.list("t")

    async def work() -> None:
        async with opened(watch) as storage:
            await asyncio.gather(*(ask(storage, f"request {number}") for number in range(5)))

    complete(work())
    operations = ("get", "list", "transaction")
    assert sorted(watch.requests) == [
        (operation, f"request {number}") for operation in operations for number in range(5)
    ]


def test_what_a_call_sets_is_not_seen_by_the_task_or_by_another_call() -> None:
    seen: list[str] = []

    class Setting(Observer):
        @override
        def started(self, operation: Operation) -> None:
            seen.append(REQUEST.get())
            REQUEST.set(operation.operation)

    async def work() -> None:
        async with opened(Setting()) as storage:
            await storage.scheduler.runs.get("t", "r")
            await storage.scheduler.runs.get("t", "r")
        assert REQUEST.get() == ""

    complete(work())
    assert seen == ["", ""]


def test_sessions_units_and_attempts_are_observed_once_each() -> None:
    watch = Watch()

    async def lose_once(unit: AsyncSchedulerSession) -> None:
        if watch.outcomes.count(("transaction", "concurrency")) == 0:
            raise ConcurrencyError
        await unit.runs.create(make_run("t", "r"))

    async def work() -> None:
        async with opened(watch) as storage:
            async with storage.scheduler.session("t") as session:
                await session.runs.get("t", "r")
            await storage.scheduler.transact(lose_once, tenant_id="t")
            await storage.scheduler.ensure_migrations()
            await storage.scheduler.check_ready()
            with pytest.raises(LookupError):
                async with storage.scheduler.transaction("t"):
                    raise LookupError

    complete(work())
    assert watch.outcomes == [
        ("get", "ok"),
        ("session", "ok"),
        ("transaction", "concurrency"),
        ("create", "ok"),
        ("transaction", "ok"),
        ("transact", "ok"),
        ("ensure_migrations", "ok"),
        ("check_ready", "ok"),
        ("transaction", "error"),
    ]


def test_system_scope_of_a_unit_is_reported_once() -> None:
    watch = Watch()

    async def work() -> None:
        async with opened(watch) as storage:
            async with storage.scheduler.transaction(purpose="a look at all") as unit:
                await unit.runs.list_by_state(make_run("t", "r").state)
            async with storage.scheduler.session(purpose="another look"):
                pass

    complete(work())
    purposes = [opening.purpose for opening in watch.openings]
    assert purposes == ["a look at all", "list_by_state", "another look"]


def test_a_cancelled_unit_has_ended() -> None:
    watch = Watch()

    async def wait_inside(storage: aio.AsyncStorage, inside: asyncio.Event) -> None:
        async with storage.scheduler.transaction("t"):
            inside.set()
            await asyncio.Event().wait()

    async def work() -> None:
        async with opened(watch) as storage:
            inside = asyncio.Event()
            task = asyncio.ensure_future(wait_inside(storage, inside))
            await inside.wait()
            task.cancel()
            await asyncio.wait([task])

    complete(work())
    assert watch.outcomes == [("transaction", "error")]
    assert watch.calls[0].error == "asyncio.exceptions.CancelledError"


OPERATION: Final = Operation("library", "books", "get", "Cask")


def memory(*observers: Observer) -> SchedulerStorage:
    settings = {"Persistence": {"Memory": {"Store": unique("observers")}}}
    return twinstore.add_scheduler_memory_storage(settings, observers=observers)


def notifier(*observers: Observer) -> Notifier:
    return Notifier(Observers(observers), "library", "Cask", "books")


def parts_of(session: SchedulerSession) -> list[object]:
    return [getattr(session, field.name) for field in fields(session)]


class Broken(Observer):
    """Fails on every report, or only on those of the end of calls."""

    def __init__(self, *, at_end: bool = False) -> None:
        self.told = 0
        self._at_end = at_end

    @override
    def started(self, operation: Operation) -> Ending:
        if not self._at_end:
            self.fail(operation)
        return self.fail

    @override
    def lock_waited(self, wait: LockWait) -> None:
        self.fail(wait)

    @override
    def system_scope_opened(self, opening: object) -> None:
        self.fail(opening)

    def fail(self, event: object) -> None:
        del event
        self.told += 1
        raise RuntimeError


# No observer
def test_without_observers_sessions_have_the_parts_themselves() -> None:
    with memory() as storage:
        assert type(storage.runs) is Runs
        assert getattr(storage.runs.get, "__func__") is Runs.get  # noqa: B009  # of a bound method
        with storage.transaction("t") as unit, storage.sessions.open("t") as session:
            found = [type(part) for part in parts_of(unit)]
            assert found == [type(part) for part in parts_of(session)]
            assert found == [type(part) for part in parts_of(storage.unbound)]
            assert {kind.__module__.split(".")[1] for kind in found} == {"scheduler"}
            assert not any(hasattr(part, "twinstore_part") for part in parts_of(unit))
        assert storage.runs is storage.unbound.runs
        assert type(storage.initializer).__mro__[0].__module__.startswith("twinstore_memory")


# The observed parts
def test_an_observed_part_is_of_the_class_of_the_part() -> None:
    with memory(Watch()) as storage:
        assert isinstance(storage.runs, Runs)
        assert RunRepository in getmro(type(storage.runs))
        assert isinstance(storage.locks, Locks)
        assert storage.locks.access is not None  # a property of the part, and what lies behind it
        assert storage.runs.driver == "Memory"
        assert storage.runs.update.__doc__ == Runs.update.__doc__
        assert type(storage.unbound) is type(memory().unbound)


def test_an_error_that_passes_an_observer_is_the_one_that_was_raised_and_can_be_pickled() -> None:
    with memory(Watch()) as storage:
        with pytest.raises(NotFoundError) as caught:
            storage.runs.get_required("t", "r")
        assert (caught.value.module, caught.value.key) == ("scheduler", "r")
        assert pickle.loads(pickle.dumps(caught.value)).key == "r"  # noqa: S301  # our own


@runtime_checkable
class Shelf(Protocol):
    """A repository of a foreign module."""

    def get(self, book: str) -> str: ...


class SlottedShelf:
    """A repository of a foreign driver: with slots, private state, a property and other kinds of methods."""

    __slots__ = ("_books",)

    def __init__(self, *books: str) -> None:
        self._books = books

    @property
    def size(self) -> int:
        return len(self._books)

    @staticmethod
    def kinds() -> int:
        return 1

    @classmethod
    def empty(cls) -> SlottedShelf:
        return cls()

    def get(self, book: str) -> str:
        return self._books[self._books.index(book)]

    def first(self) -> str:
        return self.get(self._books[0])

    def __len__(self) -> int:
        return len(self._books)


class Colour(Enum):
    """A value."""

    RED = 1

    def shade(self) -> int:
        return self.value


class Options(BaseModel):
    """Another value."""

    limit: int = 1


class PlainSession:
    """A session that is not a data class, with a value next to its part."""

    def __init__(self) -> None:
        self.shelf = SlottedShelf("a", "b")
        self.colour = Colour.RED
        self.options = Options()
        self.name = "plain"


def test_parts_of_any_class_are_observed_and_values_stay_what_they_are() -> None:
    watch, plain = Watch(), PlainSession()
    session = observed_session(plain, notifier(watch))
    assert (session.colour, session.options, session.name) == (Colour.RED, plain.options, "plain")
    assert session.options is plain.options
    assert isinstance(session.shelf, SlottedShelf)
    assert isinstance(session.shelf, Shelf)
    assert (session.shelf.get("b"), session.shelf.size, len(session.shelf)) == ("b", 2, 2)
    assert (session.shelf.kinds(), session.shelf.empty().size) == (1, 0)
    assert copy.copy(session.shelf).get("a") == "a"
    assert watch.names == ["shelf.get", "shelf.get"]
    assert type(plain.shelf) is SlottedShelf


def test_a_method_that_calls_another_one_of_its_object_is_one_call() -> None:
    watch = Watch()
    assert observed(SlottedShelf("a"), notifier(watch)).first() == "a"
    assert watch.names == ["books.first"]


class Fussy:
    """A repository whose arguments have the names of all parameters of the wrapper."""

    def lend(self, *, name: str, call: str) -> str:
        return f"{name} {call}"


def test_arguments_may_have_any_name() -> None:
    part = observed(Fussy(), notifier(Watch()))
    assert part.lend(name="a", call="b") == "a b"


class Sealed:
    """A repository that admits no class below it."""

    def __init_subclass__(cls) -> None:
        raise TypeError("no subclasses")

    def get(self) -> int:
        return 1


class Listed(list[int]):
    """A repository that is a list."""

    def get(self) -> int:
        return self[0]


@pytest.mark.parametrize("part", [Sealed(), Listed([1])], ids=["sealed", "listed"])
def test_what_cannot_be_observed_works_as_ever_and_is_named_once(
    part: Sealed | Listed, caplog: pytest.LogCaptureFixture
) -> None:
    observed_class.cache_clear()
    assert observed(part, notifier(Watch())) is observed(part, notifier(Watch())) is part
    assert [record.levelno for record in caplog.records] == [logging.WARNING]
    assert type(part).__name__ in caplog.text


def test_a_part_has_no_attribute_that_its_class_has_not() -> None:
    shelf = observed(SlottedShelf("a"), notifier(Watch()))
    with pytest.raises(AttributeError, match="lend"):
        getattr(shelf, "lend")  # noqa: B009  # no type checker admits it


# Outcomes
ERRORS: Final = [
    kind
    for name in errors.__all__
    if isinstance(kind := getattr(errors, name), type) and issubclass(kind, TwinstoreError)
]


def raised(error: BaseException) -> Callable[[], None]:
    def fail() -> None:
        raise error

    return fail


@pytest.mark.parametrize("kind", ERRORS, ids=[kind.__name__ for kind in ERRORS])
def test_the_outcome_of_an_error_of_ours_is_its_code(kind: type[TwinstoreError]) -> None:
    watch, error = Watch(), kind.__new__(kind)
    with pytest.raises(kind):
        notifier(watch).run("get", raised(error))
    assert [(call.outcome.value, call.error) for call in watch.calls] == [
        (kind.code, f"twinstore.errors.{kind.__name__}")
    ]


def test_there_is_no_outcome_that_nothing_has() -> None:
    codes = {kind.code for kind in ERRORS}
    assert {outcome.value for outcome in CallOutcome} == codes | {"ok"}


class ForeignError(TwinstoreError):
    """Of a host that gives its errors codes of their own."""

    code = "tenant acme"


class FineError(TwinstoreError):
    """Of a host that calls an error what it is not."""

    code = "ok"


@pytest.mark.parametrize("error", [LookupError(), KeyboardInterrupt(), ForeignError(), FineError()], ids=repr)
def test_the_outcome_of_all_other_errors_is_one(error: BaseException) -> None:
    watch = Watch()
    with pytest.raises(type(error)):
        notifier(watch).run("get", raised(error))
    assert [call.outcome for call in watch.calls] == [CallOutcome.ERROR]


@pytest.mark.parametrize("answer", [None, False, 0, ()])
def test_an_answer_that_says_nothing_is_a_good_end(answer: object) -> None:
    watch = Watch()
    assert notifier(watch).run("get", lambda: answer) is answer
    assert [(call.outcome, call.error) for call in watch.calls] == [(CallOutcome.OK, None)]


def test_a_record_holds_no_tenant_no_key_and_no_payload() -> None:
    watch = Watch()
    with memory(watch) as storage:
        secret = make_run("tenant-secret", "run-secret")
        storage.runs.create(secret)
        with pytest.raises(DuplicateError):
            storage.runs.create(secret)
        with pytest.raises(TenantScopeError), storage.transaction("tenant-secret") as unit:
            unit.runs.get("another-secret", "run-secret")
    assert len(watch.calls) == 4
    assert "secret" not in repr((watch.calls, watch.requests))


# Failures of observers
@pytest.mark.parametrize("at_end", [False, True])
def test_an_observer_that_fails_breaks_no_call_and_is_logged_once(
    caplog: pytest.LogCaptureFixture, *, at_end: bool
) -> None:
    broken, watch = Broken(at_end=at_end), Watch()
    with memory(broken, watch) as storage:
        run = make_run("t", "r")
        assert storage.runs.create(run) == run
        with pytest.raises(DuplicateError):
            storage.runs.create(run)
        with storage.transaction("t") as unit:
            assert unit.runs.get("t", "r") == run
        assert not storage.workers.list()
    assert broken.told == 6
    assert watch.names == ["runs.create", "runs.create", "runs.get", "storage.transaction", "workers.list"]
    lines = [record for record in caplog.records if record.name == "twinstore.observing"]
    assert [line.levelno for line in lines] == [logging.ERROR]
    assert "Broken" in lines[0].getMessage()


@pytest.mark.parametrize("at_end", [False, True])
def test_what_observers_have_begun_ends_also_where_another_one_is_interrupted(*, at_end: bool) -> None:
    class Interrupted(Observer):
        @override
        def started(self, operation: Operation) -> Ending:
            if not at_end:
                raise KeyboardInterrupt
            return raised_by

    def raised_by(call: Call) -> None:
        del call
        raise KeyboardInterrupt

    first, second = Watch(), Watch()
    with memory(first, Interrupted(), second) as storage, pytest.raises(KeyboardInterrupt):
        storage.runs.list("t")
    assert first.names == ["runs.list"]
    assert second.names == (["runs.list"] if at_end else [])
    assert CURRENT_NOTIFIER.get() is None


def test_observers_are_notified_in_order_and_at_an_end_in_reverse() -> None:
    told: list[str] = []

    class Named(Observer):
        def __init__(self, name: str) -> None:
            self._name = name

        @override
        def started(self, operation: Operation) -> Ending:
            told.append(self._name)
            return lambda call: told.append(f"{self._name} {call.operation}")

    notifier(Named("a"), Observer_(), Named("b")).run("get", lambda: None)
    assert told == ["a", "b", "b get", "a get"]


class Observer_(Observer):  # noqa: N801  # one that is interested in nothing
    """Only there."""


def test_the_notifier_of_a_call_is_known_during_it_alone() -> None:
    here = notifier(Watch())
    assert CURRENT_NOTIFIER.get() is None
    assert here.run("get", CURRENT_NOTIFIER.get) is here
    assert CURRENT_NOTIFIER.get() is None


# Purposes
def test_purposes_beyond_a_hundred_and_long_ones_are_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scope, "_openings", Counter[str]())
    watch = Watch()
    with memory(watch) as storage:
        for number in range(150):
            with storage.sessions.open(purpose=f"for number {number}"):
                pass
        with storage.sessions.open(purpose="for number 7"):
            pass
    told = Counter(opening.purpose for opening in watch.openings)
    assert (len(told), told["other"], told["for number 7"]) == (101, 50, 2)
    assert told == Counter(scope.system_scope_openings())
    monkeypatch.setattr(scope, "_openings", Counter[str]())
    scope.record_system_scope("x" * 101)
    assert scope.system_scope_openings() == {"other": 1}


# The bundled counters
def told(counters: Counters, seconds: float, outcome: CallOutcome = CallOutcome.OK) -> None:
    counters.started(OPERATION)(Call(*OPERATION, outcome, seconds, None))


def test_counters_say_how_often_and_how_long() -> None:
    counters = Counters()
    assert counters.snapshot().operations == {}
    for seconds in (0.0005, 0.0006, 99.0):
        told(counters, seconds)
    told(counters, 0.2, CallOutcome.TIMEOUT)
    snapshot = counters.snapshot()
    assert snapshot.operations == {(*OPERATION, "ok"): 3, (*OPERATION, "timeout"): 1}
    found = snapshot.operation_seconds[tuple(OPERATION)]
    upto = dict(zip(OPERATION_BUCKETS, found.buckets, strict=True))
    assert [upto[bound] for bound in (0.0005, 0.001, 0.1, 0.25, 30.0)] == [1, 2, 2, 3, 3]
    assert (found.count, round(found.total, 6)) == (4, 99.2011)


def test_a_snapshot_stays_what_it_was() -> None:
    counters = Counters()
    told(counters, 1)
    before = counters.snapshot()
    told(counters, 1)
    assert before.operations == {(*OPERATION, "ok"): 1}
    assert before.operation_seconds[tuple(OPERATION)].count == 1


def test_threads_lose_no_count() -> None:
    counters, barrier = Counters(), Barrier(4)

    def count(_: int) -> None:
        barrier.wait(20)
        for _number in range(2000):
            told(counters, 0.01)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(count, range(4)))
    snapshot = counters.snapshot()
    assert snapshot.operations == {(*OPERATION, "ok"): 8000}
    assert snapshot.operation_seconds[tuple(OPERATION)].count == 8000


def test_a_forked_child_begins_at_nothing() -> None:
    counters = Counters()
    told(counters, 1)
    _renew_all()  # what runs in a child
    assert counters.snapshot().operations == {}
    told(counters, 1)
    assert counters.snapshot().operations == {(*OPERATION, "ok"): 1}


@dataclass(frozen=True, slots=True)
class FrozenSession:
    """As the sessions of modules are."""

    shelf: SlottedShelf
    run: Run


def test_a_frozen_session_is_copied_and_its_models_stay() -> None:
    plain = FrozenSession(SlottedShelf("a"), make_run("t", "r"))
    session = observed_session(plain, notifier(Watch()))
    assert session.run is plain.run
    assert type(session.shelf) is not type(plain.shelf) is SlottedShelf


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        (Counters(), "should be a list of observers, not one Counters"),
        ([Counters], r"is a class; give an object, such as Counters\(\)"),
        ([object()], "has no method started; derive it from Observer"),
        ([None], "The observer NoneType has no method started"),
    ],
    ids=["no list", "a class", "another object", "nothing"],
)
def test_what_is_no_observer_is_refused_at_once(given: object, reason: str) -> None:
    with pytest.raises(ConfigurationError, match=reason):
        twinstore.open_storage({"Persistence": {"Scheduler": "Memory"}}, observers=cast("Any", given))


def test_both_ways_to_open_take_observers() -> None:
    watch = Watch()
    settings = {"Persistence": {"Scheduler": "Memory", "Memory": {"Store": unique("observers")}}}
    with twinstore.open_storage(settings, observers=[watch]) as storage:
        storage.scheduler.runs.get("t", "r")
    with twinstore.add_scheduler_storage(settings, observers=iter([watch])) as one:
        one.runs.get("t", "r")
    assert watch.calls[0][:5] == ("scheduler", "runs", "get", "Memory", CallOutcome.OK)
    assert watch.names == ["runs.get"] * 2
