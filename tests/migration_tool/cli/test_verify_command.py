"""The verify command as a pipeline sees it: exit code, files and words agree, whatever happens."""

from __future__ import annotations

import os
import signal
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import TYPE_CHECKING, Final

import psycopg
import pytest

from tests.support.copies import (
    AS_OF,
    DOCUMENTS_PER_TENANT,
    fill,
    invoke,
    memory_pair,
    open_store,
    server_settings,
    write_config,
)
from twinstore.config import load_settings
from twinstore.errors import TwinstoreError, UnavailableError
from twinstore.scheduler.catalog import RUNS
from twinstore.scheduler.enums import RunState
from twinstore.testing.scheduler.builders import make_run
from twinstore_backfill.outcome import Exit
from twinstore_backfill.process.stopping import StopSwitch
from twinstore_backfill.report.model import parse_report
from twinstore_backfill.stores import StoreSpec
from twinstore_backfill.verify.context import Task, VerifyContext
from twinstore_backfill.verify.processes import WorkerPool, run_tasks
from twinstore_memory.rows import encode, store_unchecked

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.support.copies import MemoryPair
    from tests.support.databases import MongoDatabase, PostgresDatabase

CODES: Final = {"PARTIAL": Exit.OK, "FAIL": Exit.DIFFERENT}


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[MemoryPair]:
    """Return two stores that hold the same."""
    with memory_pair(tmp_path / "copy") as pair:
        fill(pair.source.storage)
        pair.copy()
        yield pair


@pytest.fixture
def to_postgres(postgres_database: PostgresDatabase, tmp_path: Path) -> tuple[object, ...]:
    """Return the arguments that name a store in memory and one on PostgreSQL."""
    source = write_config(tmp_path / "source.json", {"Persistence": {"Memory": {"Store": "empty"}}})
    target = write_config(tmp_path / "target.json", postgres_database.config)
    return ("--from", "memory", "--to", "postgres", "--source-config", source, "--target-config", target)


def sides_of(pair: MemoryPair, directory: Path) -> tuple[object, ...]:
    """Return the arguments that name both stores."""
    files = [
        write_config(directory / f"{name}.json", {"Persistence": {"Memory": {"Store": name}}})
        for name in pair.names
    ]
    drivers = ("--module", "scheduler", "--from", "memory", "--to", "memory")
    return (*drivers, "--source-config", files[0], "--target-config", files[1])


def test_rows_due_for_removal_are_named_next_to_the_verdict(
    pair: MemoryPair, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    old = make_run("acme", "old", state=RunState.CANCELLED, created_at=AS_OF - timedelta(days=200))
    store_unchecked(pair.stores[0], encode(RUNS, old))
    command = ("backfill", "verify", *sides_of(pair, tmp_path), "--as-of", AS_OF.isoformat())
    answer = invoke(capsys, *command, "--out", tmp_path)
    said = "Skipped expired rows: 1 in source, 0 in target."
    assert (
        answer.code,
        "1 / 0" in answer.out,
        f"PASS: {2 * DOCUMENTS_PER_TENANT} documents equal. {said}" in answer.out,
    ) == (0, True, True)
    for suffix in ("md", "html"):
        page = (tmp_path / f"parity-report.{suffix}").read_text()
        assert (said in page, "1 / 0" in page) == (True, True)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ("ALTER TABLE scheduler.runs ADD COLUMN theirs int", "does not know column theirs of"),
        ("REVOKE SELECT ON pg_catalog.pg_attribute FROM PUBLIC", "GRANT SELECT ON pg_catalog.pg_attribute"),
        ("CREATE POLICY theirs ON scheduler.runs USING (true)", "DROP POLICY theirs ON scheduler.runs;"),
    ],
)
def test_a_schema_that_is_not_ready_ends_with_6_and_a_report_that_says_what_to_do(  # noqa: PLR0917  # fixtures and parameters
    postgres_database: PostgresDatabase,
    to_postgres: tuple[object, ...],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    change: str,
    said: str,
) -> None:
    with psycopg.connect(postgres_database.superuser_url, autocommit=True) as connection:
        connection.execute(change.encode())
    sides = ("--module", "scheduler", *to_postgres)
    answer = invoke(capsys, "backfill", "verify", *sides, "--out", tmp_path / "report")
    assert (answer.code, said in answer.err) == (Exit.PREFLIGHT_REFUSED, True)
    files = {path.suffix: path.read_text() for path in (tmp_path / "report").iterdir()}
    assert files.keys() == {".xml", ".md", ".html"}
    for suffix in (".md", ".html"):
        assert said in files[suffix].replace("\\", "")
        assert "REFUSED" in files[suffix]
    if "COLUMN" in change:
        key = ("--entity", "runs", "--key", "x")
        assert invoke(capsys, "backfill", "diff", *sides, *key).code == Exit.PREFLIGHT_REFUSED
        for how in ((), ("--execute", "--out", tmp_path)):
            answer = invoke(capsys, "backfill", "copy", *sides, *how)
            assert (answer.code, said in answer.err) == (Exit.PREFLIGHT_REFUSED, True)


