"""``twinstore init``: it asks, tests without a write, writes files, and its files lead to a proof."""

from __future__ import annotations

import os
import pty
import shlex
import signal
import tomllib
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pymongo import MongoClient

from tests.migration_tool.cli.test_run import commands
from tests.support import forked
from tests.support.copies import DOCUMENTS_PER_TENANT, fill, invoke, open_store
from tests.support.foreign import foreign_runs
from tests.support.servers import postgres_url
from twinstore.config import load_settings
from twinstore_backfill.cli.init import Side, files_of
from twinstore_backfill.outcome import Exit

if TYPE_CHECKING:
    from tests.support.databases import MongoDatabase, PostgresDatabase

SECRET: Final = "pl4nted-s3cret"
TENANTS: Final = [f"tenant-{number}" for number in range(7)]  # 203 documents
DOCUMENTS: Final = len(TENANTS) * DOCUMENTS_PER_TENANT
NAMES: Final = ["settings.toml", "target.toml", "migration.toml"]
BOTH: Final = ("--from-url", "env:SOURCE_URL", "--to-url", "env:TARGET_URL")
SIDES: Final = (*BOTH, "--to-owner-url", "env:OWNER_URL")
ANSWERS: Final = (*SIDES, "--module", "scheduler")
RUN: Final = ("backfill", "run", "migration.toml")


def url_of(database: MongoDatabase) -> str:
    base, _, query = database.url.partition("?")
    return f"{base.rstrip('/')}/{database.name}?{query}"


def name_stores(monkeypatch: pytest.MonkeyPatch, source: str, target: PostgresDatabase) -> None:
    """Let variables name them."""
    monkeypatch.setenv("SOURCE_URL", source)
    monkeypatch.setenv("TARGET_URL", target.app_url)
    monkeypatch.setenv("OWNER_URL", target.owner_url)
    monkeypatch.setenv("SUPER_URL", target.superuser_url)
    monkeypatch.setenv("OTHER_URL", postgres_url(target.owner_url, dbname="postgres"))
    # The rows of tests are old.
    monkeypatch.setenv("Scheduler__Storage__RunRetentionDays", "0")


