"""What steps over some rows do: ``change``, and ``mark`` and ``remove`` for the first rows of a list."""

from __future__ import annotations

from datetime import timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Final, TypeVar

import pytest

from twinstore.access.paging import SortKey
from twinstore.access.protocol import UNSET, Add, FieldUpdates, Ref, Rows, ServerClock, ServerTime, UniqueKey
from twinstore.access.query import expired_query, query_of_key
from twinstore.catalog.conditions import AtLeast, Equals, IsNull, IsPresent, OneOf
from twinstore.catalog.entity import Entity
from twinstore.catalog.row import Row
from twinstore.catalog.tenancy import ALL_TENANTS, NO_TENANT
from twinstore.clock import truncate_to_millisecond
from twinstore.errors import ConcurrencyError, DuplicateError, NotFoundError, ValidationError
from twinstore.models.canonical import CanonicalModel
from twinstore.models.typed_objects import decimal_object
from twinstore.testing.contracts.access_base import (
    AccessCases,
    AccessWorkspace,
    by_key,
    each_home,
    needs_transactions,
    query_of,
)
from twinstore.testing.datasets import (
    COUNTER,
    DEVICE,
    ENTRY,
    EVENT,
    LINE,
    NOTE,
    OWNER_CASES,
    PART,
    PLACE,
    Dataset,
    OwnerCase,
    RowFactory,
)
from twinstore.testing.entities import (
    COUNTERS,
    DEVICES,
    ENTRIES,
    EVENTS,
    LINES,
    NOTES,
    PARTS,
    Counter,
    Device,
    Level,
    Note,
)
from twinstore.testing.instants import at
from twinstore.testing.workspace import outcomes

if TYPE_CHECKING:
    from datetime import datetime

    from twinstore.access.protocol import Access
    from twinstore.access.query import Query

__all__ = ["AccessChangeContract", "AccessMarkContract", "AccessMomentContract", "AccessRemoveContract"]

M = TypeVar("M", bound=CanonicalModel)

CONCURRENCY: Final = 6
ROUNDS: Final = 5
MUTABLE: Final = [owner_case for owner_case in OWNER_CASES if not owner_case.factory.entity.append_only]
LOGS: Final = [owner_case for owner_case in OWNER_CASES if owner_case.factory.entity.append_only]
ROOTS: Final = [
    owner_case
    for owner_case in MUTABLE
    if owner_case.factory.entity.parent is None and owner_case.factory is not COUNTER
]
each_mutable = pytest.mark.parametrize("owner_case", MUTABLE, ids=str)
each_log = pytest.mark.parametrize("owner_case", LOGS, ids=str)
each_root = pytest.mark.parametrize("owner_case", ROOTS, ids=str)


class Answer:
    """A rule that always answers the same; ``given`` is what it was given at its last call."""

    def __init__(self, *rows: Row | None) -> None:
        """Take the answer."""
        self.rows = rows
        self.given: Rows = ()

    def __call__(self, rows: Rows, now: ServerClock) -> Rows:
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

    def __call__(self, rows: Rows, now: ServerClock) -> Rows:
        """Raise the error."""
        del rows, now
        self.calls += 1
        raise self.error


