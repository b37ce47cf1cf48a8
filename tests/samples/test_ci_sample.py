"""The pipeline of the samples, run as a pipeline runs it: a shell script, real servers, exit codes."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast

import pytest
from junitparser import JUnitXml
from pymongo import MongoClient

from tests.backfill.test_corruptions import merged_settings
from tests.backfill.toolkit import fill, open_store, write_config
from twinstore.config import load_settings
from twinstore_backfill.outcome import Exit

if TYPE_CHECKING:
    from tests.databases import MongoDatabase, PostgresDatabase

pytestmark = pytest.mark.long

PIPELINE: Final = Path(__file__).parents[2] / "samples" / "ci" / "pipeline.sh"


@pytest.fixture
def config(empty_mongo_database: MongoDatabase, postgres_database: PostgresDatabase, tmp_path: Path) -> Path:
    """Return settings of a filled source and an empty scratch database."""
    settings = merged_settings(empty_mongo_database, postgres_database)
    settings["Persistence"] = {**cast("dict[str, object]", settings["Persistence"]), "Scheduler": "Mongo"}
    path = write_config(tmp_path / "settings.json", settings)
    with open_store("scheduler", "mongo", load_settings(path, environ={})) as store:
        store.storage.initializer.ensure_migrations()
        fill(store.storage, ["acme"])
    return path


def run(config: Path, directory: Path, shell: str = "/bin/sh", **given: str) -> int:
    environment = {
        **os.environ,
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "TWINSTORE_CONFIG": str(config),
        "OUT": str(directory / "out"),
        "SUMMARY": str(directory / "summary.md"),
        **given,
    }
    done = subprocess.run([shell, PIPELINE], env=environment, cwd=directory, capture_output=True, check=False)
    assert b"Traceback" not in done.stderr
    return done.returncode


def counts_of(directory: Path) -> tuple[int, int]:
    """Return the failures and the errors of the whole run."""
    text = (directory / "out" / "junit.xml").read_text()
    (whole,) = re.findall(r"<testsuites ([^>]*)>", text)
    failures, errors = (re.search(rf'\b{name}="(\d+)"', whole) for name in ("failures", "errors"))
    assert failures is not None
    assert errors is not None
    return int(failures[1]), int(errors[1])


def test_a_green_run_leaves_every_file_and_may_be_repeated(
    config: Path, tmp_path: Path, *, long_form: bool
) -> None:
    assert run(config, tmp_path) == Exit.OK
    assert counts_of(tmp_path) == (0, 0)
    assert "PASS" in (tmp_path / "summary.md").read_text()
    assert "PASS" in (tmp_path / "out" / "parity.html").read_text()
    assert (tmp_path / "out" / "report" / "differences.ndjson").read_bytes() == b""
    if long_form:
        assert run(config, tmp_path) == Exit.OK


SHELLS: Final = ("/bin/sh", "/bin/bash")


@pytest.mark.parametrize("shell", SHELLS)
def test_nothing_of_an_earlier_run_is_left_when_there_is_no_verdict(shell: str, tmp_path: Path) -> None:
    report = tmp_path / "o $u" / "report"
    report.mkdir(parents=True)
    for name in ("junit.xml", "parity.html", "plan.txt", "copy.txt", "verify.txt", "summary.md"):
        (report.parent / name).write_text("PASS")
    for name in ("parity-report.json", "parity-report.md", "differences.ndjson"):
        (report / name).write_text("PASS")
    assert run(tmp_path / "missing.json", tmp_path, shell, OUT="o $u", SUMMARY="") == Exit.USAGE
    left = {path.name: path.read_text() for path in report.parent.rglob("*") if path.is_file()}
    assert set(left) == {"error.txt", "junit.xml", "plan.txt", "summary.md"}
    assert not [name for name, text in left.items() if "PASS" in text]
    assert left["summary.md"].startswith(f"# No verdict: backfill plan ended with code {Exit.USAGE}")
    assert "missing.json" in left["summary.md"]


@pytest.mark.parametrize("shell", SHELLS)
def test_a_directory_that_cannot_be_written_to_does_not_look_like_a_difference(
    shell: str, tmp_path: Path
) -> None:
    file = tmp_path / "file"
    file.touch()
    assert run(tmp_path / "missing.json", tmp_path, shell, OUT=str(file / "out")) == Exit.USAGE


def test_a_document_that_cannot_be_moved_leaves_the_proof_open_and_is_named(
    config: Path, empty_mongo_database: MongoDatabase, tmp_path: Path
) -> None:
    with MongoClient[dict[str, Any]](empty_mongo_database.url) as client:
        runs = client[empty_mongo_database.name]["runs"]
        found = runs.find_one({"_id": "acme-run-1"})
        assert found is not None
        runs.insert_one({**found, "_id": "bad", "legacy": 1})
    assert run(config, tmp_path) == Exit.INCONCLUSIVE
    failures, errors = counts_of(tmp_path)
    assert (failures, errors > 0) == (0, True)
    assert "bad" in (tmp_path / "summary.md").read_text()


@pytest.mark.smoke
def test_a_server_that_is_away_ends_the_run_before_anything_is_written(config: Path, tmp_path: Path) -> None:
    text = config.read_text()
    port = next(part for part in text.split("mongodb://")[1].split("/")[0].split(":")[1:])
    away = tmp_path / "away.json"
    away.write_text(text.replace(f":{port}", ":9"))
    assert run(away, tmp_path) == Exit.FAILED
    assert not (tmp_path / "out" / "report").exists()
    (suite,) = JUnitXml.fromfile(str(tmp_path / "out" / "junit.xml"))
    (case,) = suite
    (problem,) = case.result
    assert (case.name, problem.message) == ("plan", f"backfill plan ended with code {Exit.FAILED}")
    assert "error: " in (problem.text or "")
