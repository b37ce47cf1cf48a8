"""The tree of the filesystem driver as a source: everything is moved, or named with its path and reason."""

from __future__ import annotations

import base64
import json
import os
import re
import shutil
import subprocess
import sys
import tracemalloc
from collections import Counter
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Final, cast
from uuid import uuid4

import pytest

from tests.support.copies import Pair, invoke
from tests.support.trees import limited_rows, socket_at
from twinstore.catalog.keys import KeyRange
from twinstore.config import load_settings
from twinstore.errors import ConfigurationError, DocumentDecodeError, TwinstoreError
from twinstore.models.json_text import dumps
from twinstore.storage.open import open_module
from twinstore.testing.taskrunner.builders import make_approval, make_artifact, make_log_entry, make_pack_run
from twinstore_backfill.outcome import Exit, PreflightError
from twinstore_backfill.stores import open_store
from twinstore_memory.store import drop_store

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.support.databases import MongoDatabase
    from twinstore.taskrunner.storage import TaskRunnerStorage

SCRIPT: Final = Path(__file__).parents[3] / "tools/taskrunner/import-filesystem-state"
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


def nested(levels: int) -> bytes:
    return b'{"a":' * levels + b"1" + b"}" * levels


Damage = tuple[str, bytes, str]
# Path, content, and what the reason says.
DAMAGE: Final[dict[str, Damage]] = {
    "cut short": ("state/runs/bad.json", state("bad")[:-20], "it is not JSON"),
    "no object": ("state/runs/bad.json", b"[1]", "it is not a JSON object"),
    "UTF-16": ("state/runs/bad.json", state("bad").decode().encode("utf-16"), "it is not UTF-8"),
    "a name twice": ("state/runs/bad.json", b'{"runId":"bad","runId":"bad"}', "a name occurs twice"),
    "another run": ("state/runs/bad.json", state("good"), "it belongs to a different run"),
    "no model": ("state/runs/bad.json", state("bad", planHash=7), "planHash"),
    "an unknown property": ("state/runs/bad.json", state("bad", foreign=1), "foreign"),
    "a name with an underscore": ("state/runs/bad.json", state("bad", _updatedAt="x"), "_updatedAt"),
    "a foreign file": ("state/other.txt", b"x", "not part of the layout"),
    "a name that is no id": ("state/runs/a b.json", b"{}", "not part of the layout"),
    "a line in the middle": (
        "logs/runs/alpha.ndjson",
        line("alpha", 1) + b"{broken\n" + line("alpha", 2),
        "line 2: it is not JSON",
    ),
    "a sequence twice": (
        "logs/runs/alpha.ndjson",
        line("alpha", 1) + line("alpha", 1, message="other") + line("alpha", 2),
        "line 2: a row before it has the same key",
    ),
    "lines out of order": (
        "logs/runs/alpha.ndjson",
        line("alpha", 1) + line("alpha", 3) + line("alpha", 2),
        "line 3: it follows a row with a higher key",
    ),
    "a zero byte in the middle": (
        "logs/runs/alpha.ndjson",
        line("alpha", 1) + b"\0" + line("alpha", 2),
        "line 2: it is not JSON",
    ),
    "a log in UTF-16": (
        "logs/runs/alpha.ndjson",
        line("alpha", 1).decode().encode("utf-16-be"),
        "line 1: it is not JSON",
    ),
    "lines that end otherwise": (
        "logs/runs/alpha.ndjson",
        (line("alpha", 1) + line("alpha", 2)).replace(b"\n", b"\r"),
        "line 1: it is not JSON",
    ),
    "a log that is an array": (
        "logs/runs/alpha.ndjson",
        b"[" + line("alpha", 1)[:-1] + b"]",
        "line 1: it is not a JSON object",
    ),
    "a sequence that is none": (
        "logs/runs/alpha.ndjson",
        line("alpha", 1) + line("alpha", 2).replace(b'"sequence":2', b'"sequence":true'),
        "line 2: its key is not made of runId (text), sequence (int64)",
    ),
    "a number that is none": (
        "state/runs/bad.json",
        state("bad").replace(b'"plan":{', b'"plan":{"x":NaN,'),
        "a number is not finite",
    ),
    "a number with more digits than a double keeps": (
        "state/runs/bad.json",
        state("bad").replace(b'"plan":{', b'"plan":{"x":0.123456789012345678901234567890,'),
        "a number has more digits than a double keeps",
    ),
    "a number too small for a double": (
        "artifacts/alpha/artifact-manifest.json",
        b'[{"x":1e-400}]',
        "too large or small for one",
    ),
    "a number whose exponent is too small": (
        "artifacts/alpha/artifact-manifest.json",
        b'[{"x":1e-1000000000000000000}]',
        "too large or small for one",
    ),
    "a sequence that a double would change": (
        "logs/runs/alpha.ndjson",
        line("alpha", 1) + line("alpha", 2).replace(b'"sequence":2', b'"sequence":2.00000000000000000001'),
        "line 2: a number has more digits",
    ),
    "a plan nested 500 levels": (
        "state/runs/bad.json",
        state("bad", plan=0).replace(b'"plan":0', b'"plan":' + nested(500)),
        "it is nested too deeply",
    ),
    "a plan nested 100 levels": (
        "state/runs/bad.json",
        state("bad", plan=0).replace(b'"plan":0', b'"plan":' + nested(100)),
        "plan: nested deeper than 90 levels",
    ),
    "an unknown property nested 100,000 levels": (
        "state/runs/bad.json",
        state("bad", foreign=0).replace(b'"foreign":0', b'"foreign":' + nested(100_000)),
        "it is nested too deeply",
    ),
    "an instant nested 500 levels": (
        "logs/runs/alpha.ndjson",
        line("alpha", 1) + line("alpha", 2, timestamp=0).replace(b":0", b":" + nested(500)),
        "line 2: it is nested too deeply",
    ),
    "a last line without its end nested 100,000 levels": (
        "logs/runs/alpha.ndjson",
        line("alpha", 1) + line("alpha", 2) + b'{"a":' + nested(100_000) + b"}",
        "line 3: it is nested too deeply",
    ),
    "approvals nested 500 levels": (
        "state/approvals/alpha.json",
        b"[" + nested(500) + b"]",
        "it is nested too deeply",
    ),
    "a manifest nested 500 levels": (
        "artifacts/alpha/artifact-manifest.json",
        b"[" * 500 + b"]" * 500,
        "it is nested too deeply",
    ),
    "a copy by an editor": ("artifacts/alpha~", b"x", "not part of the layout"),
    "a log of no run": ("logs/runs/lost.ndjson", line("lost", 1), "no file state/runs/lost.json"),
    "approvals of no run": (
        "state/approvals/lost.json",
        dumps([make_approval(None, "lost").wire()]),
        "no file state/runs/lost.json",
    ),
    "a manifest that is none": ("artifacts/alpha/artifact-manifest.json", b"{}", "it is not a JSON array"),
}