def unchanged(rows: Rows, now: ServerClock) -> Rows:
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
        self, workspace: AccessWorkspace, owner_case: OwnerCase
    ) -> None:
        dataset, factory = workspace.of(owner_case), owner_case.factory
        rows, rule = factory.fill(workspace.access, dataset, 3), Answer(factory.changed(dataset, 1))
        assert workspace.access.change([factory.ref(dataset, 1)], rule) == (factory.changed(dataset, 1),)
        assert rule.given == (rows[1],)
        keys = [factory.key(dataset, number) for number in range(3)]
        found = workspace.access.find(factory.entity, dataset.owner, keys)
        assert found == (rows[0], factory.changed(dataset, 1), rows[2])

    @each_home
    def test_a_row_that_is_absent_is_given_as_none_and_inserted(
        self, workspace: AccessWorkspace, owner_case: OwnerCase
    ) -> None:
        dataset, factory = workspace.of(owner_case), owner_case.factory
        factory.store_parents(workspace.access, dataset)
        row = factory.row(dataset, 2)
        rule = Answer(row)
        assert workspace.access.change([factory.ref(dataset, 2)], rule) == (row,)
        assert rule.given == (None,)
        assert workspace.get(factory, dataset, 2) == row

    @each_home
    def test_none_leaves_a_row_as_it_is(self, workspace: AccessWorkspace, owner_case: OwnerCase) -> None:
        dataset, factory = workspace.of(owner_case), owner_case.factory
        (row,) = factory.fill(workspace.access, dataset, 1)
        stamp = workspace.deployment.probe.stamp(factory.entity, factory.key(dataset))
        refs = [factory.ref(dataset), factory.ref(dataset, 1)]
        assert workspace.access.change(refs, Answer(None, None)) == (row, None)
        assert workspace.deployment.probe.stamp(factory.entity, factory.key(dataset)) == stamp
        assert workspace.get(factory, dataset, 1) is None

    @each_mutable
    def test_a_row_may_be_returned_as_it_was_given(
        self, workspace: AccessWorkspace, owner_case: OwnerCase
    ) -> None:
        dataset, factory = workspace.of(owner_case), owner_case.factory
        (row,) = factory.fill(workspace.access, dataset, 1)
        assert workspace.access.change([factory.ref(dataset)], unchanged) == (row,)
        assert workspace.get(factory, dataset) == row

    @each_root
    def test_a_foreign_row_is_given_as_none_and_not_replaced(
        self, workspace: AccessWorkspace, owner_case: OwnerCase
    ) -> None:
        dataset, factory = workspace.of(owner_case), owner_case.factory
        (row,), rule = factory.fill(workspace.access, dataset, 1), Answer(factory.row(workspace.elsewhere))
        with pytest.raises(DuplicateError):
            workspace.access.change([factory.ref(workspace.elsewhere)], rule)
        assert rule.given == (None,)
        assert workspace.get(factory, dataset) == row

    def test_rows_of_several_entities_change_together(self, workspace: AccessWorkspace) -> None:
        dataset = workspace.dataset
        NOTE.fill(workspace.access, dataset, 1)
        DEVICE.fill(workspace.access, dataset, 2)
        serial = UniqueKey(DEVICES.unique("serial"), (str(DEVICE.row(dataset, 1).model.serial),))
        refs: list[Ref] = [
            NOTE.ref(dataset),
            PLACE.ref(dataset, 3),
            Ref(DEVICES, dataset.owner, serial),
            COUNTER.ref(dataset, 5),
        ]
        wanted = (
            NOTE.changed(dataset),
            PLACE.row(dataset, 3),
            Row(DEVICE.changed(dataset, 1).model, {}),
            COUNTER.row(dataset, 5),
        )
        rule = Answer(*wanted)
        assert workspace.access.change(refs, rule) == wanted
        assert rule.given == (NOTE.row(dataset), None, DEVICE.row(dataset, 1), None)
        assert [workspace.get(NOTE, dataset), workspace.get(PLACE, dataset, 3)] == [*wanted[:2]]
        assert [workspace.get(DEVICE, dataset, 1), workspace.get(COUNTER, dataset, 5)] == [*wanted[2:]]

    def test_a_parent_and_its_child_are_inserted_together(self, workspace: AccessWorkspace) -> None:
        rows = (DEVICE.row(workspace.untenanted), PART.row(workspace.untenanted))
        refs: list[Ref] = [DEVICE.ref(workspace.untenanted), PART.ref(workspace.untenanted)]
        assert workspace.access.change(refs, Answer(*rows)) == rows
        assert (
            workspace.get(DEVICE, workspace.untenanted),
            workspace.get(PART, workspace.untenanted),
        ) == rows

    def test_a_child_may_be_named_before_its_parent(self, workspace: AccessWorkspace) -> None:
        rows = (PART.row(workspace.untenanted), DEVICE.row(workspace.untenanted))
        refs: list[Ref] = [PART.ref(workspace.untenanted), DEVICE.ref(workspace.untenanted)]
        assert workspace.access.change(refs, Answer(*rows)) == rows
        assert (
            workspace.get(PART, workspace.untenanted),
            workspace.get(DEVICE, workspace.untenanted),
        ) == rows

    @needs_transactions
    def test_a_child_of_a_parent_of_another_tenant_is_refused_in_one_step_too(
        self, workspace: AccessWorkspace
    ) -> None:
        rows = (DEVICE.row(workspace.untenanted), PART.row(workspace.untenanted))
        foreign = Ref(PART.entity, workspace.dataset.owner, PART.key(workspace.untenanted))
        for refs, answer in (
            ([DEVICE.ref(workspace.untenanted), foreign], rows),
            ([foreign, DEVICE.ref(workspace.untenanted)], rows[::-1]),
        ):
            with pytest.raises(NotFoundError):
                workspace.access.change(refs, Answer(*answer))
            assert workspace.get(DEVICE, workspace.untenanted) is None

    def test_a_row_is_inserted_where_no_row_has_a_unique_value(self, workspace: AccessWorkspace) -> None:
        row = DEVICE.row(workspace.dataset, 1)
        key = UniqueKey(DEVICES.unique("serial"), (str(row.model.serial),))
        ref = Ref(DEVICES, workspace.dataset.owner, key)
        assert workspace.access.change([ref], Answer(row)) == (row,)
        assert workspace.access.change([ref], unchanged) == (row,)

    def test_an_error_of_the_rule_changes_nothing(self, workspace: AccessWorkspace) -> None:
        (row,) = NOTE.fill(workspace.access, workspace.dataset, 1)
        with pytest.raises(ZeroDivisionError):
            workspace.access.change([NOTE.ref(workspace.dataset)], Failure(ZeroDivisionError()))
        assert workspace.get(NOTE, workspace.dataset) == row

    def test_a_lost_race_that_the_rule_finds_is_not_repeated(self, workspace: AccessWorkspace) -> None:
        NOTE.fill(workspace.access, workspace.dataset, 1)
        refs: list[list[Ref]] = [
            [NOTE.ref(workspace.dataset)],
            [PLACE.ref(workspace.dataset)],
            [NOTE.ref(workspace.dataset), PLACE.ref(workspace.dataset)],
        ]
        for step in refs:
            rule = Failure(ConcurrencyError("changed since you looked"))
            with pytest.raises(ConcurrencyError, match="since you looked"):
                workspace.access.change(step, rule)
            assert rule.calls == 1

    @needs_transactions
    def test_a_refused_row_takes_the_others_of_its_step_back(self, workspace: AccessWorkspace) -> None:
        NOTE.fill(workspace.access, workspace.dataset, 2)
        refs: list[Ref] = [PLACE.ref(workspace.dataset), NOTE.ref(workspace.dataset, 1)]
        taken = NOTE.row(workspace.dataset, 1, title=NOTE.row(workspace.dataset).model.title)
        with pytest.raises(DuplicateError, match="note title"):
            workspace.access.change(refs, Answer(PLACE.row(workspace.dataset), taken))
        assert workspace.get(PLACE, workspace.dataset) is None
        assert workspace.get(NOTE, workspace.dataset, 1) == NOTE.row(workspace.dataset, 1)

    def test_a_child_without_its_parent_is_refused(self, workspace: AccessWorkspace) -> None:
        for dataset in (workspace.dataset, workspace.untenanted):
            with pytest.raises(NotFoundError):
                workspace.access.change([PART.ref(dataset)], Answer(PART.row(dataset)))

    @each_mutable
    def test_another_row_than_the_one_that_was_asked_for_is_refused(
        self, workspace: AccessWorkspace, owner_case: OwnerCase
    ) -> None:
        dataset, factory = workspace.of(owner_case), owner_case.factory
        (row, _) = factory.fill(workspace.access, dataset, 2)
        other = PLACE if factory is NOTE else NOTE
        wrong = [factory.row(dataset, 1), other.row(workspace.dataset)]
        if factory.entity.tenant_field is not None:
            wrong.append(factory.row(workspace.elsewhere))
        for answer in wrong:
            for scope in (dataset.owner, ALL_TENANTS):
                with pytest.raises(ValidationError):
                    workspace.access.change(
                        [Ref(factory.entity, scope, factory.key(dataset))], Answer(answer)
                    )
        assert workspace.get(factory, dataset) == row
        assert workspace.get(factory, dataset, 1) == factory.row(dataset, 1)

    def test_a_row_without_the_unique_value_that_was_asked_for_is_refused(
        self, workspace: AccessWorkspace
    ) -> None:
        ref = Ref(DEVICES, workspace.dataset.owner, UniqueKey(DEVICES.unique("serial"), ("wanted",)))
        with pytest.raises(ValidationError, match="another serial"):
            workspace.access.change([ref], Answer(DEVICE.row(workspace.dataset, 1)))
        assert workspace.get(DEVICE, workspace.dataset, 1) is None

    @each_log
    def test_a_row_that_never_changes_is_given_and_not_replaced(
        self, workspace: AccessWorkspace, owner_case: OwnerCase
    ) -> None:
        dataset, factory = workspace.of(owner_case), owner_case.factory
        (row,) = factory.fill(workspace.access, dataset, 1)
        assert workspace.access.change([factory.ref(dataset)], unchanged) == (row,)
        with pytest.raises(DuplicateError):
            workspace.access.change([factory.ref(dataset)], Answer(factory.changed(dataset)))
        assert workspace.get(factory, dataset) == row

    @pytest.mark.parametrize(
        "factory", [NOTE, PLACE, DEVICE, COUNTER], ids=lambda factory: factory.entity.name
    )
    def test_concurrent_changes_of_one_row_lose_no_change(
        self, workspace: AccessWorkspace, factory: RowFactory[CanonicalModel]
    ) -> None:
        field = {"notes": "attempts", "devices": "attempts"}.get(factory.entity.name, "amount")
        workspace.access.insert(
            factory.entity, workspace.dataset.owner, factory.row(workspace.dataset, 0, **{field: 0})
        )

        def grow(found: Rows, now: ServerClock) -> Rows:
            del now
            row = the(found[0])
            return (Row(row.model.evolve(**{field: getattr(row.model, field) + 1}), row.storage),)

        def work(access: Access, number: int) -> None:
            del number
            for _ in range(ROUNDS):
                access.change([factory.ref(workspace.dataset)], grow)

        assert outcomes(workspace.race(work, range(CONCURRENCY))) == {"ok": CONCURRENCY}
        assert getattr(the(workspace.get(factory, workspace.dataset)).model, field) == CONCURRENCY * ROUNDS

    def test_concurrent_inserts_of_one_row_change_it_one_after_the_other(
        self, workspace: AccessWorkspace
    ) -> None:
        def grow(found: Rows, now: ServerClock) -> Rows:
            del now
            row = found[0] or NOTE.row(workspace.dataset, 0, attempts=0)
            assert isinstance(row.model, Note)
            return (Row(row.model.evolve(attempts=row.model.attempts + 1), row.storage),)

        def work(access: Access, number: int) -> None:
            del number
            access.change([NOTE.ref(workspace.dataset)], grow)

        assert outcomes(workspace.race(work, range(CONCURRENCY))) == {"ok": CONCURRENCY}
        assert the(workspace.get(NOTE, workspace.dataset)).model.attempts == CONCURRENCY

    @needs_transactions
    def test_concurrent_writers_with_the_same_order_of_rows_do_not_block_each_other(
        self, workspace: AccessWorkspace
    ) -> None:
        dataset = workspace.dataset
        workspace.access.insert(NOTES, dataset.owner, NOTE.row(dataset, 0, attempts=0))
        workspace.access.insert(COUNTERS, dataset.owner, COUNTER.row(dataset, 0, amount=0))

        def grow(found: Rows, now: ServerClock) -> Rows:
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
            access.change([NOTE.ref(dataset), COUNTER.ref(dataset)], grow)

        assert outcomes(workspace.race(work, range(CONCURRENCY))) == {"ok": CONCURRENCY}
        assert the(workspace.get(COUNTER, dataset)).model.amount == CONCURRENCY


