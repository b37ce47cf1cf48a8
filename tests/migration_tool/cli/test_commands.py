"""The command line without a server: results on stdout, failures as one line, the right exit code."""

from __future__ import annotations

import logging
import subprocess
import sys
from io import StringIO
from typing import TYPE_CHECKING
from uuid import uuid4

import pytest

from tests.support.copies import fill, invoke, open_store, write_config
from twinstore.config import load_settings
from twinstore.errors import (
    ConfigurationError,
    ConsentRequiredError,
    LeaseLostError,
    MigrationError,
    TwinstoreError,
    UnavailableError,
    UnsupportedCapabilityError,
    ValidationError,
)
from twinstore_backfill.cli.options import Format
from twinstore_backfill.cli.output import emit, table
from twinstore_backfill.outcome import Exit, InterruptedRunError, PreflightError, exit_code
from twinstore_backfill.process.secrets import Redactor
from twinstore_backfill.progress.bars import progress_on

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

SECRET = "pl4nted-s3cret"


@pytest.fixture(autouse=True)
def quiet_logging() -> Iterator[None]:
    """Take the handler of the command line away again."""
    root = logging.getLogger()
    before = root.handlers[:], root.level
    yield
    root.handlers[:], root.level = before


@pytest.fixture
def config(tmp_path: Path) -> Path:
    memory = {"Scheduler": "Memory", "Memory": {"Store": uuid4().hex}}
    return write_config(tmp_path / "settings.json", {"Persistence": memory})


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (ValidationError("x"), 2),
        (ConfigurationError("x"), 2),
        (MigrationError("x"), 4),
        (ConsentRequiredError("x"), 6),
        (UnavailableError("x"), 4),
        (TwinstoreError("x"), 4),
        (PreflightError("x"), 6),
        (UnsupportedCapabilityError("x"), 6),
        (LeaseLostError("x"), 7),
        (InterruptedRunError("x", 2), 130),
        (InterruptedRunError("x", 15), 143),
    ],
)
def test_every_error_has_its_exit_code(error: TwinstoreError, code: int) -> None:
    assert exit_code(error) == code


def test_drivers_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    answer = invoke(capsys, "backends", "--format", "json")
    names = [item["name"] for item in answer.json["backends"]]
    assert (answer.code, names) == (0, ["Filesystem", "Memory", "Mongo", "Postgres"])
    assert "Postgres" in invoke(capsys, "backends").out


