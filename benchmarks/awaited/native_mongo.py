"""The potential of a native path on MongoDB: pymongo's asyncio with the commands of the driver.

``OwnMongo`` builds documents and models as the driver does; ``PlainMongo`` skips the models.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pymongo import ReadPreference
from typing_extensions import override

from benchmarks.awaited.calls import PAGE, RUN_SUMMARIES, RUNS, SCOPE, AwaitedCalls, row_of, run_id
from twinstore_mongo.access.changing import replacement
from twinstore_mongo.access.queries import compiled, filter_of, merged, owned_by
from twinstore_mongo.access.reading import sort_key
from twinstore_mongo.client.types import DECODING, MAJORITY_READ, MAJORITY_WRITE
from twinstore_mongo.mapping.codec import codec_of, converted
from twinstore_mongo.mapping.key_order import SIMPLE
from twinstore_mongo.mapping.layout import ID

if TYPE_CHECKING:
    from pymongo import AsyncMongoClient

__all__ = ["OwnMongo", "PlainMongo"]


class PlainMongo(AwaitedCalls):
    """pymongo as it is, without a model."""

    def __init__(self, client: AsyncMongoClient[dict[str, Any]], name: str) -> None:
        """Take a client and the database."""
        database = client.get_database(
            name,
            codec_options=DECODING,
            read_preference=ReadPreference.PRIMARY,
            write_concern=MAJORITY_WRITE,
            read_concern=MAJORITY_READ,
        )
        self._runs, self._summaries = database[RUNS.collection], database[RUN_SUMMARIES.collection]

    @override
    async def get(self, number: int) -> Any:
        codec = codec_of(RUNS)
        condition = merged((filter_of(codec, (run_id(number),)), owned_by(codec, SCOPE)))
        return await self._runs.find_one(condition, collation=SIMPLE)

    @override
    async def upsert(self, number: int) -> Any:
        codec, row = codec_of(RUN_SUMMARIES), row_of(number)
        key = RUN_SUMMARIES.key_of(row.model, row.storage)
        condition, document = merged((filter_of(codec, key), owned_by(codec, SCOPE))), codec.encode(row)
        if RUN_SUMMARIES.versioned or RUN_SUMMARIES.document_id is None:
            change = replacement(document, versioned=RUN_SUMMARIES.versioned)
            return await self._summaries.update_one(condition, change, upsert=True)
        return await self._summaries.replace_one(condition, {**document, ID: document[ID]}, upsert=True)

    @override
    async def list(self, number: int) -> Any:
        codec = codec_of(RUNS)
        reading = codec.readings.of(PAGE)
        cursor = self._runs.find(compiled(codec, PAGE), collation=SIMPLE)
        return await cursor.sort(reading.order).limit(PAGE.limit + 1).to_list()


class OwnMongo(PlainMongo):
    """The driver's own way."""

    @override
    async def get(self, number: int) -> Any:
        found = await super().get(number)
        return None if found is None else codec_of(RUNS).decode(converted(found)).model

    @override
    async def list(self, number: int) -> Any:
        codec, found = codec_of(RUNS), await super().list(number)
        return PAGE.page(
            found,
            lambda found: codec.decode(converted(found)),
            lambda row: sort_key(row, PAGE.order, codec),
            lambda row: row.get(codec.names["tenantId"]),
        )
