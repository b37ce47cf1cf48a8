"""Digests that stores compute are those of the rows that they return, on real servers, whatever is stored."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from itertools import pairwise
from threading import Barrier, get_ident
from typing import TYPE_CHECKING, Any, Final

import psycopg
import pytest
from bson.codec_options import CodecOptions, DatetimeConversion
from bson.errors import InvalidBSON
from bson.raw_bson import RawBSONDocument
from pymongo import MongoClient
from pymongo.errors import BulkWriteError

from tests.support.copies import open_store
from tests.support.databases import for_every_module, migrate
from tests.unit.fast.scanned import (
    DIGESTED,
    NAMES,
    SECRET,
    bounds_of,
    exact_of,
    hostile_documents,
    plant_hostile_rows,
    ranges_of,
)
from twinstore.bulk.rows import EVERY_RANGE, FOLDED, Cell, RangeDigests
from twinstore.catalog.keys import KeyRange, can_bound
from twinstore.config import load_settings
from twinstore.errors import UnavailableError
from twinstore.fast.digests import Scanner
from twinstore.testing.instants import at
from twinstore_backfill.verify.expected import RowExpectation
from twinstore_mongo.bulk.digests import EXHAUST_BYTES

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tests.support.databases import MongoDatabase, MongoServer, PostgresDatabase, PostgresServer
    from twinstore.bulk.port import BulkPort
    from twinstore.catalog.entity import Entity
    from twinstore.catalog.keys import Key
    from twinstore.testing.examples import Example

EACH: Final = 40
EACH_OF_LONG: Final = 80
STEP: Final = 2
TOLERANT: Final[CodecOptions[dict[str, Any]]] = CodecOptions(
    datetime_conversion=DatetimeConversion.DATETIME_AUTO, unicode_decode_error_handler="replace"
)
CUTOFFS: Final = (None, at(3) + timedelta(microseconds=1))


@pytest.fixture(scope="module")
def mongo(mongo_server: MongoServer) -> Iterator[MongoDatabase]:
    with mongo_server.database() as database:
        yield database


@pytest.fixture(scope="module")
def postgres(postgres_server: PostgresServer) -> Iterator[PostgresDatabase]:
    with postgres_server.empty_database() as database:
        migrate(for_every_module(database.config, "Postgres"))
        yield database


@pytest.fixture(params=DIGESTED, ids=NAMES)
def example(request: pytest.FixtureRequest) -> Example:
    found: Example = request.param
    return found


def test_digests_of_hostile_documents_are_those_of_the_rows(
    mongo: MongoDatabase, example: Example, *, long_form: bool
) -> None:
    with MongoClient[dict[str, Any]](mongo.url) as client:
        collection = client[mongo.name].get_collection(example.entity.collection, codec_options=TOLERANT)
        documents = [
            RawBSONDocument(raw) for raw in hostile_documents(example, EACH_OF_LONG if long_form else EACH, 1)
        ]
        with suppress(BulkWriteError, InvalidBSON):
            collection.insert_many(documents, ordered=False, bypass_document_validation=True)
    settings = load_settings(for_every_module(mongo.config, "Mongo"), environ={})
    with open_store(example.entity.module, "mongo", settings) as store:
        assert check(store.bulk, example.entity) > 0


def test_digests_of_hostile_rows_are_those_of_the_rows(
    postgres: PostgresDatabase, example: Example, *, long_form: bool
) -> None:
    settings = load_settings(for_every_module(postgres.config, "Postgres"), environ={})
    with open_store(example.entity.module, "postgres", settings) as store:
        plant_hostile_rows(
            postgres.superuser_url, store.bulk, example, EACH_OF_LONG if long_form else EACH, 1
        )
        assert check(store.bulk, example.entity, parts=3) > 0


def test_only_what_the_server_distinguishes_is_unique(mongo_server: MongoServer) -> None:
    with mongo_server.database() as database, MongoClient[dict[str, Any]](database.url) as client:
        collections = client[database.name]
        collections.create_collection("runs", viewOn="elsewhere", pipeline=[])
        for name in ("execution_logs", "pack_run_logs"):
            documents = [RawBSONDocument(raw) for raw in hostile_documents(example_of(name), 10, 2)]
            collections[example_of(name).entity.collection].insert_many(documents)
        assert not mongo_digests(database, "runs").unique
        # A field that joins the key is unique as `_id`, and a generated one does not depend on the key.
        assert mongo_digests(database, "execution_logs").unique
        assert not mongo_digests(database, "pack_run_logs").unique
        logs = collections[example_of("pack_run_logs").entity.collection]
        logs.delete_many({})
        logs.create_index([("runId", 1), ("sequence", 1)], unique=True)
        assert mongo_digests(database, "pack_run_logs").unique


def test_a_client_with_one_connection_does_other_things_while_it_reads(mongo_server: MongoServer) -> None:
    entity = example_of("pack_run_logs").entity
    with mongo_server.database() as database, MongoClient[dict[str, Any]](database.url) as client:
        client[database.name][entity.collection].insert_many({"number": number} for number in range(6000))
        narrow = replace(database, url=f"{database.url}&maxPoolSize=1&waitQueueTimeoutMS=20000")
        settings = load_settings(for_every_module(narrow.config, "Mongo"), environ={})
        counted: list[int] = []

        def on_progress(_rows: int) -> None:
            if not counted:
                counted.append(sum(store.bulk.counts(entity).values()))

        with open_store(entity.module, "mongo", settings) as store, store.bulk.view() as view:
            view.digests(entity, [], secret=SECRET, on_progress=on_progress)
    assert counted == [6000]


def test_parts_of_a_table_that_was_rewritten_meanwhile_prove_nothing(
    postgres_server: PostgresServer,
) -> None:
    """A row may have moved from a part that was not read yet into one that was."""
    example = example_of("audit")
    with postgres_server.empty_database() as database:
        settings = for_every_module(database.config, "Postgres")
        migrate(settings)
        with open_store(example.entity.module, "postgres", load_settings(settings, environ={})) as store:
            plant_hostile_rows(database.superuser_url, store.bulk, example, EACH, 1)
            for statement, unplaced in (("ANALYZE", 0), ("VACUUM FULL", 1)):
                found = RangeDigests()
                for part in range(3):
                    with store.bulk.view() as view:
                        of_part = view.digests(example.entity, [], secret=SECRET, part=part, parts=3)
                    assert isinstance(of_part, RangeDigests)
                    found.merge(of_part)
                    if not part:
                        with psycopg.connect(database.superuser_url, autocommit=True) as connection:
                            connection.execute(f"{statement} scheduler.audit".encode())
                assert found.unplaced - before_of(store.bulk, example.entity) == unplaced


def test_a_server_that_goes_away_before_the_rows_are_read_is_an_unreachable_one(
    postgres: PostgresDatabase,
) -> None:
    entity, settings = example_of("runs").entity, for_every_module(postgres.config, "Postgres")
    end = (
        b"SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
        b" WHERE datname = current_database() AND pid <> pg_backend_pid()"
    )
    opened = open_store(entity.module, "postgres", load_settings(settings, environ={}))
    with opened as store, store.bulk.view() as view:
        # What there is to read is known from here on.
        assert list(view.rows_of(entity, [("nobody",)])) == []
        with psycopg.connect(postgres.superuser_url, autocommit=True) as connection:
            connection.execute(end)
        with pytest.raises(UnavailableError):
            view.digests(entity, [], secret=SECRET)


def before_of(port: BulkPort, entity: Entity) -> int:
    """Return how many rows have no place."""
    with port.view() as view:
        found = view.digests(entity, [], secret=SECRET)
    assert isinstance(found, RangeDigests)
    return found.unplaced


def test_digests_of_one_tenant_are_of_its_rows(mongo: MongoDatabase) -> None:
    documents = [RawBSONDocument(raw) for raw in hostile_documents(example_of("audit"), 30, 3)]
    with MongoClient[dict[str, Any]](mongo.url) as client, suppress(BulkWriteError, InvalidBSON):
        client[mongo.name].get_collection("audit", codec_options=TOLERANT).insert_many(
            documents, ordered=False
        )
    assert {label for _, label in mongo_digests(mongo, "audit", tenant="acme").cells} == {"acme"}


def test_several_threads_digest_the_batches_of_one_cursor(
    mongo: MongoDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    entity, settings = example_of("audit").entity, for_every_module(mongo.config, "Mongo")
    documents = [RawBSONDocument(raw) for raw in hostile_documents(example_of("audit"), 300, 4)]
    with MongoClient[dict[str, Any]](mongo.url) as client, suppress(BulkWriteError, InvalidBSON):
        client[mongo.name].get_collection("audit", codec_options=TOLERANT).insert_many(
            documents, ordered=False
        )
    monkeypatch.setattr("twinstore_mongo.bulk.digests.DOCUMENTS_PER_BATCH", 7)
    added: list[int] = []
    honest, at_work, all_at_work = Scanner.add_documents, set[int](), Barrier(3)

    def add(scanner: Scanner, raw: bytes, rules: Sequence[tuple[int, ...]]) -> int:
        added.append(get_ident())
        if parts == all_at_work.parties and get_ident() not in at_work:
            # One thread alone would keep up with a slow server.
            at_work.add(get_ident())
            all_at_work.wait(60)
        return honest(scanner, raw, rules)

    monkeypatch.setattr(Scanner, "add_documents", add)
    with open_store(entity.module, "mongo", load_settings(settings, environ={})) as store:
        bounds = bounds_of(keys_of(store.bulk, entity), STEP)
        found: list[RangeDigests] = []
        for parts in (1, 3):
            told: list[int] = []
            with store.bulk.view() as view:
                of_part = view.digests(entity, bounds, secret=SECRET, parts=parts, on_progress=told.append)
            assert isinstance(of_part, RangeDigests)
            assert sum(told) == of_part.rows
            found.append(of_part)
    batches = len(added) // 2
    assert batches > 20
    assert set(added[:batches]) == {get_ident()}
    assert len(set(added[batches:])) == 3
    assert found[0] == found[1]
    assert len(found[0].cells) > 1


def test_a_server_that_sends_unasked_sends_batches_whose_memory_is_kept(
    mongo_server: MongoServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    entity = example_of("audit").entity
    sizes: list[int] = []
    honest = Scanner.add_documents

    def add(scanner: Scanner, raw: bytes, rules: Sequence[tuple[int, ...]]) -> int:
        sizes.append(len(raw))
        return honest(scanner, raw, rules)

    monkeypatch.setattr(Scanner, "add_documents", add)
    found: list[int] = []
    with mongo_server.database() as database, MongoClient[dict[str, Any]](database.url) as client:
        client[database.name][entity.collection].insert_many({"text": "x" * 10_000} for _ in range(300))
        narrow = replace(database, url=f"{database.url}&maxPoolSize=3")
        for store in (database, narrow):
            mongo_digests(store, "audit")
            found.append(max(sizes))
            sizes.clear()
    unasked, asked = found
    # Twice that would be a large block, and with fewer documents each answer has to be asked for.
    assert EXHAUST_BYTES // 2 < unasked <= EXHAUST_BYTES < asked


def mongo_digests(database: MongoDatabase, name: str, tenant: str | None = None) -> RangeDigests:
    entity = example_of(name).entity
    settings = load_settings(for_every_module(database.config, "Mongo"), environ={})
    with open_store(entity.module, "mongo", settings) as store, store.bulk.view() as view:
        found = view.digests(entity, [], secret=SECRET, tenant_id=tenant)
    assert isinstance(found, RangeDigests)
    assert not found.judged
    return found


def example_of(name: str) -> Example:
    return next(item for item in DIGESTED if item.entity.name == name)


def check(port: BulkPort, entity: Entity, parts: int = 1) -> int:
    """Compare digests with rows for each instant of retention; return how many ranges are proved at least."""
    bounds = bounds_of(keys_of(port, entity), STEP)
    accepts = RowExpectation(entity).is_normal
    proved: list[int] = []
    with port.view() as view:
        ranges = ranges_of(view, entity, bounds)
    for cutoff in CUTOFFS:
        found = RangeDigests()
        for part in range(parts):
            told: list[int] = []
            with port.view() as view:
                of_part = view.digests(
                    entity,
                    bounds,
                    secret=SECRET,
                    cutoff=cutoff,
                    part=part,
                    parts=parts,
                    accepts=accepts,
                    on_progress=told.append,
                )
            assert isinstance(of_part, RangeDigests)
            assert sum(told) == of_part.rows
            found.merge(of_part)
        assert found.judged
        given = {"cutoff": cutoff, "accepts": accepts, "parts": parts}
        assert in_pieces(port, entity, bounds, found, given) == found.rows
        exact = exact_of(entity, ranges, cutoff)
        proved.append(exact.check(found, len(bounds) + 1))
        contents = [
            content
            for number, several in exact.contents.items()
            if number not in found.unproven
            for content in several
        ]
        assert all(map(accepts, contents))
    return min(proved)


def in_pieces(
    port: BulkPort, entity: Entity, bounds: Sequence[Key], whole: RangeDigests, given: dict[str, Any]
) -> int:
    """Compare digests of a range of keys at a time, their owners folded; return how many rows were read."""
    rows, parts = 0, given["parts"]
    cuts = [0, len(bounds) // 3, 2 * len(bounds) // 3, len(bounds) + 1]
    for first, end in pairwise(cuts if len(bounds) > 3 else [0, len(bounds) + 1]):
        lower, upper = bounds[first - 1] if first else None, bounds[end - 1] if end <= len(bounds) else None
        found = RangeDigests()
        for part in range(parts):
            with port.view() as view:
                of_part = view.digests(
                    entity,
                    bounds[first : end - 1],
                    secret=SECRET,
                    within=KeyRange(lower, upper),
                    folded=True,
                    part=part,
                    **given,
                )
            assert isinstance(of_part, RangeDigests)
            found.merge(of_part)
        wanted: dict[tuple[int, str], Cell] = {}
        for (number, label), cell in whole.cells.items():
            if first <= number < end:
                wanted.setdefault((number - first, FOLDED), Cell()).merge(cell)
                wanted.setdefault((EVERY_RANGE, label), Cell()).merge(cell)
        assert found.cells == wanted
        # Beyond all keys is a row whose place only a reading along the keys shows.
        open_ranges = {*range(max(first, 1), min(end, len(bounds)))} & whole.unproven
        assert {first + number for number in found.unproven} >= open_ranges
        rows += found.rows
    return rows


def keys_of(port: BulkPort, entity: Entity) -> Iterator[Key | None]:
    with port.view() as view:
        for batch in view.rows(entity, KeyRange()):
            yield from (row.key for row in batch if row.key is not None and can_bound(row.key))
