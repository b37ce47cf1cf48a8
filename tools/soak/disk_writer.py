"""A writer of the filesystem driver, that goes on after a refusal: ``disk_writer ROOT NAME``.

A line on stdout is JSON: a confirmed write, or ``refused`` with mark, outcome and message.
"""

from __future__ import annotations

import sys
from random import Random
from typing import TYPE_CHECKING, Final, cast

from tests.drivers.filesystem.writer import RUNS, tell, write
from twinstore.errors import ConfigurationError, UnavailableError
from twinstore.storage.open import open_module
from twinstore.testing.taskrunner.builders import make_pack_run

if TYPE_CHECKING:
    from twinstore.taskrunner.storage import TaskRunnerStorage

WRITES: Final = 30


def main(root: str, name: str) -> None:
    """Write, and print what was confirmed and what was refused."""
    settings, chosen = {"Persistence": {"Filesystem": {"Root": root}}}, Random(name)
    with open_module("taskrunner", "Filesystem", settings) as opened:
        storage = cast("TaskRunnerStorage", opened)
        for number in range(WRITES):
            try:
                for run in RUNS:
                    if storage.pack_runs.get(run) is None:
                        storage.pack_runs.create(make_pack_run(None, run))
                write(storage, chosen.choice(RUNS), name, number, chosen)
            except (UnavailableError, ConfigurationError) as error:
                outcome = error.outcome if isinstance(error, UnavailableError) else None
                tell("refused", f"{name}-{number}", outcome, error.message)


if __name__ == "__main__":
    main(*sys.argv[1:])
