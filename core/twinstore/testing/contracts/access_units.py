"""What a unit of work over the access promises: all or nothing, and unusable after an error of the store."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

import pytest

from twinstore.access import Add
from twinstore.errors import (
    ConflictError,
    DuplicateError,
    NotFoundError,
    TransactionAbortedError,
    TwinstoreError,
    ValidationError,
)
from twinstore.query import query_of_key
from twinstore.scope import Scope
from twinstore.testing.contracts.access_base import AccessBench, AccessCases, needs_transactions, query_of
from twinstore.testing.contracts.access_changing import Answer, Failure, unchanged
from twinstore.testing.entities import COUNTERS, DEVICES, LINES, NOTES, PARTS, PLACES
from twinstore.testing.rooms import COUNTER, DEVICE, LINE, NOTE, PART, PLACE

if TYPE_CHECKING:
    from twinstore.access import Access

__all__ = ["AccessUnitContract"]

Step = Callable[["Access", AccessBench], object]

# Errors of the store: whoever catches them must not commit what came before.
FATAL: Final[dict[str, tuple[type[TwinstoreError], Step]]] = {
    "key taken": (DuplicateError, lambda a, b: a.insert(NOTES, b.room.owner, NOTE.row(b.room))),
    "foreign key taken": (
        DuplicateError,
        lambda a, b: a.put(NOTES, b.elsewhere.owner, NOTE.row(b.elsewhere)),
    ),
    "unique value taken": (
        DuplicateError,
        lambda a, b: a.put(NOTES, b.room.owner, NOTE.row(b.room, 3, title=NOTE.row(b.room).model.title)),
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
    "another tenant": (ValidationError, lambda a, b: a.insert(NOTES, b.elsewhere.owner, NOTE.row(b.room))),
    "another row": (ValidationError, lambda a, b: a.change([NOTE.ref(b.room)], Answer(NOTE.row(b.room, 7)))),
    "rule": (ZeroDivisionError, lambda a, b: a.change([NOTE.ref(b.room)], Failure(ZeroDivisionError()))),
    "conflict of a rule": (
        DuplicateError,
        lambda a, b: a.change([NOTE.ref(b.room)], Failure(DuplicateError("in the eyes of the rule"))),
    ),
    "row that never changes": (
        DuplicateError,
        lambda a, b: a.change([LINE.ref(b.room)], Answer(LINE.changed(b.room))),
    ),
    "log without parent": (
        NotFoundError,
        lambda a, b: a.append(LINES, NOTE.ref(b.elsewhere), [LINE.row(b.elsewhere)]),
    ),
    "other content in a log": (
        ConflictError,
        lambda a, b: a.append(LINES, NOTE.ref(b.room), [LINE.row(b.room, 5), LINE.changed(b.room)]),
    ),
}
WRITES: Final[dict[str, Step]] = {
    "insert": lambda a, b: a.insert(PLACES, b.room.owner, PLACE.row(b.room)),
    "put": lambda a, b: a.put(PLACES, b.room.owner, PLACE.row(b.room)),
    "change": lambda a, b: a.change([PLACE.ref(b.room)], unchanged),
    "mark": lambda a, b: a.mark(COUNTERS, query_of(COUNTERS, b.room), {"amount": Add(1)}),
    "append": lambda a, b: a.append(LINES, NOTE.ref(b.room), [LINE.row(b.room, 4)]),
    "remove": lambda a, b: a.remove(PLACES, query_of(PLACES, b.room)),
    "unit": lambda a, b: a.unit(b.room.owner).__enter__(),
}


def furnish(bench: AccessBench) -> None:
    """Store a note with a log."""
    LINE.fill(bench.access, bench.room, 2)


def write_everywhere(access: Access, bench: AccessBench) -> None:
    """Write through every operation."""
    room = bench.room
    access.insert(NOTES, room.owner, NOTE.row(room, 1))
    access.put(DEVICES, room.owner, DEVICE.row(room))
    access.change([PLACE.ref(room)], Answer(PLACE.row(room)))
    access.insert(PARTS, room.owner, PART.row(room))
    access.append(LINES, NOTE.ref(room, 1), [LINE.row(room, 0, note_id=room.text(1), sequence=None)])
    access.insert(COUNTERS, room.owner, COUNTER.row(room, 0, amount=1))
    access.mark(COUNTERS, query_of(COUNTERS, room), {"amount": Add(1)})
    access.insert(COUNTERS, room.owner, COUNTER.row(room, 1))
    access.remove(COUNTERS, query_of_key(COUNTERS, room.owner, COUNTER.key(room, 1)))


def contents(bench: AccessBench) -> list[int]:
    """Return how many rows of each entity a room has that :func:`write_everywhere` fills."""
    return [len(bench.stored(sample, bench.room)) for sample in (NOTE, DEVICE, PLACE, PART, COUNTER)]


class AccessUnitContract(AccessCases):
    """``unit``, and the transactions that callers open."""

    @needs_transactions
    def test_everything_is_committed_together(self, bench: AccessBench) -> None:
        with bench.access.unit(bench.room.owner) as unit:
            write_everywhere(unit, bench)
            assert contents(bench) == [0, 0, 0, 0, 0]
            assert len(unit.page(NOTES, query_of(NOTES, bench.room))) == 1
            assert unit.find(PARTS, bench.room.owner, [PART.key(bench.room)]) == (PART.row(bench.room),)
        assert contents(bench) == [1, 1, 1, 1, 1]
        (counter,) = bench.stored(COUNTER, bench.room)
        assert counter.model.amount == 2

    @needs_transactions
    @pytest.mark.parametrize("error", [ZeroDivisionError, NotFoundError, KeyboardInterrupt])
    def test_any_exception_rolls_everything_back(
        self, bench: AccessBench, error: type[BaseException]
    ) -> None:
        def failing() -> None:
            with bench.access.unit(bench.room.owner) as unit:
                write_everywhere(unit, bench)
                raise error

        with pytest.raises(error):
            failing()
        assert contents(bench) == [0, 0, 0, 0, 0]

    @needs_transactions
    def test_a_unit_in_a_unit_goes_on_in_the_one_that_is_open(self, bench: AccessBench) -> None:
        def failing() -> None:
            with bench.access.unit(bench.room.owner) as outer:
                with outer.unit(bench.room.owner) as inner:
                    inner.insert(PLACES, bench.room.owner, PLACE.row(bench.room))
                assert len(outer.page(PLACES, query_of(PLACES, bench.room))) == 1
                assert bench.stored(PLACE, bench.room) == []
                raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            failing()
        assert bench.stored(PLACE, bench.room) == []

    @needs_transactions
    def test_an_exception_that_leaves_an_inner_unit_makes_the_whole_unusable(
        self, bench: AccessBench
    ) -> None:
        def inside(outer: Access) -> None:
            with outer.unit(bench.room.owner) as inner:
                inner.insert(PLACES, bench.room.owner, PLACE.row(bench.room))
                raise ZeroDivisionError

        def catching() -> None:
            with bench.access.unit(bench.room.owner) as outer:
                with pytest.raises(ZeroDivisionError):
                    inside(outer)
                with pytest.raises(TransactionAbortedError):
                    outer.find(PLACES, bench.room.owner, [PLACE.key(bench.room)])

        with pytest.raises(TransactionAbortedError):
            catching()
        assert bench.stored(PLACE, bench.room) == []

    @needs_transactions
    @pytest.mark.parametrize("name", FATAL)
    def test_an_error_of_the_store_makes_a_unit_unusable(self, bench: AccessBench, name: str) -> None:
        furnish(bench)
        error, step = FATAL[name]

        def catching() -> None:
            with bench.access.unit(bench.room.owner) as unit:
                unit.insert(PLACES, bench.room.owner, PLACE.row(bench.room))
                with pytest.raises(error):
                    step(unit, bench)
                for write in WRITES.values():
                    with pytest.raises(TransactionAbortedError):
                        write(unit, bench)

        with pytest.raises(TransactionAbortedError):
            catching()
        assert bench.stored(PLACE, bench.room) == []

    @needs_transactions
    @pytest.mark.parametrize("name", FATAL)
    def test_an_error_of_the_store_that_nobody_catches_comes_out_as_it_is(
        self, bench: AccessBench, name: str
    ) -> None:
        furnish(bench)
        error, step = FATAL[name]

        def breaking() -> None:
            with bench.access.unit(bench.room.owner) as unit:
                unit.insert(PLACES, bench.room.owner, PLACE.row(bench.room))
                step(unit, bench)

        with pytest.raises(error):
            breaking()
        assert bench.stored(PLACE, bench.room) == []

    @needs_transactions
    @pytest.mark.parametrize("name", HARMLESS)
    def test_an_error_of_a_rule_leaves_a_unit_usable_and_nothing_behind(
        self, bench: AccessBench, name: str
    ) -> None:
        furnish(bench)
        error, step = HARMLESS[name]
        before = (bench.stored(NOTE, bench.room), bench.stored(LINE, bench.room))
        with bench.access.unit(bench.room.owner) as unit:
            unit.insert(PLACES, bench.room.owner, PLACE.row(bench.room))
            with pytest.raises(error):
                step(unit, bench)
            unit.insert(PLACES, bench.room.owner, PLACE.row(bench.room, 1))
        assert len(bench.stored(PLACE, bench.room)) == 2
        assert (bench.stored(NOTE, bench.room), bench.stored(LINE, bench.room)) == before

    @needs_transactions
    @pytest.mark.parametrize("name", WRITES)
    def test_a_transaction_for_reading_refuses_to_write(self, bench: AccessBench, name: str) -> None:
        furnish(bench)
        with bench.backend.transaction(Scope(bench.tenant), read_only=True) as unit:
            with pytest.raises(ValidationError, match="read-only"):
                WRITES[name](unit, bench)
            assert unit.find(NOTES, bench.room.owner, [NOTE.key(bench.room)]) == (NOTE.row(bench.room),)
            assert unit.count(LINES, query_of(LINES, bench.room), "batch") == {bench.batch: 2}

    @needs_transactions
    @pytest.mark.parametrize("name", WRITES)
    def test_a_transaction_that_has_ended_refuses_every_call(self, bench: AccessBench, name: str) -> None:
        with bench.backend.transaction(Scope(bench.tenant), read_only=False) as unit:
            write_everywhere(unit, bench)
        with pytest.raises(TransactionAbortedError):
            WRITES[name](unit, bench)
        with pytest.raises(TransactionAbortedError):
            unit.find(NOTES, bench.room.owner, [NOTE.key(bench.room)])
        with pytest.raises(TransactionAbortedError):
            unit.page(NOTES, query_of(NOTES, bench.room))
        assert contents(bench) == [1, 1, 1, 1, 1]

    @needs_transactions
    def test_a_transaction_of_a_caller_is_the_unit_of_its_calls(self, bench: AccessBench) -> None:
        def failing() -> None:
            with bench.backend.transaction(Scope(bench.tenant), read_only=False) as transaction:
                with transaction.unit(bench.room.owner) as unit:
                    write_everywhere(unit, bench)
                assert contents(bench) == [0, 0, 0, 0, 0]
                raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            failing()
        assert contents(bench) == [0, 0, 0, 0, 0]
