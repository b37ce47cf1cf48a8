"""Core, drivers and tools name no module: what they know of one comes through its plug-in."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parent.parent.parent
WORDS: Final = re.compile("scheduler|tracking|task_?runner", re.IGNORECASE)
# The packages of the modules, their kits, the statements that a driver has for a module, and the
# demo, which shows one.
PLACES: Final = (
    "core/twinstore/scheduler/",
    "core/twinstore/tracking/",
    "core/twinstore/taskrunner/",
    "core/twinstore/testing/scheduler/",
    "core/twinstore/testing/tracking/",
    "core/twinstore/testing/taskrunner/",
    "tools/backfill/twinstore_backfill/demo/",
)
# A driver that stores one module alone says which.
OF_ONE_MODULE: Final = {
    "backends/filesystem/twinstore_filesystem/plugin.py": ['modules=frozenset({"taskrunner"}),']
}
FILES: Final = sorted(
    path.relative_to(ROOT)
    for room in ("core", "backends", "tools")
    for path in (ROOT / room).rglob("*.py")
    if not path.relative_to(ROOT).as_posix().startswith(PLACES) and "special" not in path.parts
)


def lines_about_a_module(text: str) -> list[str]:
    """Return the lines of a file that name a module; docstrings, comments and help texts count."""
    return [line.strip() for line in text.splitlines() if WORDS.search(line)]


def test_there_are_files_to_look_at_and_lines_that_would_be_found() -> None:
    assert len(FILES) > 200
    assert {path.parts[0] for path in FILES} == {"core", "backends", "tools"}
    bad = ['"""The scheduler."""', "TaskRunnerOptions", "# for task_runner", "open('TRACKING')"]
    assert lines_about_a_module("\n".join(bad)) == bad
    assert all((ROOT / place).is_dir() for place in PLACES)


def test_no_line_names_a_module() -> None:
    found = {path.as_posix(): lines_about_a_module((ROOT / path).read_text("utf-8")) for path in FILES}
    assert {path: lines for path, lines in found.items() if lines} == OF_ONE_MODULE
