"""`migrate plan`, `migrate run` and `backfill copy` where the server would act on rows that are there."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from tests.schema.shell import Shell
from tests.support.copies import Answer, fill, invoke, write_config
from tests.support.databases import MONGO_STEPS, POSTGRES_FILES, without_retention
from tests.support.foreign import Document, fill_with_pymongo, foreign_runs
from twinstore import add_scheduler_postgres_storage
from twinstore.scheduler.module import MODULE
from twinstore_backfill.outcome import Exit
from twinstore_postgres.schema.migrator import shipped_migrations

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pymongo.database import Database

    from tests.support.databases import MongoDatabase, PostgresDatabase

Migrate = Callable[..., Answer]
TTL = {
    "kind": "ttl",
    "name": "runs",
    "rows": 10,
    "more": False,
    "text": "remove 10 rows of runs at once",
    "option": "--accept-ttl runs=10",
}
VALIDATOR = {
    "kind": "validator",
    "name": "run_summaries",
    "rows": 6,
    "more": False,
    "text": "refuse the next write of 6 rows of run_summaries",
    "option": "--accept-validator run_summaries=6",
}


@pytest.fixture
def migrate(
    empty_mongo_database: MongoDatabase, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> Migrate:
    config = write_config(tmp_path / "settings.json", empty_mongo_database.config)

    def run(command: str, *more: object) -> Answer:
        return invoke(capsys, "--config", config, "migrate", command, "--module", "scheduler", *more)

    return run


def test_a_plan_shows_the_counts_and_changes_nothing(migrate: Migrate, database: Database[Document]) -> None:
    fill_with_pymongo(database)
    names = sorted(database.list_collection_names())
    for command in (("plan",), ("run", "--dry-run")):
        answer = migrate(*command, "--format", "json")
        assert (answer.code, answer.json["effects"]) == (0, [TTL, VALIDATOR])
        shown = " ".join(migrate(*command).out.split())
        assert "Consent is needed, because the server would" in shown
        assert "remove 10 rows of runs at once --accept-ttl runs=10" in shown
    assert sorted(database.list_collection_names()) == names
    assert set(database["runs"].index_information()) == {"_id_", "theirs"}


def test_a_plan_shows_the_script_of_what_is_pending(
    migrate: Migrate, database: Database[Document], tmp_path: Path
) -> None:
    plan = migrate("plan", "--sql").out
    assert plan == migrate("export").out
    assert Shell(database).run(plan, tmp_path / "script.js") == ""
    assert migrate("status").code == 0
    assert migrate("plan", "--sql").out == ""
    last = MONGO_STEPS[-1]
    database["_migrations"].delete_one({"_id": f"scheduler:{last}"})
    script = migrate("plan", "--sql", "--format", "json").json["script"]
    assert [name for name in MONGO_STEPS if f"scheduler:{name}" in script] == [last]


def test_a_run_ends_with_the_counts_until_each_is_accepted(
    migrate: Migrate, database: Database[Document]
) -> None:
    fill_with_pymongo(database)
    refused = migrate("run", "--format", "json")
    assert refused.code == Exit.PREFLIGHT_REFUSED == refused.json["error"]["exit_code"]
    assert refused.json["error"]["code"] == "consent_required"
    assert refused.json["error"]["effects"] == [TTL, VALIDATOR]
    one = migrate("run", "--accept-ttl", "runs=10", "--format", "json")
    assert (one.code, one.json["error"]["effects"]) == (Exit.PREFLIGHT_REFUSED, [VALIDATOR])
    assert "expireAfterSeconds" not in database["runs"].index_information()["ttl_finishedAt"]
    long_ago = datetime.now(UTC).replace(microsecond=0) - timedelta(days=300)
    database["runs"].insert_many(foreign_runs("late", 1, ended=long_ago))
    both = ("--accept-ttl", "runs=10", "--accept-validator", "run_summaries")
    grown = migrate("run", *both)
    assert grown.code == Exit.PREFLIGHT_REFUSED
    assert "remove 11 rows of runs at once" in grown.err
    assert "--accept-ttl runs=11" in grown.err
    done = migrate("run", *both, "--accept-ttl", "runs=11", "--format", "json")
    assert (done.code, done.json["applied"]) == (0, list(MONGO_STEPS))
    assert migrate("plan", "--format", "json").json == {"pending": [], "effects": []}


def test_the_options_that_the_message_names_are_enough(
    migrate: Migrate, database: Database[Document]
) -> None:
    fill_with_pymongo(database)
    line = migrate("run").err
    command = line[line.index("`twinstore ") + len("`twinstore ") :].partition("`")[0].split()
    assert migrate(command[1], *command[4:]).code == 0


class TestCopy:
    @pytest.fixture
    def copy(
        self,
        empty_mongo_database: MongoDatabase,
        postgres_database: PostgresDatabase,
        tmp_path: Path,
        capsys: pytest.CaptureFixture[str],
    ) -> Migrate:
        """Return a way to run a command from a filled PostgreSQL to a MongoDB shared with others."""
        with add_scheduler_postgres_storage(without_retention(postgres_database.config)) as storage:
            fill(storage)
        source = write_config(tmp_path / "source.json", postgres_database.config)
        target = write_config(tmp_path / "target.json", empty_mongo_database.config)

        def run(name: str, *more: object) -> Answer:
            sides = ("--module", "scheduler", "--from", "postgres", "--to", "mongo")
            files = ("--source-config", source, "--target-config", target)
            return invoke(capsys, "backfill", name, *sides, *files, *more)

        return run

    def test_a_target_that_needs_consent_is_refused_and_left_as_it_is(
        self, copy: Migrate, migrate: Migrate, database: Database[Document], tmp_path: Path
    ) -> None:
        fill_with_pymongo(database)
        names = sorted(database.list_collection_names())
        plan = copy("plan", "--format", "json")
        assert (plan.code, plan.json["effects"]) == (0, [TTL, VALIDATOR])
        assert "remove 10 rows of runs at once: --accept-ttl runs=10" in " ".join(copy("plan").out.split())
        refused = copy("copy", "--execute", "--out", tmp_path, "--format", "json")
        assert refused.code == Exit.PREFLIGHT_REFUSED
        assert refused.json["error"]["effects"] == [TTL, VALIDATOR]
        assert "Nothing was changed." in refused.json["error"]["message"]
        assert sorted(database.list_collection_names()) == names
        assert set(database["runs"].index_information()) == {"_id_", "theirs"}
        accepted = ("--accept-ttl", "runs=10", "--accept-validator", "run_summaries=6")
        assert migrate("run", *accepted).code == 0
        assert copy("copy", "--execute", "--out", tmp_path).code == 0


class TestPostgres:
    @pytest.fixture
    def migrate(
        self,
        empty_postgres_database: PostgresDatabase,
        tmp_path: Path,
        capsys: pytest.CaptureFixture[str],
    ) -> Migrate:
        config = write_config(tmp_path / "postgres.json", empty_postgres_database.config)

        def run(*command: object) -> Answer:
            return invoke(capsys, "--config", config, *command)

        return run

    @pytest.fixture
    def owner(self, empty_postgres_database: PostgresDatabase) -> Iterator[psycopg.Connection[Any]]:
        with psycopg.connect(empty_postgres_database.owner_url, autocommit=True) as connection:
            yield connection

    def test_rows_are_hidden_only_with_the_consent_that_the_message_names(
        self, migrate: Migrate, owner: psycopg.Connection[Any]
    ) -> None:
        owner.execute(shipped_migrations(MODULE)[0].text.encode())
        owner.execute(
            "INSERT INTO scheduler.run_summaries VALUES ('acme', 's', now(), NULL, '[]', '{}'), "
            "('acme', 't', now(), NULL, '[]', '{}')"
        )
        module = ("--module", "scheduler")
        plan = migrate("migrate", "plan", *module, "--format", "json")
        assert [item["option"] for item in plan.json["effects"]] == ["--accept-rls run_summaries=2"]
        refused = migrate("migrate", "run", *module)
        assert refused.code == Exit.PREFLIGHT_REFUSED
        assert "hide 2 rows of run_summaries" in refused.err
        assert migrate("migrate", "run", *module, "--accept-rls", "run_summaries=1").code == 6
        assert migrate("migrate", "run", *module, "--accept-rls", "run_summaries").code == 0
        assert migrate("config", "check").code == 0

    def test_a_plan_shows_the_statements_of_what_is_pending_alone(
        self, migrate: Migrate, owner: psycopg.Connection[Any]
    ) -> None:
        module = ("--module", "scheduler")
        plan = migrate("migrate", "plan", *module, "--sql")
        assert plan.out == migrate("migrate", "export", *module).out
        owner.execute(plan.out.encode())
        assert migrate("migrate", "status", *module).code == 0
        assert migrate("migrate", "plan", *module, "--sql").out == ""
        last = POSTGRES_FILES[-1]
        owner.execute("DELETE FROM scheduler.schema_migrations WHERE migration_name = %s", (last,))
        script = migrate("migrate", "plan", *module, "--sql", "--format", "json").json["script"]
        assert [name for name in POSTGRES_FILES if f"\n-- {name}\n" in script] == [last]
