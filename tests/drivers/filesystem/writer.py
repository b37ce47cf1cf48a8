"""A program whose children write one tree until they are killed: `writer.py ROOT`.

For each word on stdin it forks two children, which write through the storage that it opened before, and
waits for them. A line on stdout is JSON: the id of a process when it begins, `[]` when both have ended, and
between them the acknowledged writes: run, kind, and the mark that identifies a write.
"""

from __future__ import annotations

import json
import os
import random
import sys
import traceback
from typing import TYPE_CHECKING, cast

from twinstore.errors import ConflictError
from twinstore.storage.open import open_module
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
    # In one piece, because two processes say it into one pipe.
    os.write(sys.stdout.fileno(), json.dumps(what).encode() + b"\n")


def write(storage: TaskRunnerStorage, run: str, name: str, number: int, chosen: random.Random) -> None:
    """Make one write and print it."""
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


def write_on(storage: TaskRunnerStorage, name: str) -> None:
    """Write until the process is killed."""
    chosen = random.Random(name)
    number = 0
    while True:
        number += 1
        try:
            write(storage, chosen.choice(RUNS), name, number, chosen)
        except ConflictError as error:
            # Two writers that number a batch alike: one of them is refused. A lost race is repeated inside.
            if error.code != "conflict":
                raise


def forked(storage: TaskRunnerStorage, name: str) -> int:
    """Start a child that writes; return its id."""
    child = os.fork()
    if child:
        return child
    try:
        tell(os.getpid())
        write_on(storage, name)
    except BaseException:
        traceback.print_exc()
        raise
    finally:
        os._exit(1)


def main(root: str) -> None:
    """Do as the words on stdin say."""
    settings = {"Persistence": {"Filesystem": {"Root": root}}}
    with open_module("taskrunner", "Filesystem", settings) as opened:
        storage = cast("TaskRunnerStorage", opened)
        for run in RUNS:
            storage.pack_runs.create(make_pack_run(None, run))
        for line in sys.stdin:
            children = [forked(storage, f"{line.strip()}-{number}") for number in range(2)]
            for child in children:
                os.waitpid(child, 0)
            tell()


if __name__ == "__main__":
    main(*sys.argv[1:])
