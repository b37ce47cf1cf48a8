"""A broken row of PostgreSQL among good ones is quarantined whole, while the others are copied.

All kinds of them in one copy, each of a separate tenant, and in the full form each alone.
"""

from __future__ import annotations

import json
from collections import Counter
from typing import TYPE_CHECKING, Any, Final

import psycopg
import pytest
from psycopg import sql

from tests.migration_tool.copy.test_between_servers import opened
from tests.migration_tool.copy.test_hostile_stores import quarantine_lines
from tests.migration_tool.copy.test_one_bad_document import settings
from tests.support.copies import DOCUMENTS_PER_TENANT, TENANTS, fill
from tests.support.hostile_rows import drop_rules, stored_lines
from twinstore.errors import DocumentDecodeError
from twinstore.scheduler.catalog import SCHEDULER
from twinstore_backfill.outcome import Exit

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.support.copies import Pair
    from tests.support.databases import PostgresDatabase

__all__ = ["settings"]

# The change that makes a row bad.
BAD: Final[dict[str, tuple[str, str]]] = {
    "JSON nested 260 levels": ("audit", f"metadata = '{'[' * 260}1{']' * 260}'"),
    "JSON nested 3,000 levels": ("audit", f"metadata = '{'[' * 3000}1{']' * 3000}'"),
    "a number that no double holds": ("runs", "stats = '{\"queued\": 1e1000}'"),
    "an instant that is infinite": ("audit", "occurred_at = 'infinity'"),
    "a marker that is infinite": ("schedules", "deleted_at = '-infinity'"),
    "an instant far in the future": ("audit", "occurred_at = '294276-12-31 23:59:59.999+00'"),
    "an instant before our era": ("audit", "occurred_at = '0044-03-15 12:00:00+00 BC'"),
    "a key that is null": ("audit", "id = NULL"),
    "a key of a hundred kilobytes": ("audit", "id = repeat('k', 100000)"),
    "a marker that is null": ("impact_snapshots", "selector_digest = NULL"),
    "a tenant that is null": ("impact_snapshots", "tenant_id = NULL"),
    "a tenant with outer blanks": ("impact_snapshots", "tenant_id = ' acme'"),
    "a snapshot id with outer blanks": ("impact_snapshots", "snapshot_id = 'snap-1 '"),
    "an id in a payload that is a list": ("impact_snapshots", "payload = payload || '{\"snapshotId\": [1]}'"),
    "names of a map that differ in case": ("audit", """metadata = '{"KEY": "2", "key": "1"}'"""),
    "a list with two dimensions": ("schedules", "subscribers = '{{a,b},{c,d}}'"),
    "a list with a null": ("schedules", "subscribers = '{a,NULL}'"),
}


@pytest.fixture
def pair(settings: dict[str, object], tmp_path: Path) -> Iterator[Pair]:
    with opened(settings, "postgres to mongo", tmp_path) as pair:
        fill(pair.source.storage)
        yield pair


def planted(database: PostgresDatabase, kind: str, tenant: str = TENANTS[0]) -> tuple[str, set[bytes]]:
    """Make a tenant's row bad past every rule; return the entity and the text of the rows that are new."""
    name, change = BAD[kind]
    entity = SCHEDULER.entity(name)
    with psycopg.connect(database.superuser_url, autocommit=True) as connection:
        drop_rules(connection, entity)
        before = set(stored_lines(connection, entity))
        statement = sql.SQL(
            "UPDATE scheduler.{} SET {}"
            " WHERE ctid = (SELECT min(ctid) FROM scheduler.{} WHERE tenant_id = {})"
        )
        table = sql.Identifier(name)
        connection.execute(statement.format(table, sql.SQL(change), table, sql.Literal(tenant)))  # pyright: ignore[reportArgumentType]  # a text of this file
        return name, set(stored_lines(connection, entity)) - before


def test_all_of_them_are_quarantined_whole_and_the_others_are_copied_and_proved(
    pair: Pair, postgres_database: PostgresDatabase
) -> None:
    tenants = [f"tenant-{number:02}" for number in range(len(BAD))]
    fill(pair.source.storage, tenants)
    bad = [planted(postgres_database, kind, tenant) for kind, tenant in zip(BAD, tenants, strict=True)]
    kept_back_and_the_others_proved(pair, bad, tenants=len(TENANTS) + len(tenants))


def kept_back_and_the_others_proved(pair: Pair, bad: list[tuple[str, set[bytes]]], tenants: int) -> None:
    """Copy and verify; of each entity the bad rows are quarantined, all others are copied."""
    assert all(len(rows) == 1 for _, rows in bad)
    dry = pair.copy(execute=False, out=None)
    result = pair.copy()
    report = pair.verify()
    assert (dry.exit, result.exit, result.complete) == (Exit.INCONCLUSIVE, Exit.INCONCLUSIVE, True)
    assert dry.totals.all()["quarantined"] == result.totals.all()["quarantined"] == len(bad)
    assert result.totals.all()["written"] == tenants * DOCUMENTS_PER_TENANT - len(bad)
    lines = quarantine_lines(pair.directory / "quarantine.ndjson")
    wanted = Counter((name, row) for name, rows in bad for row in rows)
    assert Counter((line.entity, line.original) for line in lines) == wanted
    assert report.verdict == "INCONCLUSIVE"
    found = {item.entity: item.counts for item in report.entities if item.counts.quarantined}
    assert {entity: counts.quarantined for entity, counts in found.items()} == Counter(
        name for name, _ in bad
    )
    assert all(counts.missing == counts.different == counts.extra == 0 for counts in found.values())


def test_the_line_names_the_columns_and_shows_what_can_be_read(
    pair: Pair, postgres_database: PostgresDatabase
) -> None:
    planted(postgres_database, "names of a map that differ in case")
    pair.copy()
    (line,) = map(json.loads, (pair.directory / "quarantine.ndjson").read_text().splitlines())
    raw: dict[str, Any] = json.loads(line["raw"])
    assert raw["document"]["metadata"] == {"KEY": "2", "key": "1"}
    assert list(raw["document"]) == raw["columns"]
    assert "metadata" in line["reason"]


@pytest.mark.parametrize("kind", ["a marker that is infinite"])
def test_the_service_answers_with_our_error_for_such_a_row(
    kind: str, pair: Pair, postgres_database: PostgresDatabase
) -> None:
    planted(postgres_database, kind)
    with pytest.raises(DocumentDecodeError):
        pair.source.storage.schedules.get_deletion("acme", "acme-schedule-0")
