"""The limits of MongoDB: raw batches out, prebuilt documents in."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from time import perf_counter
from typing import TYPE_CHECKING, Any, Final

from bson.raw_bson import RawBSONDocument
from pymongo import CursorType, WriteConcern

from benchmarks.schedule import Sample

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pymongo.collection import Collection

__all__ = ["insert_prebuilt", "prebuilt_documents", "raw_scan"]

BATCH: Final = 1000


def raw_scan(collection: Collection[dict[str, Any]]) -> Sample:
    """Read every document without looking into it; the server streams its batches."""
    documents = collection.estimated_document_count()
    began = perf_counter()
    cursor = collection.find_raw_batches(batch_size=BATCH, cursor_type=CursorType.EXHAUST)
    size = sum(len(batch) for batch in cursor)
    seconds = perf_counter() - began
    if not size:
        raise RuntimeError("the source is empty, so there is nothing to measure")
    return Sample(units=documents, seconds=seconds)


def prebuilt_documents(collection: Collection[dict[str, Any]]) -> list[RawBSONDocument]:
    """Return the stored documents in key order as bytes that only need to be sent."""
    options = collection.codec_options.with_options(document_class=RawBSONDocument)
    return list(collection.with_options(codec_options=options).find().sort("_id"))


def insert_prebuilt(
    collection: Collection[dict[str, Any]], documents: Sequence[RawBSONDocument], threads: int
) -> Sample:
    """Insert documents that are encoded already, unordered, each thread a part of the keys."""
    target = collection.with_options(write_concern=WriteConcern("majority"))
    share = -(-len(documents) // threads)
    parts = [documents[first : first + share] for first in range(0, len(documents), share)]

    def insert(part: Sequence[RawBSONDocument]) -> None:
        for first in range(0, len(part), BATCH):
            target.insert_many(part[first : first + BATCH], ordered=False)

    began = perf_counter()
    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(insert, parts))
    return Sample(units=len(documents), seconds=perf_counter() - began)
