"""Writing ranges: rows, ledger and the check of the lease in one transaction."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import TYPE_CHECKING, Final

import psycopg

from twinstore.bulk import Conflict, ImportOutcome, Record, Rejected
from twinstore.forks import OwnProcess
from twinstore_postgres.bulk.connections import begin_system
from twinstore_postgres.bulk.exporting import BATCH_BYTES, WEIGHED, weight
from twinstore_postgres.bulk.ledger import LedgerConnection, check_lease, finish_range
from twinstore_postgres.bulk.staging import Presence, Stage
from twinstore_postgres.derive import table_of
from twinstore_postgres.errors import Subject, translate, translated

if TYPE_CHECKING:
    from twinstore.bulk import Claim, OnConflict, Tally
    from twinstore.catalog import Entity
    from twinstore_postgres.bulk.staging import Merged
    from twinstore_postgres.codec import Row
    from twinstore_postgres.connecting import Connection
    from twinstore_postgres.derive import Table

    Pair = tuple[Record, Row]

__all__ = ["PostgresRangeImporter"]

# The server knows nothing about a stage that was filled a moment ago; probing by key is always right.
PROBE_BY_KEY: Final = (
    b"SELECT set_config('enable_hashjoin', 'off', true), set_config('enable_mergejoin', 'off', true)"
)
# What one row is to blame for: bad data, a broken constraint, a value too large for an index.
ROW_ERRORS: Final = frozenset({"22", "23", "54"})
# Merges of so many rows cost the server a sixth less than merges of 1,000; more would take too much memory,
# because the records stay until it is known that none of them is refused.
CHUNK_ROWS: Final = 2500


@dataclass(slots=True)
class Findings:
    """What became of the records so far."""

    written: Counter[str] = field(default_factory=Counter)
    unchanged: Counter[str] = field(default_factory=Counter)
    conflicts: list[Conflict] = field(default_factory=list)
    rejected: list[Rejected] = field(default_factory=list)

    @property
    def outcome(self) -> ImportOutcome:
        """The findings as the tool sees them; tenants without rows are left out."""
        return ImportOutcome(
            written=dict(+self.written),
            unchanged=dict(+self.unchanged),
            conflicts=tuple(self.conflicts),
            rejected=tuple(self.rejected),
        )


class PostgresRangeImporter:
    """Implements :class:`~twinstore.bulk.RangeImporter` on a connection of its own."""

    def __init__(self, connection: Connection, schema: str) -> None:
        """Take the connection, and the schema in which the ledger lives."""
        self._connection = connection
        self._schema = schema
        self._process = OwnProcess()
        self._stages: dict[str, Stage] = {}

    def import_range(
        self,
        entity: Entity,
        batches: Iterator[list[Record]],
        *,
        on_conflict: OnConflict,
        claim: Claim,
        tally: Tally,
    ) -> ImportOutcome:
        """Write the records of a claimed range and mark it live; see the Protocol."""
        self._process.check("This importer")
        table = table_of(entity)
        overwrite = on_conflict == "overwrite" and not entity.append_only
        findings = Findings()
        with translated(Subject(entity)):
            stage = self._stage(table)
            with self._connection.transaction():
                begin_system(self._connection, "bulk import")
                self._connection.execute(PROBE_BY_KEY)
                stage.begin()
                writer = Writer(self._connection, stage, table, findings, overwrite)
                for pairs in chunks(table, batches, findings):
                    writer.write(pairs)
                outcome = findings.outcome
                ledger = LedgerConnection(self._connection, self._schema)
                check_lease(ledger, claim.lease)
                finish_range(ledger, claim, tally(outcome))
        return outcome

    def _stage(self, table: Table) -> Stage:
        stage = self._stages.get(table.entity.name)
        if stage is None:
            stage = Stage(self._connection, table)
            stage.create()
            self._stages[table.entity.name] = stage
        return stage


def chunks(table: Table, batches: Iterable[Sequence[Record]], findings: Findings) -> Iterator[list[Pair]]:
    """Yield the records with their rows, as many as one merge takes; note those without a model.

    A portion is empty again when the next one is asked for.
    """
    pairs: list[Pair] = []
    size = 0
    for record in chain.from_iterable(batches):
        if record.model is None or record.key is None:
            findings.rejected.append(Rejected(record, record.error or "the record holds no model"))
            continue
        row = table.encode(record.model, record.storage)
        if len(pairs) % WEIGHED == 0:
            size += WEIGHED * weight(row)
        pairs.append((record, row))
        if len(pairs) == CHUNK_ROWS or size > BATCH_BYTES:
            yield pairs
            pairs.clear()  # a new list would leave the old one with the caller while this one grows
            size = 0
    if pairs:
        yield pairs


@dataclass(frozen=True, slots=True)
class Writer:
    """Writes some records; where one is refused, the halves are tried until it stands alone."""

    connection: Connection
    stage: Stage
    table: Table
    findings: Findings
    overwrite: bool

    def write(self, pairs: Sequence[Pair]) -> None:
        """Write the records that the store takes and note the reasons of the others."""
        try:
            self._merge(pairs)
        except psycopg.errors.UniqueViolation:
            # Of a name, or of a key that a rival inserted since; only the careful way can tell.
            self._write_carefully(pairs)
        except psycopg.Error as error:
            self._halve(pairs, error)

    def _write_carefully(self, pairs: Sequence[Pair]) -> None:
        try:
            self._merge(pairs, Presence.SOME)
        except psycopg.Error as error:
            self._halve(pairs, error)

    def _merge(self, pairs: Sequence[Pair], presence: Presence | None = None) -> None:
        rows = [row for _, row in pairs]
        with self.connection.transaction():
            found = presence or self.stage.presence(rows)
            merged = self.stage.merge(rows, found, overwrite=self.overwrite)
        self._note(pairs, merged)

    def _halve(self, pairs: Sequence[Pair], error: psycopg.Error) -> None:
        if not blames_row(error):
            raise error
        if len(pairs) == 1:
            record = pairs[0][0]
            subject = Subject(self.table.entity, record.key or ())
            self.findings.rejected.append(Rejected(record, reason_of(error, subject)))
            return
        middle = len(pairs) // 2
        self._write_carefully(pairs[:middle])
        self._write_carefully(pairs[middle:])

    def _note(self, pairs: Sequence[Pair], merged: Merged) -> None:
        findings, written, others = self.findings, merged.written, merged.others
        findings.written.update(written)
        tenants = Counter(self.table.owner_label(row) for _, row in pairs)
        if others:
            owners = {self.table.key_of(row): self.table.owner_label(row) for _, row in pairs}
            findings.conflicts += [Conflict(key, owners[key], self.overwrite) for key in others]
            different = Counter(owners[key] for key in others)
            tenants.subtract(different)
            if self.overwrite:
                findings.written.update(different)
        tenants.subtract(written)
        findings.unchanged.update(tenants)


def blames_row(error: psycopg.Error) -> bool:
    """Whether the store refuses a row, not the whole work."""
    if error.sqlstate is None:
        return isinstance(error, psycopg.DataError)
    return error.sqlstate[:2] in ROW_ERRORS


def reason_of(error: psycopg.Error, subject: Subject) -> str:
    """Return why a row was refused: rule and code, no values."""
    return translate(error, subject).message
