"""Very many small values take many times their bytes as objects, and no more than is promised."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

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

# A name of seven letters and a text of one.
VALUE_BYTES: Final = 15


@pytest.fixture
def config(empty_mongo_database: MongoDatabase, postgres_database: PostgresDatabase, tmp_path: Path) -> Path:
    path = write_config(tmp_path / "settings.json", server_settings(empty_mongo_database, postgres_database))
    with open_store("scheduler", "mongo", load_settings(path, environ={})) as store:
        store.storage.initializer.ensure_migrations()
        store.storage.audit.append(make_audit_record("acme", "a-0"))
    return path


@pytest.mark.parametrize(
    ("number", "size"),
    [
        (1, 6 * MEGABYTE),
        pytest.param(40, MEGABYTE, marks=pytest.mark.long),
        pytest.param(1, 15 * MEGABYTE, marks=pytest.mark.long),
    ],
)
def test_documents_of_small_values_take_no_more_than_twelve_times_their_bytes(
    config: Path, empty_mongo_database: MongoDatabase, number: int, size: int
) -> None:
    plant(empty_mongo_database, number, size)
    # Those of one megabyte take nothing beyond what is promised of any.
    ceiling = 150 * MEGABYTE + (12 * size if size > MEGABYTE else 0)
    peaks = {
        "copy": peak([*begin(config, "copy"), "--execute"], Exit.OK),
        "verify": peak(begin(config, "verify"), Exit.OK),
    }
    assert {name: found for name, found in peaks.items() if found > ceiling} == {}


def begin(config: Path, name: str) -> list[str]:
    sides = ["--module", "scheduler", "--from", "Mongo", "--to", "Postgres", "--as-of", AS_OF.isoformat()]
    # Of one document each, so that both jobs have some.
    more = ["--jobs", "2", "--range-size", "1", "--entity", "audit", "--out", str(config.parent / "out")]
    return ["--config", str(config), "backfill", name, *sides, *more]


def plant(database: MongoDatabase, number: int, size: int) -> None:
    """Add documents whose values are as small as they can be."""
    values = {f"k{place:06}": "v" for place in range(size // VALUE_BYTES)}
    with MongoClient[dict[str, Any]](database.url) as client:
        audit = client[database.name]["audit"]
        good = audit.find_one({"_id": "a-0"}) or {}
        for place in range(number):
            audit.insert_one({**good, "_id": f"b-{place}", "metadata": values})
