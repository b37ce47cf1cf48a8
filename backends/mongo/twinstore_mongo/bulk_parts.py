"""What a writer of ranges has done so far, and its last transaction, which somebody else commits."""

from __future__ import annotations

from collections import Counter
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from twinstore.bulk import Conflict, ImportOutcome, Rejected
from twinstore_mongo.packed_writes import PackedWrites

if TYPE_CHECKING:
    from collections.abc import Sequence

    from twinstore_mongo.bulk_documents import DocumentWrite
    from twinstore_mongo.context import RepositoryContext

__all__ = ["LastPart", "WriteCounts"]


@dataclass(slots=True)
class WriteCounts:
    """What has become of the records so far."""

    written: Counter[str] = field(default_factory=Counter)
    unchanged: Counter[str] = field(default_factory=Counter)
    conflicts: list[Conflict] = field(default_factory=list)
    rejected: list[Rejected] = field(default_factory=list)
    removed: int = 0

    def note(self, writes: Sequence[DocumentWrite | PackedWrites], removed: int = 0) -> None:
        """Count documents that are in the store now, and those that are there no more."""
        self.removed += removed
        for write in writes:
            if isinstance(write, PackedWrites):
                self.written += write.labels()
                continue
            self.written[write.record.label] += 1
            if write.replaces is not None:
                self.conflicts.append(Conflict(write.key, write.record.owner, overwritten=True))

    def result(self) -> ImportOutcome:
        """Return the outcome as the contract has it."""
        return ImportOutcome(
            dict(self.written),
            dict(self.unchanged),
            tuple(self.conflicts),
            tuple(self.rejected),
            self.removed,
        )


class NotCommittedError(Exception):
    """Rolls a transaction back; nobody outside sees it."""


class LastPart:
    """The transaction of the last part, which somebody else commits; without transactions just the store."""

    def __init__(self, context: RepositoryContext) -> None:
        """Open it."""
        self._ending = ExitStack()
        transactions = context.store.capabilities.transactions
        self.context = self._ending.enter_context(context.opened()) if transactions else context

    def commit(self) -> None:
        """Commit; does nothing the second time."""
        self._ending.close()

    def roll_back(self) -> None:
        """Roll back, unless it has ended."""
        with suppress(NotCommittedError), self._ending:  # only an exception makes the unit roll back
            raise NotCommittedError
