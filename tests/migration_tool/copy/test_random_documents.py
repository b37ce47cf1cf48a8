"""Documents of any shape: what has supported types alone is copied, all else has its line."""

from __future__ import annotations

from collections import Counter
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from random import Random
from typing import TYPE_CHECKING, Any, Final

import bson
import psycopg
from bson import Binary, Decimal128, Int64, ObjectId
from bson.errors import InvalidBSON
from bson.raw_bson import RawBSONDocument
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from pymongo.errors import BulkWriteError

from tests.migration_tool.copy.test_hostile_stores import TOLERANT, judge, quarantine_lines
from tests.support.data_modules import installed_module, opened
from tests.support.hostile_documents import Element, cstring, packed, parsed, value
from twinstore_mongo.client.bson import framed

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from pymongo.database import Database

    from tests.support.databases import MongoDatabase, MongoServer, PostgresDatabase

Document = dict[str, Any]
NAMES: Final = ("tens", "bags")
# What documents of other programs hold, and every type keeps.
TEXTS: Final = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=12)
LONGS: Final = st.integers(-(2**63), 2**63 - 1).map(Int64)
DOUBLES: Final = st.floats(allow_nan=False, allow_infinity=False).filter(lambda found: not found.is_integer())
DATES: Final = st.integers(-62_135_596_800_000, 253_402_300_799_999).map(
    lambda found: datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=found)
)
DECIMALS: Final = st.builds(
    lambda digits, scale: Decimal128(f"{digits}E-{scale}"),
    st.integers(-(10**34) + 1, 10**34 - 1),
    st.integers(0, 40),
)
BYTES: Final = st.binary(max_size=20)
UUIDS: Final = st.binary(min_size=16, max_size=16).map(lambda found: Binary(found, 4))
OBJECT_IDS: Final = st.binary(min_size=12, max_size=12).map(ObjectId)
# Names that mean something to a client, a server or the library.
ODD_NAMES: Final = (
    *("", ".", "a.b", "$", "$a", "$ref", "$id", "$db", "$date", "$oid", "_v", "__proto__", "extra", "0"),
)
NAMES_INSIDE: Final = st.one_of(TEXTS, st.sampled_from((*ODD_NAMES, "_id", "_label", "_version", "number")))
SCALARS: Final = st.one_of(
    *(st.none(), st.booleans(), TEXTS, LONGS, st.integers(-(2**31), 2**31 - 1), DOUBLES, DATES, DECIMALS),
    *(OBJECT_IDS, BYTES, UUIDS, st.builds(Binary, BYTES, st.sampled_from((1, 3, 5, 6, 0x80, 0xFF)))),
)
ANY: Final = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES_INSIDE, inner, max_size=3),
    max_leaves=6,
)
FIELDS: Final[dict[str, st.SearchStrategy[Any]]] = {
    "_label": TEXTS,
    "$count": LONGS,
    "sc.ore": DOUBLES,
    "price": DECIMALS,
    "seenAt": DATES,
    "isOpen": st.booleans(),
    "image": BYTES,
    "design": UUIDS,
    "notes": st.dictionaries(NAMES_INSIDE, ANY, max_size=4),
    "things": st.lists(ANY, max_size=4),
}
# Hypothesis draws the values; so many of each are mixed into the documents of a database.
POOL: Final = 6
POOLS: Final = st.fixed_dictionaries(
    {
        **{name: st.lists(values, min_size=1, max_size=POOL) for name, values in FIELDS.items()},
        "label": st.lists(TEXTS, min_size=1, max_size=POOL),
        "extra": st.lists(st.tuples(NAMES_INSIDE, ANY), min_size=1, max_size=3 * POOL),
    }
)
ALWAYS: Final = ("_label", "$count")
# What once ended a comparison: old binary data with another length inside than outside.
ODD_ID: Final = b"\x05_id\x00\x04\x00\x00\x00\x02\x01\x00\x00\x00"
RESERVED: Final = frozenset({"_id", "number", "label", "_seen"})


def a_ten(pools: dict[str, list[Any]], rng: Random) -> Document:
    """Return a document with some of the ten fields."""
    names = [name for name in FIELDS if name in ALWAYS or rng.random() < 0.7]  # a share
    rng.shuffle(names)
    return {"_id": ObjectId(rng.randbytes(12)), **{name: rng.choice(pools[name]) for name in names}}


