"""What the command refuses, and how a self-test ends that finds a gap."""

from __future__ import annotations

import json
from signal import SIGINT
from typing import TYPE_CHECKING, Any

import pytest

from tests.migration_tool.selftest.conftest import KEEP
from tests.support.copies import Answer, fill, invoke, memory_pair, open_store, server_settings, write_config
from twinstore.config import load_settings
from twinstore_backfill.cli import selftest
from twinstore_backfill.outcome import Exit, InterruptedRunError
from twinstore_backfill.process.stopping import StopSwitch
from twinstore_backfill.progress.record import SilentProgress
from twinstore_backfill.selftest.engine import SelftestOptions, open_scratch, run_selftest

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.databases import MongoDatabase, PostgresDatabase

Settings = dict[str, Any]


def asked(
    capsys: pytest.CaptureFixture[str],
    config: Path,
    *more: object,
    sides: tuple[str, str] = ("Mongo", "Postgres"),
) -> Answer:
    options = ("--module", "scheduler", "--from", sides[0], "--to", sides[1], *more)
    return invoke(capsys, "--config", config, "backfill", "selftest", *options)


@pytest.fixture
def scratch(
    empty_mongo_database: MongoDatabase, postgres_database: PostgresDatabase, tmp_path: Path
) -> tuple[Path, Settings]:
    """Name two empty databases."""
    settings = server_settings(empty_mongo_database, postgres_database)
    return write_config(tmp_path / "scratch.json", settings), settings


@pytest.fixture
def source(scratch: tuple[Path, Settings], tmp_path: Path) -> Path:
    """Name another, empty source."""
    mongo = scratch[1]["Persistence"]["Mongo"]
    other = {**mongo, "Database": f"{mongo['Database']}_source"}
    return write_config(tmp_path / "source.json", {"Persistence": {"Mongo": other}, **KEEP})


def test_a_scratch_database_with_a_row_of_ours_is_refused(
    capsys: pytest.CaptureFixture[str], scratch: tuple[Path, Settings], source: Path, tmp_path: Path
) -> None:
    file, settings = scratch
    with open_store("scheduler", "postgres", load_settings(settings, environ={})) as store:
        fill(store.storage)
        before = {entity.name: store.bulk.counts(entity) for entity in store.bulk.entities()}
        answer = asked(capsys, source, "--scratch", file, "--out", tmp_path / "out")
        assert (answer.code, answer.out) == (Exit.PREFLIGHT_REFUSED, "")
        assert "holds 6 rows of schedules" in answer.err
        assert {entity.name: store.bulk.counts(entity) for entity in store.bulk.entities()} == before
    (file,) = (tmp_path / "out").iterdir()
    report = json.loads(file.read_text())
    assert (report["state"], report["exit_code"]) == ("refused", Exit.PREFLIGHT_REFUSED)


def test_an_interruption_says_what_became_of_the_scratch_databases(
    scratch: tuple[Path, Settings], tmp_path: Path
) -> None:
    settings, stop = load_settings(scratch[0], environ={}), StopSwitch()
    # The first who looks at it is the copy, whose own advice would be of ranges that it keeps.
    stop.request(SIGINT)
    with (
        memory_pair(tmp_path / "copy") as pair,
        open_scratch("scheduler", "Mongo", settings) as left,
        open_scratch("scheduler", "Postgres", settings) as right,
    ):
        fill(pair.source.storage, ["acme"])
        with pytest.raises(InterruptedRunError, match="The scratch databases were emptied") as caught:
            run_selftest(pair.source, left, right, SelftestOptions(sample=5), SilentProgress(), stop)
    assert "ranges" not in caught.value.message


def test_the_source_itself_is_no_scratch_database(
    capsys: pytest.CaptureFixture[str], scratch: tuple[Path, Settings]
) -> None:
    answer = asked(capsys, scratch[0], "--scratch", scratch[0])
    assert answer.code == Exit.USAGE
    assert "is the source or the target itself" in answer.err


def test_the_target_is_no_scratch_database_even_when_it_is_empty(
    capsys: pytest.CaptureFixture[str], scratch: tuple[Path, Settings], source: Path
) -> None:
    answer = asked(capsys, source, "--target-config", scratch[0], "--scratch", scratch[0])
    assert answer.code == Exit.USAGE
    assert "is the source or the target itself" in answer.err


@pytest.mark.parametrize(
    ("sides", "options", "told"),
    [
        (("Mongo", "Mongo"), (), "needs two drivers"),
        (("Memory", "Postgres"), (), "The driver Memory has no corruption_writer"),
        (("Mongo", "Postgres"), ("--sample", "0"), "--sample should be at least 1, not 0."),
    ],
)
def test_what_cannot_be_tested_is_refused_before_anything_is_opened(
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    sides: tuple[str, str],
    options: tuple[str, ...],
    told: str,
) -> None:
    answer = asked(capsys, write_config(tmp_path / "none.json", {}), *options, sides=sides)
    assert (answer.code, answer.out) == (Exit.USAGE, "")
    assert told in answer.err


def test_an_empty_source_has_nothing_to_test_with(
    capsys: pytest.CaptureFixture[str], scratch: tuple[Path, Settings], source: Path
) -> None:
    answer = asked(capsys, source, "--scratch", scratch[0], "--format", "json")
    assert answer.code == Exit.PREFLIGHT_REFUSED
    assert "has no row to test with" in answer.json["error"]["message"]


def test_reports_of_an_earlier_run_are_gone_when_a_run_fails(
    capsys: pytest.CaptureFixture[str], scratch: tuple[Path, Settings], tmp_path: Path
) -> None:
    for name in selftest.FILES:
        (tmp_path / name).write_text(json.dumps({"passed": True}))
    answer = asked(capsys, scratch[0], "--scratch", scratch[0], "--out", tmp_path)
    assert answer.code == Exit.USAGE
    assert not any((tmp_path / name).exists() for name in selftest.FILES)
