"""Reading ranges of rows for comparison, straight from the stored values.

Nothing here is shared with the export: a COPY in text form, bounds written into the statement, and JSON that
is built from the text of the columns, without the models.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final, LiteralString, cast

import orjson
from psycopg import sql

from twinstore.bulk import Key, KeyRange, ScanRow
from twinstore.jsontext import dumps_sorted
from twinstore.scheduler.catalog import AUDIT, IMPACT_SNAPSHOTS, RUN_SUMMARIES, RUNS, SCHEDULES, TRIGGERS
from twinstore.scheduler.enums import RunState, RunTrigger, ScheduleMode
from twinstore_postgres.connecting import in_one_process

if TYPE_CHECKING:
    from twinstore.catalog import Entity
    from twinstore.enums import NumberedEnum
    from twinstore_postgres.bulk.connections import BulkConnections, Reading

__all__ = ["SCANS", "Scan"]

Convert = Callable[[str], object]


FETCH_KEYS: Final = 500
# A batch ends at this size too, so that large documents do not pile up.
BATCH_BYTES: Final = 8_000_000
INSTANT_LENGTHS: Final = frozenset({len("2025-10-26 14:05:00+00"), len("2025-10-26 14:05:00.123+00")})
SEPARATOR: Final = 10
LIMIT: Final = 2**63
NULL_MEMBER: Final = '": null'
ZERO_FRACTION: Final = ".0"
WHOLE_FLOAT: Final = re.compile(r"\.0\d*(?:[],}]|$)")


@dataclass(frozen=True, slots=True)
class Part:
    """One selected expression: the name it gets, and how its text becomes a JSON value (``None``: text)."""

    expression: LiteralString
    name: str
    convert: Convert | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Scan:
    """What one entity looks like in its table.

    Attributes:
        key: positions of the key among the parts.
        tenant: position of the tenant.
        parts: wire names, then storage markers.
        markers: how many of the parts, from the end, are storage markers.
        expires: position of the instant by which retention judges.
        payload: position of the part that is the whole wire form.
        optional_lists: lists that are left out when empty.
    """

    entity: Entity
    parts: tuple[Part, ...]
    key: tuple[int, ...] = (0,)
    tenant: int = 1
    markers: int = 0
    expires: int | None = None
    payload: int | None = None
    optional_lists: tuple[str, ...] = ()
    names: tuple[str, ...] = field(init=False)
    marker_names: tuple[str, ...] = field(init=False)
    converters: tuple[Convert | None, ...] = field(init=False)

    def __post_init__(self) -> None:
        """Take the columns of the parts, which every row needs."""
        names = tuple(part.name for part in self.parts)
        object.__setattr__(self, "names", names)
        object.__setattr__(self, "marker_names", names[len(names) - self.markers :])
        object.__setattr__(self, "converters", tuple(part.convert for part in self.parts))

    def batches(
        self, connections: BulkConnections, within: KeyRange, tenant_id: str | None, batch_size: int
    ) -> Iterator[list[ScanRow]]:
        """Yield the rows of a range in key order."""
        with connections.reading("bulk scan", self.entity, self._key_names) as reading:
            if reading is None:
                return
            where = self._within(within, tenant_id, nullable=reading.nullable)
            statement = sql.SQL("{} WHERE {} ORDER BY {}").format(self._select, where, self._key_list)
            batch: list[ScanRow] = []
            size = 0
            for row in self._rows(reading, statement):
                batch.append(row)
                size += len(row.content)
                if len(batch) == batch_size or size > BATCH_BYTES:
                    yield batch
                    batch, size = [], 0
            if batch:
                yield batch

    def fetch(self, connections: BulkConnections, keys: Sequence[Key]) -> Iterator[ScanRow]:
        """Yield single rows."""
        for start in range(0, len(keys), FETCH_KEYS):
            wanted = sql.SQL(", ").join(map(row_literal, keys[start : start + FETCH_KEYS]))
            statement = sql.SQL("{} WHERE ({}) IN ({})").format(self._select, self._key_list, wanted)
            with connections.reading("bulk scan", self.entity, self._key_names) as reading:
                if reading is not None:
                    yield from self._rows(reading, statement)

    def row(self, values: Sequence[str | None]) -> ScanRow:
        """Return the row of the texts of the columns."""
        shown = {
            name: value if convert is None else convert(value)
            for name, convert, value in zip(self.names, self.converters, values, strict=True)
            if value is not None
        }
        document, storage = self._split(shown)
        key = tuple(values[position] for position in self.key)
        expires = None if self.expires is None else values[self.expires]
        return ScanRow(
            None if None in key else cast("Key", key),
            values[self.tenant],
            dumps_sorted({"doc": document, "storage": storage}),
            None if expires is None else instant_of(expires),
        )

    def _split(self, shown: dict[str, Any]) -> tuple[object, Mapping[str, object]]:
        storage = {name: shown.pop(name) for name in self.marker_names if name in shown}
        if self.payload is not None:
            return shown[self.names[self.payload]], storage
        for name in self.optional_lists:
            if shown.get(name) == []:
                del shown[name]
        return shown, storage

    def _rows(self, reading: Reading, statement: sql.Composable) -> Iterator[ScanRow]:
        copy_out = sql.SQL("COPY ({}) TO STDOUT").format(statement)
        with (
            reading.connection.cursor().copy(copy_out) as copy,
            in_one_process(reading.connection),
        ):
            yield from map(self.row, copy.rows())

    @property
    def _select(self) -> sql.Composable:
        expressions = sql.SQL(", ").join(sql.SQL(part.expression) for part in self.parts)
        return sql.SQL("SELECT {} FROM {}").format(
            expressions, sql.Identifier(self.entity.module, self.entity.name)
        )

    @property
    def _key_list(self) -> sql.Composable:
        """The key, compared by code point also where a column has another collation."""
        names = [sql.SQL(self.parts[position].expression) for position in self.key]
        return sql.SQL(", ").join(name + sql.SQL(' COLLATE "C"') for name in names)

    @property
    def _key_names(self) -> list[str]:
        return [self.parts[position].expression for position in self.key]

    def _within(self, within: KeyRange, tenant_id: str | None, *, nullable: bool) -> sql.Composable:
        inside = sql.SQL(" AND ").join(self._bounds(within))
        if nullable and within != KeyRange():
            # Rows without a key belong to the open upper end.
            whole = sql.SQL("num_nulls({}) = 0 AND {}").format(self._key_list, inside)
            inside = (
                whole
                if within.upper is not None
                else sql.SQL("(num_nulls({}) > 0 OR {})").format(self._key_list, whole)
            )
        if tenant_id is None:
            return inside
        return sql.SQL('{} AND tenant_id COLLATE "C" = {}').format(inside, sql.Literal(tenant_id))

    def _bounds(self, within: KeyRange) -> list[sql.Composable]:
        clauses: list[sql.Composable] = [sql.SQL("true")]
        if within.lower is not None:
            clauses.append(sql.SQL("({}) >= {}").format(self._key_list, row_literal(within.lower)))
        if within.upper is not None:
            clauses.append(sql.SQL("({}) < {}").format(self._key_list, row_literal(within.upper)))
        return clauses


def row_literal(key: Key) -> sql.Composable:
    """Return a key as a row of literals."""
    return sql.SQL("({})").format(sql.SQL(", ").join(map(sql.Literal, key)))


def instant_text(text: str) -> str:
    """Return the canonical text of an instant as the server writes it; one outside the calendar stays."""
    if len(text) in INSTANT_LENGTHS and text[SEPARATOR] == " ":
        return f"{text.replace(' ', 'T')}:00"
    # The server leaves out the zeros at the end of a fraction.
    if text[19:20] == "." and text.endswith("+00"):
        return f"{text[:SEPARATOR]}T{text[11:20]}{text[20:-3]:0<3}+00:00"
    return text


def instant_of(text: str) -> datetime | None:
    """Return an instant as the server writes it, ``None`` outside the calendar."""
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        return None


def json_value(text: str) -> object:
    """Return a JSONB value; nulls inside objects are left out, whole floats are integers."""
    try:
        value: object = orjson.loads(text)
    except orjson.JSONDecodeError:
        return text
    # Both are rare, and both show in the text: the server writes no exponents, and a blank after each colon.
    # Text inside a string that looks the same costs time only.
    if NULL_MEMBER in text or (ZERO_FRACTION in text and WHOLE_FLOAT.search(text)):
        return tidy(value)
    return value


def tidy(value: Any) -> Any:  # noqa: ANN401  # any JSON value
    """Return a JSON value without nulls in objects and with whole floats as integers."""
    if isinstance(value, dict):
        return {name: tidy(item) for name, item in value.items() if item is not None}
    if isinstance(value, list):
        return [tidy(item) for item in value]
    # JSON text of a larger integer cannot be written.
    return int(value) if isinstance(value, float) and value.is_integer() and abs(value) < LIMIT else value


def truth(text: str) -> bool:
    """Return a boolean as the server writes it."""
    return text == "t"


def member(enum: type[NumberedEnum]) -> Convert:
    """Return how a number becomes the text of an enumeration; an unknown number stays."""
    texts = {str(item.number): item.value for item in enum}
    return lambda text: texts.get(text) or int(text)


SCANS: Final[dict[str, Scan]] = {
    scan.entity.name: scan
    for scan in (
        Scan(
            entity=SCHEDULES,
            parts=(
                Part("id", "id"),
                Part("tenant_id", "tenantId"),
                Part("schema_version", "schemaVersion"),
                Part("name", "name"),
                Part("enabled", "enabled", truth),
                Part("when_cron", "whenCron"),
                Part("timezone", "timezone"),
                Part("mode", "mode", member(ScheduleMode)),
                Part("selection", "selection", json_value),
                Part("only_if", "onlyIf", json_value),
                Part("notify", "notify", json_value),
                Part("limits", "limits", json_value),
                Part("to_jsonb(subscribers)", "subscribers", json_value),
                Part("created_at", "createdAt", instant_text),
                Part("created_by", "createdBy"),
                Part("updated_at", "updatedAt", instant_text),
                Part("updated_by", "updatedBy"),
                Part("deleted_at", "deletedAt", instant_text),
                Part("deleted_by", "deletedBy"),
            ),
            markers=2,
        ),
        Scan(
            entity=TRIGGERS,
            parts=(
                Part("id", "id"),
                Part("tenant_id", "tenantId"),
                Part("schedule_id", "scheduleId"),
                Part("when_cron", "whenCron"),
                Part("timezone", "timezone"),
                Part("enabled", "enabled", truth),
                Part("next_fire_at", "nextFireAt", instant_text),
                Part("last_fire_at", "lastFireAt", instant_text),
                Part("last_run_id", "lastRunId"),
                Part("fire_count", "fireCount", int),
                Part("misfire_count", "misfireCount", int),
                Part("created_at", "createdAt", instant_text),
                Part("updated_at", "updatedAt", instant_text),
            ),
        ),
        Scan(
            entity=RUNS,
            parts=(
                Part("id", "id"),
                Part("tenant_id", "tenantId"),
                Part("finished_at", "finishedAt", instant_text),
                Part("schema_version", "schemaVersion"),
                Part("schedule_id", "scheduleId"),
                Part("trigger", "trigger", member(RunTrigger)),
                Part("state", "state", member(RunState)),
                Part("stats", "stats", json_value),
                Part("reason", "reason", json_value),
                Part("created_at", "createdAt", instant_text),
                Part("started_at", "startedAt", instant_text),
                Part("error", "error"),
                Part("deltas", "deltas", json_value),
                Part("retry_of", "retryOf"),
            ),
            expires=2,
            optional_lists=("deltas",),
        ),
        Scan(
            entity=IMPACT_SNAPSHOTS,
            parts=(
                Part("generated_at", "generated_at"),
                Part("payload", "payload", json_value),
                Part("snapshot_id", "snapshotId"),
                Part("tenant_id", "tenantId"),
                Part("run_id", "runId"),
                Part("selector_digest", "selectorDigest"),
            ),
            key=(2,),
            tenant=3,
            markers=4,
            expires=0,
            payload=1,
        ),
        Scan(
            entity=AUDIT,
            parts=(
                Part("id", "id"),
                Part("tenant_id", "tenantId"),
                Part("category", "category"),
                Part("action", "action"),
                Part("occurred_at", "occurredAt", instant_text),
                Part("actor", "actor", json_value),
                Part("entity_id", "entityId"),
                Part("schedule_id", "scheduleId"),
                Part("run_id", "runId"),
                Part("correlation_id", "correlationId"),
                Part("metadata", "metadata", json_value),
                Part("message", "message"),
            ),
        ),
        Scan(
            entity=RUN_SUMMARIES,
            parts=(
                Part("tenant_id", "tenantId"),
                Part("schedule_id", "scheduleId"),
                Part("updated_at", "updatedAt", instant_text),
                Part("last_run", "lastRun", json_value),
                Part("recent", "recent", json_value),
                Part("counters", "counters", json_value),
            ),
            key=(0, 1),
            tenant=0,
        ),
    )
}