def test_a_source_whose_catalogue_may_not_be_read_ends_with_6_and_the_missing_grant(
    postgres_database: PostgresDatabase, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with psycopg.connect(postgres_database.superuser_url, autocommit=True) as connection:
        connection.execute("REVOKE SELECT ON pg_catalog.pg_policy FROM PUBLIC")
    source = write_config(tmp_path / "source.json", postgres_database.config)
    target = write_config(tmp_path / "target.json", {"Persistence": {"Memory": {"Store": "empty"}}})
    sides = ("--from", "postgres", "--to", "memory", "--source-config", source, "--target-config", target)
    answer = invoke(capsys, "backfill", "verify", "--module", "scheduler", *sides)
    assert answer.code == Exit.PREFLIGHT_REFUSED
    assert "To find out: GRANT SELECT ON pg_catalog.pg_policy TO" in answer.err


@pytest.mark.parametrize("command", ["plan", "copy", "verify"])
@pytest.mark.parametrize(
    ("tenant", "problem"),
    [
        ("nosuch", "Tenant 'nosuch' has no rows on either side; check the spelling."),
        ("system", "reserved"),
        ("a:b", "tenant_id"),
    ],
)
def test_an_unusable_tenant_proves_nothing(  # noqa: PLR0917  # fixtures and parameters
    command: str,
    tenant: str,
    problem: str,
    pair: MemoryPair,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    answer = invoke(capsys, "backfill", command, *sides_of(pair, tmp_path), "--tenant", tenant)
    assert (answer.code, answer.out) == (Exit.USAGE, "")
    assert problem in answer.err


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (("--on-finish", '"unclosed'), "--on-finish"),
        (("--mode", "sample", "--seed", 10**20), "--seed should fit into 64 bits"),
        (("--range-size", 10**20), "--range-size should fit into 64 bits"),
        (("--out", "x" * 300), "Nothing can be written to the directory"),
    ],
    ids=["on-finish", "seed", "range size", "directory"],
)
def test_an_option_that_cannot_be_is_a_usage_error_and_leaves_no_report(
    options: tuple[object, ...],
    problem: str,
    pair: MemoryPair,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "parity-report.json").touch()
    answer = invoke(capsys, "backfill", "verify", *sides_of(pair, tmp_path), "--out", tmp_path, *options)
    assert (answer.code, answer.out) == (Exit.USAGE, "")
    assert problem in answer.err
    assert (tmp_path / "parity-report.json").exists() is (options[0] == "--out")


@pytest.mark.parametrize("command", ["recheck", "repair"])
@pytest.mark.parametrize(
    "line",
    [
        '{"entity": "runs", "key": 17, "kind": "different"}',
        '{"entity": "runs", "key": ["\\ud800"], "kind": "different"}',
        '{"entity": "execution_logs", "key": ["r", 100000000000000000000], "kind": "different"}',
        "[" * 100_000,
    ],
    ids=["no key", "surrogate", "number", "depth"],
)
def test_a_line_that_names_no_row_is_a_usage_error(
    command: str, line: str, pair: MemoryPair, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "differences.ndjson").write_text(f"{line}\n")
    answer = invoke(capsys, "backfill", command, *sides_of(pair, tmp_path), "--in", tmp_path)
    assert (answer.code, answer.out) == (Exit.USAGE, "")
    assert "give the" in answer.err


