"""Protocols for tools that move and compare whole entities.

A tool sees ranges of keys, records and positions; a driver decides how to read and write them fast.
Everything here works in system scope. The words:

- A **key** is the tuple of values that identifies a row of an entity: texts are compared by code point,
  integers as numbers, UUIDs by their lower-case text.
- A **range** is a half-open interval of keys, cut at observed keys.
- A **position** is the logical time of a store.
- A **view** reads a store: records for a copy, rows for a comparison; the two share no code.
- A **range writer** writes one range in one transaction, together with whatever else must change with it.

The flow of a copy, range by range:

    with source.view() as view, target.writer(entity, on_conflict=..., check=...) as writer:
        for batch in view.records(entity, within):
            writer.write(batch)
        outcome = writer.flush()
        ledger.finish(writer.access, claim, tally_of(outcome))
        writer.commit()
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Literal, Protocol

from twinstore.bulk.rows import (
    NO_ADDITIONAL_VALUES,
    Cell,
    Counted,
    Digestible,
    NoDigests,
    RangeDigests,
    ScanRow,
)
from twinstore.catalog.keys import Key, KeyRange
from twinstore.catalog.tenancy import StoredOwner, label_of
from twinstore.errors import UnsupportedCapabilityError

if TYPE_CHECKING:
    from datetime import datetime, timedelta

    from twinstore.access.protocol import Access
    from twinstore.bulk.changes import DocumentChanges
    from twinstore.bulk.rows import Original
    from twinstore.catalog.entity import Entity
    from twinstore.migrations.migration import Initializer
    from twinstore.models.canonical import CanonicalModel

__all__ = [
    "NO_ADDITIONAL_VALUES",
    "NO_PARENT",
    "TOO_LARGE",
    "BulkPort",
    "BulkView",
    "Cell",
    "CommitCheck",
    "Conflict",
    "Counted",
    "Digestible",
    "ImportOutcome",
    "Inventory",
    "Key",
    "KeyRange",
    "NoDigests",
    "OnConflict",
    "Placed",
    "Position",
    "RangeDigests",
    "RangeWriter",
    "Record",
    "Rejected",
    "ScanRow",
]


EVERY_KEY: Final = KeyRange()
# To count more rows than that takes long, so that nobody waits for it.
MANY_ROWS: Final = 10_000_000
NO_DIGESTS: Final = NoDigests("its driver has no digests")
# How the reasons of every target begin that does not take a row.
NO_PARENT: Final = "the row that it belongs to is not in the target"
TOO_LARGE: Final = "it is larger than the target takes"
Position = str
OnConflict = Literal["fail", "overwrite"]
Placed = tuple[Key | None, str]
"""From which key on rows are on another server, and which one; ``None`` is before every key."""
CommitCheck = Callable[["Access"], None]
"""Run inside each transaction that a writer commits before the last one; raises to prevent the commit."""


@dataclass(slots=True)
class Record:
    """One row as a copy reads it.

    Attributes:
        key: the key; ``None`` when what is stored is not a key of the entity.
        owner: who owns the row; "no tenant" and "unknown" are different.
        model: the decoded row, ``None`` when it cannot be decoded.
        storage: the storage markers of the entity, instants as datetimes, without absent markers.
        text_timestamp: whether an instant was stored as text.
        ignored: whether an unknown property of it was skipped, because the caller ignores that property.
        error: why the row cannot be decoded.
        original: the stored value, as JSON text or as an object that returns it in pieces. With ``error`` it
            is required; otherwise a quarantine that needs it uses the model, which is another form of the
            row.
        torn_tail: not a row, but what an interrupted writer left after the last one: counted, not moved.
        rules: the numbers of the rules that changed it, see :meth:`BulkPort.with_changes`.
        stored_key: without a ``key``, what is stored in its place, as short extended JSON, if the driver can
            say so.
    """

    key: Key | None
    owner: StoredOwner
    model: CanonicalModel | None
    storage: Mapping[str, object] = field(default_factory=dict[str, object])
    text_timestamp: bool = False
    ignored: bool = False
    error: str | None = None
    # Not compared: it returns in pieces what the other attributes say, and is a new object at each read.
    original: Original | str | None = field(default=None, compare=False)
    torn_tail: bool = False
    rules: Sequence[int] = ()
    stored_key: str | None = field(default=None, compare=False)

    @property
    def label(self) -> str:
        """The text under which the owner is counted."""
        return label_of(self.owner)

    @property
    def raw(self) -> str | None:
        """With ``error`` what is stored as one text, for rows that are known to be small."""
        return None if self.error is None or self.original is None else str(self.original)


@dataclass(frozen=True, slots=True)
class Rejected:
    """A record that the target did not take.

    Attributes:
        reason: why, without a value of it. Tools find the cause by how it begins: with :data:`NO_PARENT`,
            :data:`TOO_LARGE`, or what :mod:`twinstore.bulk.unique_moves` says of unique values.
    """

    record: Record
    reason: str


@dataclass(frozen=True, slots=True)
class Conflict:
    """A row that exists in the target with other content and was left as it is (or overwritten)."""

    key: Key
    owner: StoredOwner
    overwritten: bool = False

    @property
    def label(self) -> str:
        """The text under which the owner is counted."""
        return label_of(self.owner)


@dataclass(frozen=True, slots=True)
class ImportOutcome:
    """What became of the records of one range.

    Attributes:
        written: inserted and overwritten rows by the label of their owner.
        unchanged: rows that were there with equal content, by the label of their owner.
        conflicts: rows that were there with other content.
        rejected: records that the store refused and that :meth:`RangeWriter.take_rejected` has not given.
        removed: keys that were removed on request and had been there.
    """

    written: Mapping[str, int]
    unchanged: Mapping[str, int]
    conflicts: tuple[Conflict, ...] = ()
    rejected: tuple[Rejected, ...] = ()
    removed: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Inventory:
    """What a store has of one entity, for a caller that only reads it.

    Attributes:
        entity: its name.
        present: whether its collection or table exists; an absent one reads as empty.
        warnings: what makes reading slow, each a sentence that names the cost; of an absent one, that.
        remarks: what else a reader should know, such as rows that the server removes meanwhile.
        removed_after: the age by the field of its retention at which the server removes rows by itself,
            ``None`` where it does not.
    """

    entity: str
    present: bool = True
    warnings: tuple[str, ...] = ()
    remarks: tuple[str, ...] = ()
    removed_after: timedelta | None = None


class BulkPort(Protocol):
    """Whole entities of one module on one driver. A source needs no right to write for any of the reads."""

    @property
    def identity(self) -> str:
        """A text without secrets by which the server itself distinguishes this store from others.

        It is the same under whatever name a client reaches the server.
        """
        ...

    @property
    def instance(self) -> str:
        """A text without secrets that is the same for every user of this store, until its server restarts.

        Not every user may read the ``identity``; such a user gets another text there. Default: the identity.
        """
        return self.identity

    @property
    def identity_needs(self) -> str | None:
        """What to grant so that the ``identity`` is certain, as a sentence. Default: nothing."""
        return None

    def may_be(self, other: BulkPort) -> bool:
        """Whether two stores may be one although their identities differ. Default: they cannot."""
        del other
        return False

    @property
    def place(self) -> str:
        """Driver, host and database as the settings name them, for people; without secrets."""
        ...

    def with_changes(self, changes: DocumentChanges) -> BulkPort:
        """Return the same store, whose views show every row as if its document were stored changed.

        Keys, owners, cuts and digests are those after the changes, and so is the error of a row that no model
        accepts; ``original`` stays what is stored. A row that a change refuses has the text of the refusal as
        its ``error``. Counts by owner are those of the stored documents. Rows are written through it only
        with ``changes.written``: a stored row is then equal if it reads as equal after the changes, and a row
        that ``written`` refuses is rejected.

        Raises:
            UnsupportedCapabilityError: the driver cannot. Default: for any change but names that are dropped
                at the top of documents, which then have an ``error``; tables have no such names.
        """
        if not changes.only_drop:
            raise UnsupportedCapabilityError(
                f"The rules of this job cannot be applied to what {self.place} stores."
            )
        return self

    def entities(self) -> tuple[Entity, ...]:
        """Return the entities in copy order: parents first."""
        ...

    def inventory(self) -> tuple[Inventory, ...]:
        """Return what there is to read of each entity, in copy order; writes nothing.

        Reading needs no migration, no index and no right to write: what is absent reads as empty, and without
        an index of ours it only takes longer, which the warnings say.

        Raises:
            ConfigurationError: something cannot be read, or not in full: a right is missing, a policy hides
                rows, a column has another type. The message says what to grant or change.
        """
        ...

    def counts(self, entity: Entity, *, tenant_id: str | None = None) -> dict[str, int]:
        """Return the number of rows by the label of their owner, soft-deleted ones included."""
        ...

    def estimated_count(self, entity: Entity) -> int:
        """Return about how many rows there are, in a short time also if there are many.

        Default: they are counted.
        """
        return sum(self.counts(entity).values())

    def counted(self, entity: Entity, *, tenant_id: str | None = None) -> Counted:
        """Return :meth:`counts`, and where it costs little more how large rows are. Default: no size."""
        return Counted(self.counts(entity, tenant_id=tenant_id))

    def now(self) -> datetime:
        """Return the instant, in UTC and whole milliseconds, that retention is judged by: the server's."""
        ...

    def position(self) -> Position | None:
        """Return the present position, ``None`` where the store has none."""
        ...

    def digestible(self, entity: Entity) -> Digestible | NoDigests:
        """Return how :meth:`BulkView.digests` judges rows of an entity, or why there are no digests of it.

        Default: there are none.
        """
        del entity
        return NO_DIGESTS

    def cut(
        self, entity: Entity, rows: int, *, tenant_id: str | None = None, within: KeyRange = EVERY_KEY
    ) -> Iterator[KeyRange]:
        """Return ranges of about ``rows`` rows each that together cover a range of keys, lazily, in order."""
        ...

    def sample_keys(self, entity: Entity, count: int) -> Sequence[Key]:
        """Return up to ``count`` keys of rows in order, at about even distances, found without reading all.

        None if that, or to cut only the rows between two of them, would read all rows. Default: none.
        """
        del entity, count
        return ()

    def placement(self, entity: Entity) -> Sequence[Placed]:
        """Return the keys from which on another server of a store has the rows, in order, and that server.

        The first one is ``None``. None at all if one server has all rows, or the store does not say. Default:
        none.
        """
        del entity
        return ()

    def view(self, *, as_of: Position | None = None) -> AbstractContextManager[BulkView]:
        """Open a view.

        With ``as_of`` everything that is read through it is the state at that position. Without it a view is
        one state, that of its first read at the latest, where the store can hold one for as long as the view
        is open (PostgreSQL, memory); elsewhere each read sees what is committed when it starts.

        Raises:
            UnsupportedCapabilityError: ``as_of`` on a store without point-in-time reads.
        """
        ...

    def writer(
        self, entity: Entity, *, on_conflict: OnConflict = "fail", check: CommitCheck | None = None
    ) -> AbstractContextManager[RangeWriter]:
        """Open a writer for one range; what it has not committed is rolled back at the end.

        Args:
            entity: what is written.
            on_conflict: what happens to rows that exist with other content.
            check: run inside each transaction that has to be committed before the range is complete, because
                the store bounds transactions.
        """
        ...

    def access(self) -> Access:
        """Return the rows of any described entity in this store, call by call, in system scope."""
        ...

    @property
    def ledger_initializer(self) -> Initializer:
        """Creates and upgrades the schema of the ledger of copies; only a target has one."""
        ...


