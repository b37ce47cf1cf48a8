"""What a driver keeps of copies, in one class."""

from __future__ import annotations

from twinstore.testing.contracts.claims import RangeClaimContract
from twinstore.testing.contracts.ledger import LedgerContract

__all__ = ["CopyStateContract"]


class CopyStateContract(LedgerContract, RangeClaimContract):
    """The ledger of copies, which is the same whatever is copied: once for a driver, not for each module."""
