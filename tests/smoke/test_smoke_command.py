"""`twinstore smoke` on real servers: a sound store passes and stays as it was; planted faults are named."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import pytest
from psycopg import sql

from tests.backfill.toolkit import Answer, fill, invoke, write_config
from tests.databases import APP_ROLE, PASSWORD
from tests.servers import postgres_config, postgres_url
from tests.smoke.planted import (
    MONGO_FAULTS,
    POSTGRES_FAULTS,
    mongo,
    mongo_content,
    postgres,
    postgres_content,
)
from tests.stores import kept
from twinstore import open_storage
from twinstore_backfill.smoke import engine, lists

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager
    from pathlib import Path

    from tests.databases import MongoDatabase, PostgresDatabase
    from tests.servers import Settings
    from twinstore.checks import TrialStep
    from twinstore.scheduler.storage import SchedulerStorage
    from twinstore_backfill.smoke.steps import Finding

SERVERS: Final = ("mongo", "postgres")
PREFIX: Final = "twinstore-smoke-"
NEARLY: Final = "twinstore-smoke-production"
# Ends a real command in the middle of its trial, as an operator or a machine does.
ENDED: Final = """
import os, sys
from twinstore_backfill.cli import main
from twinstore_backfill.smoke import engine
real = engine.tried
def tried(step):
    if step.name == "worker":
        os.kill(os.getpid(), int(sys.argv[2]))
    return real(step)