class BulkView(Protocol):
    """Reads of whole entities, one stream at a time: the next may begin when the last has ended."""

    @property
    def position(self) -> Position | None:
        """The position whose state this view shows, ``None`` where it was not asked for one."""
        ...

    def records(
        self, entity: Entity, within: KeyRange, *, tenant_id: str | None = None, batch_size: int = 1000
    ) -> Iterator[list[Record]]:
        """Return the rows of a range in key order, in batches, for a copy.

        Each row is either decoded, or carries ``error`` and ``original``. Memory is bounded by one batch.
        """
        ...

    def packed(
        self, entity: Entity, within: KeyRange, *, tenant_id: str | None = None, batch_size: int = 1000
    ) -> Iterator[Sequence[Record]]:
        """Return the same rows as :meth:`records`, in batches that native code may have read.

        Such a batch is a :class:`~twinstore.fast.records.PackedBatch`, which is a sequence of the same
        records. Default: the records, of which few should wait.

        Args:
            entity: what is read.
            within: the range.
            tenant_id: reads the rows of one tenant alone.
            batch_size: how many rows a batch has at most.
        """
        return self.records(entity, within, tenant_id=tenant_id, batch_size=min(batch_size, 1000))

    def records_of(self, entity: Entity, keys: Sequence[Key]) -> Iterator[Record]:
        """Return single rows for a copy, in no particular order; absent keys are skipped."""
        ...

    def rows(
        self, entity: Entity, within: KeyRange, *, tenant_id: str | None = None, batch_size: int = 1000
    ) -> Iterator[list[ScanRow]]:
        """Return the rows of a range in key order, in batches, for a comparison.

        Shares neither paging nor decoding code with :meth:`records`, so that a fault there cannot hide here.
        """
        ...

    def rows_of(self, entity: Entity, keys: Sequence[Key]) -> Iterator[ScanRow]:
        """Return single rows for a comparison, in no particular order; absent keys are skipped."""
        ...

    def digests(
        self,
        entity: Entity,
        bounds: Sequence[Key],
        *,
        secret: bytes,
        within: KeyRange | None = None,
        folded: bool = False,
        tenant_id: str | None = None,
        cutoff: datetime | None = None,
        part: int = 0,
        parts: int = 1,
        of_source: bool = False,
        ignored: AbstractSet[str] = frozenset(),
        accepts: Callable[[bytes], bool] | None = None,
        on_progress: Callable[[int], None] | None = None,
    ) -> RangeDigests | NoDigests:
        """Return digests of ranges of rows, read in any order, or why only :meth:`rows` shows the rows.

        Args:
            entity: what is read.
            bounds: keys in strictly rising order; range ``i`` holds the keys from the bound before ``i``
                (included) to bound ``i`` (excluded), and the last one those from the last bound on.
            secret: 16 random bytes, the key of the digests, drawn for each comparison of two stores. With it,
                rows can be chosen that agree: do not log, store or send it.
            within: reads the rows of this range alone, as :meth:`rows` does; all bounds lie in it.
            folded: returns the rows of a range in one cell, and those of an owner in another one.
            tenant_id: reads the rows of one tenant alone.
            cutoff: rows whose instant of retention is not after it count as expired.
            part: which of the parts, from zero; a store that cannot divide its rows has all in the first.
            parts: how many there are.
            of_source: what no copy reads, such as how often a row was changed, need not be of this driver.
            ignored: unknown properties at the top of a document that are excluded from its content; the cells
                count the rows that have one. A store may show such rows as any other.
            accepts: returns whether the models accept the ``content`` of a row and give it back as it is;
                called where nothing else shows it.
            on_progress: called with the number of rows read since the last call; its error ends the read.
        """
        del entity, bounds, secret, within, folded, tenant_id, cutoff, part, parts, of_source, ignored
        del accepts, on_progress
        return NO_DIGESTS


