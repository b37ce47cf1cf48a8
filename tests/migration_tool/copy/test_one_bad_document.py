"""A broken document among good ones is quarantined with its bytes, while the others are copied.

All kinds of them in one copy, and in the full form each alone.
"""

from __future__ import annotations

from collections import Counter
from time import process_time
from typing import TYPE_CHECKING, Any, Final

import bson
import pytest
from bson import MaxKey
from bson.raw_bson import RawBSONDocument
from pymongo import MongoClient

from tests.migration_tool.copy.test_between_servers import opened
from tests.migration_tool.copy.test_hostile_stores import quarantine_lines
from tests.support.copies import DOCUMENTS_PER_TENANT, fill, server_settings
from twinstore.errors import DocumentDecodeError
from twinstore.testing.workspace import unique
from twinstore_backfill.copy.options import CopyOptions
from twinstore_backfill.outcome import Exit
from twinstore_backfill.plan import plan_copy

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.support.copies import Pair
    from tests.support.databases import MongoDatabase, PostgresDatabase

Document = dict[str, Any]
MEGABYTE: Final = 1_000_000
# What no document may cost, however odd it is: of the processor, so that a busy machine changes nothing.
SECONDS: Final = 5


def with_values(**values: object) -> Callable[[Document], bytes]:
    """Return a change of some values."""
    return lambda good: bson.encode({**good, **values})


def with_bytes(name: str, content: bytes) -> Callable[[Document], bytes]:
    """Return a change of a text into some bytes."""

    def changed(good: Document) -> bytes:
        mark = "!" * len(content)
        raw = bson.encode({**good, name: mark})
        return raw.replace(mark.encode() + b"\x00", content + b"\x00")

    return changed


def tenant_with_bad_key(good: Document) -> bytes:
    """Return a document whose tenant is an object with a name that is not UTF-8."""
    return bson.encode({**good, "tenantId": {"!!": 1}}).replace(b"!!\x00", b"\xff\xfe\x00")


BAD: Final[dict[str, tuple[str, Callable[[Document], bytes]]]] = {
    "a tenant that is not UTF-8": ("audit", with_bytes("tenantId", b"ac\xff\xfe")),
    "a tenant that is an object with a broken name": ("audit", tenant_with_bad_key),
    "a tenant with U+0000": ("audit", with_values(tenantId="a\x00b")),
    "a tenant that is a large object": ("audit", with_values(tenantId={"a": "x" * 15 * MEGABYTE})),
    "a tenant of a megabyte": ("audit", with_values(tenantId="t" * MEGABYTE)),
    "a tenant of ten megabytes": ("audit", with_values(tenantId="t" * 10 * MEGABYTE)),
    "a key of two megabytes": ("audit", with_values(_id="k" * 2 * MEGABYTE)),
    "a key that is not UTF-8": ("audit", with_bytes("_id", b"acme-audit-1\xff")),
    "a key with U+0000": ("audit", with_values(_id="acme-audit-1\x00")),
    "the greatest of all keys": ("audit", with_values(_id=MaxKey())),
    "an empty snapshot id": ("impact_snapshots", with_values(_id="")),
    "a blank snapshot id": ("impact_snapshots", with_values(_id="   ")),
    "a snapshot id with a control character": ("impact_snapshots", with_values(_id="snap\x01")),
    "a snapshot id that is too long": ("impact_snapshots", with_values(_id="s" * 257)),
    "a snapshot id with outer blanks": ("impact_snapshots", with_values(_id="snap-1 ")),
    "a tenant of a snapshot with outer blanks": (
        "impact_snapshots",
        with_values(_id="s-1", _tenantId=" acme"),
    ),
    "names of a map that differ in case": (
        "audit",
        with_values(_id="case", metadata={"KEY": "2", "key": "1"}),
    ),
    "the same in the other order": ("audit", with_values(_id="esac", metadata={"key": "1", "KEY": "2"})),
    "a list in place of a part of the key": (
        "run_summaries",
        with_values(_id=None, scheduleId=["a", "b", "z"]),
    ),
    "values nested as deep as the server takes": (
        "audit",
        with_values(_id="deep", metadata={"a": [[[[[[1]]]]]]}),
    ),
}


@pytest.fixture
def settings(empty_mongo_database: MongoDatabase, postgres_database: PostgresDatabase) -> dict[str, object]:
    return server_settings(empty_mongo_database, postgres_database)


@pytest.fixture
def pair(settings: dict[str, object], tmp_path: Path) -> Iterator[Pair]:
    with opened(settings, "mongo to postgres", tmp_path) as pair:
        fill(pair.source.storage)
        yield pair


def planted(database: MongoDatabase, entity: str, change: Callable[[Document], bytes]) -> bytes:
    """Insert the document past the validators; return its bytes as the server has them."""
    with MongoClient[Document](database.url) as client:
        collection: Any = client[database.name][entity]
        good = collection.find_one(sort=[("_id", 1)])
        identity = good["_id"] if isinstance(good["_id"], bson.ObjectId) else unique("bad")
        raw = change({**good, "_id": identity})
        collection.insert_one(RawBSONDocument(raw), bypass_document_validation=True)
        # As the server stores it, which generates an absent identity.
        raw_codec = collection.codec_options.with_options(document_class=RawBSONDocument)
        newest = collection.with_options(codec_options=raw_codec).find_one(sort=[("$natural", -1)])
        return bytes(newest.raw)


def test_all_of_them_are_quarantined_whole_and_the_others_are_copied_and_proved(
    pair: Pair, empty_mongo_database: MongoDatabase
) -> None:
    bad = [(BAD[kind][0], planted(empty_mongo_database, *BAD[kind])) for kind in BAD]
    # Together they may cost what two of them may.
    kept_back_and_the_others_proved(pair, bad, 2 * SECONDS)


def kept_back_and_the_others_proved(pair: Pair, bad: list[tuple[str, bytes]], limit: float) -> None:
    """Copy and verify; of each entity the bad documents are quarantined, all others are copied."""
    started = process_time()
    dry = pair.copy(execute=False, out=None)
    plan = plan_copy(pair.source, pair.target, CopyOptions(range_size=3))
    result = pair.copy()
    report = pair.verify()
    seconds = process_time() - started
    assert plan.rows == 2 * DOCUMENTS_PER_TENANT + len(bad)
    assert (dry.exit, result.exit, result.complete) == (Exit.INCONCLUSIVE, Exit.INCONCLUSIVE, True)
    assert dry.totals.all()["quarantined"] == result.totals.all()["quarantined"] == len(bad)
    assert result.totals.all()["written"] == 2 * DOCUMENTS_PER_TENANT
    lines = quarantine_lines(pair.directory / "quarantine.ndjson")
    assert Counter((line.entity, line.original) for line in lines) == Counter(bad)
    assert report.verdict == "INCONCLUSIVE"
    found = {item.entity: item.counts for item in report.entities if item.counts.quarantined}
    assert {entity: counts.quarantined for entity, counts in found.items()} == Counter(
        entity for entity, _ in bad
    )
    assert all(counts.missing == counts.different == counts.extra == 0 for counts in found.values())
    assert seconds < limit


@pytest.mark.parametrize("identity", ["", "   ", "snap\x01", "s" * 257])
def test_the_service_answers_with_our_error_for_such_a_snapshot(
    identity: str, pair: Pair, empty_mongo_database: MongoDatabase
) -> None:
    planted(empty_mongo_database, "impact_snapshots", with_values(_id=identity))
    with pytest.raises(DocumentDecodeError):
        pair.source.storage.impact_snapshots.list("acme")
