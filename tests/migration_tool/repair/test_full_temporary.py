"""A command whose temporary files cannot be written names their directory, and not the file that it reads."""

from __future__ import annotations

import errno
import io
import json
import os
from typing import TYPE_CHECKING

import pytest

from tests.support.copies import fill, invoke, memory_pair
from twinstore_backfill.outcome import Exit
from twinstore_backfill.repair import engine

if TYPE_CHECKING:
    from pathlib import Path

REASONS = {code: os.strerror(code) for code in (errno.ENOSPC, errno.EIO, errno.EACCES)}


@pytest.mark.parametrize(("code", "reason"), REASONS.items(), ids=REASONS.values())
def test_a_directory_of_temporary_files_that_takes_no_more_is_named(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    code: int,
    reason: str,
) -> None:
    class Failing(io.BytesIO):
        def write(self, _: object) -> int:
            raise OSError(code, reason)

    line = {"entity": "runs", "key": ["r"], "kind": "missing"}
    (tmp_path / "differences.ndjson").write_text(f"{json.dumps(line)}\n")
    monkeypatch.setattr(engine, "TemporaryFile", Failing)
    monkeypatch.setenv("TMPDIR", "/room/for/temporary")
    with memory_pair(tmp_path) as pair:
        fill(pair.source.storage)
        pair.copy()
        for out in ((), ("--out", tmp_path / "out")):
            answer = invoke(capsys, "backfill", "recheck", *pair.sides, "--in", tmp_path, *out)
            assert answer.code == Exit.FAILED, answer
            assert f"temporary files (/room/for/temporary, see TMPDIR): {reason}" in answer.err
