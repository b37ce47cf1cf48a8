"""A test that asks for it runs with the fast path and without it, in this process and in those it starts."""

from __future__ import annotations

import subprocess
import sys
from typing import Final

import pytest

from twinstore.fast.library import fast_path

OFF: Final = "off (TWINSTORE_FAST_PATH=off)"
USUAL: Final = str(fast_path())
SEEN: list[str] = []


@pytest.mark.usefixtures("both_paths")
def test_this_one_runs_on_both_paths() -> None:
    asked = [sys.executable, "-c", "from twinstore.fast.library import fast_path; print(fast_path())"]
    done = subprocess.run(asked, check=True, capture_output=True, text=True)
    assert done.stdout.strip() == str(fast_path())
    SEEN.append(done.stdout.strip())


def test_both_paths_were_seen() -> None:
    wanted = [USUAL, OFF] if USUAL == "native" else [OFF]
    assert wanted == SEEN
    assert str(fast_path()) == USUAL


def test_the_first_lines_of_a_run_say_which_one_is_usual(pytestconfig: pytest.Config) -> None:
    assert f"fast path: {USUAL}" in pytestconfig.hook.pytest_report_header(config=pytestconfig, start_path="")