class AccessMomentContract(AccessCases):
    """The time that a rule is given: that of the server, after the rows are locked."""

    def test_the_time_is_an_instant_in_utc_with_whole_milliseconds(self, workspace: AccessWorkspace) -> None:
        now = workspace.now()
        assert truncate_to_millisecond(now) == now
        assert now.utcoffset() == timedelta(0)

    def test_the_time_does_not_run_backwards(self, workspace: AccessWorkspace) -> None:
        found: list[datetime] = []

        def rule(given: Rows, now: ServerClock) -> Rows:
            found.extend([now(), now()])
            return given

        workspace.access.insert(NOTES, workspace.dataset.owner, NOTE.row(workspace.dataset))
        for _ in range(3):
            workspace.access.change([NOTE.ref(workspace.dataset)], rule)
        assert found == sorted(found)

    def test_no_writer_of_a_row_sees_an_earlier_time_than_the_one_before(
        self, workspace: AccessWorkspace
    ) -> None:
        workspace.access.insert(NOTES, workspace.dataset.owner, NOTE.row(workspace.dataset, 0, due_at=None))

        def stamp(found: Rows, now: ServerClock) -> Rows:
            row = the(found[0])
            assert isinstance(row.model, Note)
            instant = now()
            assert row.model.due_at is None or row.model.due_at <= instant
            return (Row(row.model.evolve(due_at=instant), row.storage),)

        def work(access: Access, number: int) -> None:
            del number
            for _ in range(ROUNDS):
                access.change([NOTE.ref(workspace.dataset)], stamp)

        assert outcomes(workspace.race(work, range(CONCURRENCY))) == {"ok": CONCURRENCY}


