"""What two writers of one row do to each other when the first one is held at its write."""

from __future__ import annotations

import time
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from datetime import datetime
from typing import TYPE_CHECKING, Final, Protocol, TypeVar

import pytest

from twinstore.catalog.conditions import Equals, IsNull
from twinstore.catalog.row import Row
from twinstore.models.canonical import CanonicalModel
from twinstore.testing.contracts.access_base import AccessCases, AccessWorkspace, needs_transactions, query_of
from twinstore.testing.contracts.access_changing import Answer
from twinstore.testing.datasets import COUNTER, DEVICE, NOTE, PLACE, RowFactory

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from twinstore.access.protocol import Access, Moment, Rows, Rule
    from twinstore.testing.probe import Deployment

__all__ = ["AccessRivalContract"]

Factory = RowFactory[CanonicalModel]
T = TypeVar("T")

PATIENCE_SECONDS: Final = 60.0
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


class Start(Protocol):
    """Starts a second writer; returns when it has ended or waits for the first one."""

    def __call__(self, action: Callable[[Access], T]) -> Future[T]:
        """Return what becomes of the action."""
        ...


class AccessRivalContract(AccessCases):
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

        def stamp(rows: Rows, now: Moment) -> Rows:
            return (evolved(rows[0], due_at=now()),)

        def stay(first: Access) -> None:
            """Hold the row until the clock of the server has moved on."""
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

    def grow(rows: Rows, now: Moment) -> Rows:
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

    def look(rows: Rows, now: Moment) -> Rows:
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

    def meanwhile(rows: Rows, now: Moment) -> Rows:
        # Asked again if the store repeats the step, because it found the change of the second writer.
        if not running:
            running.append(start(second))
        return rule(rows, now)

    with second_writer(workspace) as start:
        workspace.access.change([factory.ref(workspace.dataset)], meanwhile)
        return running[0].result(PATIENCE_SECONDS)


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
        return running.result(PATIENCE_SECONDS)


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
    """Return when a writer has ended or, as the deployment reports, waits for another one."""
    waiting: Callable[[], bool] | None = getattr(deployment, "waiting", None)
    if waiting is None:
        wait([running], ARRIVAL_SECONDS)
        return
    end = time.monotonic() + PATIENCE_SECONDS
    while not waiting() and not wait([running], POLL_SECONDS).done:
        assert time.monotonic() < end, "the second writer neither ended nor waited"
