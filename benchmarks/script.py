"""The hand-written script as a case, and as what fills the table of other cases."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Final, Literal

from benchmarks.children import run_child
from benchmarks.schedule import Sample

if TYPE_CHECKING:
    from benchmarks.databases import BenchmarkDatabases

__all__ = ["SCRIPT", "SCRIPT_VERIFY", "hand_script"]

SCRIPT: Final = "hand-written script"
SCRIPT_VERIFY: Final = "hand-written comparison"
PROGRAM: Final = (sys.executable, "-m", "benchmarks.hand_script")


def hand_script(databases: BenchmarkDatabases, command: Literal["copy", "verify"] = "copy") -> Sample:
    """Run the script in a separate process.

    Raises:
        RuntimeError: the comparison found a difference.
    """
    arguments = [command, databases.mongo_url, databases.source, databases.superuser_url]
    child = run_child(arguments, expected=0, program=PROGRAM)
    if child.output["different"]:
        raise RuntimeError(f"the script found {child.output['different']} differences")
    return Sample(
        units=child.output["units"],
        seconds=child.output["seconds"],
        whole_seconds=child.seconds,
        peak_bytes=child.peak_bytes,
        client_seconds=child.processor_seconds,
        watch_seconds=child.watch_seconds,
    )
