from __future__ import annotations

from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

import pytest

import twinstore
from tests.support.copies import invoke, write_config
from tests.support.releases import (
    carried_over,
    expected,
    exported_rows,
    ledger_content,
    listed,
    read_row,
    restore_mongo,
    restore_postgres,
    row_text,
    wire,
)
from twinstore.catalog.keys import KeyRange
from twinstore.catalog.tenancy import Tenant
from twinstore.errors import DocumentDecodeError, LeaseLostError
from twinstore.ledger import JobState
from twinstore.migrations.migration import MigrationState
from twinstore.scheduler.catalog import AUDIT, SCHEDULER, SCHEDULES
from twinstore.scheduler.enums import RunState
from twinstore.testing.copying import ledger_of
from twinstore.testing.scheduler import SCHEDULER_EXAMPLES
from twinstore.testing.scheduler.builders import moved
from twinstore_backfill.copy.options import DESCRIBED

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.support.databases import MongoServer, PostgresServer
    from tests.support.servers import Settings
    from twinstore.catalog.entity import Entity
    from twinstore.scheduler.storage import SchedulerStorage

MODULE: Final = "scheduler"
HOUR: Final = timedelta(hours=1)
DRIVERS: Final = ("mongo", "postgres")
ROWS: Final[dict[str, list[dict[str, Any]]]] = expected()["rows"]
TENANTS: Final = tuple(expected()["lists"]["runs"])
RELEASED: Final = {
    "mongo": ("001_scheduler_baseline", "010_backfill_ledger"),
    "postgres": ("001_create_scheduler_schema.sql", "002_row_level_security.sql", "010_backfill_ledger.sql"),
}
# Those that the release had.
ENTITIES: Final = [entity for entity in SCHEDULER.entities if entity.name in ROWS]
each_entity: Final = pytest.mark.parametrize("entity", ENTITIES, ids=lambda entity: entity.name)


@contextmanager
def restored(driver: str, request: pytest.FixtureRequest) -> Iterator[Settings]:
    """Restore the dump of a driver and give the settings that open it."""
    if driver == "mongo":
        mongo_server: MongoServer = request.getfixturevalue("mongo_server")
        with mongo_server.database() as mongo:
            restore_mongo(mongo)
            yield mongo.config
    else:
        postgres_server: PostgresServer = request.getfixturevalue("postgres_server")
        with postgres_server.empty_database() as postgres:
            restore_postgres(postgres)
            yield postgres.config


@contextmanager
def migrated(settings: Settings) -> Iterator[SchedulerStorage]:
    """Migrate what was restored and open it."""
    with twinstore.add_scheduler_storage(settings) as storage:
        storage.initializer.ensure_migrations()
        storage.bulk.ledger_initializer.ensure_migrations()
        storage.check_ready()
        yield storage


@pytest.fixture(scope="module", params=DRIVERS)
def released(request: pytest.FixtureRequest) -> Iterator[SchedulerStorage]:
    """Open what 0.1.0 wrote, migrated; no test may change it."""
    with restored(request.param, request) as settings, migrated(settings) as storage:
        yield storage


@pytest.fixture(scope="module", params=DRIVERS)
def changeable(request: pytest.FixtureRequest) -> Iterator[SchedulerStorage]:
    """Open the same for tests that change a tenant or a job which no other test looks at."""
    with restored(request.param, request) as settings, migrated(settings) as storage:
        yield storage


def jobs_of(storage: SchedulerStorage) -> list[dict[str, Any]]:
    """Return the jobs as 0.1.0 read them on this driver."""
    jobs: list[dict[str, Any]] = expected()["ledger"][storage.driver]
    return jobs


def readable(entity: str, tenant: str) -> list[dict[str, Any]]:
    """Return the rows of a tenant that 0.1.0 could read."""
    return [row for row in ROWS[entity] if row["tenant"] == tenant and row["document"] is not None]


@pytest.mark.parametrize("driver", DRIVERS)
def test_the_migrations_of_the_release_stay_applied_and_the_later_ones_follow(
    driver: str, request: pytest.FixtureRequest
) -> None:
    with restored(driver, request) as settings, twinstore.add_scheduler_storage(settings) as storage:
        before = {status.name: status.state for status in storage.initializer.status()}
        assert {name for name, state in before.items() if state is MigrationState.APPLIED} == set(
            RELEASED[driver]
        )
        report = storage.initializer.ensure_migrations()
        later = {name for name, state in before.items() if state is MigrationState.PENDING}
        assert set(report.applied) == {
            status.name
            for status in storage.initializer.status()
            if status.name in later and status.category != "release"
        }
        assert report.already_applied == RELEASED[driver]
        assert storage.initializer.ensure_migrations().applied == ()


