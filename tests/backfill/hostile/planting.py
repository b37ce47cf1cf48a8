"""Hostile rows in real servers, and what became of them."""

from __future__ import annotations

from collections import Counter
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

import psycopg
from bson.codec_options import CodecOptions, DatetimeConversion
from bson.errors import InvalidBSON
from bson.raw_bson import RawBSONDocument
from pymongo import MongoClient
from pymongo.errors import BulkWriteError

from tests.backfill.hostile.documents import ENTITIES, hostile_documents
from tests.backfill.hostile.judging import Figures, judge
from tests.backfill.hostile.rows import drop_rules, good_lines, hostile_rows, plant_rows, stored_lines
from tests.backfill.test_between_servers import opened
from tests.backfill.toolkit import server_settings

if TYPE_CHECKING:
    from pathlib import Path

    from tests.databases import MongoDatabase, PostgresDatabase
    from twinstore.catalog.entity import Entity

__all__ = ["figures_of_documents", "figures_of_rows"]

RANGE: Final = 1000
# For what the server says of documents that it refuses, and for their bytes.
TOLERANT: Final[CodecOptions[dict[str, Any]]] = CodecOptions(
    datetime_conversion=DatetimeConversion.DATETIME_AUTO, unicode_decode_error_handler="replace"
)
RAW: Final = CodecOptions(document_class=RawBSONDocument)


def figures_of_documents(
    mongo: MongoDatabase, postgres: PostgresDatabase, directory: Path, *, each: int, seed: int
) -> Figures:
    """Plant documents of each entity, copy them to PostgreSQL, and verify.

    In every second batch the source has no index and no unique value of ours.
    """
    with opened(settings(mongo, postgres), "mongo to postgres", directory) as pair:
        with MongoClient[dict[str, Any]](mongo.url) as client:
            database = client[mongo.name]
            if seed % 2:
                for entity in ENTITIES:
                    database[entity.collection].drop_indexes()
            stored = {entity.name: planted(database, entity, each, seed) for entity in ENTITIES}
        return judge(pair, stored, range_size=RANGE)


def figures_of_rows(
    mongo: MongoDatabase, postgres: PostgresDatabase, directory: Path, *, each: int, seed: int
) -> Figures:
    """Plant rows of each entity, copy them to MongoDB, and verify."""
    with (
        opened(settings(mongo, postgres), "postgres to mongo", directory) as pair,
        psycopg.connect(postgres.superuser_url, autocommit=True) as connection,
    ):
        stored: dict[str, Counter[bytes]] = {}
        for entity in ENTITIES:
            good = good_lines(connection, pair.source.bulk, entity, each)
            drop_rules(connection, entity)
            plant_rows(connection, entity, hostile_rows(entity, good, seed))
            stored[entity.name] = Counter(stored_lines(connection, entity))
        return judge(pair, stored, range_size=RANGE)


def settings(mongo: MongoDatabase, postgres: PostgresDatabase) -> dict[str, object]:
    """Return settings that name both servers; nothing expires."""
    return server_settings(mongo, postgres, ImpactRetentionDays=0)


def planted(database: Any, entity: Entity, count: int, seed: int) -> Counter[bytes]:  # noqa: ANN401  # of raw documents
    """Insert hostile documents past the validators; return the bytes of those that the server took."""
    collection = database.get_collection(entity.collection, codec_options=TOLERANT)
    documents = [RawBSONDocument(raw) for raw in hostile_documents(entity, count, seed)]
    # An _id of a type that the server does not take, or a unique value twice, which the server repeats in its
    # answer in a form that the client may be unable to read.
    with suppress(BulkWriteError, InvalidBSON):
        collection.insert_many(documents, ordered=False, bypass_document_validation=True)
    found = collection.with_options(codec_options=RAW).find()
    return Counter(bytes(document.raw) for document in found)
