"""Uncaught errors show a traceback only with --debug; the log names the class of the error."""

from __future__ import annotations

import subprocess
import sys
from typing import Final

import pytest

BEGIN: Final = """
import logging, threading
from twinstore_backfill.process.messages import log_to_stderr
from twinstore_backfill.process.messages import install_exception_hooks
log_to_stderr(logging.{level})
install_exception_hooks()
class Gone:
    def __del__(self): raise OSError("pl4nted")
def fail(): raise ValueError("pl4nted")
"""
THREAD: Final = "each = threading.Thread(target=fail, name='watcher'); each.start(); each.join()"
OBJECT: Final = "gone = Gone(); del gone"


@pytest.mark.parametrize(
    ("level", "what", "said"),
    [
        ("WARNING", THREAD, ["watcher ended with an unexpected ValueError"]),
        ("WARNING", OBJECT, []),
        ("DEBUG", THREAD, ["watcher ended with an unexpected ValueError", "watcher ended"]),
        ("DEBUG", OBJECT, ["unexpected OSError while an object was removed"]),
    ],
)
def test_it_is_a_line_of_the_log_and_a_traceback_with_debug_only(
    level: str, what: str, said: list[str]
) -> None:
    code = f"{BEGIN.format(level=level)}{what}"
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    lines = [line for line in done.stderr.splitlines() if line.startswith(("WARNING", "DEBUG twinstore"))]
    assert [line.partition(": ")[2] for line in lines] == said
    assert ("Traceback" in done.stderr) == (level == "DEBUG")
    if level != "DEBUG":
        assert "pl4nted" not in done.stderr