@pytest.mark.parametrize("command", ["status", "plan", "run", "verify"])
def test_every_way_to_migrate_answers(command: str, config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    answer = invoke(
        capsys, "--config", config, "migrate", command, "--module", "scheduler", "--format", "json"
    )
    assert (answer.code, answer.err) == (0, "")
    assert isinstance(answer.json, dict)


def test_purging_counts_first_and_removes_with_execute(
    config: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with open_store("scheduler", "memory", load_settings(config, environ={})) as store:
        fill(store.storage)
    purge = ("--config", config, "purge", "--module", "scheduler", "--format", "json")
    assert [item["rows"] for item in invoke(capsys, *purge).json["entities"]] == [6, 2, 0]
    only = invoke(capsys, *purge, "--tenant", "acme", "--before", "2025-11-01T00:00:00Z")
    assert [item["rows"] for item in only.json["entities"]] == [3, 1, 2]
    done = invoke(capsys, *purge, "--execute")
    assert [item["rows"] for item in done.json["entities"]] == [6, 2, 0]
    assert [item["rows"] for item in invoke(capsys, *purge).json["entities"]] == [0, 0, 0]


COPY = ("backfill", "copy", "--module", "scheduler", "--from", "Memory", "--to", "Memory")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("bogus",), "No such command"),
        (("backfill", "follow"), "No such command"),
        (("backfill", "copy"), "Missing option"),
        ((*COPY, "--nope"), "No such option"),
        ((*COPY, "--jobs", "many"), "Invalid value"),
        ((*COPY, "--jobs", "0"), "--jobs should be at least 1, not 0."),
        ((*COPY, "--max-conflicts", "-1"), "--max-conflicts should be 0 or more, not -1."),
        *(
            ((*COPY, "--max-rate", rate), f"--max-rate should be a number of at least 1, not {rate}.")
            for rate in ("nan", "inf", "0", "-1", "0.5")
        ),
        ((*COPY, "--as-of", "yesterday"), "--as-of 'yesterday': Input should be ISO 8601"),
        ((*COPY, "--as-of", "2025-10-26T14:05:00"), "no offset"),
        ((*COPY, "--entity", "rnus"), "Unknown entity 'rnus'"),
        (
            ("backfill", "copy", "--module", "sched", "--from", "Memory", "--to", "Memory"),
            "Unknown module 'sched'",
        ),
        (
            ("backfill", "copy", "--module", "scheduler", "--from", "Mango", "--to", "Memory"),
            "Did you mean Mongo",
        ),
        (("backfill", "verify", *COPY[2:], "--start-clean"), "--start-clean needs --reason TEXT"),
        (("backfill", "verify", *COPY[2:], "--reason", "x"), "belong to --start-clean"),
        (("backfill", "report", "--in", "nowhere.json"), "nowhere.json cannot be read"),
        (("--config", "nowhere.json", "config", "show"), "does not exist"),
        (("migrate", "status", "--module", "scheduler"), "Persistence:Scheduler is not set"),
        (
            ("purge", "--module", "scheduler", "--backend", "Memory", "--tenant", "a:b"),
            "Tenant id contains a colon",
        ),
    ],
)
@pytest.mark.parametrize("output", ["text", "json"])
def test_a_mistake_is_one_line_and_exit_code_2(
    arguments: tuple[str, ...], said: str, output: str, capsys: pytest.CaptureFixture[str]
) -> None:
    chosen = ("--format", "json") if output == "json" and "bogus" not in arguments else ()
    answer = invoke(capsys, *arguments, *chosen)
    assert answer.code == Exit.USAGE
    if chosen:
        assert said in answer.json["error"]["message"]
        assert answer.json["error"]["exit_code"] == Exit.USAGE
    else:
        assert answer.err.startswith("error: ")
        assert said in answer.err
        assert answer.err.count("\n") == 1
        assert answer.out == ""


