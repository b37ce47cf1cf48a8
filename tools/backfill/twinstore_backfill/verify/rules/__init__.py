"""The rules of a job as a verification applies them, without any code of the copy.

    rules of one entity -> compiled once -> each document that a scan of the source reads

Where there is a choice, another way than the obvious one is taken: formats of dates become regular
expressions, numbers are pairs of integers and ids are shifted as integers. So a fault in one of the two
implementations shows as a difference.
"""

from twinstore_backfill.verify.rules.changes import (
    check_tenants,
    moves_tenants,
    ranges_after,
    verifier_changes,
)

__all__ = ["check_tenants", "moves_tenants", "ranges_after", "verifier_changes"]
