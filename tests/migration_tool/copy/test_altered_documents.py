"""Documents whose decoded values do not give them back: to copy them would lose something silently."""

from __future__ import annotations

import base64
import json
from typing import TYPE_CHECKING, Any, Final

import bson
import pytest
from bson import Code, Int64
from bson.raw_bson import RawBSONDocument
from pymongo import MongoClient

from tests.migration_tool.copy.test_between_servers import opened
from tests.support.copies import DOCUMENTS_PER_TENANT, fill, server_settings
from twinstore_backfill.outcome import Exit

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.support.copies import Pair
    from tests.support.databases import MongoDatabase, PostgresDatabase

Document = dict[str, Any]
SYMBOL: Final = b"\x0e"
UNDEFINED: Final = b"\x06"


def document(*elements: bytes) -> bytes:
    """Return a document of some elements, whatever they are."""
    inner = b"".join(elements)
    return (len(inner) + 5).to_bytes(4, "little") + inner + b"\x00"


def elements(values: Document) -> bytes:
    """Return the elements of a document."""
    return bson.encode(values)[4:-1]


def planted(good: Document) -> dict[str, bytes]:
    """Return one document of each kind, by what it is; each has a different id."""

    def other(name: str, **changes: object) -> bytes:
        return elements({**good, "_id": name, **changes})

    text = elements({"message": "told"})
    return {
        "a name twice": document(other("twice"), text, elements({"message": "other"})),
        "a tenant twice": document(other("tenants"), elements({"tenantId": "globex"})),
        "a symbol": document(other("symbol"), SYMBOL + text[1:]),
        "undefined": document(other("undefined"), UNDEFINED + b"message\x00"),
        "code": document(other("code", metadata={"a": Code("x")})),
        "a double beyond every integer": document(other("large", metadata={"a": 1e300})),
        "a long beyond every counter": document(other("long", entityId=Int64(2**62))),
    }


@pytest.fixture
def pair(
    empty_mongo_database: MongoDatabase, postgres_database: PostgresDatabase, tmp_path: Path
) -> Iterator[Pair]:
    settings = server_settings(empty_mongo_database, postgres_database, validators=False)
    with opened(settings, "mongo to postgres", tmp_path) as pair:
        fill(pair.source.storage)
        yield pair


@pytest.mark.usefixtures("exact_first")
def test_they_go_to_quarantine_with_their_bytes_and_leave_the_proof_open(
    pair: Pair, empty_mongo_database: MongoDatabase
) -> None:
    with MongoClient[Document](empty_mongo_database.url) as client:
        audit: Any = client[empty_mongo_database.name]["audit"]
        good = audit.find_one({"_id": "acme-audit-1"})
        kinds = planted(good)
        audit.insert_many([RawBSONDocument(raw) for raw in kinds.values()])
    result = pair.copy()
    assert (result.exit, result.complete) == (Exit.INCONCLUSIVE, True)
    assert result.totals.all()["written"] == 2 * DOCUMENTS_PER_TENANT
    lines = map(json.loads, (pair.directory / "quarantine.ndjson").read_text().splitlines())
    kept = {base64.b64decode(json.loads(line["raw"])["bson"]) for line in lines}
    assert kept == set(kinds.values())
    report = pair.verify()
    assert (report.verdict, report.cutover_ready) == ("INCONCLUSIVE", False)
    (found,) = [entity for entity in report.entities if entity.counts.quarantined]
    assert (found.entity, found.counts.quarantined) == ("audit", len(kinds))
    assert found.counts.missing == found.counts.different == 0