def of_run(number: int, path: str, content: bytes, reason: str) -> Damage:
    """Return a damage that is done to the runs of this number."""
    text, new = re.compile(r"\b(alpha|bad|lost)\b"), rf"\1-{number}"
    own = re.sub(text.pattern.encode(), new.encode(), content)
    return text.sub(new, path), own, text.sub(new, reason)


def test_what_cannot_be_moved_is_named_with_its_path_and_bytes(tmp_path: Path) -> None:
    """Each damage is done to a separate run, and one copy and one comparison meet all of them."""
    root, done = tmp_path / "tree", {}
    with opened(root) as storage:
        for number, (name, damage) in enumerate(DAMAGE.items()):
            fill(storage, f"alpha-{number}")
            path, content, reason = of_run(number, *damage)
            (root / path).parent.mkdir(parents=True, exist_ok=True)
            (root / path).write_bytes(content)
            done[name] = (path, content, reason)
    with into_memory(root, tmp_path / "out") as pair:
        result = pair.copy()
        lines = lines_of(tmp_path / "out")
        for name, (path, content, reason) in done.items():
            (bad,) = (item for item in lines if path.startswith(json.loads(item["raw"])["path"]))
            kept = json.loads(bad["raw"])
            assert bad["reason"].startswith(kept["path"]), name
            assert reason in bad["reason"], name
            assert base64.b64decode(kept["bytes"]) in content, name
            assert kept["bytes"], name
        assert (result.complete, result.totals.all()["quarantined"]) == (True, len(DAMAGE))
        report = pair.verify()
        found = sum(entity.counts.quarantined for entity in report.entities)
        assert (report.verdict, found) == ("INCONCLUSIVE", len(DAMAGE))
        again = pair.copy()
        assert (again.totals.all()["written"], again.totals.all()["quarantined"]) == (0, len(DAMAGE))


