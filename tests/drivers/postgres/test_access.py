"""What only PostgreSQL has to prove about rows: policies of every tenancy, locks, its own statements."""

from __future__ import annotations

import re
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any, Final

import psycopg
import pytest
from psycopg import sql

from tests.drivers.postgres.deployment import make_tables, module_on
from twinstore.access.paging import SortKey
from twinstore.access.protocol import Add, Ref
from twinstore.access.query import Query
from twinstore.access.scope import Scope
from twinstore.catalog.conditions import Equals
from twinstore.catalog.row import Row
from twinstore.catalog.tenancy import ALL_TENANTS, NO_TENANT, Tenant
from twinstore.errors import ConcurrencyError, DuplicateError, Outcome, UnavailableError
from twinstore.scheduler.module import MODULE as SCHEDULER_MODULE
from twinstore.scheduler.repositories.schedules import DUE
from twinstore.testing.contracts.access_base import query_of
from twinstore.testing.datasets import COUNTER, DEVICE, NOTE, PART, Dataset
from twinstore.testing.entities import COUNTERS, DEVICES, KIT, LINES, MODULE, NOTES, PARTS, Line, Note
from twinstore.testing.instants import at
from twinstore.testing.scheduler.builders import make_schedule
from twinstore.testing.workspace import unique

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from contextlib import AbstractContextManager

    from tests.support.databases import PostgresDatabase
    from twinstore.access.protocol import Access, Rows, ServerClock
    from twinstore.catalog.entity import Entity
    from twinstore.scheduler import Schedule
    from twinstore_postgres.backend import PostgresBackend

Connection = psycopg.Connection[Any]

# What a foreign program would write, with the owner as its parameter.
INSERTS: Final = {
    DEVICES: b"""
INSERT INTO kit.devices
    (id, tenant_id, batch, level, urgent, rank, attempts, content_digest, spot_count, payload)
VALUES (gen_random_uuid(), %s, 'x', 0, true, 0, 0, 'x', 0, '{}')
""",
    PARTS: b"INSERT INTO kit.parts (device_id, name, batch, amount) VALUES (%s, 'x', 'x', 0)",
}
WAITING: Final = (
    b"SELECT FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
)
TERMINATE: Final = (
    b"SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity"
    b" WHERE datname = current_database() AND pid <> pg_backend_pid()"
)
BY_ATTEMPTS: Final = (SortKey("attempts", number=True), SortKey("id"))


@pytest.fixture(scope="module")
def database(module_postgres_database: PostgresDatabase) -> PostgresDatabase:
    """Return a database with the tables of the kit."""
    make_tables(module_postgres_database, KIT)
    return module_postgres_database


@pytest.fixture
def backend(database: PostgresDatabase) -> Iterator[PostgresBackend[Access]]:
    with module_on(database, MODULE) as opened:
        yield opened


@pytest.fixture
def access(backend: PostgresBackend[Access]) -> Access:
    return backend.repositories


@pytest.fixture
def dataset() -> Dataset:
    return Dataset(Tenant(unique("tenant")), unique("batch"))


@pytest.fixture
def nobody() -> Dataset:
    return Dataset(NO_TENANT, unique("batch"))


@pytest.fixture
def app(database: PostgresDatabase) -> Iterator[Connection]:
    with psycopg.connect(database.app_url) as connection:
        yield connection
        connection.rollback()


@pytest.fixture
def admin(database: PostgresDatabase) -> Iterator[Connection]:
    with psycopg.connect(database.superuser_url, autocommit=True) as connection:
        yield connection


def become(connection: Connection, setting: str) -> None:
    connection.execute("SELECT set_config('app.tenant_id', %s, true)", [setting])


def table(entity: Entity) -> sql.Identifier:
    return sql.Identifier(entity.module, entity.name)


def shown(connection: Connection, entity: Entity, dataset: Dataset) -> int:
    """Return how many rows of a data set the present setting shows."""
    statement = sql.SQL("SELECT count(*) FROM {} WHERE batch = %s").format(table(entity))
    row = connection.execute(statement, [dataset.batch]).fetchone()
    assert row is not None
    return int(row[0])


def fill(access: Access, *datasets: Dataset) -> None:
    """Store a device and a part in each data set."""
    for dataset in datasets:
        PART.fill(access, dataset, 1)


