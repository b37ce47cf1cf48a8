"""What units of work over the access promise, and what two writers of one row do to each other.

A unit is all or nothing, and unusable after an error of the store. Of two writers the first one is held at
its write.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from datetime import datetime
from typing import TYPE_CHECKING, Final, Protocol, TypeVar

import pytest

from twinstore.access.protocol import Add
from twinstore.access.query import query_of_key
from twinstore.access.retry import CONTENTION_SECONDS
from twinstore.access.scope import Scope
from twinstore.catalog.conditions import Equals, IsNull
from twinstore.catalog.row import Row
from twinstore.errors import (
    ConcurrencyError,
    ConflictError,
    DuplicateError,
    NotFoundError,
    TransactionAbortedError,
    TwinstoreError,
    ValidationError,
)
from twinstore.models.canonical import CanonicalModel
from twinstore.testing.contracts.access_base import AccessCases, AccessWorkspace, needs_transactions, query_of
from twinstore.testing.contracts.access_changing import Answer, Failure, unchanged
from twinstore.testing.datasets import COUNTER, DEVICE, LINE, NOTE, PART, PLACE, RowFactory
from twinstore.testing.entities import COUNTERS, DEVICES, LINES, NOTES, PARTS, PLACES

if TYPE_CHECKING:
    from collections.abc import Generator

    from twinstore.access.protocol import Access, Rows, Rule, ServerClock
    from twinstore.testing.probe import Deployment

__all__ = ["AccessConcurrencyContract", "AccessUnitContract"]

Step = Callable[["Access", AccessWorkspace], object]

# Errors of the store: a caller that catches them must not commit the work before them.
FATAL: Final[dict[str, tuple[type[TwinstoreError], Step]]] = {
    "key taken": (DuplicateError, lambda a, b: a.insert(NOTES, b.dataset.owner, NOTE.row(b.dataset))),
    "foreign key taken": (
        DuplicateError,
        lambda a, b: a.put(NOTES, b.elsewhere.owner, NOTE.row(b.elsewhere)),
    ),
    "unique value taken": (
        DuplicateError,
        lambda a, b: a.put(
            NOTES, b.dataset.owner, NOTE.row(b.dataset, 3, title=NOTE.row(b.dataset).model.title)
        ),
    ),
    "changed into a taken key": (
        DuplicateError,
        lambda a, b: a.change([NOTE.ref(b.elsewhere)], Answer(NOTE.row(b.elsewhere))),
    ),
    "no parent": (NotFoundError, lambda a, b: a.insert(PARTS, b.untenanted.owner, PART.row(b.untenanted))),
    "changed without parent": (
        NotFoundError,
        lambda a, b: a.change([PART.ref(b.untenanted)], Answer(PART.row(b.untenanted))),
    ),
}
# Errors that a rule or an argument decides; the store has not failed, so the unit goes on.
HARMLESS: Final[dict[str, tuple[type[Exception], Step]]] = {
    "another tenant": (ValidationError, lambda a, b: a.insert(NOTES, b.elsewhere.owner, NOTE.row(b.dataset))),
    "another row": (
        ValidationError,
        lambda a, b: a.change([NOTE.ref(b.dataset)], Answer(NOTE.row(b.dataset, 7))),
    ),
    "rule": (ZeroDivisionError, lambda a, b: a.change([NOTE.ref(b.dataset)], Failure(ZeroDivisionError()))),
    "conflict of a rule": (
        DuplicateError,
        lambda a, b: a.change([NOTE.ref(b.dataset)], Failure(DuplicateError("in the eyes of the rule"))),
    ),
    "row that never changes": (
        DuplicateError,
        lambda a, b: a.change([LINE.ref(b.dataset)], Answer(LINE.changed(b.dataset))),
    ),
    "log without parent": (
        NotFoundError,
        lambda a, b: a.append(LINES, NOTE.ref(b.elsewhere), [LINE.row(b.elsewhere)]),
    ),
    "other content in a log": (
        ConflictError,
        lambda a, b: a.append(LINES, NOTE.ref(b.dataset), [LINE.row(b.dataset, 5), LINE.changed(b.dataset)]),
    ),
}
WRITES: Final[dict[str, Step]] = {
    "insert": lambda a, b: a.insert(PLACES, b.dataset.owner, PLACE.row(b.dataset)),
    "put": lambda a, b: a.put(PLACES, b.dataset.owner, PLACE.row(b.dataset)),
    "change": lambda a, b: a.change([PLACE.ref(b.dataset)], unchanged),
    "mark": lambda a, b: a.mark(COUNTERS, query_of(COUNTERS, b.dataset), {"amount": Add(1)}),
    "append": lambda a, b: a.append(LINES, NOTE.ref(b.dataset), [LINE.row(b.dataset, 4)]),
    "remove": lambda a, b: a.remove(PLACES, query_of(PLACES, b.dataset)),
    "unit": lambda a, b: a.unit(b.dataset.owner).__enter__(),
}


def store_parents(workspace: AccessWorkspace) -> None:
    """Store a note with a log."""
    LINE.fill(workspace.access, workspace.dataset, 2)


def write_everywhere(access: Access, workspace: AccessWorkspace) -> None:
    """Write through every operation."""
    dataset = workspace.dataset
    access.insert(NOTES, dataset.owner, NOTE.row(dataset, 1))
    access.put(DEVICES, dataset.owner, DEVICE.row(dataset))
    access.change([PLACE.ref(dataset)], Answer(PLACE.row(dataset)))
    access.insert(PARTS, dataset.owner, PART.row(dataset))
    access.append(LINES, NOTE.ref(dataset, 1), [LINE.row(dataset, 0, note_id=dataset.text(1), sequence=None)])
    access.insert(COUNTERS, dataset.owner, COUNTER.row(dataset, 0, amount=1))
    access.mark(COUNTERS, query_of(COUNTERS, dataset), {"amount": Add(1)})
    access.insert(COUNTERS, dataset.owner, COUNTER.row(dataset, 1))
    access.remove(COUNTERS, query_of_key(COUNTERS, dataset.owner, COUNTER.key(dataset, 1)))


def contents(workspace: AccessWorkspace) -> list[int]:
    """Return how many rows of each entity a data set has that :func:`write_everywhere` fills."""
    return [
        len(workspace.stored(factory, workspace.dataset)) for factory in (NOTE, DEVICE, PLACE, PART, COUNTER)
    ]


class AccessUnitContract(AccessCases):
    """``unit``, and the transactions that callers open."""

    @needs_transactions
    def test_everything_is_committed_together(self, workspace: AccessWorkspace) -> None:
        with workspace.access.unit(workspace.dataset.owner) as unit:
            write_everywhere(unit, workspace)
            assert contents(workspace) == [0, 0, 0, 0, 0]
            assert len(unit.page(NOTES, query_of(NOTES, workspace.dataset))) == 1
            assert unit.find(PARTS, workspace.dataset.owner, [PART.key(workspace.dataset)]) == (
                PART.row(workspace.dataset),
            )
        assert contents(workspace) == [1, 1, 1, 1, 1]
        (counter,) = workspace.stored(COUNTER, workspace.dataset)
        assert counter.model.amount == 2

    @needs_transactions
    @pytest.mark.parametrize("error", [ZeroDivisionError, NotFoundError, KeyboardInterrupt])
    def test_any_exception_rolls_everything_back(
        self, workspace: AccessWorkspace, error: type[BaseException]
    ) -> None:
        def failing() -> None:
            with workspace.access.unit(workspace.dataset.owner) as unit:
                write_everywhere(unit, workspace)
                raise error

        with pytest.raises(error):
            failing()
        assert contents(workspace) == [0, 0, 0, 0, 0]

    @needs_transactions
    def test_a_unit_in_a_unit_goes_on_in_the_one_that_is_open(self, workspace: AccessWorkspace) -> None:
        def failing() -> None:
            with workspace.access.unit(workspace.dataset.owner) as outer:
                with outer.unit(workspace.dataset.owner) as inner:
                    inner.insert(PLACES, workspace.dataset.owner, PLACE.row(workspace.dataset))
                assert len(outer.page(PLACES, query_of(PLACES, workspace.dataset))) == 1
                assert workspace.stored(PLACE, workspace.dataset) == []
                raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            failing()
        assert workspace.stored(PLACE, workspace.dataset) == []

    @needs_transactions
    def test_an_exception_that_leaves_an_inner_unit_makes_the_whole_unusable(
        self, workspace: AccessWorkspace
    ) -> None:
        def inside(outer: Access) -> None:
            with outer.unit(workspace.dataset.owner) as inner:
                inner.insert(PLACES, workspace.dataset.owner, PLACE.row(workspace.dataset))
                raise ZeroDivisionError

        def catching() -> None:
            with workspace.access.unit(workspace.dataset.owner) as outer:
                with pytest.raises(ZeroDivisionError):
                    inside(outer)
                with pytest.raises(TransactionAbortedError):
                    outer.find(PLACES, workspace.dataset.owner, [PLACE.key(workspace.dataset)])

        with pytest.raises(TransactionAbortedError):
            catching()
        assert workspace.stored(PLACE, workspace.dataset) == []

    @needs_transactions
    @pytest.mark.parametrize("name", FATAL)
    def test_an_error_of_the_store_makes_a_unit_unusable(self, workspace: AccessWorkspace, name: str) -> None:
        store_parents(workspace)
        error, step = FATAL[name]

        def catching() -> None:
            with workspace.access.unit(workspace.dataset.owner) as unit:
                unit.insert(PLACES, workspace.dataset.owner, PLACE.row(workspace.dataset))
                with pytest.raises(error):
                    step(unit, workspace)
                for write in WRITES.values():
                    with pytest.raises(TransactionAbortedError):
                        write(unit, workspace)

        with pytest.raises(TransactionAbortedError):
            catching()
        assert workspace.stored(PLACE, workspace.dataset) == []

    @needs_transactions
    @pytest.mark.parametrize("name", FATAL)
    def test_an_uncaught_error_of_the_store_is_raised_unchanged(
        self, workspace: AccessWorkspace, name: str
    ) -> None:
        store_parents(workspace)
        error, step = FATAL[name]

        def breaking() -> None:
            with workspace.access.unit(workspace.dataset.owner) as unit:
                unit.insert(PLACES, workspace.dataset.owner, PLACE.row(workspace.dataset))
                step(unit, workspace)

        with pytest.raises(error):
            breaking()
        assert workspace.stored(PLACE, workspace.dataset) == []

    @needs_transactions
    @pytest.mark.parametrize("name", HARMLESS)
    def test_an_error_of_a_rule_leaves_a_unit_usable_and_nothing_behind(
        self, workspace: AccessWorkspace, name: str
    ) -> None:
        store_parents(workspace)
        error, step = HARMLESS[name]
        before = (workspace.stored(NOTE, workspace.dataset), workspace.stored(LINE, workspace.dataset))
        with workspace.access.unit(workspace.dataset.owner) as unit:
            unit.insert(PLACES, workspace.dataset.owner, PLACE.row(workspace.dataset))
            with pytest.raises(error):
                step(unit, workspace)
            unit.insert(PLACES, workspace.dataset.owner, PLACE.row(workspace.dataset, 1))
        assert len(workspace.stored(PLACE, workspace.dataset)) == 2
        assert (
            workspace.stored(NOTE, workspace.dataset),
            workspace.stored(LINE, workspace.dataset),
        ) == before

    @needs_transactions
    @pytest.mark.parametrize("name", WRITES)
    def test_a_transaction_for_reading_refuses_to_write(self, workspace: AccessWorkspace, name: str) -> None:
        store_parents(workspace)
        with workspace.backend.transaction(Scope(workspace.tenant), read_only=True) as unit:
            with pytest.raises(ValidationError, match="read-only"):
                WRITES[name](unit, workspace)
            assert unit.find(NOTES, workspace.dataset.owner, [NOTE.key(workspace.dataset)]) == (
                NOTE.row(workspace.dataset),
            )
            assert unit.count(LINES, query_of(LINES, workspace.dataset), "batch") == {workspace.batch: 2}

    @needs_transactions
    @pytest.mark.parametrize("name", WRITES)
    def test_a_transaction_that_has_ended_refuses_every_call(
        self, workspace: AccessWorkspace, name: str
    ) -> None:
        with workspace.backend.transaction(Scope(workspace.tenant), read_only=False) as unit:
            write_everywhere(unit, workspace)
        with pytest.raises(TransactionAbortedError):
            WRITES[name](unit, workspace)
        with pytest.raises(TransactionAbortedError):
            unit.find(NOTES, workspace.dataset.owner, [NOTE.key(workspace.dataset)])
        with pytest.raises(TransactionAbortedError):
            unit.page(NOTES, query_of(NOTES, workspace.dataset))
        assert contents(workspace) == [1, 1, 1, 1, 1]

    @needs_transactions
    def test_a_transaction_of_a_caller_is_the_unit_of_its_calls(self, workspace: AccessWorkspace) -> None:
        def failing() -> None:
            with workspace.backend.transaction(Scope(workspace.tenant), read_only=False) as transaction:
                with transaction.unit(workspace.dataset.owner) as unit:
                    write_everywhere(unit, workspace)
                assert contents(workspace) == [0, 0, 0, 0, 0]
                raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            failing()
        assert contents(workspace) == [0, 0, 0, 0, 0]


Factory = RowFactory[CanonicalModel]
T = TypeVar("T")

TIMEOUT_SECONDS: Final = 60.0
POLL_SECONDS: Final = 0.005
# How long a second writer may take to arrive where the deployment does not report who waits.
ARRIVAL_SECONDS: Final = 0.05
# A number in a row of each entity.
NUMBERS: Final[dict[str, str]] = {
    "notes": "attempts",
    "devices": "attempts",
    "places": "amount",
    "counters": "amount",
}
each_counted = pytest.mark.parametrize(
    "factory", [NOTE, PLACE, DEVICE, COUNTER], ids=lambda item: item.entity.name
)
each_held = pytest.mark.parametrize("factory", [NOTE, DEVICE, COUNTER], ids=lambda item: item.entity.name)
each_childless = pytest.mark.parametrize("factory", [PLACE, COUNTER], ids=lambda item: item.entity.name)
each_versioned = pytest.mark.parametrize("factory", [NOTE, DEVICE], ids=lambda item: item.entity.name)
# What another writer does to a row that a unit has read.
SINCE: Final[dict[str, Callable[[Access, AccessWorkspace, Factory], object]]] = {
    "put": lambda a, b, f: a.put(f.entity, b.dataset.owner, f.changed(b.dataset)),
    "change": lambda a, b, f: a.change([f.ref(b.dataset)], growing(f)),
    "mark": lambda a, b, f: a.mark(f.entity, query_of(f.entity, b.dataset), {"holder": "second"}),
    "amend": lambda a, b, f: a.amend(f.entity, query_of(f.entity, b.dataset), {"holder": "second"}),
    "remove": lambda a, b, f: a.remove(f.entity, query_of(f.entity, b.dataset)),
}


class Start(Protocol):
    """Starts a second writer; returns when it has ended or waits for the first one."""

    def __call__(self, action: Callable[[Access], T]) -> Future[T]:
        """Return what becomes of the action."""
        ...


class AccessConcurrencyContract(AccessCases):
    """A second writer acts between the look of the first one and its commit, in every run."""

    @each_counted
    def test_a_change_keeps_what_a_second_writer_changed_after_its_look(
        self, workspace: AccessWorkspace, factory: Factory
    ) -> None:
        store(workspace, factory, 1)
        grow = growing(factory)
        ref = factory.ref(workspace.dataset)
        overtake_change(workspace, factory, grow, lambda second: second.change([ref], grow))
        assert stored_value(workspace, factory, NUMBERS[factory.entity.name]) == 3

    @each_held
    def test_a_change_keeps_the_mark_that_was_set_after_its_look(
        self, workspace: AccessWorkspace, factory: Factory
    ) -> None:
        store(workspace, factory, 1, holder="first")
        query = query_of(factory.entity, workspace.dataset)
        marked = overtake_change(
            workspace,
            factory,
            growing(factory),
            lambda second: second.mark(factory.entity, query, {"holder": "second"}),
        )
        # A store with locks passes over the row, or marks it when the first writer has ended.
        assert stored_value(workspace, factory, "holder") == ("second" if marked else "first")
        assert stored_value(workspace, factory, NUMBERS[factory.entity.name]) == 2

    @needs_transactions
    @each_childless
    def test_a_row_that_has_left_the_list_is_not_removed(
        self, workspace: AccessWorkspace, factory: Factory
    ) -> None:
        query = query_of(factory.entity, workspace.dataset, Equals("amount", 1))
        after = store(workspace, factory, 1)
        removed = overtake_unit(
            workspace,
            lambda first: first.change([factory.ref(workspace.dataset)], Answer(after)),
            lambda second: second.remove(factory.entity, query),
        )
        assert removed == 0
        assert workspace.stored(factory, workspace.dataset) == [after]

    @needs_transactions
    @each_versioned
    def test_a_row_that_has_left_the_list_is_not_amended(
        self, workspace: AccessWorkspace, factory: Factory
    ) -> None:
        query = query_of(factory.entity, workspace.dataset, Equals("attempts", 1))
        after = store(workspace, factory, 1)
        amended = overtake_unit(
            workspace,
            lambda first: first.change([factory.ref(workspace.dataset)], Answer(after)),
            lambda second: second.amend(factory.entity, query, {"holder": "second"}),
        )
        assert amended == 0
        assert workspace.stored(factory, workspace.dataset) == [after]

    @needs_transactions
    @each_versioned
    @pytest.mark.parametrize("name", SINCE)
    def test_a_unit_loses_against_what_was_written_since_it_began(
        self, workspace: AccessWorkspace, factory: Factory, name: str
    ) -> None:
        store(workspace, factory, 1, holder=None)

        def confirm(unit: Access, other: Access) -> None:
            """Change nothing, which counts as a change all the same."""
            (seen,) = unit.find(factory.entity, workspace.dataset.owner, [factory.key(workspace.dataset)])
            SINCE[name](other, workspace, factory)
            unit.change([factory.ref(workspace.dataset)], Answer(seen))

        with pytest.raises(ConcurrencyError):
            next_to_another(workspace, confirm)

    @needs_transactions
    def test_a_unit_reads_one_state_also_after_it_has_written(self, workspace: AccessWorkspace) -> None:
        dataset, rows = workspace.dataset, NOTE.fill(workspace.access, workspace.dataset, 2)

        def read_on(unit: Access, other: Access) -> None:
            assert unit.find(NOTES, dataset.owner, [NOTE.key(dataset)]) == (rows[0],)
            unit.put(PLACES, dataset.owner, PLACE.row(dataset))
            other.put(NOTES, dataset.owner, NOTE.changed(dataset))
            assert unit.find(NOTES, dataset.owner, [NOTE.key(dataset)]) == (rows[0],)
            assert len(unit.page(PLACES, query_of(PLACES, dataset))) == 1

        next_to_another(workspace, read_on)

    @needs_transactions
    @each_versioned
    def test_a_row_that_a_unit_has_marked_is_marked_for_no_other(
        self, workspace: AccessWorkspace, factory: Factory
    ) -> None:
        for number in range(2):
            store(workspace, factory, 1, number, holder=None)
        free = query_of(factory.entity, workspace.dataset, IsNull("holder"), limit=1)
        marked: list[Row[CanonicalModel]] = []
        others = overtake_unit(
            workspace,
            lambda first: marked.extend(first.mark(factory.entity, free, {"holder": "first"})),
            lambda second: second.mark(factory.entity, free, {"holder": "second"}),
        )
        found = workspace.stored(factory, workspace.dataset)
        assert [row for row in found if row in marked] == marked
        assert len(marked) == 1
        assert [row for row in found if row in others] == list(others)

    @needs_transactions
    def test_a_writer_gets_a_time_after_the_one_before_has_let_go(self, workspace: AccessWorkspace) -> None:
        store(workspace, NOTE, 1, due_at=None)
        ref = NOTE.ref(workspace.dataset)
        times: list[datetime] = []

        def stamp(rows: Rows, now: ServerClock) -> Rows:
            return (evolved(rows[0], due_at=now()),)

        def stay(first: Access) -> None:
            """Hold the row until the server clock has advanced."""
            times.append(time_in(first, workspace))
            while (later := time_in(first, workspace)) <= times[0]:
                pass
            times.append(later)

        overtake_unit(
            workspace,
            lambda first: first.change([ref], growing(NOTE)),
            lambda second: second.change([ref], stamp),
            stay,
        )
        stored = stored_value(workspace, NOTE, "due_at")
        assert isinstance(stored, datetime)
        assert stored >= times[1]


def next_to_another(workspace: AccessWorkspace, action: Callable[[Access, Access], None]) -> None:
    """Act in a transaction of a caller, and through another backend."""
    with (
        workspace.deployment.open_module(workspace.module) as other,
        workspace.backend.transaction(Scope(workspace.tenant), read_only=False) as unit,
    ):
        action(unit, other.repositories)


def store(
    workspace: AccessWorkspace, factory: Factory, count: int, number: int = 0, **changes: object
) -> Row[CanonicalModel]:
    """Store a row with a count; return it as :func:`growing` leaves it."""
    dataset, field = workspace.dataset, NUMBERS[factory.entity.name]
    row = factory.row(dataset, number, **{field: count}, **changes)
    workspace.access.insert(factory.entity, dataset.owner, row)
    return evolved(row, **{field: count + 1})


def growing(factory: Factory) -> Rule:
    """Return a rule that counts a row up."""
    field = NUMBERS[factory.entity.name]

    def grow(rows: Rows, now: ServerClock) -> Rows:
        del now
        return (evolved(rows[0], **{field: getattr(the(rows[0]).model, field) + 1}),)

    return grow


def the(row: Row[CanonicalModel] | None) -> Row[CanonicalModel]:
    """Return a row that is there."""
    assert row is not None
    return row


def evolved(row: Row[CanonicalModel] | None, **changes: object) -> Row[CanonicalModel]:
    """Return a row with other values."""
    return Row(the(row).model.evolve(**changes), the(row).storage)


def stored_value(workspace: AccessWorkspace, factory: Factory, field: str) -> object:
    """Return a value of the stored row."""
    return getattr(the(workspace.get(factory, workspace.dataset)).model, field)


def time_in(access: Access, workspace: AccessWorkspace) -> datetime:
    """Return the time of the server, without a write."""
    found: list[datetime] = []

    def look(rows: Rows, now: ServerClock) -> Rows:
        found.append(now())
        return (None,) * len(rows)

    access.change([PLACE.ref(workspace.dataset)], look)
    return found[-1]


def overtake_change(
    workspace: AccessWorkspace, factory: Factory, rule: Rule, second: Callable[[Access], T]
) -> T:
    """Change a row; the second writer acts after the rule has been given the row.

    Returns:
        What the second writer got.
    """
    running: list[Future[T]] = []

    def meanwhile(rows: Rows, now: ServerClock) -> Rows:
        # Asked again if the store repeats the step, because it found the change of the second writer.
        if not running:
            running.append(start(second))
        return rule(rows, now)

    with second_writer(workspace) as start:
        workspace.access.change([factory.ref(workspace.dataset)], meanwhile)
        return running[0].result(TIMEOUT_SECONDS)


def overtake_unit(
    workspace: AccessWorkspace,
    first: Callable[[Access], object],
    second: Callable[[Access], T],
    stay: Callable[[Access], None] = lambda _: None,
) -> T:
    """Write in a unit; the second writer acts before the unit is committed.

    Args:
        workspace: where.
        first: what the unit writes.
        second: what the second writer does.
        stay: what the unit does when the second writer waits for it.

    Returns:
        What the second writer got.
    """
    with second_writer(workspace) as start:
        with workspace.access.unit(workspace.dataset.owner) as unit:
            first(unit)
            running = start(second)
            stay(unit)
        return running.result(TIMEOUT_SECONDS)


@contextmanager
def second_writer(workspace: AccessWorkspace) -> Generator[Start]:
    """Open another backend and a thread for a second writer."""
    deployment = workspace.deployment
    with deployment.open_module(workspace.module) as backend, ThreadPoolExecutor(1) as pool:

        def start(action: Callable[[Access], T]) -> Future[T]:
            running = pool.submit(action, backend.repositories)
            until_it_waits(deployment, running)
            return running

        yield start


def until_it_waits(deployment: Deployment, running: Future[T]) -> None:
    """Return when a writer has ended or, as the deployment reports, waits for another one.

    One that repeats instead is seen by chance and gives up after a while, so it is not awaited for as long.
    """
    waiting: Callable[[], bool] | None = getattr(deployment, "waiting", None)
    if waiting is None:
        wait([running], ARRIVAL_SECONDS)
        return
    end = time.monotonic() + CONTENTION_SECONDS / 2
    while time.monotonic() < end and not waiting() and not wait([running], POLL_SECONDS).done:
        pass
