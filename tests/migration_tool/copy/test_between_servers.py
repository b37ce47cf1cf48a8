"""Copy and verification between a real MongoDB and a real PostgreSQL, in both directions.

``test_pairs`` copies again and brings the rows back; what commands say is in ``sources/test_mongo``
and ``sources/test_postgres``.
"""

from __future__ import annotations

from contextlib import contextmanager
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING

import pytest

from tests.support.copies import DOCUMENTS_PER_TENANT, Pair, contents_of, fill, open_store, server_settings
from twinstore.config import load_settings
from twinstore_backfill.outcome import Exit

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.support.databases import MongoDatabase, PostgresDatabase
    from twinstore.bulk.port import BulkPort

DIRECTIONS = ["mongo to postgres", "postgres to mongo"]
long_at = partial(pytest.param, marks=pytest.mark.long)


@pytest.fixture
def databases(
    mongo_database: MongoDatabase, postgres_database: PostgresDatabase
) -> dict[str, MongoDatabase | PostgresDatabase]:
    return {"mongo": mongo_database, "postgres": postgres_database}


@pytest.fixture
def settings(databases: dict[str, MongoDatabase | PostgresDatabase]) -> dict[str, object]:
    """Return one settings document that names both servers."""
    return server_settings(databases["postgres"], databases["mongo"])


@contextmanager
def opened(settings: dict[str, object], direction: str, directory: Path) -> Iterator[Pair]:
    source, target = direction.split(" to ")
    loaded = load_settings(settings, environ={})
    with open_store("scheduler", source, loaded) as left, open_store("scheduler", target, loaded) as right:
        left.storage.initializer.ensure_migrations()
        yield Pair(left, right, directory)


@pytest.fixture(params=DIRECTIONS)
def pair(request: pytest.FixtureRequest, settings: dict[str, object], tmp_path: Path) -> Iterator[Pair]:
    with opened(settings, request.param, tmp_path) as pair:
        fill(pair.source.storage)
        yield pair


def all_content(port: BulkPort) -> dict[str, list[bytes]]:
    return {entity.name: contents_of(port, entity) for entity in port.entities()}


@pytest.mark.usefixtures("native_first")
def test_what_was_copied_is_proved_equal_and_read_alike(pair: Pair) -> None:
    result = pair.copy()
    assert (result.exit, result.complete) == (Exit.OK, True)
    assert all_content(pair.target.bulk) == all_content(pair.source.bulk)
    report = pair.verify()
    assert (report.verdict, report.reasons) == ("PASS", ())
    assert report.documents_equal == 2 * DOCUMENTS_PER_TENANT
    assert report.equivalences == ()


@pytest.mark.usefixtures("exact_first")
def test_retention_of_the_target_decides_what_is_expired(settings: dict[str, object], tmp_path: Path) -> None:
    settings["Scheduler"] = {"Storage": {"ImpactRetentionDays": 1, "RunRetentionDays": 0}}
    with opened(settings, DIRECTIONS[1], tmp_path) as pair:
        fill(pair.source.storage)
        later = datetime(2025, 10, 28, tzinfo=UTC)
        result = pair.copy(as_of=later)
        assert result.totals.of("impact_snapshots")["expired"] == 4
        report = pair.verify(as_of=later)
        assert (report.verdict, report.reasons) == ("PASS", ())
