"""What goes wrong with real servers is one line with a remedy, the right exit code, and no secret."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pytest

from tests.support.copies import Answer, fill, invoke, open_store, rows_of, write_config
from tests.support.servers import postgres_url
from twinstore.config import load_settings
from twinstore_backfill.outcome import Exit

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.databases import MongoDatabase, PostgresDatabase

SECRET: Final = "pl4nted-s3cret"
COPY: Final = (
    "backfill",
    "copy",
    "--module",
    "scheduler",
    "--from",
    "Mongo",
    "--to",
    "Postgres",
    "--execute",
)


def settings(mongo: str, postgres: str, *, patience_ms: int = 20_000, **more: object) -> dict[str, object]:
    return {
        "Persistence": {
            "Scheduler": "Mongo",
            "Mongo": {"ConnectionString": mongo, "Database": "twin", "ServerSelectionTimeoutMs": patience_ms},
            "Postgres": {"ConnectionString": postgres, **more},
        }
    }


def refused(answer: Answer, code: int) -> str:
    """Return the one line of a failure after checking its form."""
    assert answer.out == ""
    assert answer.code == code, answer.err
    lines = [line for line in answer.err.splitlines() if not line.startswith(("runs:", "schedules:"))]
    assert len(lines) == 1, answer.err
    assert lines[0].startswith("error: ")
    assert SECRET not in answer.err
    assert "Traceback" not in answer.err
    return lines[0]


def config_for(path: Path, mongo: MongoDatabase, postgres: PostgresDatabase, **changes: object) -> Path:
    document = settings(mongo.url, postgres.app_url, OwnerConnectionString=postgres.owner_url)
    persistence = document["Persistence"]
    assert isinstance(persistence, dict)
    persistence["Postgres"].update(changes)
    persistence["Mongo"]["Database"] = mongo.name
    persistence["Postgres"].setdefault("ApplicationRole", "twinstore_test_app")
    return write_config(path / "s.json", document)


class TestAddresses:
    @pytest.mark.parametrize("backend", ["Mongo", "Postgres"])
    def test_an_address_that_is_none(
        self, backend: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        config = write_config(
            tmp_path / "s.json",
            settings(f"mongo//x:{SECRET}@h", f"postgresql//x:{SECRET}@h password={SECRET}"),
        )
        refused(invoke(capsys, "--config", config, "config", "check", "--backend", backend), Exit.USAGE)

    @pytest.mark.parametrize(
        ("url", "remedy"),
        [
            ("mongodb://127.0.0.1:1", "set Persistence:Mongo:Database"),
            (f"mongodb://x:{SECRET}@h:abc/x", "malformed"),
            ("mongodb://h/x?timeoutMS=soon", "options"),
        ],
    )
    def test_settings_of_mongodb_that_lead_nowhere(
        self, url: str, remedy: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        mongo = {"Persistence": {"Scheduler": "Mongo", "Mongo": {"ConnectionString": url}}}
        config = write_config(tmp_path / "s.json", mongo)
        line = refused(invoke(capsys, "--config", config, "config", "check"), Exit.USAGE)
        assert remedy in line
        assert "***" not in line


def test_a_check_of_the_settings_tries_the_owner_role_too(
    empty_mongo_database: MongoDatabase,
    postgres_database: PostgresDatabase,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    wrong = postgres_url(postgres_database.owner_url, user="nobody_at_all", password=SECRET)
    config = config_for(tmp_path, empty_mongo_database, postgres_database, OwnerConnectionString=wrong)
    refused(invoke(capsys, "--config", config, "config", "check", "--backend", "Postgres"), Exit.USAGE)


def test_verifying_against_an_empty_database_is_refused_with_the_command_that_helps(
    empty_mongo_database: MongoDatabase,
    empty_postgres_database: PostgresDatabase,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    config = config_for(tmp_path, empty_mongo_database, empty_postgres_database)
    with open_store("scheduler", "mongo", load_settings(config, environ={})) as source:
        source.storage.initializer.ensure_migrations()
    verify = ("backfill", "verify", *COPY[2:-1])
    line = refused(invoke(capsys, "--config", config, *verify), Exit.PREFLIGHT_REFUSED)
    assert "migrate run" in line


def test_a_dry_run_and_a_plan_need_no_schema_in_the_target_and_make_none(
    empty_mongo_database: MongoDatabase,
    empty_postgres_database: PostgresDatabase,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    config = config_for(tmp_path, empty_mongo_database, empty_postgres_database)
    with open_store("scheduler", "mongo", load_settings(config, environ={})) as source:
        source.storage.initializer.ensure_migrations()
        fill(source.storage)
        rows = sum(rows_of(source.bulk).values())
    plan = invoke(capsys, "--config", config, "backfill", "plan", *COPY[2:-1], "--format", "json")
    assert plan.json["rows"] == rows
    assert plan.json["pending_migrations"]
    dry = invoke(
        capsys, "--config", config, *COPY[:-1], "--as-of", "2025-10-27T00:00:00Z", "--format", "json"
    )
    assert (dry.code, dry.json["totals"]["written"]) == (0, rows)
    status = invoke(
        capsys, "--config", config, "migrate", "status", "--module", "scheduler", "--backend", "Postgres"
    )
    assert status.code == Exit.DIFFERENT
    assert "applied " not in status.out.replace("applied at", "")


def test_a_password_appears_nowhere(
    empty_mongo_database: MongoDatabase,
    postgres_database: PostgresDatabase,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    # A parameter that the server ignores, but that looks like a secret everywhere it is shown.
    url = (
        f"{postgres_database.app_url}&sslpassword={SECRET}"
        if "?" in postgres_database.app_url
        else (f"{postgres_database.app_url}?sslpassword={SECRET}")
    )
    config = config_for(tmp_path, empty_mongo_database, postgres_database, ConnectionString=url)
    with open_store("scheduler", "mongo", load_settings(config, environ={})) as source:
        source.storage.initializer.ensure_migrations()
        fill(source.storage, ["acme"])
    shown = []
    out = ("--out", tmp_path / "out")
    for output, command in (
        ("text", COPY + out),
        ("json", ("backfill", "verify", *COPY[2:-1], *out)),
        *((output, ("config", "show")) for output in ("text", "json")),
        *((output, ("config", "check", "--backend", "Postgres")) for output in ("text", "json")),
    ):
        answer = invoke(capsys, "--debug", "--config", config, *command, "--format", output)
        shown += [answer.out, answer.err]
        assert answer.code in {0, 1}, answer.err
    shown += [path.read_text() for path in (tmp_path / "out").iterdir()]
    assert not any(SECRET in text for text in shown)