class RangeWriter(Protocol):
    """Writes one range; nothing of it is visible before :meth:`commit`, where a store can hold it back.

    A row that exists with equal content is unchanged. One with other content is a conflict: left, or with
    ``overwrite`` replaced unless the entity is append-only. A record that the store refuses is rejected with
    its reason, and the others are written.
    """

    def write(self, records: Sequence[Record]) -> None:
        """Take records in key order.

        Raises:
            ConcurrencyError: the transaction lost against another one; the range may be repeated as a whole.
        """
        ...

    def take_rejected(self) -> Sequence[Rejected]:
        """Return the records that the store has refused since the last call, and forget them.

        None where a driver keeps them all for the outcome, which then takes memory for as long as the range
        lasts.
        """
        return ()

    def conflicts(self) -> Sequence[Conflict]:
        """Return the conflicts that are known before :meth:`flush`, which may find more. Default: none."""
        return ()

    def remove(self, keys: Sequence[Key]) -> None:
        """Take keys whose rows are to be removed; absent ones count for nothing."""
        ...

    def flush(self) -> ImportOutcome:
        """Write whatever still waits, inside the transaction; return what became of everything so far."""
        ...

    @property
    def access(self) -> Access:
        """The rows of any described entity inside the transaction of this range, from :meth:`flush` on.

        The ledger of a copy is written through it: rows and what it says of them become visible together.
        """
        ...

    def commit(self) -> None:
        """Commit the range and what was changed through ``access``.

        Raises:
            ConcurrencyError: the transaction lost against another one; the range may be repeated as a whole.
            UnavailableError: the connection was lost; the outcome says what is known.
        """
        ...