def test_what_is_larger_than_any_row_costs_one_line_each(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    limited_rows(monkeypatch)
    log, long = root / "logs/runs/alpha.ndjson", line("alpha", 2, message="x" * 3_000_000)
    with opened(root) as storage:
        for run in ("holes", "unfinished", "state"):
            fill(storage, run)
    for path, content in {
        log: line("alpha", 1) + long + line("alpha", 2),
        root / "state/runs/state.json": bytes(3_000_000),
        root / "state/foreign": bytes(3_000_000),
        root / "logs/runs/unfinished.ndjson": line("unfinished", 1) + long[:-30],
    }.items():
        path.write_bytes(content)
    os.truncate(root / "logs/runs/holes.ndjson", 3_000_000)
    with into_memory(root, tmp_path / "out") as pair:
        tracemalloc.start()
        reasons = Counter(filter(None, found_in(pair)))
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < 2_000_000
        assert {reason.split(":")[0]: number for reason, number in reasons.items()} == {
            # Read by a copy and by a comparison.
            "logs/runs/alpha.ndjson, line 2": 2,
            "logs/runs/holes.ndjson, line 3": 2,
            "logs/runs/unfinished.ndjson, line 2": 2,
            "state/runs/state.json": 2,
            "state/foreign": 2,
        }
        result, report = pair.copy(), pair.verify()
        assert (result.complete, result.totals.all()["torn_tail"], report.verdict) == (
            True,
            0,
            "INCONCLUSIVE",
        )
        kept = {item["reason"]: item["raw"] for item in lines_of(tmp_path / "out")}
        # The file itself keeps the rest.
        assert all(len(kept[reason]) < 2_000_000 for reason in reasons)


def test_a_torn_last_line_is_counted_and_lowers_nothing(root: Path, tmp_path: Path) -> None:
    log = root / "logs/runs/alpha.ndjson"
    log.write_bytes(log.read_bytes() + line("alpha", 3)[:-30])
    with into_memory(root, tmp_path / "out") as pair:
        result = pair.copy()
        assert (result.exit, result.totals.of("pack_run_logs")["torn_tail"]) == (Exit.OK, 1)
        assert result.totals.all()["written"] == ROWS
        assert pair.verify().verdict == "PASS"


def test_other_spellings_of_the_same_values_are_moved_and_reported(root: Path, tmp_path: Path) -> None:
    spelled = json.loads(state("spelled"))
    spelled["requestedAt"] = spelled["requestedAt"].replace("+00:00", "Z")
    zeros = "-0.0, 0e1000000000000000000, 0.0E-1000000000000000000"
    numbers = f'"plan": {{"x": [0.50, 15e-1, 1E2, {zeros}, 5e-324, 0.1, 1234567890.0625000],'
    (root / "state/runs/spelled.json").write_text(json.dumps(spelled, indent=4).replace('"plan": {', numbers))
    (root / "logs/runs/spelled.ndjson").write_bytes(
        line("spelled", 1, stepId=None).replace(b'":1,', b'":1.0,')
    )
    with opened(root) as storage:
        assert [entry.sequence for entry in storage.pack_run_logs.read("spelled")] == [1]
    log = root / "logs/runs/alpha.ndjson"
    # Without the last line feed, with others, and with an empty line: as an editor leaves it.
    log.write_bytes(log.read_bytes().replace(b"\n", b"\r\n\r\n").rstrip())
    with into_memory(root, tmp_path / "out") as pair:
        result = pair.copy()
        assert (result.exit, result.totals.all()["written"]) == (Exit.OK, ROWS + 2)
        report = pair.verify()
        assert report.verdict == "PASS"
        assert "null_for_absent" in {item.name for item in report.equivalences}
        assert pair.copy().totals.all()["unchanged"] == ROWS + 2


def test_a_null_is_an_absent_value_for_the_service_a_copy_and_a_comparison(
    root: Path, tmp_path: Path
) -> None:
    (root / "logs/runs/alpha.ndjson").write_bytes(line("alpha", 1, metadata=None))
    with opened(root) as storage:
        assert [entry.metadata for entry in storage.pack_run_logs.read("alpha")] == [{}]
    with into_memory(root, tmp_path / "out") as pair:
        assert pair.copy().totals.all()["written"] == ROWS - 1
        (log,) = (entity for entity in pair.verify().entities if entity.entity == "pack_run_logs")
        # The copy wrote the default: what a service reads in the source, too.
        assert log.unproved.shown[0].paths == ("doc.metadata (default_for_absent)",)


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


def test_one_file_stops_no_command(
    root: Path, tmp_path: Path, mongo_database: MongoDatabase, capsys: pytest.CaptureFixture[str]
) -> None:
    sockets = (
        "state/runs/alpha.json",
        "state/runs/other",
        "state/approvals/alpha.json",
        "logs/runs/alpha.ndjson",
        "artifacts/other",
        "artifacts/alpha/artifact-manifest.json",
    )
    for path in sockets:
        socket_at(root / path)
    deep = state("bad", plan=0).replace(b'"plan":0', b'"plan":' + nested(500))
    (root / "state/runs/bad.json").write_bytes(deep)
    config, out = tmp_path / "settings.json", tmp_path / "out"
    files = {"Filesystem": {"Root": str(root)}}
    config.write_text(json.dumps(dict(mongo_database.config) | {"TaskRunner": {"Storage": files}}))
    sides = ("--module", "taskrunner", "--from", "filesystem", "--to", "mongo")
    codes = {
        name: invoke(capsys, "--config", config, "backfill", *name.split(), *more).code
        for name, more in {
            "plan": sides,
            "copy": (*sides, "--execute", "--out", out),
            "verify": (*sides, "--out", tmp_path / "verified"),
            "diff": (*sides, "--entity", "pack_runs", "--key", "bad"),
            "repair": (*sides, "--execute", "--in", tmp_path / "verified", "--out", tmp_path / "repaired"),
            "quarantine list": (*sides[:2], *sides[4:]),
            "quarantine retry": (*sides, "--execute", "--out", out),
        }.items()
    }
    assert codes == dict.fromkeys(codes, Exit.INCONCLUSIVE) | {"plan": Exit.OK, "quarantine list": Exit.OK}
    found = {item["reason"].split(":")[0] for item in lines_of(out)}
    assert found == {*sockets, "state/runs/bad.json"}
    with open_store("taskrunner", "mongo", load_settings(config, environ={})) as target:
        written = sum(sum(target.bulk.counts(entity).values()) for entity in target.bulk.entities())
    # Of one run nothing is left but what the sockets took the place of.
    assert written == ROWS - 5


@pytest.mark.parametrize("folder", ["logs", "logs/runs"])
def test_a_folder_elsewhere_is_refused_and_not_taken_for_an_empty_one(
    root: Path, tmp_path: Path, folder: str
) -> None:
    with into_memory(root, tmp_path / "out") as pair:
        assert pair.copy().exit is Exit.OK
        (root / folder).rename(tmp_path / "elsewhere")
        # The second one is that of a disk which is not mounted.
        for there in ("elsewhere", "absent"):
            (root / folder).symlink_to(tmp_path / there)
            for command, kind in ((pair.copy, ConfigurationError), (pair.verify, PreflightError)):
                with pytest.raises(kind, match="symbolic link"):
                    command()
            with opened(root) as storage, pytest.raises(TwinstoreError, match="symbolic link"):
                storage.pack_run_logs.append([make_log_entry("alpha", 3)])
            (root / folder).unlink()


def test_a_file_that_may_not_be_read_keeps_no_other_from_being_moved() -> None:
    with TemporaryDirectory(dir="/tmp") as folder:  # every user may look into its parents
        root = Path(folder, "tree")
        with opened(root) as storage:
            for run in RUNS:
                fill(storage, run)
        Path(folder).chmod(0o755)
        out = Path(folder, "out")
        with into_memory(root, out) as pair:
            # As this user, who may import what a command needs.
            assert (pair.copy(execute=False).exit, pair.verify().verdict) == (Exit.OK, "FAIL")
            out.chmod(0o777)
            expected = found_in(pair)
            for path in ("logs/runs/alpha.ndjson", "artifacts/alpha/artifact-manifest.json"):
                (root / path).chmod(0)
            with without_rights():
                found = found_in(pair)
            # What is not ours, and may not be read either.
            (root / "logs/foreign").write_bytes(b"x")
            (root / "logs/foreign").chmod(0)
            with without_rights():
                result, report = pair.copy(), pair.verify()
        hidden = [reason for reason in found if "Permission denied" in reason]
        # Each of both is read twice, for a copy and for a comparison; of the log two lines are missing.
        assert (len(hidden), len(found)) == (4, len(expected) - 2)
        assert (result.complete, result.totals.all()["quarantined"]) == (True, 3)
        assert (report.verdict, sum(item.counts.quarantined for item in report.entities)) == (
            "INCONCLUSIVE",
            3,
        )


def test_a_folder_that_may_not_be_searched_is_refused(root: Path, tmp_path: Path) -> None:
    with TemporaryDirectory(dir="/tmp") as folder:
        moved = Path(shutil.move(root, Path(folder, "tree")))
        Path(folder).chmod(0o755)
        for path in ("logs/runs", "state"):
            (moved / path).chmod(0o444)
            with (
                into_memory(moved, tmp_path) as pair,
                without_rights(),
                pytest.raises(ConfigurationError, match="Permission denied"),
            ):
                pair.verify()
            (moved / path).chmod(0o755)


def found_in(pair: Pair) -> list[str]:
    """Return the rows of a source, read both ways: why a row cannot be moved, or nothing."""
    bulk = pair.source.bulk
    with bulk.view() as view:
        return [
            row.error or ""
            for entity in bulk.entities()
            for read in (view.records, view.rows)
            for batch in read(entity, KeyRange())
            for row in batch
        ]


@contextmanager
def without_rights() -> Iterator[None]:
    """Run a block as ``nobody`` if the user of the tests may read everything."""
    user = os.geteuid()
    if user == 0:
        os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(user)


def test_a_torn_line_of_a_run_that_nothing_names_is_counted(root: Path, tmp_path: Path) -> None:
    log = next(path for path in (root / "logs/runs").iterdir() if "sha256" in path.name)
    log.write_bytes(log.read_bytes()[:100])
    with into_memory(root, tmp_path / "out") as pair:
        result = pair.copy()
        assert (result.totals.all()["written"], result.totals.all()["torn_tail"]) == (ROWS - 2, 1)


def test_a_tree_is_the_target_of_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = tmp_path / "settings.json"
    config.write_text(json.dumps({"Persistence": {"Filesystem": {"Root": str(tmp_path / "tree")}}}))
    sides = ["--module", "taskrunner", "--from", "memory", "--to", "filesystem"]
    for command in (["copy", "--execute"], ["verify"], ["plan"]):
        answer = invoke(capsys, "--config", config, "backfill", *command, *sides)
        assert (answer.code, "Filesystem has no bulk target" in answer.err) == (Exit.PREFLIGHT_REFUSED, True)
    assert not (tmp_path / "tree" / "state").exists()


def test_a_source_is_neither_made_nor_changed(root: Path, tmp_path: Path) -> None:
    with (
        pytest.raises(PreflightError, match="is not a directory"),
        into_memory(root / "absent", tmp_path) as pair,
    ):
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
