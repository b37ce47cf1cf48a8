"""A program that writes a tree without end and tells what was acknowledged: `writer.py ROOT NAME SEED`.

Each line on stdout is one acknowledged write: run, kind, and what tells it from others.
"""

from __future__ import annotations

import json
import random
import sys
from typing import TYPE_CHECKING, cast

from twinstore.storage import open_module
from twinstore.testing.taskrunner.builders import (
    make_approval,
    make_artifact,
    make_draft,
    make_log_entry,
    make_pack_run,
)

if TYPE_CHECKING:
    from twinstore.taskrunner.storage import TaskRunnerStorage

RUNS = ("shared", "run/ä")


def tell(*what: object) -> None:
    """Say that a write was acknowledged."""
    sys.stdout.write(json.dumps(what) + "\n")
    sys.stdout.flush()


def write(storage: TaskRunnerStorage, run: str, name: str, number: int, chosen: random.Random) -> None:
    """Make one write and tell of it."""
    kind = chosen.choice(("next", "batch", "state", "artifact", "approval"))
    mark = f"{name}-{number}"
    if kind == "next":
        entry = storage.pack_run_logs.append_next(run, make_draft(message=mark))
        tell(run, kind, mark, entry.sequence)
    elif kind == "batch":
        first = storage.pack_run_logs.last_sequence(run) + 1
        # Long, so that a write of the batch can be interrupted in its middle.
        size = chosen.randint(2, 40)
        messages = [f"{mark}:{place}:{size}:{'x' * 2000}" for place in range(size)]
        storage.pack_run_logs.append(
            [make_log_entry(run, first + place, message=text) for place, text in enumerate(messages)]
        )
        tell(run, kind, mark, len(messages))
    elif kind == "state":
        storage.pack_runs.create(make_pack_run(None, mark, plan={"filler": "x" * chosen.randint(0, 20_000)}))
        tell(run, kind, mark)
    elif kind == "artifact":
        storage.pack_artifacts.upload(make_artifact(run, mark))
        tell(run, kind, mark)
    else:
        storage.pack_run_approvals.save(run, [make_approval(None, run, mark)])
        tell(run, kind, mark)


def main(root: str, name: str, seed: str) -> None:
    """Write until somebody kills the process."""
    chosen = random.Random(seed)
    settings = {"Persistence": {"Filesystem": {"Root": root}}}
    with open_module("taskrunner", "Filesystem", settings) as opened:
        storage = cast("TaskRunnerStorage", opened)
        number = 0
        while True:
            number += 1
            try:
                write(storage, chosen.choice(RUNS), name, number, chosen)
            except Exception as error:
                # Two writers that number a batch alike: one of them is refused.
                if getattr(error, "code", "") != "conflict":
                    raise


if __name__ == "__main__":
    main(*sys.argv[1:])
