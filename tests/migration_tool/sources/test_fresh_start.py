"""A fresh start is approved and proved without a source: the old store may be gone for good."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Final

import pytest

from tests.support.copies import AS_OF, fill, invoke, memory_pair, open_store, write_config
from twinstore.config import load_settings
from twinstore.errors import ValidationError
from twinstore.scheduler.catalog import RUNS, WORKERS
from twinstore.scheduler.enums import RunState
from twinstore.testing.scheduler.builders import make_run
from twinstore.testing.scheduler.examples import SCHEDULER_EXAMPLES
from twinstore_backfill.report.model import ParityReport, parse_report
from twinstore_backfill.verify.options import Approval, VerifyOptions
from twinstore_memory.rows import encode, store_unchecked

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.copies import Answer
    from tests.support.databases import PostgresDatabase

DECISION: Final = ("--start-clean", "--reason", "old data is worthless", "--approved-by", "Ada")
NOBODY_LISTENS: Final = {
    "Mongo": {"ConnectionString": "mongodb://127.0.0.1:1/?directConnection=true", "Database": "gone"}
}
WITHOUT: Final[dict[str, object]] = {}
FORMATS: Final = ("json", "xml", "md", "html")


def settings_of(database: PostgresDatabase, directory: Path, more: dict[str, object]) -> Path:
    persistence = database.config["Persistence"]
    assert isinstance(persistence, dict)
    return write_config(directory / "settings.json", {"Persistence": {**persistence, **more}})


def decide(
    capsys: pytest.CaptureFixture[str], config: Path, source: str, out: Path, *more: object
) -> tuple[Answer, ParityReport]:
    command = ("backfill", "verify", "--module", "scheduler", "--from", source, "--to", "postgres")
    answer = invoke(capsys, "--config", config, *command, *DECISION, "--out", out, *more)
    return answer, parse_report((out / "parity-report.json").read_bytes(), "report")


@pytest.mark.parametrize(
    ("source", "configured", "said"),
    [
        ("none", WITHOUT, "none"),
        ("none", NOBODY_LISTENS, "none"),
        ("mongo", NOBODY_LISTENS, "Mongo (not opened)"),
        ("Mongo", WITHOUT, "Mongo (not opened)"),
    ],
)
def test_an_empty_target_is_approved_though_no_source_answers(  # noqa: PLR0917  # fixtures and parameters
    source: str,
    configured: dict[str, object],
    said: str,
    postgres_database: PostgresDatabase,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    config = settings_of(postgres_database, tmp_path, configured)
    out = tmp_path / "report"
    answer, report = decide(capsys, config, source, out)
    assert (answer.code, report.verdict, report.cutover_ready) == (0, "START-CLEAN (approved)", True)
    assert "Traceback" not in answer.err
    assert {check.id: check.result for check in report.checks} == {
        "C0": "pass",
        **dict.fromkeys(("C1", "C2", "C3", "C7"), "skipped"),
        **dict.fromkeys(("C4", "C5", "C6", "C8"), "pass"),
    }
    assert sorted(path.name for path in out.iterdir()) == sorted(f"parity-report.{name}" for name in FORMATS)
    for name in ("md", "html"):
        page = (out / f"parity-report.{name}").read_text().replace("\\", "")
        assert said in page
        assert "Ada: old data is worthless" in page


def test_lists_over_all_tenants_and_of_one_are_asked_of_the_target(
    postgres_database: PostgresDatabase, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _, report = decide(capsys, settings_of(postgres_database, tmp_path, WITHOUT), "none", tmp_path)
    asked = {check.id: int(check.summary.split()[0]) for check in report.checks if check.id in {"C4", "C5"}}
    assert asked["C4"] == 1
    assert asked["C5"] > 10


def test_a_target_with_rows_is_refused_with_what_is_there(
    postgres_database: PostgresDatabase, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = settings_of(postgres_database, tmp_path, WITHOUT)
    with open_store("scheduler", "postgres", load_settings(config, environ={})) as store:
        fill(store.storage, ["acme"])
    answer, report = decide(capsys, config, "none", tmp_path)
    assert (answer.code, report.verdict, report.cutover_ready) == (1, "FAIL", False)
    assert report.checks[0].findings[:2] == ("schedules: 3 rows in target", "triggers: 3 rows in target")
    assert "schedules: 3 rows in target" in answer.out


def test_a_registered_worker_is_no_old_data(
    postgres_database: PostgresDatabase, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = settings_of(postgres_database, tmp_path, WITHOUT)
    with open_store("scheduler", "postgres", load_settings(config, environ={})) as store:
        SCHEDULER_EXAMPLES.store_small(store.storage.unbound, "acme", "w-1", WORKERS)
    answer, report = decide(capsys, config, "none", tmp_path)
    assert (answer.code, [sum(item.target.values()) for item in report.left_out]) == (0, [1])
    assert "workers: skipped; 1 row in target." in answer.out


def test_a_settings_file_of_the_source_is_not_even_read(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with memory_pair(tmp_path) as pair:
        target = write_config(tmp_path / "t.json", {"Persistence": {"Memory": {"Store": pair.names[1]}}})
        command = ("backfill", "verify", "--module", "scheduler", "--from", "mongo", "--to", "memory")
        files = ("--source-config", tmp_path / "nowhere.json", "--target-config", target)
        answer = invoke(capsys, *command, *files, *DECISION)
    assert (answer.code, answer.err) == (0, "")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--from", "none"), "--from none belongs to --start-clean"),
        (("--from", "nome", *DECISION), "nome"),
        (("--from", "none", *DECISION, "--tenant", "acme"), "checks the whole target"),
        (("--from", "none", *DECISION, "--entity", "runs"), "checks the whole target"),
        (("--from", "none", *DECISION, "--mode", "sample"), "checks the whole target"),
    ],
)
def test_what_does_not_belong_together_is_refused(
    arguments: tuple[str, ...], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ("backfill", "verify", "--module", "scheduler", "--to", "memory")
    answer = invoke(capsys, *command, *arguments)
    assert (answer.code, answer.out) == (2, "")
    assert said in answer.err


def test_options_of_a_fresh_start_are_the_same_without_a_terminal() -> None:
    with pytest.raises(ValidationError, match="whole target"):
        VerifyOptions(approval=Approval("x", "y"), tenants=["acme"], as_of=AS_OF)


def test_two_empty_stores_prove_nothing(tmp_path: Path) -> None:
    with memory_pair(tmp_path) as pair:
        report = pair.verify()
        assert (report.verdict, report.exit_code, report.cutover_ready) == ("INCONCLUSIVE", 3, False)
        assert report.reasons[0].startswith("C3 mode: nothing was compared")
        fill(pair.source.storage, ["acme"])
        pair.copy()
        assert pair.verify().verdict == "PASS"


def test_rows_that_are_all_due_for_removal_prove_nothing(tmp_path: Path) -> None:
    with memory_pair(tmp_path) as pair:
        old = make_run("acme", "old", state=RunState.CANCELLED, created_at=AS_OF - timedelta(days=200))
        store_unchecked(pair.stores[0], encode(RUNS, old))
        report = pair.verify()
    assert (report.verdict, report.reasons[0].split(",")[0]) == (
        "INCONCLUSIVE",
        "C3 mode: nothing was compared",
    )