def a_bag(pools: dict[str, list[Any]], rng: Random) -> Document:
    """Return a document with properties that no field names."""
    unknown = dict(rng.sample(pools["extra"], rng.randrange(len(pools["extra"]) + 1)))
    known = {"label": rng.choice(pools["label"]), "_seen": rng.choice(pools["seenAt"])}
    found = {"_id": Int64(rng.getrandbits(63)), **known}
    found |= {name: kept for name, kept in unknown.items() if name not in RESERVED}
    return dict(rng.sample([*found.items()], len(found)))


def spoilt(raw: bytes, rng: Random) -> bytes:
    """Return a document with a value of any type in place of one, in addition, or under another name."""
    tree = parsed(raw)
    at = rng.randrange(len(tree))
    kind, content = value(rng)
    name = rng.choice((tree[at].name, tree[at].name, tree[at].name, cstring(rng)))
    return packed((*tree[:at], Element(kind, name, content), *tree[at + rng.randrange(2) :]))


def drawn(pools: dict[str, list[Any]], rng: Random, count: int) -> Iterator[tuple[str, bytes, bool]]:
    """Yield documents with their collection, and whether they hold supported types alone."""
    for number in range(count):
        name, make = (("tens", a_ten), ("bags", a_bag))[number % 2]
        raw = bson.encode(make(pools, rng))
        good = rng.random() < 0.6  # a share
        yield name, raw if good else spoilt(raw, rng), good


def stored(
    database: Database[Document], found: Sequence[tuple[str, bytes, bool]]
) -> dict[str, Counter[bytes]]:
    """Store documents in place of those that are there; return the bytes of those that the server took."""
    rows: dict[str, Counter[bytes]] = {}
    for name in NAMES:
        database.drop_collection(name)
        collection = database.get_collection(name, codec_options=TOLERANT)
        documents = [RawBSONDocument(raw) for kind, raw, _ in found if kind == name]
        with suppress(BulkWriteError, InvalidBSON):
            collection.insert_many(documents, ordered=False)
        raw_options = bson.CodecOptions(document_class=RawBSONDocument)
        rows[name] = Counter(bytes(one.raw) for one in collection.with_options(raw_options).find())
    return rows


def test_what_is_of_supported_types_is_copied_and_nothing_is_lost(
    mongo_server: MongoServer,
    empty_mongo_database: MongoDatabase,
    empty_postgres_database: PostgresDatabase,
    tmp_path: Path,
    *,
    long_form: bool,
) -> None:
    database = mongo_server.client[empty_mongo_database.name]
    tried = Counter[str]()
    with (
        installed_module(tmp_path, "anything", empty_postgres_database.config),
        opened("anything", empty_mongo_database, empty_postgres_database, tmp_path / "out") as pair,
        psycopg.connect(empty_postgres_database.superuser_url, autocommit=True) as tables,
    ):

        @settings(
            max_examples=1000 if long_form else 4,
            deadline=None,
            database=None,
            phases=(Phase.generate,),
            suppress_health_check=(
                HealthCheck.too_slow,
                HealthCheck.data_too_large,
                HealthCheck.filter_too_much,
            ),
        )
        @given(pools=POOLS, rng=st.randoms(use_true_random=False))
        def one_database(pools: dict[str, list[Any]], rng: Random) -> None:
            tables.execute("TRUNCATE anything.tens, anything.bags")
            documents = list(drawn(pools, Random(rng.getrandbits(64)), 198))
            documents += [(name, framed(ODD_ID), False) for name in NAMES]
            rows = stored(database, documents)
            figures = judge(pair, rows, range_size=60)
            good = {raw for _, raw, is_good in documents if is_good and raw in rows["tens"] + rows["bags"]}
            lines = {
                line.original: line.reason for line in quarantine_lines(pair.directory / "quarantine.ndjson")
            }
            lost = {lines[raw]: bson.decode(raw) for raw in good & lines.keys()}
            assert not lost, lost
            tried.update(all=figures.tried, good=len(good), copied=figures.copied)

        one_database()
    assert tried["good"] >= tried["all"] / 2
