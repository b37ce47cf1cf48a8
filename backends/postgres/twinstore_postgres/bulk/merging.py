"""Merging records into a table: as many at a time as pay, and one by one where the store refuses some."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import psycopg

from twinstore.bulk import Conflict, ImportOutcome, Record, Rejected
from twinstore.moving import obstacles, reason_of_obstacle
from twinstore.tenancy import label_of
from twinstore_postgres.bulk.staging import ExactRows, Presence
from twinstore_postgres.errors import Subject, translate

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from twinstore.access import Access
    from twinstore_postgres.bulk.staging import Merged, Stage
    from twinstore_postgres.codec import Row
    from twinstore_postgres.connecting import Connection
    from twinstore_postgres.derive import Table

    Pair = tuple[Record, Row]

__all__ = ["Findings", "Merger", "blames_row"]

# What one row is to blame for: bad data, a broken constraint, a value too large for an index.
ROW_ERRORS: Final = frozenset({"22", "23", "54"})


@dataclass(slots=True)
class Findings:
    """What became of the records so far."""

    written: Counter[str] = field(default_factory=Counter)
    unchanged: Counter[str] = field(default_factory=Counter)
    conflicts: list[Conflict] = field(default_factory=list)
    rejected: list[Rejected] = field(default_factory=list)
    removed: int = 0

    def note(
        self,
        owners: Counter[str],
        written: Mapping[str, int],
        conflicts: Sequence[Conflict],
        *,
        overwrite: bool,
    ) -> None:
        """Note what a merge did to rows; ``owners`` are all of them by label, and end as those unchanged."""
        self.written.update(written)
        self.conflicts += conflicts
        different = Counter(conflict.label for conflict in conflicts)
        owners.subtract(different)
        if overwrite:
            self.written.update(different)
        owners.subtract(written)
        self.unchanged.update(owners)

    @property
    def outcome(self) -> ImportOutcome:
        """The findings as the tool sees them; owners without rows are left out."""
        return ImportOutcome(
            written=dict(+self.written),
            unchanged=dict(+self.unchanged),
            conflicts=tuple(self.conflicts),
            rejected=tuple(self.rejected),
            removed=self.removed,
        )


@dataclass(frozen=True, slots=True)
class Merger:
    """Merges some records; where one is refused, the halves are tried until it stands alone.

    Attributes:
        access: the rows of the target inside the transaction.
    """

    connection: Connection
    stage: Stage
    table: Table
    findings: Findings
    overwrite: bool
    access: Callable[[], Access]

    def merge(self, pairs: Sequence[Pair]) -> None:
        """Write the records that the store takes and note the reasons of the others."""
        try:
            self._merge(pairs)
        except psycopg.errors.UniqueViolation:
            # Of a name, or of a key that a rival inserted since; only the careful way can tell.
            self._merge_carefully(pairs)
        except psycopg.Error as error:
            self._halve(pairs, error)

    def _merge_carefully(self, pairs: Sequence[Pair]) -> None:
        try:
            self._merge(pairs, Presence.SOME)
        except psycopg.errors.UniqueViolation as error:
            if self.overwrite:
                self._move(pairs)
            else:
                self._halve(pairs, error)
        except psycopg.Error as error:
            self._halve(pairs, error)

    def _move(self, pairs: Sequence[Pair]) -> None:
        """Merge rows whose unique values move between them; name what is in the way of the others."""
        entity = self.table.entity
        with self.connection.transaction():
            changed = self.stage.changed([row for _, row in pairs])
        moving = [record for record, row in pairs if self.table.key_of(row) in changed]
        found = obstacles(self.access(), entity, moving)
        self.findings.rejected += [
            Rejected(record, reason_of_obstacle(entity, found[record.key]))
            for record in moving
            if record.key in found
        ]
        free = [pair for pair in pairs if pair[0].key not in found]
        try:
            if free:
                with self.connection.transaction():
                    merged = self.stage.exchange([row for _, row in free])
                self._note(free, merged)
        except psycopg.Error as other:
            # Another rule refuses a row, or a rival has taken a value since.
            self._halve(free, other)

    def _merge(self, pairs: Sequence[Pair], presence: Presence | None = None) -> None:
        rows = [row for _, row in pairs]
        # A savepoint: a refused row must not end the transaction of the range.
        with self.connection.transaction():
            ends = self.table.key_of(rows[0]), self.table.key_of(rows[-1])
            found = presence or self.stage.presence(*ends)
            merged = self.stage.merge(ExactRows(self.table, rows), found, overwrite=self.overwrite)
        self._note(pairs, merged)

    def _halve(self, pairs: Sequence[Pair], error: psycopg.Error) -> None:
        if not blames_row(error):
            raise error
        if len(pairs) == 1:
            record = pairs[0][0]
            self.findings.rejected.append(Rejected(record, self._reason(record, error)))
            return
        # One bad row among thousands is found by about two dozen merges.
        middle = len(pairs) // 2
        self._merge_carefully(pairs[:middle])
        self._merge_carefully(pairs[middle:])

    def _reason(self, record: Record, error: psycopg.Error) -> str:
        """Return why a record was refused; a taken value is named with the row that has it."""
        entity = self.table.entity
        if isinstance(error, psycopg.errors.UniqueViolation):
            for obstacle in obstacles(self.access(), entity, [record]).values():
                return reason_of_obstacle(entity, obstacle)
        return reason_of(error, Subject(entity, record.key))

    def _note(self, pairs: Sequence[Pair], merged: Merged) -> None:
        conflicts = self._conflicts(pairs, merged.others) if merged.others else []
        owners = Counter(label_of(self.table.owner(row)) for _, row in pairs)
        self.findings.note(owners, merged.written, conflicts, overwrite=self.overwrite)

    def _conflicts(self, pairs: Sequence[Pair], others: Sequence[Row]) -> list[Conflict]:
        """Return the conflicts of the keys whose rows have other content."""
        records = {self.table.key_of(row): (record, row) for record, row in pairs}
        return [self._conflict(*records[key]) for key in others]

    def _conflict(self, record: Record, row: Row) -> Conflict:
        return Conflict(record.key or (), self.table.owner(row), self.overwrite)


def blames_row(error: psycopg.Error) -> bool:
    """Whether the store refuses a row, not the whole work."""
    if error.sqlstate is None:
        return isinstance(error, psycopg.DataError)
    return error.sqlstate[:2] in ROW_ERRORS


def reason_of(error: psycopg.Error, subject: Subject) -> str:
    """Return why a row was refused: rule and code, no values."""
    return translate(error, subject).message