@pytest.mark.parametrize("entity", [DEVICES, PARTS], ids=lambda entity: entity.name)
def test_rows_without_tenant_are_a_scope_of_their_own(
    access: Access, app: Connection, dataset: Dataset, nobody: Dataset, entity: Entity
) -> None:
    fill(access, dataset, nobody)
    assert (shown(app, entity, dataset), shown(app, entity, nobody)) == (
        0,
        1,
    )  # without the setting there is no tenant
    settings = {dataset.tenant: (1, 0), "somebody-else": (0, 0), "": (0, 1), "system": (1, 1)}
    for setting, expected in settings.items():
        become(app, setting)
        assert (shown(app, entity, dataset), shown(app, entity, nobody)) == expected, setting


@pytest.mark.parametrize("entity", [DEVICES, PARTS], ids=lambda entity: entity.name)
@pytest.mark.parametrize("setting", ["", "somebody-else"])
def test_a_row_of_another_tenant_can_neither_be_inserted_nor_changed(
    access: Access, app: Connection, dataset: Dataset, entity: Entity, setting: str
) -> None:
    fill(access, dataset)
    become(app, setting)
    update = sql.SQL("UPDATE {} SET batch = 'stolen' WHERE batch = %s").format(table(entity))
    assert app.execute(update, [dataset.batch]).rowcount == 0
    with pytest.raises(psycopg.errors.InsufficientPrivilege, match="row-level security"):
        app.execute(INSERTS[entity], [dataset.tenant if entity is DEVICES else dataset.uuid(0)])


def test_rows_without_tenancy_are_shown_whatever_the_setting(
    access: Access, app: Connection, dataset: Dataset
) -> None:
    COUNTER.fill(access, dataset, 2)
    for setting in ("", "somebody", "system"):
        become(app, setting)
        assert shown(app, COUNTERS, dataset) == 2


def test_a_removed_row_takes_the_rows_that_policies_hide(
    access: Access, admin: Connection, nobody: Dataset
) -> None:
    fill(access, nobody)
    (device,) = DEVICE.rows(nobody, 1)
    query = Query(
        entity=DEVICES.name,
        scope=NO_TENANT,
        where=(Equals("id", device.model.id),),
        order=(SortKey("id"),),
        limit=1,
    )
    assert access.remove(DEVICES, query) == 1
    assert shown(admin, PARTS, nobody) == 0


def claims(dataset: Dataset, limit: int) -> Query:
    return Query(
        entity=NOTES.name,
        scope=dataset.owner,
        where=(Equals("batch", dataset.batch),),
        order=BY_ATTEMPTS,
        limit=limit,
    )


def test_rows_that_another_one_holds_are_passed_over_at_once(
    access: Access, app: Connection, dataset: Dataset
) -> None:
    rows = NOTE.fill(access, dataset, 4)
    become(app, dataset.tenant)
    app.execute(
        "SELECT FROM kit.notes WHERE id = ANY (%s) FOR UPDATE", [[rows[0].model.id, rows[2].model.id]]
    )
    marked = access.mark(NOTES, claims(dataset, 3), {"attempts": Add(10), "holder": "me"})
    assert [row.model.id for row in marked] == [rows[1].model.id, rows[3].model.id]
    assert [row.model.attempts for row in marked] == [11, 13]


def test_claims_of_many_share_no_row_and_leave_none(
    database: PostgresDatabase, access: Access, dataset: Dataset
) -> None:
    rows = NOTE.fill(access, dataset, 12)

    def claim(worker: int) -> list[str]:
        with module_on(database, MODULE) as own:
            query = claims(dataset, 4)
            free = Query(
                entity=query.entity,
                scope=query.scope,
                where=(*query.where, Equals("urgent", value=False)),
                order=query.order,
                limit=2,
            )
            taken: list[str] = []
            while found := own.repositories.mark(NOTES, free, {"urgent": True, "holder": str(worker)}):
                taken += [row.model.id for row in found]
            return taken

    wanted = [row.model.id for row in rows if not row.model.urgent]
    with ThreadPoolExecutor(4) as pool:
        taken = [key for keys in pool.map(claim, range(4)) for key in keys]
    assert sorted(taken) == sorted(wanted)


def test_a_claim_passes_over_a_row_that_a_unit_has_marked(access: Access, dataset: Dataset) -> None:
    NOTE.fill(access, dataset, 2)
    first = query_of(NOTES, dataset, limit=1)
    with ThreadPoolExecutor(1) as pool, access.unit(dataset.owner) as unit:
        marked = unit.mark(NOTES, first, {"holder": "first"})
        # While the unit is open: a claim that waits for its row would wait for ever.
        passed = pool.submit(access.mark, NOTES, first, {"holder": "second"}).result(30)
    assert sorted(row.model.id for row in (*marked, *passed)) == sorted(dataset.text(n) for n in range(2))


def other_body(rows: Rows, now: ServerClock) -> Rows:
    del now
    (row,) = rows
    assert row is not None
    assert isinstance(row.model, Note)
    return (Row(row.model.evolve(body="changed", title="changed"), row.storage),)


