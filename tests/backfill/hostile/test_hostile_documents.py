"""Any document that a mongod holds is copied, or kept back with its bytes; none of them stops anything."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, Final

from bson.codec_options import CodecOptions, DatetimeConversion
from bson.raw_bson import RawBSONDocument
from pymongo import MongoClient
from pymongo.errors import BulkWriteError

from tests.backfill.hostile.documents import ENTITIES, hostile_documents
from tests.backfill.hostile.judging import Figures, judge
from tests.backfill.test_between_servers import opened

if TYPE_CHECKING:
    from pathlib import Path

    from tests.databases import MongoDatabase, PostgresDatabase
    from twinstore.catalog import Entity

import os

DOCUMENTS: Final = int(os.environ.get("N", "1000"))
SEED = int(os.environ.get("SEED", "1"))
RAW: Final = CodecOptions(document_class=RawBSONDocument)
# For what the server says of documents that it refuses.
TOLERANT: Final[CodecOptions[dict[str, Any]]] = CodecOptions(
    datetime_conversion=DatetimeConversion.DATETIME_AUTO, unicode_decode_error_handler="replace"
)


def planted(
    client: MongoClient[dict[str, Any]], name: str, entity: Entity, count: int, seed: int
) -> Counter[bytes]:
    """Insert hostile documents past the validators; return the bytes of what the server took."""
    collection: Any = client[name].get_collection(entity.collection, codec_options=TOLERANT)
    try:
        documents = [RawBSONDocument(raw) for raw in hostile_documents(entity, count, seed)]
        collection.insert_many(documents, ordered=False, bypass_document_validation=True)
    except BulkWriteError as error:
        refusals = Counter((item["code"], item["errmsg"][:60]) for item in error.details["writeErrors"])
        print(entity.name, refusals.most_common(4))
    found = collection.with_options(codec_options=RAW).find()
    return Counter(bytes(document.raw) for document in found)


def test_lab(mongo_database: MongoDatabase, postgres_database: PostgresDatabase, tmp_path: Path) -> None:
    persistence: dict[str, Any] = {}
    for database in (mongo_database, postgres_database):
        found = database.config["Persistence"]
        assert isinstance(found, dict)
        persistence |= found
    storage = {"Storage": {"RunRetentionDays": 0, "ImpactRetentionDays": 0}}
    settings = {"Persistence": persistence, "Scheduler": storage}
    figures = Figures()
    with (
        opened(settings, "mongo to postgres", tmp_path) as pair,
        MongoClient[dict[str, Any]](mongo_database.url) as client,
    ):
        stored = {
            entity.name: planted(client, mongo_database.name, entity, DOCUMENTS, SEED) for entity in ENTITIES
        }
        figures.add(judge(pair, stored, range_size=1000))
    print(figures.text())