@pytest.fixture
def folder(
    mongo_database: MongoDatabase,
    empty_postgres_database: PostgresDatabase,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Path:
    """Return an empty folder; the environment names a filled MongoDB and an empty PostgreSQL."""
    folder = tmp_path / "new"
    folder.mkdir()
    monkeypatch.chdir(folder)
    with open_store("scheduler", "mongo", load_settings(mongo_database.config, environ={})) as store:
        fill(store.storage, TENANTS)
    name_stores(monkeypatch, url_of(mongo_database), empty_postgres_database)
    return folder


@pytest.fixture
def unwritten(
    module_mongo_database: MongoDatabase,
    module_postgres_database: PostgresDatabase,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Do the same for commands that are refused: the databases are shared, and have no rows."""
    monkeypatch.chdir(tmp_path)
    name_stores(monkeypatch, url_of(module_mongo_database), module_postgres_database)


def answered(answers: list[str]) -> tuple[int, str]:
    """Start the command on a terminal; type an answer at each question."""
    mine, theirs = pty.openpty()
    process = forked.Popen(["-m", "twinstore_backfill", "init"], stdin=theirs, stdout=theirs, stderr=theirs)
    os.close(theirs)
    shown = b""
    with suppress(OSError):  # it has ended
        while data := os.read(mine, 65_536):
            shown += data
            if answers and shown.endswith(b": "):
                os.write(mine, f"{answers.pop(0)}\n".encode())
    os.close(mine)
    return process.wait(), shown.decode()


def test_three_commands_lead_from_an_empty_folder_to_a_proof(folder: Path) -> None:
    """Type wrong answers too: they are refused one by one, and no password gets into a file."""
    code, shown = answered(
        [
            *("nope", "scheduler"),
            *(f"mongodb://u:{SECRET}@h/db", "env:NO_SUCH", "env:SOURCE_URL"),
            *("env:TARGET_URL", "env:SOURCE_URL", "env:TARGET_URL", "env:OWNER_URL"),
            *("'tenant-9'", ""),
            "reports of ünïcode",
        ]
    )
    assert code == Exit.OK, shown
    for said in (
        "Unknown module 'nope'",
        "The URL holds a password",
        "the variable 'NO_SUCH', which is not set",
        f"{DOCUMENTS} rows (",
        "its schema will be created",
        "The source has no rows of tenant 'tenant-9'",
        "Next:\r\n  twinstore backfill run migration.toml",
    ):
        assert said in shown, (said, shown)
    assert sorted(path.name for path in folder.iterdir()) == ["migration.toml", "settings.toml"]
    text = "".join(path.read_text() for path in folder.iterdir())
    hidden = [os.environ[name] for name in ("SOURCE_URL", "TARGET_URL", "OWNER_URL")]
    assert [
        secret for secret in (SECRET, *hidden) if secret in text or secret in shown.replace(SECRET, "", 1)
    ] == []
    dry = forked.run(["-m", "twinstore_backfill", *RUN])
    assert (dry.returncode, "Nothing was written." in dry.stdout) == (0, True), dry.stderr
    done = forked.run(["-m", "twinstore_backfill", *shlex.split(dry.stdout.splitlines()[-1])[1:]])
    assert (done.returncode, f"PASS: {DOCUMENTS} documents equal" in done.stdout) == (0, True), done.stdout
    made = {path.name for path in (folder / "reports of ünïcode").iterdir()}
    assert {f"parity-report.{suffix}" for suffix in ("json", "xml", "md", "html")} <= made


KILLED: Final = """
import os, signal, sys
from twinstore_backfill.cli import main
from twinstore_backfill.migration import Migration
Migration.verify = lambda *_, **__: os.kill(os.getpid(), signal.SIGKILL)
main(sys.argv[1:])
"""


def test_killed_between_steps_the_same_command_goes_on(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Kill it when the schema is made and all is copied; nothing is copied twice."""
    assert invoke(capsys, "init", *ANSWERS).code == Exit.OK
    killed = forked.run(["-c", KILLED, *RUN, "--execute"], cwd=folder)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    ended = invoke(capsys, *RUN, "--execute")
    said = f"Copy: {DOCUMENTS} read; {DOCUMENTS} equal already."
    assert (ended.code, said in ended.out, "PASS: " in ended.out) == (0, True, True), ended.out
    # The job is known, so there was no other dry run.
    assert "Dry run" not in ended.out


def test_consent_is_asked_with_the_command_that_gives_it(
    postgres_database: PostgresDatabase,
    empty_mongo_database: MongoDatabase,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Move to a MongoDB that has old runs of another program, which a TTL index would remove."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SOURCE_URL", postgres_database.owner_url)
    monkeypatch.setenv("TARGET_URL", url_of(empty_mongo_database))
    ended = datetime.now(UTC).replace(microsecond=0) - timedelta(days=400)
    with MongoClient[dict[str, Any]](empty_mongo_database.url) as client:
        client[empty_mongo_database.name]["runs"].insert_many(foreign_runs("acme", 5, ended=ended))
    assert invoke(capsys, "init", *BOTH, "--module", "scheduler").code == Exit.OK
    stopped = invoke(capsys, *RUN, "--execute")
    assert stopped.code == Exit.PREFLIGHT_REFUSED
    assert (
        "Decide: The migrations of the target need consent, because its server would remove 5 " in stopped.out
    )
    consent, again = commands(stopped)
    assert {"--accept-ttl", "runs=5"} <= set(consent)
    assert invoke(capsys, *consent).code == Exit.OK
    assert "need consent" not in invoke(capsys, *again).out


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ((), "give --from-url, --to-url, --to-owner-url, --module (--to-owner-url for PostgreSQL only)."),
        (ANSWERS[:4], "give --to-owner-url, --module"),
        ((*ANSWERS, "--reports", "a\nb"), "--reports has a character that cannot be printed"),
        ((*ANSWERS, "--tenant", "nobody"), "The source has no rows of tenant 'nobody'"),
        (("--from-url", "env:TARGET_URL", *ANSWERS[2:]), "Source and target are the same store"),
        ((*ANSWERS[:5], "env:OTHER_URL", *ANSWERS[6:]), "name the same database"),
        ((*ANSWERS[:5], "env:TARGET_URL", *ANSWERS[6:]), "and --to-owner-url name one role"),
        ((*ANSWERS[:7], "tracking"), "so there is nothing to read"),
        ((*ANSWERS[:3], "env:SUPER_URL", *ANSWERS[4:]), "superuser"),
        *(
            ((*ANSWERS[:at], f"postgresql://u:{SECRET}@h/db", *ANSWERS[at + 1 :]), "The URL holds a password")
            for at in (1, 3, 5)
        ),
    ],
)
@pytest.mark.usefixtures("unwritten")
def test_without_a_terminal_a_missing_or_wrong_answer_is_refused_and_nothing_is_written(
    options: tuple[str, ...], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    answer = invoke(capsys, "init", *options)
    assert (answer.code in {2, 6}, said in answer.err) == (True, True), answer.err
    assert (SECRET in answer.out + answer.err, list(Path().iterdir())) == (False, [])


@pytest.mark.usefixtures("unwritten")
def test_the_environment_may_not_win_over_the_files(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("scheduler__storage__mongo__CONNECTIONSTRING", "mongodb://elsewhere/x")
    answer = invoke(capsys, "init", *ANSWERS)
    assert (answer.code, "The environment sets connectionstring of Mongo" in answer.err) == (2, True)


@pytest.mark.parametrize("name", NAMES)
def test_a_file_that_exists_is_left_alone(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / name).symlink_to("nowhere")
    answer = invoke(capsys, "init", *ANSWERS)
    assert (answer.code, f"{name} exists and is not overwritten" in answer.err) == (Exit.USAGE, True)
    assert [path.name for path in tmp_path.iterdir()] == [name]


@settings(max_examples=25)
@given(text=st.text(st.characters(exclude_categories=["Cs"])), other=st.text(max_size=9).map(ascii))
def test_files_hold_any_answer_as_it_was_given(text: str, other: str) -> None:
    sides = Side("Mongo", {"ConnectionString": text}), Side("Mongo", {"ConnectionString": other})
    files = {
        str(path): tomllib.loads(content)
        for path, content in files_of("scheduler", *sides, [text], other).items()
    }
    assert files == {
        "settings.toml": {"Persistence": {"Scheduler": "Mongo", "Mongo": {"ConnectionString": text}}},
        "target.toml": {"Persistence": {"Scheduler": "Mongo", "Mongo": {"ConnectionString": other}}},
        "migration.toml": {
            "module": "scheduler",
            "config": "settings.toml",
            "target-config": "target.toml",
            "from": "Mongo",
            "to": "Mongo",
            "reports": other,
            "tenant": [text],
        },
    }
