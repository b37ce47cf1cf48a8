"""What a unit of work over the access promises: all or nothing, and unusable after an error of the store."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

import pytest

from twinstore.access.protocol import Add
from twinstore.access.query import query_of_key
from twinstore.access.scope import Scope
from twinstore.errors import (
    ConflictError,
    DuplicateError,
    NotFoundError,
    TransactionAbortedError,
    TwinstoreError,
    ValidationError,
)
from twinstore.testing.contracts.access_base import AccessCases, AccessWorkspace, needs_transactions, query_of
from twinstore.testing.contracts.access_changing import Answer, Failure, unchanged
from twinstore.testing.datasets import COUNTER, DEVICE, LINE, NOTE, PART, PLACE
from twinstore.testing.entities import COUNTERS, DEVICES, LINES, NOTES, PARTS, PLACES

if TYPE_CHECKING:
    from twinstore.access.protocol import Access

__all__ = ["AccessUnitContract"]

Step = Callable[["Access", AccessWorkspace], object]

# Errors of the store: whoever catches them must not commit what came before.
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
    "no parent": (NotFoundError, lambda a, b: a.insert(PARTS, b.nobody.owner, PART.row(b.nobody))),
    "changed without parent": (
        NotFoundError,
        lambda a, b: a.change([PART.ref(b.nobody)], Answer(PART.row(b.nobody))),
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
    def test_an_error_of_the_store_that_nobody_catches_comes_out_as_it_is(
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