def test_a_step_whose_commit_is_not_answered_may_have_been_applied(
    access: Access, admin: Connection, dataset: Dataset
) -> None:
    NOTE.fill(access, dataset, 1)

    def lose_the_connection(rows: Rows, now: ServerClock) -> Rows:
        admin.execute(TERMINATE)
        return other_body(rows, now)

    with pytest.raises(UnavailableError) as caught:
        access.change([NOTE.ref(dataset)], lose_the_connection)
    assert caught.value.outcome is Outcome.UNKNOWN


def test_every_write_counts_the_version_of_a_row(access: Access, admin: Connection, dataset: Dataset) -> None:
    (row,), query = NOTE.fill(access, dataset, 1), query_of(NOTES, dataset)
    writes: list[Callable[[], object]] = [
        lambda: access.change([NOTE.ref(dataset)], other_body),
        lambda: access.put(NOTES, dataset.owner, row),
        lambda: access.mark(NOTES, query, {"holder": "me"}),
        lambda: access.amend(NOTES, query, {"holder": "you"}),
    ]
    versions: list[object] = []
    for write in writes:
        write()
        versions += admin.execute("SELECT row_version FROM kit.notes WHERE id = %s", [row.model.id])
    assert versions == [(2,), (3,), (4,), (5,)]


