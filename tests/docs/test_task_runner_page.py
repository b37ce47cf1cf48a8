"""The commands of the page do what it says, in its order: from files to MongoDB and on to PostgreSQL."""

from __future__ import annotations

import json
import os
import re
import shlex
from typing import TYPE_CHECKING, Final

import pytest

import twinstore
from tests.docs.pages import DOCS
from tests.support import forked
from twinstore.taskrunner import ALL_TENANTS
from twinstore.testing.taskrunner.builders import (
    make_approval,
    make_artifact,
    make_log_entry,
    make_pack_run,
    rich_pack_run,
)

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from tests.support.databases import MongoDatabase, PostgresDatabase

pytestmark = pytest.mark.long

PAGE: Final = (DOCS / "task-runner.md").read_text("utf-8")
COMMANDS: Final = re.findall(r"^\$ (twinstore .+)$", PAGE, re.MULTILINE)
# By how a command begins, what it prints when all is well.
TOLD: Final = {
    "twinstore migrate verify": "The schema is as it should be.",
    "twinstore migrate export": "20251106-task-runner-baseline",
    "twinstore backfill verify": "PASS",
    "twinstore smoke": "SMOKE OK",
}
RUNS: Final = 5


def settings_of(
    root: Path, mongo: MongoDatabase, postgres: PostgresDatabase, mode: str = "filesystem"
) -> dict[str, object]:
    """Return the settings of the page, for servers that are there."""
    url = {"ConnectionString": mongo.url, "Database": mongo.name}
    relational = postgres.config["Persistence"]
    assert isinstance(relational, dict)
    storage = {
        "Mode": mode,
        "Filesystem": {"Root": str(root)},
        "Mongo": url,
        "Postgres": {key: value for key, value in relational["Postgres"].items() if key != "ApplicationRole"},
    }
    role = {"ApplicationRole": relational["Postgres"]["ApplicationRole"]}
    return {"TaskRunner": {"Storage": storage}, "Persistence": {"Postgres": role}}


def run(line: str, folder: Path, environment: Mapping[str, str]) -> str:
    words = ["-m", "twinstore_backfill", *shlex.split(line)[1:]]
    done = forked.run(words, cwd=folder, env=environment)
    assert done.returncode == 0, f"{line}\n{done.stdout}\n{done.stderr}"
    return done.stdout + done.stderr


def test_the_commands_of_the_page_move_a_task_runner(
    tmp_path: Path, empty_mongo_database: MongoDatabase, empty_postgres_database: PostgresDatabase
) -> None:
    stores = (tmp_path / "state", empty_mongo_database, empty_postgres_database)
    settings = settings_of(*stores)
    (tmp_path / "appsettings.json").write_text(json.dumps(settings))
    with twinstore.add_taskrunner_storage(settings) as files:
        files.initializer.ensure_migrations()
        for number in range(RUNS):
            tenant = "acme" if number % 2 else None
            state = (rich_pack_run if number else make_pack_run)(tenant, f"run {number}")
            files.pack_runs.create(state)
            files.pack_run_logs.append([make_log_entry(state.run_id, 7)], tenant_id=tenant)
            files.pack_artifacts.upload(make_artifact(state.run_id, "report"), tenant_id=tenant)
            files.pack_run_approvals.save(
                state.run_id, [make_approval(tenant, state.run_id)], tenant_id=tenant
            )
        wanted = [*files.pack_runs.list(tenant_id=ALL_TENANTS)]
    inherited = {name: value for name, value in os.environ.items() if "__" not in name}
    environment = {**inherited, "TWINSTORE_CONFIG": str(tmp_path / "appsettings.json")}
    for line in COMMANDS:
        told = next((text for start, text in TOLD.items() if line.startswith(start)), "")
        assert told in run(line, tmp_path, environment), line
    copied = run(next(line for line in COMMANDS if " copy " in line), tmp_path, environment)
    assert re.search(rf"pack_runs +{RUNS} +0 +{RUNS} ", copied), copied
    for driver in ("mongo", "postgres", "filesystem"):
        with twinstore.open_storage(settings_of(*stores, mode=driver)) as opened:
            assert opened.taskrunner.driver.casefold() == driver
            assert [*opened.taskrunner.pack_runs.list(tenant_id=ALL_TENANTS)] == wanted
