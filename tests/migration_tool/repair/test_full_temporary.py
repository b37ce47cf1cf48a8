"""A command whose temporary files have no room names their directory, and not the file that it reads."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

from tests.support.copies import fill, invoke, memory_pair
from twinstore_backfill.outcome import Exit
from twinstore_backfill.repair import engine

if TYPE_CHECKING:
    import pytest


def test_a_full_directory_of_temporary_files_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    line = {"entity": "runs", "key": ["r"], "kind": "missing"}
    (tmp_path / "differences.ndjson").write_text(f"{json.dumps(line)}\n")
    full = Path("/dev/full")
    monkeypatch.setattr(engine, "TemporaryFile", lambda: full.open("r+b", buffering=0))
    monkeypatch.setenv("TMPDIR", "/room/for/temporary")
    with memory_pair(tmp_path) as pair:
        fill(pair.source.storage)
        pair.copy()
        for out in ((), ("--out", tmp_path / "out")):
            answer = invoke(capsys, "backfill", "recheck", *pair.sides, "--in", tmp_path, *out)
            assert answer.code == Exit.FAILED, answer
            assert "temporary files (/room/for/temporary, see TMPDIR): No space left" in answer.err
