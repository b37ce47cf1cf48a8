"""Reading a range of the source: counts all rows, withholds those that must not be written."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Sequence
from functools import partial
from itertools import chain, pairwise, zip_longest
from typing import TYPE_CHECKING, Final

from twinstore.bulk.normal_form import marker_not_normal
from twinstore.bulk.port import EVERY_KEY, MANY_ROWS, Record
from twinstore.bulk.release import copy_counts, copyable_rows
from twinstore.bulk.unique_moves import UNIQUE_VALUE_TAKEN
from twinstore.catalog.keys import KeyRange
from twinstore.catalog.tenancy import NO_TENANT, Tenant
from twinstore.errors import TwinstoreError, ValidationError
from twinstore.fast.library import library
from twinstore.fast.program import NoProgram, program_of
from twinstore.fast.records import PackedBatch
from twinstore.ledger import RangeTally
from twinstore_backfill.causes import KEY_MISMATCH, REPEATED, no_key, not_normal
from twinstore_backfill.copy.held_alike import as_verified, kinds_alike
from twinstore_backfill.copy.quarantine import conflict_entry, original_of, quarantine_entry
from twinstore_backfill.copy.rules import copier_changes
from twinstore_backfill.copy.rules.selection import check_selection, decides_tenant
from twinstore_backfill.copy.rules.tallies import RuleTally
from twinstore_backfill.retention import is_meant
from twinstore_backfill.rules.model import NO_RULES, DropRule, IdRule, KeyRule
from twinstore_backfill.subset import EVERYTHING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from collections.abc import Set as AbstractSet

    from twinstore.bulk.port import BulkPort, BulkView, Conflict, ImportOutcome, Placed, Rejected
    from twinstore.catalog.entity import Entity
    from twinstore.catalog.keys import Key
    from twinstore.fast.records import BatchCounts
    from twinstore_backfill.copy.options import CopyOptions
    from twinstore_backfill.copy.quarantine import LineSink
    from twinstore_backfill.retention import ExpiryTest
    from twinstore_backfill.rules.model import JobRules
    from twinstore_backfill.subset import Subset

# Of a job: the ledger and a comparison take memory and time for each.
MOST_RANGES: Final = 1_000_000
# How long a range takes where workers cut, and how many rows it has then at most: an interruption throws
# them away.
RANGE_SECONDS: Final = 15.0
ROWS_OF_WORKERS: Final = 100_000
# So many times as many coarse ranges where several servers have the rows. The parts of one follow each other,
# so that all workers together would read one server: a coarse range has about as many rows as a range.
IN_TURN: Final = 10


class SourceRows:
    """The rows of a store that a copy is about, after its rules: those of the wanted tenants, or a part.

    Raises:
        UnsupportedCapabilityError: the driver applies no rules.
        ValidationError: the rules decide whose rows are read otherwise than by what is stored in them.
    """

    def __init__(self, port: BulkPort, options: CopyOptions) -> None:
        self.rules = options.rules.of_source
        # Of the whole job, also if its rules apply to what is written.
        self.under = options.rules.under
        changes = copier_changes(self.rules, port.entities())
        self.port = port.with_changes(changes)
        self.subset = options.subset
        if self.subset.by_key and any(changes.ids.get(name) == "uuid" for name in options.entities):
            raise ValidationError(
                "--key-from and --key-to cannot select rows whose keys [[id]] makes of ObjectIds, because "
                "they are read in ranges of ObjectIds; leave them out."
            )
        self.tenants = tuple(sorted(set(options.tenants)))
        self._batch_size = options.rows_per_batch
        self._packed_size = options.rows_per_packed_batch
        self._range_size = options.range_size
        self._counted: dict[str, int] = {}
        if self.tenants:
            check_selection(self.rules, port.entities())

    def records(self, view: BulkView, entity: Entity, within: KeyRange) -> Iterator[list[Record]]:
        """Return the records of a range in batches; with several tenants, one tenant after the other."""
        batches = chain.from_iterable(
            view.records(entity, within, tenant_id=tenant, batch_size=self._batch_size)
            for tenant in self._read_tenants(entity)
        )
        # A generator would remember a batch while it reads the next.
        return map(partial(self._selected, entity), batches)

    def packed(self, view: BulkView, entity: Entity, within: KeyRange) -> Iterator[Sequence[Record]]:
        """Return the same records in batches that native code may have read."""
        if self._needs_records(entity):
            return self.records(view, entity, within)
        return chain.from_iterable(
            view.packed(entity, within, tenant_id=tenant, batch_size=self._packed_size)
            for tenant in self._read_tenants(entity)
        )

    def _needs_records(self, entity: Entity) -> str:
        """Return why rows need checks beyond the content of a packed batch, or none would be packed."""
        program = program_of(entity)
        if library() is None:
            return "there is no fast path"
        if isinstance(program, NoProgram):
            return program.reason
        if program.exact_retention or entity.local_keys:
            return "its description decides about each row"
        if self._selects_later(entity):
            return "rules decide whose rows they are"
        return "rows are selected by their date" if self.subset.by_time and entity.dated is not None else ""

    def why_exact(self, entities: Iterable[Entity]) -> str:
        """Return why rows are read one by one."""
        whole = [f"of {item.name} all: {why}" for item in entities if (why := self._needs_records(item))]
        each = "rows that are not stored as the models write them are read one by one"
        return "; ".join((each, *whole))

    def _selects_later(self, entity: Entity) -> bool:
        """Whether only the rules say whose rows there are, so that all are read."""
        return bool(self.tenants) and decides_tenant(self.rules, entity)

    def _read_tenants(self, entity: Entity) -> Sequence[str | None]:
        return (None,) if self._selects_later(entity) else self.tenants or (None,)

    def _selected(self, entity: Entity, batch: Sequence[Record]) -> list[Record]:
        rows = copyable_rows(entity, batch)
        return [row for row in rows if row.label in self.tenants] if self._selects_later(entity) else rows

    def kinds_alike(
        self,
        view: BulkView,
        target: BulkPort,
        entity: Entity,
        conflicts: Sequence[Conflict],
        known: Mapping[Key, AbstractSet[str]] | None = None,
    ) -> Mapping[Key, AbstractSet[str]]:
        """Return what is known of conflicts, and :func:`kinds_alike` of the others."""
        known = known or {}
        keys = [item.key for item in conflicts if not item.overwritten and item.key not in known]
        if not keys:
            return known
        with as_verified(self.port, view, self.rules) as here, target.view() as there:
            return {**known, **kinds_alike(here, there, entity, keys, self.rules.of(entity, DropRule))}

    def cut(self, entity: Entity, rows: int, within: KeyRange = EVERY_KEY) -> Iterator[KeyRange]:
        """Cut an entity, or a range of it. For one tenant its own rows count, for several those of all."""
        # With several tenants the same ranges are read once for each, so they are cut over all rows.
        tenants = self._read_tenants(entity)
        tenant = tenants[0] if len(tenants) == 1 else None
        return self.subset.ranges(entity, self.port.cut(entity, rows, tenant_id=tenant, within=within))

    def coarse(self, entity: Entity, count: int) -> list[KeyRange]:
        """Return about so many ranges that together cover a large entity; none if it must be cut at once."""
        keys = (
            ()
            if self.makes_keys(entity) or not self.is_large(entity)
            else self.port.sample_keys(entity, count)
        )
        return [KeyRange(*ends) for ends in pairwise((None, *keys, None))] if keys else []

    def in_turn(self, entity: Entity, count: int) -> list[KeyRange]:
        """Return coarse ranges in the order in which they are copied: those of different servers in turn.

        Where several servers have the rows, no range has rows of two of them, and there are more ranges.
        """
        # Before the rows are sampled, and only of an entity of which they are.
        placement = self.port.placement(entity) if count and self.is_large(entity) else ()
        ranges = self.coarse(entity, count * IN_TURN if placement else count)
        return ranges_in_turn(ranges, placement) if ranges and placement else ranges

    def range_size(self, entity: Entity, speed: float = 0.0) -> int:
        """Return how many rows a range has if so many are copied in a second, as far as that is known."""
        least = max(self._range_size, -(-self._count(entity) // MOST_RANGES))
        return max(least, min(round(speed * RANGE_SECONDS), ROWS_OF_WORKERS))

    def makes_keys(self, entity: Entity) -> bool:
        """Whether rules make the keys; then these are not read alone."""
        return any(isinstance(rule, KeyRule | IdRule) for rule in self.rules.changing(entity))

    def is_large(self, entity: Entity) -> bool:
        """Whether all rows are meant and are so many that their number is only estimated."""
        return self._is_whole(entity) and not self.subset and self._count(entity) > MANY_ROWS

    def _is_whole(self, entity: Entity) -> bool:
        return None in self._read_tenants(entity) and not entity.local_keys

    def _count(self, entity: Entity) -> int:
        """Return about how many rows of all keys there are to read; asked once."""
        if entity.name not in self._counted:
            estimate = self._is_whole(entity)
            self._counted[entity.name] = (
                self.port.estimated_count(entity) if estimate else sum(self.counts(entity).values())
            )
        return self._counted[entity.name]

    def counts(self, entity: Entity) -> dict[str, int]:
        """Return the number of rows to read, by the label of their stored owner, as if all were meant."""
        counts = copy_counts(self.port, entity)
        known = None in self._read_tenants(entity)
        return {label: counts[label] for label in sorted(counts) if known or label in self.tenants}

    def count(self, entity: Entity, most: int | None = None) -> int:
        """Return the approximate number of rows to read: with bounds between keys at most ``most``."""
        found = self._count(entity)
        return min(found, most) if most is not None and self.subset.by_key else found

    def counted(self, entity: Entity, rows: int) -> dict[str, int]:
        """Return the number of rows that are meant, by the label of their owner; a part of them is read."""
        if not self.subset and not self._selects_later(entity):
            return self.counts(entity)
        found = Counter[str]()
        with self.port.view() as view:
            for within in self.cut(entity, rows):
                for batch in self.records(view, entity, within):
                    found.update(record.label for record in batch if is_meant(entity, self.subset, record))
                    del batch
        return dict(sorted(found.items()))


def ranges_in_turn(ranges: Sequence[KeyRange], placement: Sequence[Placed]) -> list[KeyRange]:
    """Return ranges that cover all keys, cut also where another server begins, one of each server in turn."""
    starts = [key for key, _ in placement[1:] if key is not None]
    bounds = sorted({*starts, *(item.lower for item in ranges if item.lower is not None)})
    of_servers: dict[str, list[KeyRange]] = {}
    for ends in pairwise((None, *bounds, None)):
        place = 0 if ends[0] is None else bisect_right(starts, ends[0])
        of_servers.setdefault(placement[place][1], []).append(KeyRange(*ends))
    turns = zip_longest(*of_servers.values())
    return [within for turn in turns for within in turn if within is not None]


class RangeReader:
    """Judges the records of one range and accounts for each of them."""

    def __init__(
        self,
        entity: Entity,
        *,
        expired: ExpiryTest | None,
        lines: LineSink,
        subset: Subset = EVERYTHING,
        rules: JobRules = NO_RULES,
    ) -> None:
        """Take the entity, its retention, where the lines about single records go, and which are meant.

        ``rules`` are those by which the records were changed, for their counts.
        """
        self.entity = entity
        self._subset = subset
        self.read: Counter[str] = Counter()
        # How many of these were packed.
        self.packed = 0
        # How many rows the target refused because another one has a unique value of theirs.
        self.waiting = 0
        self._expired_rows: Counter[str] = Counter()
        self._quarantined: Counter[str] = Counter()
        self._text_timestamp: Counter[str] = Counter()
        self._torn_tail: Counter[str] = Counter()
        self._ignored: Counter[str] = Counter()
        self._rules = RuleTally(rules, entity)
        self._expired = expired
        self._lines = lines
        self._identity = tuple(entity.identity.items())
        self._has_markers = bool(entity.storage)
        self._derives_key = any(item.name in entity.key for item in entity.derived)
        self._last: Key | None = None

    def wanted(self, batch: Sequence[Record]) -> Sequence[Record]:
        """Count the records and return those to write."""
        examined = self._examined(batch) if isinstance(batch, PackedBatch) else None
        if not isinstance(batch, PackedBatch) or examined is None:
            return [record for record in batch if self._wanted(record)]
        self.packed += batch.packed
        self.read += examined.read
        self._expired_rows += examined.expired
        unwanted: list[int] = []
        for position, record in batch.exact:
            self._follow(batch, position - 1)
            if not self._wanted(record):
                unwanted.append(position)
        self._follow(batch, len(batch) - 1)
        wanted = batch.without(examined.due, unwanted)
        changed = wanted.rules()
        for rules in changed.values():
            self._rules.add(rules)
        dropped = {number for number, rules in changed.items() if self._rules.drops(rules)}
        ignored = wanted.ignored(examined.read - examined.expired, dropped)
        self._ignored += ignored
        self._rules.add_dropped(ignored.total())
        return wanted

    def _examined(self, batch: PackedBatch) -> BatchCounts | None:
        """Return the totals of the packed rows of a batch, ``None`` if each row must be checked."""
        if self._derives_key or self._subset.by_time:
            return None
        limit = None if self._expired is None else self._expired.limit
        if limit is not None and batch.program.expires is None:
            return None
        # Behind the packed rows, which rise, another row with the key of one of them is read the exact way.
        behind = [(position, record.key) for position, record in batch.exact]
        for position, key in ((-1, self._last), *behind):
            following = position + 1
            if key is not None and following < len(batch) and batch.key(following) == key:
                return None
        return batch.examined(limit)

    def _follow(self, batch: PackedBatch, position: int) -> None:
        """Remember the key of a packed row for the row behind it."""
        if position >= 0 and batch.is_packed(position):
            self._last = batch.key(position)

    def reject(self, rejected: Iterable[Rejected]) -> None:
        """Keep records back that the target refused."""
        for item in rejected:
            self.waiting += item.reason.startswith(UNIQUE_VALUE_TAKEN)
            self._quarantine(item.record, item.reason)

    def tally(self, outcome: ImportOutcome, equivalences: Mapping[str, int] | None = None) -> RangeTally:
        """Return what the range amounted to, and note what the target refused or has already.

        Raises:
            TwinstoreError: the driver did not account for every record it was given.
        """
        self.reject(outcome.rejected)
        for conflict in outcome.conflicts:
            self._lines.conflict(conflict_entry(self.entity, conflict))
        conflicts = Counter(item.label for item in outcome.conflicts if not item.overwritten)
        tally = RangeTally(
            read=dict(self.read),
            written=_without_zeros(outcome.written),
            unchanged=_without_zeros(outcome.unchanged),
            conflicts=dict(conflicts),
            quarantined=dict(self._quarantined),
            expired=dict(self._expired_rows),
            text_timestamp=dict(self._text_timestamp),
            torn_tail=dict(self._torn_tail),
            ignored=_without_zeros(self._ignored),
            rules=self._rules.counts(),
            equivalences=dict(equivalences or {}),
        )
        # Before the commit: a driver that loses a record must not have its range called live.
        self._check_complete(tally)
        return tally

    def _wanted(self, record: Record) -> bool:
        label = record.label
        if record.torn_tail:
            # Its writer never got a confirmation.
            self._torn_tail[label] += 1
            return False
        # Asked for every record, also an unfit one: it remembers the key for the next.
        repeated = self._repeated(record)
        if not is_meant(self.entity, self._subset, record):
            return False
        self.read[label] += 1
        if record.text_timestamp:
            self._text_timestamp[label] += 1
        # Before retention: a record that cannot be read has no instant to judge by.
        if reason := self._unfit(record) or repeated:
            self._quarantine(record, reason)
            return False
        if self._expired is not None and self._expired(record):
            self._expired_rows[label] += 1
            return False
        if record.ignored:
            self._rules.add_dropped(1)
        if record.ignored or self._rules.drops(record.rules):
            self._ignored[label] += 1
        if record.rules:
            self._rules.add(record.rules)
        return True

    def _quarantine(self, record: Record, reason: str) -> None:
        self._quarantined[record.label] += 1
        self._lines.quarantine(quarantine_entry(self.entity, record, reason), original_of(record))

    def _repeated(self, record: Record) -> str | None:
        """Return why a record cannot be moved whose key another one had; a unique index would forbid that."""
        if record.key is None:
            return None
        before, self._last = self._last, record.key
        if before != record.key:
            return None
        return REPEATED

    def _unfit(self, record: Record) -> str | None:
        """Return why a record cannot be moved, ``None`` when it can.

        The model trims ids. A stored id with leading or trailing whitespace would become another row's id, or
        its tenant another tenant.
        """
        if record.model is None or record.key is None:
            return record.error or no_key(self.entity)
        stored: dict[str, object] = dict(zip(self.entity.key, record.key, strict=True))
        if self.entity.tenant_field is not None:
            stored[self.entity.tenant_field] = _tenant_of(record)
        for wire, name in self._identity:
            if stored[wire] != getattr(record.model, name):
                return not_normal(wire)
        marker = marker_not_normal(self.entity, record.storage, record.model) if self._has_markers else None
        if marker is not None:
            return not_normal(marker)
        if self._derives_key and self.entity.key_of(record.model, record.storage) != record.key:
            return KEY_MISMATCH
        return None

    def _check_complete(self, tally: RangeTally) -> None:
        """Refuse a tally that does not account for every record of the range."""
        parts = (tally.written, tally.unchanged, tally.conflicts, tally.quarantined, tally.expired)
        accounted = sum((Counter(part) for part in parts), Counter[str]())
        if accounted != Counter(tally.read):
            raise TwinstoreError(
                f"The target driver accounted for {accounted.total()} of {self.read.total()} records "
                f"of a range of {self.entity.name}; nothing of it was committed. This is a bug in the target "
                "driver.",
                entity=self.entity.name,
            )


def _tenant_of(record: Record) -> object:
    """Return the tenant as the model would name it; an unreadable one equals no model's."""
    if isinstance(record.owner, Tenant):
        return record.owner.id
    return None if record.owner is NO_TENANT else record.owner


def _without_zeros(counts: Mapping[str, int]) -> dict[str, int]:
    return {label: count for label, count in counts.items() if count}