def test_the_time_is_read_after_the_lock_is_granted(
    access: Access, app: Connection, admin: Connection, dataset: Dataset
) -> None:
    NOTE.fill(access, dataset, 1)
    become(app, dataset.tenant)
    app.execute("SELECT FROM kit.notes WHERE id = %s FOR UPDATE", [dataset.text(0)])
    found: list[Any] = []

    def look(rows: Rows, now: ServerClock) -> Rows:
        found.append(now())
        return rows

    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(access.change, [NOTE.ref(dataset, 0)], look)
        assert any(admin.execute(WAITING).rowcount for _ in range(100_000))
        granted = admin.execute("SELECT clock_timestamp()").fetchone()
        app.rollback()
        waiting.result(30)
    assert granted is not None
    # The clock of a row has whole milliseconds.
    assert found[0] >= granted[0].replace(microsecond=granted[0].microsecond // 1000 * 1000)


def test_a_concurrent_insert_that_comes_first_is_seen_and_changed(
    database: PostgresDatabase, access: Access, dataset: Dataset
) -> None:
    seen: list[bool] = []

    def rule(rows: Rows, now: ServerClock) -> Rows:
        seen.append(rows[0] is not None)
        if len(seen) == 1:
            with module_on(database, MODULE) as competitor:
                competitor.repositories.insert(NOTES, dataset.owner, NOTE.row(dataset, 0))
            return (NOTE.row(dataset, 0, body="mine"),)
        return other_body(rows, now)

    (stored,) = access.change([NOTE.ref(dataset, 0)], rule)
    assert seen == [False, True]
    assert stored is not None
    assert access.find(NOTES, dataset.owner, [NOTE.key(dataset, 0)]) == (stored,)


def test_in_a_unit_such_a_concurrent_insert_is_a_lost_race(
    database: PostgresDatabase, backend: PostgresBackend[Access], dataset: Dataset
) -> None:
    def rule(rows: Rows, now: ServerClock) -> Rows:
        del now
        if rows[0] is None:
            with module_on(database, MODULE) as competitor:
                competitor.repositories.insert(NOTES, dataset.owner, NOTE.row(dataset, 0))
        return (NOTE.row(dataset, 0, body="mine"),)

    with (
        pytest.raises(ConcurrencyError),
        backend.transaction(Scope(tenant_id=dataset.tenant_id), read_only=False) as unit,
    ):
        unit.change([NOTE.ref(dataset, 0)], rule)
    (stored,) = backend.repositories.find(NOTES, dataset.owner, [NOTE.key(dataset, 0)])
    assert stored == NOTE.row(dataset, 0)


def test_a_callers_transaction_sees_such_a_concurrent_insert_and_continues(
    database: PostgresDatabase, backend: PostgresBackend[Access], app: Connection, dataset: Dataset
) -> None:
    calls: list[int] = []

    def rule(rows: Rows, now: ServerClock) -> Rows:
        calls.append(1)
        if rows[0] is None:
            with module_on(database, MODULE) as competitor:
                competitor.repositories.insert(NOTES, dataset.owner, NOTE.row(dataset, 0))
            return (NOTE.row(dataset, 0, body="mine"),)
        return other_body(rows, now)

    joined = backend.bind(app, Scope(tenant_id=dataset.tenant_id))  # READ COMMITTED, as the caller opened it
    (stored,) = joined.change([NOTE.ref(dataset, 0)], rule)
    app.commit()
    assert len(calls) == 2
    assert backend.repositories.find(NOTES, dataset.owner, [NOTE.key(dataset, 0)]) == (stored,)


def test_of_several_new_rows_the_one_that_is_taken_is_named_and_none_is_stored(
    access: Access, dataset: Dataset
) -> None:
    NOTE.fill(access, dataset, 1)
    title = NOTE.row(dataset, 0).model.title

    def rule(rows: Rows, now: ServerClock) -> Rows:
        del rows, now
        return NOTE.row(dataset, 3), NOTE.row(dataset, 4, title=title)

    with pytest.raises(DuplicateError, match=f"note title '{title}'") as refusal:
        access.change([NOTE.ref(dataset, 3), NOTE.ref(dataset, 4)], rule)
    assert refusal.value.key == dataset.text(4)
    assert access.find(NOTES, dataset.owner, [NOTE.key(dataset, 3), NOTE.key(dataset, 4)]) == (None, None)


@pytest.mark.parametrize(
    "key", ["no uuid", "", "{00000000-0000-0000-0000-000000000000}", "ABCDEFAB-0000-0000-0000-000000000000"]
)
def test_a_key_that_no_row_can_have_finds_nothing(access: Access, dataset: Dataset, key: str) -> None:
    assert access.find(DEVICES, dataset.owner, [(key,)]) == (None,)
    assert access.find(DEVICES, dataset.owner, [(key,), (dataset.uuid(1),)]) == (None, None)
    seen: list[Rows] = []

    def look(rows: Rows, now: ServerClock) -> Rows:
        del now
        seen.append(rows)
        return rows

    access.change([Ref(DEVICES, dataset.owner, (key,))], look)
    assert seen == [(None,)]


def test_due_schedules_are_the_same_with_and_without_a_statement_of_their_own(
    database: PostgresDatabase, tenant: str
) -> None:
    found: list[Sequence[Schedule]] = []
    for special in (True, False):
        with module_on(database, SCHEDULER_MODULE, special=special) as backend:
            assert (backend.unbound().special(DUE) is not None) == special
            schedules = backend.repositories.schedules
            if special:
                for number in range(7):
                    schedule = make_schedule(tenant, f"{number}@{tenant}", name=str(number))
                    schedules.upsert(schedule.evolve(enabled=number % 3 > 0))
            found.append(schedules.get_due_schedules(at(10**6), limit=1000).items)
    assert found[0] == found[1]
    assert {item.id for item in found[0] if item.tenant_id == tenant} == {
        f"{n}@{tenant}" for n in (1, 2, 4, 5)
    }


@pytest.mark.parametrize("way", ["alone", "in a unit", "in a transaction of the host"])
@pytest.mark.parametrize(("number", "entries"), [(1, 1), (2, 2), (2, 3)])
def test_an_append_names_the_entry_that_is_taken_by_one_out_of_sight(  # noqa: PLR0917  # fixtures
    backend: PostgresBackend[Access],
    access: Access,
    app: Connection,
    dataset: Dataset,
    number: int,
    entries: int,
    way: str,
) -> None:
    note = NOTE.row(dataset)
    access.insert(NOTES, dataset.owner, note)
    other = Dataset(Tenant(unique("tenant")), dataset.batch)
    # The number of a new entry is already used by another tenant, which only system scope can write.
    access.insert(LINES, ALL_TENANTS, line_of(note, other, number))
    parent = Ref(NOTES, dataset.owner, NOTE.key(dataset))
    key, rows = f"{note.model.id}:{number}", [line_of(note, dataset) for _ in range(entries)]
    # One entry or several, alone or in a unit, it says the same: what, which value, what to do.
    message = re.escape(f"The line id '{key}' already exists; choose another id.")
    joined = backend.bind(app, Scope(tenant_id=dataset.tenant_id))
    ways: dict[str, AbstractContextManager[Access]] = {
        "alone": nullcontext(access),
        "in a unit": access.unit(dataset.owner),
    }
    within = ways.get(way, nullcontext(joined))
    with pytest.raises(DuplicateError, match=message) as caught, within as target:
        target.append(LINES, parent, rows)
    assert (caught.value.entity, caught.value.key) == ("lines", key)


def line_of(note: Row[Note], dataset: Dataset, sequence: int | None = None) -> Row[Line]:
    """Return an entry of the log of a note."""
    return Row(
        Line(
            note_id=note.model.id,
            sequence=sequence,
            tenant_id=dataset.tenant,
            batch=dataset.batch,
            message="said",
        )
    )