@pytest.mark.parametrize("driver", DRIVERS)
def test_the_commands_find_nothing_to_do_after_the_migration(
    driver: str, request: pytest.FixtureRequest, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    with restored(driver, request) as settings:
        config = write_config(tmp_path / "settings.json", settings)
        for command, said in (("run", ""), ("verify", "The schema is as it should be."), ("status", "")):
            answer = invoke(capsys, "--config", config, "migrate", command, "--module", MODULE)
            assert (answer.code, said in answer.out) == (0, True), answer
        shown = invoke(capsys, "--config", config, "backfill", "status", "--module", MODULE, "--to", driver)
        # Its ledger is elsewhere until the next copy.
        assert (shown.code, "If release 0.1.0 copied into it" in shown.out) == (0, True), shown


def rows_for_a_copy(storage: SchedulerStorage, entity: Entity) -> list[str]:
    """Return the rows of an entity as an export of today reads them.

    In MongoDB another program left a name in one of them: services skip it, and a copy refuses the row.
    """
    foreign = ["acme/running"] if storage.driver == "Mongo" else None
    return [
        row_text({**row, "document": None} if row["key"] == foreign else row) for row in ROWS[entity.name]
    ]


@each_entity
def test_the_export_reads_every_row(released: SchedulerStorage, entity: Entity) -> None:
    assert list(map(row_text, exported_rows(released.bulk, entity))) == rows_for_a_copy(released, entity)


@each_entity
def test_the_repository_reads_every_row(released: SchedulerStorage, entity: Entity) -> None:
    for row in ROWS[entity.name]:
        if row["document"] is None:
            continue
        model = read_row(released, entity.name, row)
        assert model is not None, row["key"]
        assert row_text(wire(model)) == row_text(row["document"])


def test_the_deletion_of_every_schedule_is_read(released: SchedulerStorage) -> None:
    for row in ROWS[SCHEDULES.name]:
        if row["document"] is not None:
            deletion = released.schedules.get_deletion(row["tenant"], row["key"][0])
            assert ({} if deletion is None else wire(deletion)) == row["storage"]


@each_entity
@pytest.mark.parametrize("tenant", TENANTS)
def test_every_list_has_its_rows_in_order(released: SchedulerStorage, entity: Entity, tenant: str) -> None:
    rows = [ROWS[entity.name][position] for position in expected()["lists"][entity.name][tenant]]
    assert len(rows) == len(readable(entity.name, tenant))
    found = listed(released, entity.name, tenant)
    assert list(map(row_text, found)) == [row_text(row["document"]) for row in rows]


def test_the_same_schedules_are_due(released: SchedulerStorage) -> None:
    due_at = datetime.fromisoformat(expected()["due_at"]).astimezone(UTC)
    found = released.schedules.get_due_schedules(due_at)
    assert [[schedule.tenant_id, schedule.id] for schedule in found] == expected()["due"]


@each_entity
def test_a_row_that_cannot_be_read_is_named(released: SchedulerStorage, entity: Entity) -> None:
    (row,) = [row for row in ROWS[entity.name] if row["document"] is None]
    (key,) = [tuple(row["key"])]
    successor = (*key[:-1], f"{key[-1]}\x01")
    with released.bulk.view() as view:
        ((record,),) = view.records(entity, KeyRange(key, successor))
    assert (record.key, record.owner, record.model) == (key, Tenant(row["tenant"]), None)
    assert record.error is not None
    assert record.raw is not None
    if entity.name != "triggers":  # requested by its schedule, which the row itself does not contain
        with pytest.raises(DocumentDecodeError):
            read_row(released, entity.name, row)


def test_an_instant_that_is_stored_as_text_is_reported(released: SchedulerStorage) -> None:
    with released.bulk.view() as view:
        found = [
            [entity.name, list(record.key or ())]
            for entity in ENTITIES
            for batch in view.records(entity, KeyRange())
            for record in batch
            if record.text_timestamp
        ]
    assert found == expected()["text_instants"].get(released.driver, [])


def test_every_row_is_scanned(released: SchedulerStorage) -> None:
    with released.bulk.view() as view:
        for entity in ENTITIES:
            rows = [row for batch in view.rows(entity, KeyRange()) for row in batch]
            assert [list(row.key or ()) for row in rows] == [row["key"] for row in ROWS[entity.name]]


def test_the_ledger_is_carried_over(released: SchedulerStorage) -> None:
    found = ledger_content(ledger_of(released))
    assert list(map(row_text, found)) == list(map(row_text, map(carried_over, jobs_of(released))))


def test_the_ledger_is_carried_over_once(changeable: SchedulerStorage) -> None:
    ledger = ledger_of(changeable)
    lease = ledger.acquire(ledger.start("copy_later", {}, datetime(2026, 1, 1, tzinfo=UTC)).id, "me", HOUR)
    ledger.plan(lease, AUDIT.name, [KeyRange()])
    before = ledger_content(ledger)
    assert changeable.bulk.ledger_initializer.ensure_migrations().applied == ()
    assert ledger_content(ledger) == before
    ledger.release(lease)


def test_a_held_lease_still_keeps_others_out(changeable: SchedulerStorage) -> None:
    ledger = ledger_of(changeable)
    (job,) = [job for job in jobs_of(changeable) if job["lease"] is not None]
    holder, fence = job["lease"]["holder"], job["lease"]["fence"]
    with pytest.raises(LeaseLostError, match=holder):
        ledger.acquire(job["id"], "second", HOUR)
    assert ledger.acquire(job["id"], "second", HOUR, dead=holder).fence == fence + 1


def test_an_interrupted_copy_stays_as_it_is_for_its_release(changeable: SchedulerStorage) -> None:
    ledger = ledger_of(changeable)
    (job,) = [job for job in jobs_of(changeable) if job["state"] == "running" and job["lease"] is None]
    found = ledger.find(job["id"])
    assert found is not None
    assert found.is_unmarked
    assert DESCRIBED not in found.settings
    assert ledger.take(job["id"], "worker", AUDIT.name, HOUR) is None


def test_a_complete_copy_begins_its_next_generation(changeable: SchedulerStorage) -> None:
    ledger = ledger_of(changeable)
    (job,) = [job for job in jobs_of(changeable) if job["state"] == "complete"]
    following = ledger.start(job["id"], job["settings"], datetime(2026, 1, 1, tzinfo=UTC))
    assert (following.state, following.generation) == (JobState.RUNNING, job["generation"] + 1)
    assert list(ledger.ranges(job["id"])) == []


@pytest.mark.parametrize("tenant", TENANTS)
def test_every_kind_of_row_can_be_changed(changeable: SchedulerStorage, tenant: str) -> None:
    schedule = changeable.schedules.get_required(tenant, f"{tenant}/rich")
    renamed = schedule.evolve(name="renamed")
    assert changeable.schedules.upsert(renamed, expected_updated_at=schedule.updated_at) == renamed
    run = changeable.runs.get_required(tenant, f"{tenant}/running")
    assert changeable.runs.update(moved(run, RunState.CANCELLED), expected_state=RunState.RUNNING)
    summary = changeable.run_summary_service.project(moved(run, RunState.CANCELLED))
    assert summary is not None
    assert summary.counters.cancelled == 1
    for row in readable("impact_snapshots", tenant):
        assert changeable.impact_snapshots.delete(tenant, row["key"][0])
    for row in readable("audit", tenant):
        record = changeable.audit.get_required(tenant, row["key"][0])
        assert changeable.audit.append(record) == record


@pytest.mark.parametrize("driver", DRIVERS)
def test_every_entity_of_today_can_be_used_with_the_rows_of_the_release(
    driver: str, request: pytest.FixtureRequest
) -> None:
    with restored(driver, request) as settings, migrated(settings) as storage:
        stored = SCHEDULER_EXAMPLES.store_each(storage, "a new tenant", "living")
        for example in SCHEDULER_EXAMPLES.examples:
            model = stored[example.entity]
            assert example.found(storage, "a new tenant", model) == model
        for entity in ENTITIES:
            kept = set(map(row_text, exported_rows(storage.bulk, entity)))
            assert set(rows_for_a_copy(storage, entity)) <= kept