MANY: Final = 12
MANY_LINES: Final = 502
MARKING_CONCURRENCY: Final = 4
LATER: Final = timedelta(minutes=5)
OWNED: Final = [owner_case for owner_case in MUTABLE if owner_case.factory is not COUNTER]
each_owned = pytest.mark.parametrize("owner_case", OWNED, ids=str)
# Entities whose rows can have a holder, in both layouts, and where such rows are.
HELD: Final = [
    pytest.param(NOTE, "dataset", id="columns"),
    pytest.param(DEVICE, "dataset", id="document"),
    pytest.param(DEVICE, "untenanted", id="document without tenant"),
    pytest.param(COUNTER, "dataset", id="number as key"),
]
each_held = pytest.mark.parametrize(("factory", "where"), HELD)


def free(entity: Entity, dataset: Dataset, limit: int) -> Query:
    """Return the first rows without a holder, the highest amount or rank first."""
    amount = "amount" if entity is COUNTERS else "rank"
    order = (
        SortKey(amount, descending=True, number=True),
        *(SortKey(part.field, number=part.type.is_number) for part in entity.key_parts),
    )
    return query_of(entity, dataset, IsNull("holder"), order=order, limit=limit)


class AccessMarkContract(AccessCases):
    """``mark``."""

    @each_held
    def test_the_first_rows_of_a_list_are_marked_and_returned_in_its_order(
        self, workspace: AccessWorkspace, factory: RowFactory[CanonicalModel], where: str
    ) -> None:
        dataset: Dataset = getattr(workspace, where)
        entity, rows = factory.entity, factory.fill(workspace.access, dataset, MANY)
        first = list(workspace.access.page(entity, free(entity, dataset, 3)))
        expected = [Row(row.model.evolve(holder="me"), row.storage) for row in first]
        assert list(workspace.access.mark(entity, free(entity, dataset, 3), {"holder": "me"})) == expected
        others = [row for row in rows if row not in first]
        assert workspace.stored(factory, dataset) == by_key(entity, [*expected, *others])

    @pytest.mark.parametrize(("factory", "where"), HELD[:3])
    def test_values_are_set_added_to_and_taken_away(
        self, workspace: AccessWorkspace, factory: RowFactory[CanonicalModel], where: str
    ) -> None:
        dataset: Dataset = getattr(workspace, where)
        rows = factory.fill(workspace.access, dataset, MANY)
        sets: FieldUpdates = {
            "holder": "me",
            "attempts": Add(2),
            "rank": -7,
            "urgent": True,
            "level": "high",
            "dueAt": at(9),
        }
        marked = workspace.access.mark(factory.entity, query_of(factory.entity, dataset), sets)
        expected = [
            Row(
                row.model.evolve(
                    holder="me",
                    attempts=attempts_of(row) + 2,
                    rank=-7,
                    urgent=True,
                    level="high",
                    due_at=at(9),
                ),
                row.storage,
            )
            for row in by_key(factory.entity, rows)
        ]
        assert list(marked) == expected
        assert workspace.stored(factory, dataset) == expected
        unset = workspace.access.mark(
            factory.entity,
            query_of(factory.entity, dataset),
            {"holder": UNSET, "dueAt": UNSET, "attempts": Add(-2)},
        )
        expected = [
            Row(row.model.evolve(holder=None, due_at=None, attempts=attempts_of(row) - 2), row.storage)
            for row in expected
        ]
        assert list(unset) == expected
        assert (
            workspace.stored(factory, dataset, IsNull("holder"), IsNull("dueAt"), Equals("rank", -7))
            == expected
        )

    def test_markers_are_set_and_the_model_stays(self, workspace: AccessWorkspace) -> None:
        rows = NOTE.fill(workspace.access, workspace.dataset, MANY)
        sets: FieldUpdates = {"archivedBy": "me", "archivedAt": at(9), "revision": Add(2)}
        marked = workspace.access.mark(NOTES, query_of(NOTES, workspace.dataset), sets)
        expected = [
            Row(
                row.model,
                {"archivedBy": "me", "archivedAt": at(9), "revision": revision_of(row) + 2},
            )
            for row in by_key(NOTES, rows)
        ]
        assert list(marked) == expected
        assert workspace.stored(NOTE, workspace.dataset) == expected
        unset: FieldUpdates = {"archivedBy": UNSET, "archivedAt": UNSET, "revision": UNSET}
        cleared = workspace.access.mark(NOTES, query_of(NOTES, workspace.dataset), unset)
        assert list(cleared) == [Row(row.model) for row in expected]

    def test_values_are_set_in_columns_that_documents_do_not_repeat(self, workspace: AccessWorkspace) -> None:
        rows = DEVICE.fill(workspace.access, workspace.dataset, 4)
        marked = workspace.access.mark(
            DEVICES, query_of(DEVICES, workspace.dataset), {"level": "low", "rank": Add(0)}
        )
        expected = [Row(row.model.evolve(level="low"), row.storage) for row in by_key(DEVICES, rows)]
        assert list(marked) == expected
        digests = [DEVICES.value(row.model, row.storage, "contentDigest") for row in expected]
        found = workspace.stored(DEVICE, workspace.dataset, OneOf("contentDigest", tuple(map(str, digests))))
        assert found == expected

    @each_held
    def test_the_time_that_is_set_is_that_of_the_server(
        self, workspace: AccessWorkspace, factory: RowFactory[CanonicalModel], where: str
    ) -> None:
        dataset: Dataset = getattr(workspace, where)
        factory.fill(workspace.access, dataset, 3)
        field, name = ("checkedAt", "checked_at") if factory is COUNTER else ("dueAt", "due_at")
        before = workspace.now()
        marked = workspace.access.mark(
            factory.entity, query_of(factory.entity, dataset), {field: ServerTime(LATER)}
        )
        after = workspace.now()
        instants = [getattr(row.model, name) - LATER for row in marked]
        assert len(instants) == 3
        assert all(before <= instant <= after for instant in instants)
        assert list(marked) == workspace.stored(factory, dataset)

    def test_nothing_is_marked_where_nothing_matches(self, workspace: AccessWorkspace) -> None:
        rows = NOTE.fill(workspace.access, workspace.dataset, 3)
        for nothing in (Equals("title", "no such title"), OneOf("level", ())):
            assert (
                workspace.access.mark(NOTES, query_of(NOTES, workspace.dataset, nothing), {"holder": "me"})
                == ()
            )
        assert (
            workspace.access.mark(
                NOTES, query_of(NOTES, workspace.dataset, scope=workspace.elsewhere.owner), {"rank": 1}
            )
            == ()
        )
        assert workspace.stored(NOTE, workspace.dataset) == by_key(NOTES, rows)

    def test_system_scope_marks_the_rows_of_everybody(self, workspace: AccessWorkspace) -> None:
        datasets = [
            Dataset(dataset.owner, f"{workspace.batch}{number}")
            for number, dataset in enumerate((workspace.dataset, workspace.elsewhere, workspace.untenanted))
        ]
        for number, dataset in enumerate(datasets):
            workspace.access.insert(
                DEVICES, dataset.owner, DEVICE.row(dataset, number, batch=workspace.batch)
            )
        query = query_of(DEVICES, workspace.dataset, scope=ALL_TENANTS)
        marked = workspace.access.mark(DEVICES, query, {"holder": "me"})
        assert sorted(str(device_of(row).tenant_id) for row in marked) == sorted(
            str(dataset.tenant_id) for dataset in datasets
        )

    def test_equal_numbers_of_free_json_replace_each_other(self, workspace: AccessWorkspace) -> None:
        row, owner = NOTE.row(workspace.dataset, 0), workspace.dataset.owner
        for value in (decimal_object(Decimal("1.0")), decimal_object(Decimal("1.00")), 1):
            model = row.model.evolve(extra={"a": value})
            put = workspace.access.put(NOTES, owner, Row(model, row.storage))
            assert workspace.access.find(NOTES, owner, ((model.id,),)) == (put,)
            assert put.model.extra == model.extra

    def test_a_unique_value_follows_the_mark(self, workspace: AccessWorkspace) -> None:
        DEVICE.fill(workspace.access, workspace.dataset, 2)
        first, second = (DEVICE.row(workspace.dataset, number) for number in range(2))
        query = query_of(DEVICES, workspace.dataset, IsPresent("serial"))
        workspace.access.mark(DEVICES, query, {"serial": UNSET})
        taken = Row(first.model.evolve(serial=second.model.serial), first.storage)
        assert workspace.access.put(DEVICES, workspace.dataset.owner, taken) == taken

    @each_held
    def test_no_row_is_marked_for_two(
        self, workspace: AccessWorkspace, factory: RowFactory[CanonicalModel], where: str
    ) -> None:
        dataset: Dataset = getattr(workspace, where)
        for number in range(MANY):
            row = factory.row(dataset, number, holder=None)
            workspace.access.insert(factory.entity, dataset.owner, row)

        def claim(access: Access, number: int) -> list[Row[CanonicalModel]]:
            """Claim rows until none is left; who passes over what others claim asks again."""
            claimed: list[Row[CanonicalModel]] = []
            while len(access.page(factory.entity, free(factory.entity, dataset, 1))):
                claimed += access.mark(
                    factory.entity, free(factory.entity, dataset, 3), {"holder": f"w{number}"}
                )
            return claimed

        results = workspace.race(claim, range(MARKING_CONCURRENCY))
        assert outcomes(results) == {"ok": MARKING_CONCURRENCY}
        claimed = [row for result in results if isinstance(result, list) for row in result]
        assert by_key(factory.entity, claimed) == workspace.stored(factory, dataset)
        assert len(claimed) == MANY

    def test_concurrent_additions_are_not_lost(self, workspace: AccessWorkspace) -> None:
        workspace.access.insert(COUNTERS, NO_TENANT, COUNTER.row(workspace.dataset, 0, amount=0))

        def add(access: Access, number: int) -> int:
            query = query_of(COUNTERS, workspace.dataset)
            return sum(len(access.mark(COUNTERS, query, {"amount": Add(1)})) for _ in range(number))

        results = workspace.race(add, [5] * MARKING_CONCURRENCY)
        assert outcomes(results) == {"ok": MARKING_CONCURRENCY}
        (row,) = workspace.stored(COUNTER, workspace.dataset)
        assert row.model.amount == sum(result for result in results if isinstance(result, int))


