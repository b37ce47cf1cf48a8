"""Migrations from Python: plan, copy, verify and repair a module, as the command ``twinstore backfill`` does.

It needs ``pip install 'twinstore[backfill]'``. See :class:`Migration`, and docs/migrating-from-python.md.
"""

from __future__ import annotations

from twinstore.errors import ConfigurationError

try:
    from twinstore_backfill.copy.options import CopyOptions
    from twinstore_backfill.copy.report import CopyReport
    from twinstore_backfill.migration import Migration, Side
    from twinstore_backfill.outcome import InterruptedRunError, PreflightError
    from twinstore_backfill.plan import PlanReport
    from twinstore_backfill.process.stopping import StopSwitch as CancelToken
    from twinstore_backfill.progress.record import PartState
    from twinstore_backfill.progress.running import Run
    from twinstore_backfill.repair.engine import RepairReport
    from twinstore_backfill.report.model import ParityReport
    from twinstore_backfill.rules.model import JobRules
    from twinstore_backfill.verify.options import VerifyOptions
except ModuleNotFoundError as error:
    raise ConfigurationError(
        f"twinstore.migration needs {error.name}, which is not installed. "
        "Run: pip install 'twinstore[backfill]'"
    ) from error

__all__ = [
    "CancelToken",
    "CopyOptions",
    "CopyReport",
    "InterruptedRunError",
    "JobRules",
    "Migration",
    "ParityReport",
    "PartState",
    "PlanReport",
    "PreflightError",
    "RepairReport",
    "Run",
    "Side",
    "VerifyOptions",
]