def test_a_key_that_no_server_takes_is_a_usage_error(
    pair: MemoryPair, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    row = ("--entity", "runs", "--key", "\udcff")
    answer = invoke(capsys, "backfill", "diff", *sides_of(pair, tmp_path), *row)
    assert (answer.code, "--key does not name a row of runs" in answer.err) == (Exit.USAGE, True)


@pytest.mark.parametrize("command", [("copy", "--execute"), ("verify",)])
def test_a_directory_that_takes_no_file_is_refused_first(
    command: tuple[str, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "taken"
    file.touch()
    with memory_pair(tmp_path) as empty:
        fill(empty.source.storage)
        answer = invoke(capsys, "backfill", *command, *sides_of(empty, tmp_path), "--out", file)
        assert not any(empty.target.bulk.counts(entity) for entity in empty.target.bulk.entities())
    assert (answer.code, str(file) in answer.err) == (Exit.USAGE, True)


@pytest.fixture
def config(mongo_database: MongoDatabase, postgres_database: PostgresDatabase, tmp_path: Path) -> Path:
    """Return settings of two servers that hold the same."""
    path = write_config(tmp_path / "settings.json", server_settings(postgres_database, mongo_database))
    for name in ("mongo", "postgres"):
        with open_store("scheduler", name, load_settings(path, environ={})) as store:
            store.storage.initializer.ensure_migrations()
            fill(store.storage, ["acme"])
    return path


def test_verdict_report_and_exit_code_agree_with_several_processes(
    config: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sides = ("--module", "scheduler", "--from", "mongo", "--to", "postgres", "--entity", "schedules")
    command = ("--config", config, "backfill", "verify", *sides, "--jobs", 2, "--range-size", 1)
    seen = set()
    for side in ("postgres", "mongo"):
        with open_store("scheduler", side, load_settings(config, environ={})) as store:
            fill(store.storage, ["zulu"])
        answer = invoke(capsys, *command, "--out", tmp_path, "--format", "json")
        report = parse_report((tmp_path / "parity-report.json").read_bytes(), "report")
        assert answer.code == answer.json["exit_code"] == report.exit_code == CODES[report.verdict]
        assert answer.json["verdict"] == report.verdict
        seen.add(report.verdict)
    assert seen == {"PARTIAL", "FAIL"}


@dataclass(frozen=True)
class Killed(Task[object]):
    """A task during which its process is killed."""

    def run(self, context: VerifyContext) -> int:
        del context
        os.kill(os.getpid(), signal.SIGKILL)
        return 0


@dataclass(frozen=True)
class Refused(Task[object]):
    """A task whose server is gone."""

    def run(self, context: VerifyContext) -> int:
        del context
        raise UnavailableError("the server is gone")


def test_a_task_that_kills_its_workers_is_one_failure_with_a_remedy(
    config: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("twinstore_backfill.engines.pool.MOST_LOSSES", 1)
    with both(config) as context, pytest.raises(TwinstoreError, match=r"worker process .* was killed"):
        run(Killed(), context)


def test_the_failure_of_a_worker_reaches_the_command_as_it_is(config: Path) -> None:
    with both(config) as context, pytest.raises(UnavailableError, match="the server is gone"):
        run(Refused(), context)


def test_a_worker_that_cannot_open_a_store_says_why_and_nothing_else(
    config: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    gone = {"Persistence": {"Postgres": {"ConnectionString": "postgresql://127.0.0.1:1/x"}}}
    spec = StoreSpec.of("scheduler", "Postgres", load_settings(gone, environ={}))
    with both(config) as open_stores:
        context = replace(open_stores, target=replace(open_stores.target, spec=spec))
        with pytest.raises(UnavailableError, match="server runs"):
            run(Refused(), context)
    assert capfd.readouterr().err == ""


def run(task: Task[object], context: VerifyContext) -> None:
    """Run a task in the other one of two processes."""
    with WorkerPool(context, 2) as workers:
        list(run_tasks([task], context, workers, StopSwitch()))


@contextmanager
def both(config: Path) -> Iterator[VerifyContext]:
    settings = load_settings(config, environ={})
    with (
        open_store("scheduler", "mongo", settings) as source,
        open_store("scheduler", "postgres", settings) as target,
    ):
        yield VerifyContext(source, target, AS_OF, 100)
