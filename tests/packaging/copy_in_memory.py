"""Run by test_without_compiler.py in a separate environment: copies from memory to memory and verifies."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, cast

from twinstore.config import load_settings
from twinstore.fast.library import fast_path
from twinstore.testing.scheduler.builders import make_run
from twinstore_backfill.copy.engine import run_copy
from twinstore_backfill.copy.options import CopyOptions
from twinstore_backfill.process.stopping import StopSwitch
from twinstore_backfill.progress.record import SilentProgress
from twinstore_backfill.stores import open_store
from twinstore_backfill.verify.engine import run_verify
from twinstore_backfill.verify.options import VerifyOptions

if TYPE_CHECKING:
    from twinstore.scheduler.storage import SchedulerStorage

RUNS = 5
settings = [
    load_settings(
        {
            "Persistence": {"Memory": {"Store": name}},
            # The runs of the builders are old.
            "Scheduler": {"Storage": {"RunRetentionDays": 0}},
        },
        environ={},
    )
    for name in ("source", "target")
]
with (
    open_store("scheduler", "memory", settings[0]) as source,
    open_store("scheduler", "memory", settings[1]) as target,
):
    source.storage.initializer.ensure_migrations()
    runs = cast("SchedulerStorage", source.storage).runs
    for number in range(RUNS):
        runs.create(make_run("acme", f"run-{number}"))
    copied = run_copy(source, target, CopyOptions(execute=True), SilentProgress(), StopSwitch())
    report = run_verify(source, target, VerifyOptions(), SilentProgress(), StopSwitch())
    print(  # noqa: T201  # the answer
        json.dumps(
            {
                "fast_path": str(fast_path()),
                "written": copied.totals.all()["written"],
                "verdict": report.verdict,
                "equal": report.documents_equal,
            }
        )
    )