def attempts_of(row: Row[CanonicalModel]) -> int:
    """Return the attempts of a note or device."""
    assert isinstance(row.model, Note | Device)
    return row.model.attempts


def revision_of(row: Row[CanonicalModel]) -> int:
    """Return the revision of a note, 0 where it has none."""
    found = row.storage.get("revision", 0)
    assert isinstance(found, int)
    return found


def device_of(row: Row[Device]) -> Device:
    """Return the device of a row."""
    return row.model


def is_due(note: Note) -> bool:
    """Whether retention removes a note that was closed eight seconds ago or earlier."""
    return note.closed_at is not None and note.closed_at <= at(8) and note.level is not Level.HIGH


class AccessRemoveContract(AccessCases):
    """``remove``."""

    @each_mutable
    def test_a_row_is_removed_by_its_key_once(
        self, workspace: AccessWorkspace, owner_case: OwnerCase
    ) -> None:
        dataset, factory = workspace.of(owner_case), owner_case.factory
        rows = factory.fill(workspace.access, dataset, 3)
        query = query_of_key(factory.entity, dataset.owner, factory.key(dataset, 1))
        assert workspace.access.remove(factory.entity, query) == 1
        assert workspace.access.remove(factory.entity, query) == 0
        assert workspace.stored(factory, dataset) == by_key(factory.entity, [rows[0], rows[2]])

    @each_owned
    def test_a_foreign_row_is_not_removed(self, workspace: AccessWorkspace, owner_case: OwnerCase) -> None:
        dataset, factory = workspace.of(owner_case), owner_case.factory
        rows = factory.fill(workspace.access, dataset, 1)
        for foreign_dataset in workspace.foreign_datasets(owner_case):
            query = query_of_key(factory.entity, foreign_dataset.owner, factory.key(dataset))
            assert workspace.access.remove(factory.entity, query) == 0
        assert workspace.stored(factory, dataset) == rows
        query = query_of_key(factory.entity, ALL_TENANTS, factory.key(dataset))
        assert workspace.access.remove(factory.entity, query) == 1

    @pytest.mark.parametrize(
        "factory", [NOTE, PLACE, DEVICE, COUNTER], ids=lambda factory: factory.entity.name
    )
    def test_the_first_rows_of_a_list_are_removed(
        self, workspace: AccessWorkspace, factory: RowFactory[CanonicalModel]
    ) -> None:
        rows = by_key(factory.entity, factory.fill(workspace.access, workspace.dataset, 7))
        query = query_of(factory.entity, workspace.dataset, limit=3)
        assert workspace.access.remove(factory.entity, query) == 3
        assert workspace.stored(factory, workspace.dataset) == rows[3:]
        assert [workspace.access.remove(factory.entity, query) for _ in range(3)] == [3, 1, 0]

    def test_nothing_is_removed_where_nothing_matches(self, workspace: AccessWorkspace) -> None:
        rows = NOTE.fill(workspace.access, workspace.dataset, 3)
        for nothing in (Equals("title", "no such title"), OneOf("level", ())):
            assert workspace.access.remove(NOTES, query_of(NOTES, workspace.dataset, nothing)) == 0
        assert workspace.stored(NOTE, workspace.dataset) == by_key(NOTES, rows)

    def test_children_go_with_their_parent_and_are_not_counted(self, workspace: AccessWorkspace) -> None:
        kept, gone = Dataset(workspace.dataset.owner, f"{workspace.batch}x"), workspace.untenanted
        for dataset in (kept, gone):
            for factory in (PART, ENTRY):
                factory.fill(workspace.access, dataset, 3)
        assert workspace.access.remove(DEVICES, query_of_key(DEVICES, gone.owner, DEVICE.key(gone))) == 1
        # In system scope, because no other scope would see a child without its parent.
        for entity in (PARTS, ENTRIES):
            assert len(workspace.access.page(entity, query_of(entity, gone, scope=ALL_TENANTS))) == 0
            assert len(workspace.access.page(entity, query_of(entity, kept))) == 3

    def test_logs_go_with_their_parent(self, workspace: AccessWorkspace) -> None:
        NOTE.fill(workspace.access, workspace.dataset, 2)
        for number in range(3):
            workspace.access.insert(EVENTS, workspace.dataset.owner, EVENT.row(workspace.dataset, number))
        # More than a driver removes at a time.
        lines = [LINE.row(workspace.dataset, sequence=None)] * MANY_LINES
        workspace.access.append(LINES, NOTE.ref(workspace.dataset), lines)
        assert (
            workspace.access.remove(
                NOTES, query_of_key(NOTES, workspace.dataset.owner, NOTE.key(workspace.dataset))
            )
            == 1
        )
        for entity in (LINES, EVENTS):
            assert (
                len(workspace.access.page(entity, query_of(entity, workspace.dataset, scope=ALL_TENANTS)))
                == 0
            )
        assert workspace.stored(NOTE, workspace.dataset) == [NOTE.row(workspace.dataset, 1)]

    def test_retention_removes_the_oldest_finished_rows_first(self, workspace: AccessWorkspace) -> None:
        rows = NOTE.fill(workspace.access, workspace.dataset, MANY)
        due = [row for row in rows if is_due(row.model)]
        query = expired_query(NOTES, workspace.dataset.owner, at(8), 2)
        assert workspace.access.remove(NOTES, query) == 2
        oldest = sorted(due, key=lambda row: str(row.model.closed_at))[:2]
        assert workspace.stored(NOTE, workspace.dataset) == by_key(
            NOTES, [row for row in rows if row not in oldest]
        )
        assert (
            workspace.access.remove(NOTES, expired_query(NOTES, workspace.dataset.owner, at(8), 100))
            == len(due) - 2
        )
        assert workspace.access.remove(NOTES, query) == 0
        assert len(workspace.stored(NOTE, workspace.dataset)) == MANY - len(due)

    def test_removed_keys_and_unique_values_are_free(self, workspace: AccessWorkspace) -> None:
        (row,) = NOTE.fill(workspace.access, workspace.dataset, 1)
        workspace.access.remove(
            NOTES, query_of_key(NOTES, workspace.dataset.owner, NOTE.key(workspace.dataset))
        )
        again = NOTE.row(workspace.dataset, 1, title=row.model.title)
        assert workspace.access.insert(NOTES, workspace.dataset.owner, again) == again
        other = NOTE.row(workspace.elsewhere)
        assert workspace.access.insert(NOTES, workspace.elsewhere.owner, other) == other

    def test_concurrent_removals_remove_each_row_once(self, workspace: AccessWorkspace) -> None:
        COUNTER.fill(workspace.access, workspace.dataset, MANY)

        def remove(access: Access, _: int) -> int:
            removed = 0
            while len(access.page(COUNTERS, query_of(COUNTERS, workspace.dataset, limit=1))):
                removed += access.remove(COUNTERS, query_of(COUNTERS, workspace.dataset, limit=2))
            return removed

        results = workspace.race(remove, range(MARKING_CONCURRENCY))
        assert outcomes(results) == {"ok": MARKING_CONCURRENCY}
        assert sum(result for result in results if isinstance(result, int)) == MANY

    def test_conditions_hold_when_a_row_is_removed(self, workspace: AccessWorkspace) -> None:
        rows = COUNTER.fill(workspace.access, workspace.dataset, MANY)
        high = [row for row in rows if row.model.amount >= 1]
        assert workspace.access.remove(
            COUNTERS, query_of(COUNTERS, workspace.dataset, AtLeast("amount", 1))
        ) == len(high)
        assert workspace.stored(COUNTER, workspace.dataset) == by_key(
            COUNTERS, [row for row in rows if row not in high]
        )