def test_the_unexpected_is_one_line_with_a_way_to_see_more(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def burst() -> None:
        raise RuntimeError(f"lost postgresql://app:{SECRET}@db/twin\nin the middle")

    monkeypatch.setattr("twinstore.plugins.drivers.list_backends", burst)
    answer = invoke(capsys, "backends")
    assert answer.code == Exit.FAILED
    assert answer.err == (
        "error: unexpected RuntimeError: lost postgresql://app:***@db/twin. "
        "Run it again with --debug to see where.\n"
    )
    debugged = invoke(capsys, "--debug", "backends")
    assert "Traceback" in debugged.err
    assert SECRET not in debugged.err + answer.out


def test_names_are_shown_as_they_are(capsys: pytest.CaptureFixture[str]) -> None:
    emit(Format.TEXT, {}, "tenant a:b:c [red]", table(("key",), [(":bug:",)]))
    assert [line.strip() for line in capsys.readouterr().out.splitlines()] == [
        "tenant a:b:c [red]",
        "key",
        ":bug:",
    ]


def test_known_secrets_are_hidden_wherever_they_turn_up() -> None:
    redactor = Redactor()
    url = f"postgresql://app:{SECRET}@db.example/twin"
    redactor.learn(load_settings({"Persistence": {"Postgres": {"ConnectionString": url}}}, environ={}))
    assert (
        redactor.clean(f"the server said {SECRET!r} is wrong for app")
        == "the server said '***' is wrong for app"
    )


def test_a_password_that_is_an_ordinary_word_blots_out_nothing() -> None:
    redactor = Redactor()
    url = "postgresql://twinstore:twinstore@db.example/twinstore"
    redactor.learn(load_settings({"Persistence": {"Postgres": {"ConnectionString": url}}}, environ={}))
    assert redactor.clean("run `twinstore migrate run`") == "run `twinstore migrate run`"
    assert redactor.clean(url) == "postgresql://twinstore:***@db.example/twinstore"


def test_without_its_libraries_the_command_says_what_to_install() -> None:
    code = (
        "import sys; sys.modules['typer'] = None\nfrom twinstore_backfill.cli import main; sys.exit(main())"
    )
    done = subprocess.run([sys.executable, "-c", code], check=False, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "error: The command line needs 'typer'. Run: pip install 'twinstore[backfill]'\n"


def test_a_report_is_rendered_again(config: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    other = write_config(tmp_path / "o.json", {"Persistence": {"Memory": {"Store": uuid4().hex}}})
    sides = (*COPY[2:], "--target-config", other, "--out", tmp_path)
    with open_store("scheduler", "memory", load_settings(config, environ={})) as store:
        fill(store.storage)
    before = ("--config", config, "backfill")
    as_of = ("--as-of", "2025-10-27T00:00:00Z")
    assert invoke(capsys, *before, "copy", *sides, *as_of, "--execute").code == 0
    assert invoke(capsys, *before, "verify", *sides, *as_of).code == 0
    for name, suffix in (("json", "json"), ("junit", "xml"), ("markdown", "md"), ("html", "html")):
        answer = invoke(
            capsys, "backfill", "report", "--in", tmp_path / "parity-report.json", "--format", name
        )
        assert answer.code == 0
        assert answer.out == (tmp_path / f"parity-report.{suffix}").read_text()
    status = invoke(
        capsys, "backfill", "status", "--module", "scheduler", "--to", "Memory", "--target-config", other
    )
    assert "complete, generation 1" in status.out


def test_a_job_that_is_not_there_is_a_mistake(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status = ("backfill", "status", "--module", "scheduler", "--to", "memory", "--job", "nope")
    answer = invoke(capsys, "--config", config, *status)
    assert (answer.code, "Job 'nope' does not exist" in answer.err) == (Exit.USAGE, True)


@pytest.mark.parametrize(("category", "code"), [("schema", 0), ("release", 0), ("nope", 2)])
def test_migrations_of_a_category_can_be_run(
    category: str, code: int, config: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ("migrate", "run", "--module", "scheduler", "--backend", "memory", "--category", category)
    assert invoke(capsys, "--config", config, *command).code == code


@pytest.mark.parametrize(
    ("option", "problem"),
    [
        (("--accept-ttl", "runs"), "must say how many"),
        (("--accept-ttl", "runs=many"), "'runs=many' should be NAME=ROWS, such as runs=500"),
        (("--accept-ttl", "=5"), "should be NAME=ROWS"),
        (("--accept-validator", "runs="), "--accept-validator 'runs=' should be NAME=ROWS"),
        (("--accept-rls", "runs=-1"), "should be NAME=ROWS"),
    ],
)
def test_a_consent_that_cannot_be_meant_is_refused(
    option: tuple[str, str], problem: str, config: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    answer = invoke(capsys, "--config", config, "migrate", "run", "--module", "scheduler", *option)
    assert (answer.code, problem in answer.err) == (Exit.USAGE, True)


def test_consents_that_are_not_needed_are_no_mistake(
    config: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ("--accept-ttl", "runs=5", "--accept-validator", "runs", "--accept-rls", "runs=7")
    assert invoke(capsys, "--config", config, "migrate", "run", "--module", "scheduler", *options).code == 0


def test_progress_after_a_resume_counts_what_is_new_and_ends_without_an_estimate() -> None:
    stream = StringIO()
    with progress_on(stream) as progress:
        progress.start("runs", 1000, 900)
        progress.start("audit", 1000, 900, estimated=True)
        progress.finish("runs")
        progress.finish("audit")
    assert stream.getvalue() == "runs: 900 of 1,000, 0/s\naudit: 900 of ~1,000, 0/s\n"


def test_progress_of_two_parts_at_a_time_is_counted_separately() -> None:
    stream = StringIO()
    with progress_on(stream) as progress:
        progress.start("runs", 10)
        progress.start("audit", 20)
        progress.advance("runs", 10)
        progress.advance("audit", 19)
        progress.finish("audit")
        progress.finish("runs")
    said = [line.partition(",")[0] for line in stream.getvalue().splitlines()]
    assert said == ["audit: 19 of 20", "runs: 10 of 10"]


def test_nothing_of_a_key_steers_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    key = "a\x1b[2J\u202eb"
    emit(Format.TEXT, {}, f"missing runs {key}", table(("key",), [(key,)]))
    shown = capsys.readouterr().out
    assert shown.count("a\\u001b[2J\\u202eb") == 2
    assert shown.replace("\n", "").isprintable()
