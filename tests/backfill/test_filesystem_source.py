"""The tree of the filesystem driver as a source: everything is moved, or named with its path and reason."""

from __future__ import annotations

import base64
import json
import os
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast
from uuid import uuid4

import pytest

from tests.backfill.toolkit import Pair, invoke
from twinstore.config import load_settings
from twinstore.errors import DocumentDecodeError
from twinstore.jsontext import dumps
from twinstore.storage import open_module
from twinstore.testing.taskrunner.builders import (
    make_approval,
    make_artifact,
    make_log_entry,
    make_pack_run,
)
from twinstore_backfill.outcome import Exit, PreflightError
from twinstore_backfill.stores import open_store
from twinstore_memory.store import drop_store

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.databases import MongoDatabase
    from twinstore.taskrunner.storage import TaskRunnerStorage

SCRIPT: Final = Path(__file__).parents[2] / "tools/taskrunner/import-filesystem-state"
PROGRAM: Final = Path(sys.executable).with_name("twinstore")
# The last one is too long for the name of a file once it is encoded.
RUNS: Final = ("alpha", "run/ß", "\N{BUG}" * 60)
# Of each: the run, two log lines, an artifact and an approval.
ROWS: Final = 5 * len(RUNS)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Write three runs through the services; return the root."""
    root = tmp_path / "tree"
    with opened(root) as storage:
        for run in RUNS:
            fill(storage, run)
    return root


@contextmanager
def opened(root: Path) -> Iterator[TaskRunnerStorage]:
    settings = {"Persistence": {"Filesystem": {"Root": str(root)}}}
    with open_module("taskrunner", "Filesystem", settings) as storage:
        yield cast("TaskRunnerStorage", storage)


def fill(storage: TaskRunnerStorage, run: str) -> None:
    storage.pack_runs.create(make_pack_run(None, run))
    storage.pack_run_logs.append([make_log_entry(run, 1), make_log_entry(run, 2)])
    storage.pack_artifacts.upload(make_artifact(run, "report"))
    storage.pack_run_approvals.save(run, [make_approval(None, run)])


@contextmanager
def into_memory(root: Path, out: Path) -> Iterator[Pair]:
    name = uuid4().hex
    settings = load_settings(
        {"Persistence": {"Filesystem": {"Root": str(root)}, "Memory": {"Store": name}}}, environ={}
    )
    with (
        open_store("taskrunner", "filesystem", settings, read_only=True) as source,
        open_store("taskrunner", "memory", settings) as target,
    ):
        yield Pair(cast("Any", source), cast("Any", target), out)
    drop_store(name)


def lines_of(out: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (out / "quarantine.ndjson").read_text().splitlines()]


def state(run: str, **changes: object) -> bytes:
    return dumps(make_pack_run(None, run).wire() | changes)


def line(run: str, sequence: int, **changes: object) -> bytes:
    return dumps(make_log_entry(run, sequence).wire() | changes) + b"\n"


Damage = tuple[str, bytes, str, int]
# Path, content, what the reason says, and how many rows more or fewer are quarantined for it.
DAMAGE: Final[dict[str, Damage]] = {
    "cut short": ("state/runs/bad.json", state("bad")[:-20], "it is not JSON", 1),
    "no object": ("state/runs/bad.json", b"[1]", "it is no JSON object", 1),
    "UTF-16": ("state/runs/bad.json", state("bad").decode().encode("utf-16"), "it is not UTF-8", 1),
    "a name twice": ("state/runs/bad.json", b'{"runId":"bad","runId":"bad"}', "a name stands twice", 1),
    "another run": ("state/runs/bad.json", state("good"), "it belongs to another run", 1),
    "no model": ("state/runs/bad.json", state("bad", planHash=7), "planHash", 1),
    "an unknown property": ("state/runs/bad.json", state("bad", foreign=1), "foreign", 1),
    "a foreign file": ("state/other.txt", b"x", "no part of the layout", 1),
    "a name that is no id": ("state/runs/a b.json", b"{}", "no part of the layout", 1),
    "a line in the middle": (
        "logs/runs/alpha.ndjson",
        line("alpha", 1) + b"{broken\n" + line("alpha", 2),
        "line 2: it is not JSON",
        1,
    ),
    "a sequence twice": (
        "logs/runs/alpha.ndjson",
        line("alpha", 1) + line("alpha", 1, message="other") + line("alpha", 2),
        "line 2: another row of the same key",
        1,
    ),
    "lines out of order": (
        "logs/runs/alpha.ndjson",
        line("alpha", 1) + line("alpha", 3) + line("alpha", 2),
        "line 3: it stands behind a row of a higher key",
        1,
    ),
    "a log of no run": ("logs/runs/lost.ndjson", line("lost", 1), "no file state/runs/lost.json", 1),
    "approvals of no run": (
        "state/approvals/lost.json",
        dumps([make_approval(None, "lost").wire()]),
        "no file state/runs/lost.json",
        1,
    ),
    "a manifest that is none": ("artifacts/alpha/artifact-manifest.json", b"{}", "it is no JSON array", 1),
}


@pytest.mark.parametrize("name", DAMAGE)
def test_what_cannot_be_moved_is_named_with_its_path_and_bytes(root: Path, tmp_path: Path, name: str) -> None:
    path, content, reason, quarantined = DAMAGE[name]
    (root / path).parent.mkdir(parents=True, exist_ok=True)
    (root / path).write_bytes(content)
    with into_memory(root, tmp_path / "out") as pair:
        result = pair.copy()
        (bad,) = lines_of(tmp_path / "out")
        kept = json.loads(bad["raw"])
        assert bad["reason"].startswith(kept["path"])
        assert path.startswith(kept["path"])
        assert reason in bad["reason"]
        assert base64.b64decode(kept["bytes"]) in content
        assert kept["bytes"]
        assert (result.complete, result.totals.all()["quarantined"]) == (True, quarantined)
        report = pair.verify()
        found = sum(entity.counts.quarantined for entity in report.entities)
        assert (report.verdict, found) == ("INCONCLUSIVE", quarantined)
        again = pair.copy()
        assert (again.totals.all()["written"], again.totals.all()["quarantined"]) == (0, quarantined)


def test_a_torn_last_line_is_counted_and_lowers_nothing(root: Path, tmp_path: Path) -> None:
    log = root / "logs/runs/alpha.ndjson"
    log.write_bytes(log.read_bytes() + line("alpha", 3)[:-30])
    with into_memory(root, tmp_path / "out") as pair:
        result = pair.copy()
        assert (result.exit, result.totals.of("pack_run_logs")["torn_tail"]) == (Exit.OK, 1)
        assert result.totals.all()["written"] == ROWS
        assert pair.verify().verdict == "PASS"


def test_other_spellings_of_the_same_values_are_moved_and_told(root: Path, tmp_path: Path) -> None:
    spelled = json.loads(state("spelled"))
    spelled["requestedAt"] = spelled["requestedAt"].replace("+00:00", "Z")
    (root / "state/runs/spelled.json").write_text(json.dumps(spelled, indent=4))
    log = root / "logs/runs/alpha.ndjson"
    # Without the last line feed, with others, and with an empty line: as an editor leaves it.
    log.write_bytes(log.read_bytes().replace(b"\n", b"\r\n\r\n").rstrip())
    with into_memory(root, tmp_path / "out") as pair:
        result = pair.copy()
        assert (result.exit, result.totals.all()["written"]) == (Exit.OK, ROWS + 1)
        report = pair.verify()
        assert report.verdict == "PASS"
        assert report.equivalences


def test_what_is_no_file_of_its_own_is_not_followed(root: Path, tmp_path: Path) -> None:
    secret = tmp_path / "secret.json"
    secret.write_bytes(state("secret"))
    (root / "state/runs/secret.json").symlink_to(secret)
    (root / "artifacts/alpha").rename(tmp_path / "moved")
    (root / "artifacts/alpha").symlink_to(tmp_path / "moved")
    with opened(root) as storage:
        with pytest.raises(DocumentDecodeError, match="symbolic link"):
            storage.pack_runs.get("secret")
        with pytest.raises(DocumentDecodeError, match="symbolic link"):
            storage.pack_artifacts.upload(make_artifact("alpha", "other"))
    with into_memory(root, tmp_path / "out") as pair:
        pair.copy()
        reasons = sorted(item["reason"] for item in lines_of(tmp_path / "out"))
        assert [reason.split(":")[0] for reason in reasons] == ["artifacts/alpha", "state/runs/secret.json"]
        assert pair.verify().verdict == "INCONCLUSIVE"


def test_a_tree_is_the_target_of_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = tmp_path / "settings.json"
    config.write_text(json.dumps({"Persistence": {"Filesystem": {"Root": str(tmp_path / "tree")}}}))
    sides = ["--module", "taskrunner", "--from", "memory", "--to", "filesystem"]
    for command in (["copy", "--execute"], ["verify"], ["plan"]):
        answer = invoke(capsys, "--config", config, "backfill", *command, *sides)
        assert (answer.code, "Filesystem has no bulk target" in answer.err) == (Exit.PREFLIGHT_REFUSED, True)
    assert not (tmp_path / "tree" / "state").exists()


def test_a_source_is_neither_made_nor_changed(root: Path, tmp_path: Path) -> None:
    with pytest.raises(PreflightError, match="is no folder"), into_memory(root / "absent", tmp_path) as pair:
        pair.copy()
    assert not (root / "absent").exists()
    (tmp_path / "empty").mkdir()
    with (
        pytest.raises(PreflightError, match="nothing to read"),
        into_memory(tmp_path / "empty", tmp_path) as it,
    ):
        it.copy()
    before = {path: path.stat().st_mtime_ns for path in root.rglob("*")}
    with into_memory(root, tmp_path / "out") as pair:
        assert pair.copy().exit is Exit.OK
    assert {path: path.stat().st_mtime_ns for path in root.rglob("*")} == before


def test_ranges_are_cut_between_runs_and_cover_everything(root: Path, tmp_path: Path) -> None:
    (root / "state/runs/zz.json").write_bytes(b"{")
    with into_memory(root, tmp_path) as pair:
        bulk = pair.source.bulk
        for entity in bulk.entities():
            with bulk.view() as view:
                for rows in (1, 2, 3, 1000):
                    ranges = list(bulk.cut(entity, rows))
                    records = [
                        row.key for part in ranges for batch in view.records(entity, part) for row in batch
                    ]
                    scanned = [
                        row.key for part in ranges for batch in view.rows(entity, part) for row in batch
                    ]
                    assert records == scanned == sorted(records, key=lambda key: key or ())
                    assert len(records) == bulk.counts(entity)[":none"] + bulk.counts(entity).get("", 0)
                    assert all(
                        len({key[0] for key in (part.lower, part.upper) if key}) < 3 for part in ranges
                    )


def test_the_script_of_the_customer_imports_a_tree_once_and_the_way_back_is_the_switch(
    root: Path, tmp_path: Path, mongo_database: MongoDatabase, capsys: pytest.CaptureFixture[str]
) -> None:
    config, settings = tmp_path / "settings.json", dict(mongo_database.config)
    settings["TaskRunner"] = {"Storage": {"Filesystem": {"Root": str(root)}}}
    config.write_text(json.dumps(settings))
    for written in (ROWS, 0):
        ended = subprocess.run(
            [SCRIPT, "--out", tmp_path / "out", "--format", "json"],
            env={**os.environ, "TWINSTORE_CONFIG": str(config), "TWINSTORE": str(PROGRAM)},
            capture_output=True,
            check=False,
        )
        assert ended.returncode == 0, ended.stderr
        assert json.loads(ended.stdout)["totals"]["written"] == written
    sides = ["--module", "taskrunner", "--from", "filesystem", "--to", "mongo"]
    verified = invoke(capsys, "--config", config, "backfill", "verify", *sides, "--format", "json")
    assert (verified.code, verified.json["verdict"], verified.json["cutover_ready"]) == (0, "PASS", True)
    with opened(root) as storage:
        storage.pack_run_logs.append([make_log_entry(RUNS[0], 3)])
        assert storage.pack_run_logs.last_sequence(RUNS[0]) == 3
