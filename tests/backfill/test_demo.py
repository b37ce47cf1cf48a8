"""The demo tells its whole story on servers of its own and ends with a proof."""

from __future__ import annotations

import json
import re
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from twinstore_backfill.demo.run import run_demo

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def folder() -> Iterator[Path]:
    """Make a directory that the user of PostgreSQL may pass, which pytest's own are not."""
    made = Path(tempfile.mkdtemp(prefix="twinstore-demo-"))
    made.chmod(0o711)
    yield made
    shutil.rmtree(made)


def test_the_demo_ends_with_a_proof_and_leaves_all_reports(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    # Whatever the environment says of the stores of the user, none of them is touched.
    for name in ("Scheduler__Storage__Postgres__ConnectionString", "scheduler__storage__mongo__database"):
        monkeypatch.setenv(name, "postgresql://nobody@127.0.0.1:1/nowhere")
    monkeypatch.setenv("TWINSTORE_CONFIG", str(folder / "of-the-user.json"))
    # Every entity is corrupted by the tests of the self-test; here it only has to run and to be shown.
    proved = run_demo(folder, runs=200, sample=1, corrupted=["audit"])
    *story, duration, last = capsys.readouterr().out.splitlines()
    assert re.fullmatch(r"-- Everything together, .* \(\d+\.\d s\)", duration)
    assert last == f"PASS: {proved:,} documents proved equal"
    assert sum("planted corruptions; no false alarms" in line for line in story) == 1
    names = ("", "tracking", "taskrunner")
    reports = [json.loads((folder / name / "parity-report.json").read_text()) for name in names]
    assert [report["verdict"] for report in reports] == ["PASS"] * len(names)
    assert sum(report["documents_equal"] for report in reports) == proved
    assert proved > 200
    assert {path.suffix for path in folder.glob("parity-report.*")} == {".json", ".xml", ".md", ".html"}
