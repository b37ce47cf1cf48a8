"""The ledger of copies: jobs, workers, ranges, and the lines about documents that could not be moved."""

from __future__ import annotations

from twinstore.ledger.catalog import LEDGER_MODULE
from twinstore.ledger.ledger import Ledger
from twinstore.ledger.models import (
    Claim,
    ConflictLine,
    CopyJob,
    CopyWorker,
    JobState,
    Lease,
    QuarantineLine,
    RangeProgress,
    RangeState,
    RangeTally,
    Suspicion,
)

__all__ = [
    "LEDGER_MODULE",
    "Claim",
    "ConflictLine",
    "CopyJob",
    "CopyWorker",
    "JobState",
    "Lease",
    "Ledger",
    "QuarantineLine",
    "RangeProgress",
    "RangeState",
    "RangeTally",
    "Suspicion",
]
