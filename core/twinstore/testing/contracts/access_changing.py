"""What a step over some rows does: ``change``."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Final, TypeVar

import pytest

from twinstore.access import Moment, Ref, Row, Rows, UniqueKey
from twinstore.canonical import CanonicalModel
from twinstore.clock import truncate_to_millisecond
from twinstore.errors import ConcurrencyError, DuplicateError, NotFoundError, ValidationError
from twinstore.tenancy import ALL_TENANTS
from twinstore.testing.bench import outcomes
from twinstore.testing.contracts.access_base import AccessBench, AccessCases, each_home, needs_transactions
from twinstore.testing.entities import COUNTERS, DEVICES, NOTES, Counter, Note
from twinstore.testing.rooms import COUNTER, DEVICE, HOMES, NOTE, PART, PLACE, Home, Sample

if TYPE_CHECKING:
    from datetime import datetime

    from twinstore.access import Access

__all__ = ["AccessChangeContract", "AccessMomentContract"]

M = TypeVar("M", bound=CanonicalModel)

RIVALS: Final = 6
ROUNDS: Final = 5
MUTABLE: Final = [home for home in HOMES if not home.sample.entity.append_only]
LOGS: Final = [home for home in HOMES if home.sample.entity.append_only]
ROOTS: Final = [home for home in MUTABLE if home.sample.entity.parent is None and home.sample is not COUNTER]
each_mutable = pytest.mark.parametrize("home", MUTABLE, ids=str)
each_log = pytest.mark.parametrize("home", LOGS, ids=str)
each_root = pytest.mark.parametrize("home", ROOTS, ids=str)


class Answer:
    """A rule that always answers the same; ``given`` is what it was given at its last call."""

    def __init__(self, *rows: Row | None) -> None:
        """Take the answer."""
        self.rows = rows
        self.given: Rows = ()

    def __call__(self, rows: Rows, now: Moment) -> Rows:
        """Remember the rows and answer."""
        del now
        self.given = rows
        return self.rows


class Failure:
    """A rule that always raises; ``calls`` is how often it was asked."""

    def __init__(self, error: Exception) -> None:
        """Take the error."""
        self.error = error
        self.calls = 0

    def __call__(self, rows: Rows, now: Moment) -> Rows:
        """Raise the error."""
        del rows, now
        self.calls += 1
        raise self.error


def unchanged(rows: Rows, now: Moment) -> Rows:
    """Answer what was given."""
    del now
    return rows


def the(row: Row[M] | None) -> Row[M]:
    """Return a row that is there."""
    assert row is not None
    return row


class AccessChangeContract(AccessCases):
    """``change``."""

    @each_mutable
    def test_a_rule_gets_the_stored_row_and_its_answer_is_stored(
        self, bench: AccessBench, home: Home
    ) -> None:
        room, sample = bench.of(home), home.sample
        rows, rule = sample.fill(bench.access, room, 3), Answer(sample.changed(room, 1))
        assert bench.access.change([sample.ref(room, 1)], rule) == (sample.changed(room, 1),)
        assert rule.given == (rows[1],)
        keys = [sample.key(room, number) for number in range(3)]
        found = bench.access.find(sample.entity, room.owner, keys)
        assert found == (rows[0], sample.changed(room, 1), rows[2])

    @each_home
    def test_a_row_that_is_absent_is_given_as_none_and_inserted(self, bench: AccessBench, home: Home) -> None:
        room, sample = bench.of(home), home.sample
        sample.furnish(bench.access, room)
        row = sample.row(room, 2)
        rule = Answer(row)
        assert bench.access.change([sample.ref(room, 2)], rule) == (row,)
        assert rule.given == (None,)
        assert bench.get(sample, room, 2) == row

    @each_home
    def test_none_leaves_a_row_as_it_is(self, bench: AccessBench, home: Home) -> None:
        room, sample = bench.of(home), home.sample
        (row,) = sample.fill(bench.access, room, 1)
        stamp = bench.deployment.probe.stamp(sample.entity, sample.key(room))
        refs = [sample.ref(room), sample.ref(room, 1)]
        assert bench.access.change(refs, Answer(None, None)) == (row, None)
        assert bench.deployment.probe.stamp(sample.entity, sample.key(room)) == stamp
        assert bench.get(sample, room, 1) is None

    @each_mutable
    def test_a_row_may_be_returned_as_it_was_given(self, bench: AccessBench, home: Home) -> None:
        room, sample = bench.of(home), home.sample
        (row,) = sample.fill(bench.access, room, 1)
        assert bench.access.change([sample.ref(room)], unchanged) == (row,)
        assert bench.get(sample, room) == row

    @each_root
    def test_a_foreign_row_is_given_as_none_and_not_replaced(self, bench: AccessBench, home: Home) -> None:
        room, sample = bench.of(home), home.sample
        (row,), rule = sample.fill(bench.access, room, 1), Answer(sample.row(bench.elsewhere))
        with pytest.raises(DuplicateError):
            bench.access.change([sample.ref(bench.elsewhere)], rule)
        assert rule.given == (None,)
        assert bench.get(sample, room) == row

    def test_rows_of_several_entities_change_together(self, bench: AccessBench) -> None:
        room = bench.room
        NOTE.fill(bench.access, room, 1)
        DEVICE.fill(bench.access, room, 2)
        serial = UniqueKey(DEVICES.unique("serial"), (str(DEVICE.row(room, 1).model.serial),))
        refs: list[Ref] = [
            NOTE.ref(room),
            PLACE.ref(room, 3),
            Ref(DEVICES, room.owner, serial),
            COUNTER.ref(room, 5),
        ]
        wanted = (
            NOTE.changed(room),
            PLACE.row(room, 3),
            Row(DEVICE.changed(room, 1).model, {}),
            COUNTER.row(room, 5),
        )
        rule = Answer(*wanted)
        assert bench.access.change(refs, rule) == wanted
        assert rule.given == (NOTE.row(room), None, DEVICE.row(room, 1), None)
        assert [bench.get(NOTE, room), bench.get(PLACE, room, 3)] == [*wanted[:2]]
        assert [bench.get(DEVICE, room, 1), bench.get(COUNTER, room, 5)] == [*wanted[2:]]

    def test_a_parent_and_its_child_are_inserted_together(self, bench: AccessBench) -> None:
        rows = (DEVICE.row(bench.nobody), PART.row(bench.nobody))
        refs: list[Ref] = [DEVICE.ref(bench.nobody), PART.ref(bench.nobody)]
        assert bench.access.change(refs, Answer(*rows)) == rows
        assert (bench.get(DEVICE, bench.nobody), bench.get(PART, bench.nobody)) == rows

    def test_a_child_may_be_named_before_its_parent(self, bench: AccessBench) -> None:
        rows = (PART.row(bench.nobody), DEVICE.row(bench.nobody))
        refs: list[Ref] = [PART.ref(bench.nobody), DEVICE.ref(bench.nobody)]
        assert bench.access.change(refs, Answer(*rows)) == rows
        assert (bench.get(PART, bench.nobody), bench.get(DEVICE, bench.nobody)) == rows

    @needs_transactions
    def test_a_child_below_a_parent_of_somebody_else_is_refused_in_one_step_too(
        self, bench: AccessBench
    ) -> None:
        rows = (DEVICE.row(bench.nobody), PART.row(bench.nobody))
        foreign = Ref(PART.entity, bench.room.owner, PART.key(bench.nobody))
        for refs, answer in (
            ([DEVICE.ref(bench.nobody), foreign], rows),
            ([foreign, DEVICE.ref(bench.nobody)], rows[::-1]),
        ):
            with pytest.raises(NotFoundError):
                bench.access.change(refs, Answer(*answer))
            assert bench.get(DEVICE, bench.nobody) is None

    def test_a_row_is_inserted_where_no_row_has_a_unique_value(self, bench: AccessBench) -> None:
        row = DEVICE.row(bench.room, 1)
        key = UniqueKey(DEVICES.unique("serial"), (str(row.model.serial),))
        ref = Ref(DEVICES, bench.room.owner, key)
        assert bench.access.change([ref], Answer(row)) == (row,)
        assert bench.access.change([ref], unchanged) == (row,)

    def test_an_error_of_the_rule_changes_nothing(self, bench: AccessBench) -> None:
        (row,) = NOTE.fill(bench.access, bench.room, 1)
        with pytest.raises(ZeroDivisionError):
            bench.access.change([NOTE.ref(bench.room)], Failure(ZeroDivisionError()))
        assert bench.get(NOTE, bench.room) == row

    def test_a_lost_race_that_the_rule_finds_is_not_repeated(self, bench: AccessBench) -> None:
        NOTE.fill(bench.access, bench.room, 1)
        refs: list[list[Ref]] = [
            [NOTE.ref(bench.room)],
            [PLACE.ref(bench.room)],
            [NOTE.ref(bench.room), PLACE.ref(bench.room)],
        ]
        for step in refs:
            rule = Failure(ConcurrencyError("changed since you looked"))
            with pytest.raises(ConcurrencyError, match="since you looked"):
                bench.access.change(step, rule)
            assert rule.calls == 1

    @needs_transactions
    def test_a_refused_row_takes_the_others_of_its_step_back(self, bench: AccessBench) -> None:
        NOTE.fill(bench.access, bench.room, 2)
        refs: list[Ref] = [PLACE.ref(bench.room), NOTE.ref(bench.room, 1)]
        taken = NOTE.row(bench.room, 1, title=NOTE.row(bench.room).model.title)
        with pytest.raises(DuplicateError, match="note title"):
            bench.access.change(refs, Answer(PLACE.row(bench.room), taken))
        assert bench.get(PLACE, bench.room) is None
        assert bench.get(NOTE, bench.room, 1) == NOTE.row(bench.room, 1)

    def test_a_child_without_its_parent_is_refused(self, bench: AccessBench) -> None:
        for room in (bench.room, bench.nobody):
            with pytest.raises(NotFoundError):
                bench.access.change([PART.ref(room)], Answer(PART.row(room)))

    @each_mutable
    def test_another_row_than_the_one_that_was_asked_for_is_refused(
        self, bench: AccessBench, home: Home
    ) -> None:
        room, sample = bench.of(home), home.sample
        (row, _) = sample.fill(bench.access, room, 2)
        other = PLACE if sample is NOTE else NOTE
        wrong = [sample.row(room, 1), other.row(bench.room)]
        if sample.entity.tenant_field is not None:
            wrong.append(sample.row(bench.elsewhere))
        for answer in wrong:
            for scope in (room.owner, ALL_TENANTS):
                with pytest.raises(ValidationError):
                    bench.access.change([Ref(sample.entity, scope, sample.key(room))], Answer(answer))
        assert bench.get(sample, room) == row
        assert bench.get(sample, room, 1) == sample.row(room, 1)

    def test_a_row_without_the_unique_value_that_was_asked_for_is_refused(self, bench: AccessBench) -> None:
        ref = Ref(DEVICES, bench.room.owner, UniqueKey(DEVICES.unique("serial"), ("wanted",)))
        with pytest.raises(ValidationError, match="another serial"):
            bench.access.change([ref], Answer(DEVICE.row(bench.room, 1)))
        assert bench.get(DEVICE, bench.room, 1) is None

    @each_log
    def test_a_row_that_never_changes_is_given_and_not_replaced(self, bench: AccessBench, home: Home) -> None:
        room, sample = bench.of(home), home.sample
        (row,) = sample.fill(bench.access, room, 1)
        assert bench.access.change([sample.ref(room)], unchanged) == (row,)
        with pytest.raises(DuplicateError):
            bench.access.change([sample.ref(room)], Answer(sample.changed(room)))
        assert bench.get(sample, room) == row

    @pytest.mark.parametrize("sample", [NOTE, PLACE, DEVICE, COUNTER], ids=lambda sample: sample.entity.name)
    def test_rivals_changing_one_row_lose_no_change(
        self, bench: AccessBench, sample: Sample[CanonicalModel]
    ) -> None:
        field = {"notes": "attempts", "devices": "attempts"}.get(sample.entity.name, "amount")
        bench.access.insert(sample.entity, bench.room.owner, sample.row(bench.room, 0, **{field: 0}))

        def grow(found: Rows, now: Moment) -> Rows:
            del now
            row = the(found[0])
            return (Row(row.model.evolve(**{field: getattr(row.model, field) + 1}), row.storage),)

        def work(access: Access, number: int) -> None:
            del number
            for _ in range(ROUNDS):
                access.change([sample.ref(bench.room)], grow)

        assert outcomes(bench.race(work, range(RIVALS))) == {"ok": RIVALS}
        assert getattr(the(bench.get(sample, bench.room)).model, field) == RIVALS * ROUNDS

    def test_rivals_inserting_one_row_change_it_one_after_the_other(self, bench: AccessBench) -> None:
        def grow(found: Rows, now: Moment) -> Rows:
            del now
            row = found[0] or NOTE.row(bench.room, 0, attempts=0)
            assert isinstance(row.model, Note)
            return (Row(row.model.evolve(attempts=row.model.attempts + 1), row.storage),)

        def work(access: Access, number: int) -> None:
            del number
            access.change([NOTE.ref(bench.room)], grow)

        assert outcomes(bench.race(work, range(RIVALS))) == {"ok": RIVALS}
        assert the(bench.get(NOTE, bench.room)).model.attempts == RIVALS

    @needs_transactions
    def test_rivals_with_the_same_order_of_rows_do_not_block_each_other(self, bench: AccessBench) -> None:
        room = bench.room
        bench.access.insert(NOTES, room.owner, NOTE.row(room, 0, attempts=0))
        bench.access.insert(COUNTERS, room.owner, COUNTER.row(room, 0, amount=0))

        def grow(found: Rows, now: Moment) -> Rows:
            del now
            note, counter = found
            assert note is not None
            assert counter is not None
            assert isinstance(note.model, Note)
            assert isinstance(counter.model, Counter)
            assert note.model.attempts == counter.model.amount
            return (
                Row(note.model.evolve(attempts=note.model.attempts + 1), note.storage),
                Row(counter.model.evolve(amount=counter.model.amount + 1)),
            )

        def work(access: Access, number: int) -> None:
            del number
            access.change([NOTE.ref(room), COUNTER.ref(room)], grow)

        assert outcomes(bench.race(work, range(RIVALS))) == {"ok": RIVALS}
        assert the(bench.get(COUNTER, room)).model.amount == RIVALS


class AccessMomentContract(AccessCases):
    """The time that a rule is given: that of the server, after the rows are locked."""

    def test_the_time_is_an_instant_in_utc_with_whole_milliseconds(self, bench: AccessBench) -> None:
        now = bench.now()
        assert truncate_to_millisecond(now) == now
        assert now.utcoffset() == timedelta(0)

    def test_the_time_does_not_run_backwards(self, bench: AccessBench) -> None:
        found: list[datetime] = []

        def rule(given: Rows, now: Moment) -> Rows:
            found.extend([now(), now()])
            return given

        bench.access.insert(NOTES, bench.room.owner, NOTE.row(bench.room))
        for _ in range(3):
            bench.access.change([NOTE.ref(bench.room)], rule)
        assert found == sorted(found)

    def test_no_writer_of_a_row_sees_an_earlier_time_than_the_one_before(self, bench: AccessBench) -> None:
        bench.access.insert(NOTES, bench.room.owner, NOTE.row(bench.room, 0, due_at=None))

        def stamp(found: Rows, now: Moment) -> Rows:
            row = the(found[0])
            assert isinstance(row.model, Note)
            instant = now()
            assert row.model.due_at is None or row.model.due_at <= instant
            return (Row(row.model.evolve(due_at=instant), row.storage),)

        def work(access: Access, number: int) -> None:
            del number
            for _ in range(ROUNDS):
                access.change([NOTE.ref(bench.room)], stamp)

        assert outcomes(bench.race(work, range(RIVALS))) == {"ok": RIVALS}