engine.tried = tried
sys.exit(main(["--config", sys.argv[1], "smoke"]))
"""


@dataclass(frozen=True, slots=True)
class Deployed:
    """A store with data of several tenants, how to smoke it, and how to see all that it holds."""

    settings: Settings
    config: Path
    content: Callable[[], object]
    smoke: Callable[..., Answer]

    def storage(self) -> AbstractContextManager[Any]:
        """Open it as a service does."""
        return open_storage(self.settings)


@contextmanager
def deployed(
    server: str, request: pytest.FixtureRequest, folder: Path, capsys: pytest.CaptureFixture[str]
) -> Iterator[Deployed]:
    """Fill a database of its own."""
    database: Any = request.getfixturevalue(f"{server}_database")
    settings = kept(database.config)
    config = write_config(folder / "settings.json", settings)
    opened: Any = {"mongo": mongo, "postgres": postgres}[server]
    content: Any = {"mongo": mongo_content, "postgres": postgres_content}[server]
    with open_storage(settings) as storage:
        storage.scheduler.initializer.ensure_migrations()
        fill(storage.scheduler, ("acme", "umbrella", NEARLY))
    with opened(database) as connection:
        yield Deployed(
            settings,
            config,
            partial(content, connection),
            lambda *more: invoke(capsys, "--config", config, "smoke", "--format", "json", *more),
        )


@pytest.fixture(params=SERVERS)
def store(
    request: pytest.FixtureRequest, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> Iterator[Deployed]:
    with deployed(request.param, request, tmp_path, capsys) as found:
        yield found


def results(answer: Answer) -> dict[str, str]:
    return {step["step"]: step["result"] for step in answer.json["steps"]}


def findings(answer: Answer, step: str) -> str:
    (found,) = [item for item in answer.json["steps"] if item["step"] == step]
    assert found["result"] == "fail", found
    return " ".join(found["findings"])


def between_steps(
    monkeypatch: pytest.MonkeyPatch, act: Callable[[str], object], *, after: bool = True
) -> None:
    """Do something before or after each step of the trial."""
    real = engine.tried

    def tried(step: TrialStep) -> Finding:
        if not after:
            act(step.name)
        found = real(step)
        if after:
            act(step.name)
        return found

    monkeypatch.setattr(engine, "tried", tried)


def test_a_sound_store_passes_and_holds_afterwards_byte_for_byte_what_it_held(
    store: Deployed, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = store.content()
    first = store.smoke()
    assert (first.code, first.json["verdict"], set(results(first).values())) == (0, "OK", {"pass"}), first.out
    assert all(step["milliseconds"] >= 0 for step in first.json["steps"])
    assert first.json["tenant"].startswith(PREFIX)
    # As if the store were too large to be read whole.
    monkeypatch.setattr(lists, "WHOLE", 0)
    second = store.smoke("--tenant", "acme")
    assert (second.code, set(results(second).values())) == (0, {"pass"}), second.out
    assert store.content() == before


def test_a_service_that_works_meanwhile_meets_nothing_of_it(
    store: Deployed, monkeypatch: pytest.MonkeyPatch
) -> None:
    with store.storage() as opened:
        service: SchedulerStorage = opened.scheduler
        clock = service.bulk.now

        def work(_step: str) -> None:
            met.extend(due.tenant_id for due in service.schedules.get_due_schedules(clock(), limit=1000))
            met.extend(job.tenant_id for job in service.policy_jobs.lease_many("service", clock()))
            met.extend(worker.id for worker in service.workers.find_dead(clock()))
            assert service.policy_jobs.release_expired(clock()) == 0

        met: list[str] = []
        work("before")
        mine = set(met)
        between_steps(monkeypatch, work)
        assert store.smoke().code == 0
    assert met
    assert not {name for name in set(met) - mine if name.startswith(PREFIX) and name != NEARLY}


@pytest.mark.parametrize("server", SERVERS)
def test_a_test_that_was_killed_is_cleared_up_by_the_next_one(
    server: str, request: pytest.FixtureRequest, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with deployed(server, request, tmp_path, capsys) as store:
        before = store.content()
        killed = run_ended(store, signal.SIGKILL)
        assert killed.returncode == -signal.SIGKILL
        assert store.content() != before
        found = store.smoke()
        assert found.code == 0, found.out
        (counted,) = [step for step in found.json["steps"] if step["step"] == engine.COUNTS]
        assert "which a test had left" in counted["summary"]
        assert store.content() == before
        stopped = run_ended(store, signal.SIGTERM)
        assert (stopped.returncode, "has been removed" in stopped.stderr) == (143, True), stopped.stderr
        assert store.content() == before


def run_ended(store: Deployed, number: int) -> subprocess.CompletedProcess[str]:
    """Run a command that a signal meets in the middle of its trial."""
    return subprocess.run(
        [sys.executable, "-c", ENDED, str(store.config), str(int(number))],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        env=os.environ,
    )


def test_of_a_step_that_fails_nothing_is_left_either(
    store: Deployed, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = store.content()

    def fail(step: str) -> None:
        if step == "graph job with its events":
            raise ValueError(step)

    between_steps(monkeypatch, fail)
    assert store.smoke().code == 4
    assert store.content() == before


@pytest.mark.parametrize("name", POSTGRES_FAULTS)
def test_a_fault_of_postgresql_is_named_at_its_step(
    name: str, request: pytest.FixtureRequest, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fault = POSTGRES_FAULTS[name]
    with (
        deployed("postgres", request, tmp_path, capsys) as store,
        postgres(request.getfixturevalue("postgres_database")) as connection,
    ):
        fault.plant(connection)
        before = store.content()
        found = store.smoke()
        assert (found.code, found.json["verdict"]) == (1, "FAILED"), found.out
        told = findings(found, fault.step)
        assert [part for part in fault.told if part not in told] == [], told
        assert store.content() == before


@pytest.fixture(scope="module")
def filled_mongo(module_mongo_database: MongoDatabase) -> MongoDatabase:
    with open_storage(kept(module_mongo_database.config)) as storage:
        storage.scheduler.initializer.ensure_migrations()
        fill(storage.scheduler)
    return module_mongo_database


@pytest.mark.parametrize("name", MONGO_FAULTS)
def test_a_fault_of_mongodb_is_named_at_its_step(
    name: str, filled_mongo: MongoDatabase, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fault = MONGO_FAULTS[name]
    settings = kept(filled_mongo.config)
    config = write_config(tmp_path / "settings.json", settings)
    with mongo(filled_mongo) as database:
        run = database["runs"].find_one({"_id": "acme-run-3"})
        counters = database["_counters"].find_one({"_id": "graph_job_events"})
        assert run is not None
        assert counters is not None
        fault.plant(database)
        before = mongo_content(database)
        found = invoke(capsys, "--config", config, "smoke", "--format", "json")
        after = mongo_content(database)
        database["runs"].replace_one({"_id": run["_id"]}, run)
        database["_counters"].replace_one({"_id": counters["_id"]}, counters)
        database["locks"].delete_many({"holderId": "gone"})
    with open_storage(settings) as storage:
        storage.scheduler.initializer.ensure_migrations()
    assert (found.code, found.json["verdict"]) == (1, "FAILED"), found.out
    told = findings(found, fault.step)
    assert [part for part in fault.told if part not in told] == [], told
    assert after == before


def test_a_role_that_may_only_read_is_told_which_right_it_lacks(
    postgres_database: PostgresDatabase,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    reader = "twinstore_test_reader"
    with postgres(postgres_database) as connection:
        # Roles belong to the whole server, which workers share.
        with connection.transaction():
            connection.execute("SELECT pg_advisory_xact_lock(hashtext('reader'))")
            if not connection.execute("SELECT FROM pg_roles WHERE rolname = %s", [reader]).fetchone():
                create = sql.SQL("CREATE ROLE {} LOGIN PASSWORD {}")
                connection.execute(create.format(sql.Identifier(reader), PASSWORD))
        for statement in (
            "GRANT USAGE ON SCHEMA scheduler TO {}",
            "GRANT SELECT ON ALL TABLES IN SCHEMA scheduler TO {}",
        ):
            connection.execute(sql.SQL(statement).format(sql.Identifier(reader)))
        url = postgres_url(postgres_database.app_url, user=reader, password=PASSWORD)
        settings: Any = postgres_config(url, postgres_database.owner_url)
        settings["Persistence"]["Postgres"]["ApplicationRole"] = APP_ROLE
        config = write_config(tmp_path / "settings.json", settings)
        before = postgres_content(connection)
        found = invoke(capsys, "--config", config, "smoke", "--format", "json")
        assert found.code == 1, found.out
        assert "The role may not do this" in findings(found, "C6 lock smoke test")
        assert "The role may not do this" in findings(found, "schedule with its trigger")
        assert results(found)["removed again"] == "pass"
        assert postgres_content(connection) == before


def test_without_the_owner_the_schema_is_looked_at_as_far_as_the_rights_go(
    postgres_database: PostgresDatabase, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    settings: Any = postgres_database.config
    settings["Persistence"]["Postgres"].pop("OwnerConnectionString")
    config = write_config(tmp_path / "settings.json", settings)
    found = invoke(capsys, "--config", config, "smoke", "--format", "json")
    assert (found.code, results(found)["schema"]) == (0, "pass"), found.out


def test_a_server_that_does_not_answer_ends_with_4_and_wrong_settings_with_2(
    postgres_database: PostgresDatabase, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    url = postgres_url(postgres_database.app_url, host="127.0.0.1", port="1")
    away = write_config(tmp_path / "away.json", postgres_config(url, url))
    found = invoke(capsys, "--config", away, "smoke", "--format", "json")
    assert (found.code, found.json["error"]["code"]) == (4, "connection_error")
    wrong = write_config(tmp_path / "wrong.json", {"Persistence": {"Scheduler": "Nowhere"}})
    assert invoke(capsys, "--config", wrong, "smoke").code == 2
    refused = postgres_url(postgres_database.app_url, password="wrong")
    denied = write_config(tmp_path / "denied.json", postgres_config(refused, refused))
    assert invoke(capsys, "--config", denied, "smoke").code == 2
