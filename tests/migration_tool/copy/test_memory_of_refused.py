"""What cannot be moved may be as large as a store admits, and there may be any number of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import psycopg
import pytest
from pymongo import MongoClient

from tests.support.copies import AS_OF, MEGABYTE, open_store, peak, server_settings, write_config
from twinstore.config import load_settings
from twinstore.testing.scheduler.builders import make_audit_record
from twinstore_backfill.outcome import Exit

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.databases import MongoDatabase, PostgresDatabase

pytestmark = pytest.mark.long

DOCUMENTS: Final = 60
# 60 or 360 MB: beyond the ceiling, were all of them kept by a copy or a verification.
DOCUMENT_BYTES: Final = {"bounded": MEGABYTE, "full": 6 * MEGABYTE}
# Hard to compress, so that nothing makes it small on the way.
THOUSAND: Final = "".join(chr(97 + (place * place) % 26) for place in range(1000))


@pytest.fixture
def config(empty_mongo_database: MongoDatabase, postgres_database: PostgresDatabase, tmp_path: Path) -> Path:
    return write_config(tmp_path / "settings.json", server_settings(empty_mongo_database, postgres_database))


@pytest.fixture
def size(*, long_form: bool) -> int:
    return DOCUMENT_BYTES["full" if long_form else "bounded"]


def seed(config: Path, backend: str) -> None:
    with open_store("scheduler", backend, load_settings(config, environ={})) as store:
        store.storage.initializer.ensure_migrations()
        store.storage.audit.append(make_audit_record("acme", "a-0"))


def test_refused_documents_of_mongodb_are_never_all_in_memory(
    config: Path, empty_mongo_database: MongoDatabase, size: int
) -> None:
    seed(config, "mongo")
    with MongoClient[dict[str, Any]](empty_mongo_database.url) as client:
        audit = client[empty_mongo_database.name]["audit"]
        good = audit.find_one() or {}
        for number in range(DOCUMENTS):
            bad = {**good, "_id": f"b-{number:03}", "action": 5, "message": THOUSAND * (size // 1000)}
            audit.insert_one(bad, bypass_document_validation=True)
    assert above_ceiling(config, "Mongo", "Postgres", size) == {}


def test_refused_rows_of_postgresql_are_never_all_in_memory(
    config: Path, postgres_database: PostgresDatabase, size: int
) -> None:
    seed(config, "postgres")
    with psycopg.connect(postgres_database.superuser_url) as connection:
        for number in range(DOCUMENTS):
            connection.execute(
                "INSERT INTO scheduler.audit (id, tenant_id, category, action, occurred_at, actor, message)"
                " SELECT %s, tenant_id, category, '', occurred_at, actor, %s FROM scheduler.audit"
                " WHERE id = 'a-0'",
                [f"b-{number:03}", THOUSAND * (size // 1000)],
            )
    assert above_ceiling(config, "Postgres", "Mongo", size) == {}


def above_ceiling(config: Path, source: str, target: str, size: int) -> dict[str, int]:
    """Copy, dry and for good, and verify; return the peaks that are too high."""
    sides = ["--module", "scheduler", "--from", source, "--to", target, "--as-of", AS_OF.isoformat()]
    more = [*sides, "--jobs", "2", "--out", str(config.parent / "out"), "--entity", "audit"]
    begin = ["--config", str(config), "backfill"]
    peaks = {
        "dry run": peak([*begin, "copy", *more], Exit.INCONCLUSIVE),
        "copy": peak([*begin, "copy", "--execute", *more], Exit.INCONCLUSIVE),
        "verify": peak([*begin, "verify", *more], Exit.INCONCLUSIVE),
    }
    # The command with its children, and some times the largest document for each of its two workers.
    ceiling = 150 * MEGABYTE + 12 * size
    return {name: found for name, found in peaks.items() if found > ceiling}
