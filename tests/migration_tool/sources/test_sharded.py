"""A sharded cluster as source: its ranges are cut where shards begin, and those of different shards in turn.

No wheel has a router. Most cases judge what ``config`` of a cluster holds, as MongoDB 6.0 writes it; in one
of them, a server that is no router holds it. A real router is read where the environment names one.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID, uuid4

import pytest
from bson import Binary, Int64, MaxKey, MinKey, ObjectId
from pymongo import MongoClient
from pymongo.errors import OperationFailure

from tests.migration_tool.copy.test_kinds_of_keys import BOXES, TALLIES, THINGS
from tests.support import mongos
from tests.support.copies import AS_OF, invoke, open_store, server_settings, write_config
from tests.support.databases import MongoDatabase
from tests.support.foreign import document
from twinstore.catalog.keys import KeyRange
from twinstore.config import load_settings
from twinstore.scheduler.catalog import AUDIT, EXECUTION_LOGS, GRAPH_JOBS, RUN_SUMMARIES, RUNS
from twinstore.testing.instants import at
from twinstore.testing.scheduler.builders import make_audit_record
from twinstore_backfill.copy import engine, reader
from twinstore_backfill.copy.engine import run_copy
from twinstore_backfill.copy.options import CopyOptions
from twinstore_backfill.copy.reader import ranges_in_turn
from twinstore_backfill.process.stopping import StopSwitch
from twinstore_backfill.progress.record import SilentProgress
from twinstore_backfill.verify.engine import run_verify
from twinstore_backfill.verify.options import VerifyOptions
from twinstore_mongo.bulk.shards import is_ordered, placed
from twinstore_mongo.client import balancer, identity
from twinstore_mongo.client.balancer import balancer_remark
from twinstore_mongo.mapping.codec import codec_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from tests.support.databases import MongoServer, PostgresDatabase
    from twinstore.bulk.port import Placed
    from twinstore.catalog.entity import Entity

Document = dict[str, Any]

ROWS: Final = 1200
OPTIONS: Final = CopyOptions(entities=("audit",), as_of=AS_OF, range_size=20, jobs=2, execute=True)
BOUNDS: Final = ("audit-000300", "audit-000600", "audit-000900")
BETWEEN: Final = ("--module", "scheduler", "--from", "mongo", "--to", "postgres")
COLLECTION: Final = UUID(int=7)


def chunks_of(*bounds: object, name: str = "_id", uuid: UUID = COLLECTION) -> list[Document]:
    """Return the chunks between bounds, on two shards in turn, as ``config.chunks`` has them."""
    ends = (MinKey(), *bounds, MaxKey())
    return [
        {
            "_id": ObjectId(),
            "uuid": Binary.from_uuid(uuid),
            "min": lower if isinstance(lower, Mapping) else {name: lower},
            "max": upper if isinstance(upper, Mapping) else {name: upper},
            "shard": f"shard{number % 2}",
            "history": [],
        }
        for number, (lower, upper) in enumerate(pairwise(ends))
    ]


def keys_of(found: Sequence[Placed]) -> list[object]:
    return [key for key, _ in found]


@pytest.mark.parametrize(
    ("entity", "name", "bounds", "expected"),
    [
        (RUNS, "_id", ["a", "m"], [("a",), ("m",)]),
        # The first chunk of a text key may end among the numbers, before all texts.
        (RUNS, "_id", [5, "m", ObjectId(bytes(12))], [("m",)]),
        (TALLIES, "number", [-5, Int64(2**40)], [(-5,), (2**40,)]),
        (GRAPH_JOBS, "_uuid", ["0" * 31 + "7"], [("0" * 31 + "7",)]),
        (BOXES, "_id", [str(UUID(int=9))], [(str(UUID(int=9)),)]),
    ],
)
def test_a_key_at_which_a_shard_begins_is_a_bound_of_a_chunk(
    entity: Entity, name: str, bounds: Sequence[object], expected: list[object]
) -> None:
    found = placed(chunks_of(*bounds, name=name), codec_of(entity))
    assert keys_of(found) == [None, *expected]
    # Of several that begin before all keys, the one that has the first of them.
    first = "shard1" if 5 in bounds else "shard0"
    assert found[0][1] == first


@pytest.mark.parametrize(
    ("entity", "bound", "expected"),
    [
        (RUN_SUMMARIES, {"tenantId": "t"}, ("t", "")),
        (RUN_SUMMARIES, {"tenantId": "t", "scheduleId": MinKey()}, ("t", "")),
        (RUN_SUMMARIES, {"tenantId": "t", "scheduleId": "s"}, ("t", "s")),
        (EXECUTION_LOGS, {"runId": "r"}, ("r", -(2**63))),
        (EXECUTION_LOGS, {"runId": "r", "sequence": 4}, ("r", 4)),
        (THINGS, {"boxId": str(UUID(int=1))}, (str(UUID(int=1)), -(2**63))),
    ],
)
def test_a_shard_key_that_is_the_beginning_of_a_key_ends_ranges_at_the_first_key_with_it(
    entity: Entity, bound: Document, expected: object
) -> None:
    assert keys_of(placed(chunks_of(bound), codec_of(entity))) == [None, expected]


@pytest.mark.parametrize(
    ("entity", "shard_key", "expected"),
    [
        (RUNS, {"_id": 1}, True),
        (RUNS, {"_id": 1.0}, True),
        (RUNS, {"_id": "hashed"}, False),
        (RUNS, {"tenantId": 1, "_id": 1}, False),
        (RUN_SUMMARIES, {"tenantId": 1}, True),
        (RUN_SUMMARIES, {"tenantId": 1, "scheduleId": 1}, True),
        (RUN_SUMMARIES, {"scheduleId": 1}, False),
        (RUN_SUMMARIES, {"tenantId": 1, "scheduleId": 1, "lastRunAt": 1}, False),
        (RUN_SUMMARIES, {"tenantId": 1, "scheduleId": "hashed"}, False),
    ],
)
def test_chunks_are_used_where_their_shard_key_is_the_key_or_its_beginning(
    entity: Entity, shard_key: Mapping[str, object], *, expected: bool
) -> None:
    assert is_ordered(shard_key, codec_of(entity)) is expected


def test_a_collection_on_one_shard_is_read_like_one_of_a_server() -> None:
    chunks = [{**chunk, "shard": "shard0"} for chunk in chunks_of("a", "m")]
    assert placed(chunks, codec_of(RUNS)) == ()
    assert placed([], codec_of(RUNS)) == ()


def test_ranges_are_cut_where_a_shard_begins_and_those_of_different_shards_come_in_turn() -> None:
    ranges = [KeyRange(None, ("c",)), KeyRange(("c",), ("k",)), KeyRange(("k",), None)]
    placement: list[Placed] = [(None, "one"), (("b",), "two"), (("k",), "one"), (("x",), "three")]
    assert ranges_in_turn(ranges, placement) == [
        KeyRange(None, ("b",)),
        KeyRange(("b",), ("c",)),
        KeyRange(("x",), None),
        KeyRange(("k",), ("x",)),
        KeyRange(("c",), ("k",)),
    ]


class Cluster:
    """A database whose collection ``audit`` is on two shards, and how to read it."""

    def __init__(self, client: MongoClient[Document], database: MongoDatabase) -> None:
        self.client, self.database = client, database
        self.name = f"{database.name}.audit"

    @property
    def shards(self) -> dict[str | None, str]:
        """The shard of each chunk by the lower bound, ``None`` for the first."""
        uuid = self.client["config"]["collections"].find_one({"_id": self.name}, {"uuid": 1})
        chunks = self.client["config"]["chunks"].find({"uuid": (uuid or {})["uuid"]})
        lowers = ((chunk["min"]["_id"], chunk["shard"]) for chunk in chunks)
        return {None if isinstance(lower, MinKey) else lower: shard for lower, shard in lowers}

    def shard_of(self, key: tuple[object, ...] | None) -> str:
        """Return the shard of the rows from a key on."""
        if key is None:
            return self.shards[None]
        below = [lower for lower in self.shards if lower is not None and (lower,) <= key]
        return self.shards[max(below, default=None)]


@pytest.fixture
def stand_in(mongo_server: MongoServer, monkeypatch: pytest.MonkeyPatch) -> Iterator[Cluster]:
    """Let the server pass for a router, with what one writes into ``config``."""
    hello = identity.hello_of
    monkeypatch.setattr(identity, "hello_of", lambda client: {**hello(client), "msg": "isdbgrid"})
    config, uuid = mongo_server.client["config"], uuid4()
    with mongo_server.database() as database:
        cluster = Cluster(mongo_server.client, database)
        sharded = {"_id": cluster.name, "uuid": Binary.from_uuid(uuid), "key": {"_id": 1}, "unique": False}
        config["collections"].insert_one(sharded)
        config["chunks"].insert_many(chunks_of(*BOUNDS, uuid=uuid))
        yield cluster
        config["collections"].delete_one({"_id": cluster.name})
        config["chunks"].delete_many({"uuid": Binary.from_uuid(uuid)})


@pytest.fixture
def router() -> Iterator[Cluster]:
    """Shard the collection through the router that the environment names."""
    with MongoClient[Document](mongos.URL) as client:
        cluster = Cluster(client, MongoDatabase(str(mongos.URL), f"twinstore_{uuid4().hex[:12]}"))
        one, other, *_ = (shard["_id"] for shard in client.admin.command("listShards")["shards"])
        try:
            client.admin.command("enableSharding", cluster.database.name, primaryShard=one)
            client.admin.command("shardCollection", cluster.name, key={"_id": 1})
            for number, bound in enumerate(BOUNDS):
                client.admin.command("split", cluster.name, middle={"_id": bound})
                to = other if number % 2 == 0 else one
                if to != cluster.shard_of((bound,)):
                    client.admin.command("moveChunk", cluster.name, find={"_id": bound}, to=to)
            yield cluster
        finally:
            client.drop_database(cluster.database.name)


@pytest.mark.parametrize("server", ["stand_in", pytest.param("router", marks=pytest.mark.mongos)])
def test_a_large_sharded_collection_is_copied_from_all_shards_at_once_and_each_row_once(
    server: str,
    request: pytest.FixtureRequest,
    postgres_database: PostgresDatabase,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cluster: Cluster = request.getfixturevalue(server)
    monkeypatch.setattr(reader, "MANY_ROWS", 1000)
    monkeypatch.setattr(engine, "COARSE_ROWS", ROWS // 2)
    records = (make_audit_record("acme", f"audit-{n:06}", occurred_at=at(n)) for n in range(ROWS))
    cluster.client[cluster.database.name]["audit"].insert_many(document(item.wire()) for item in records)
    settings = load_settings(server_settings(postgres_database, cluster.database), environ={})
    with (
        open_store("scheduler", "mongo", settings, read_only=True) as source,
        open_store("scheduler", "postgres", settings) as target,
    ):
        assert keys_of(source.bulk.placement(AUDIT)) == [None, *((bound,) for bound in BOUNDS)]
        result = run_copy(source, target, OPTIONS, SilentProgress(), StopSwitch())
        assert (result.complete, result.totals.of("audit")["written"]) == (True, ROWS)
        (job,) = target.ledger.jobs()
        ranges = list(target.ledger.ranges(job.id))
        lowers = {item.within.lower for item in ranges}
        assert lowers >= {None, *((bound,) for bound in BOUNDS)}
        first = [cluster.shard_of(item.within.lower) for item in ranges[:4]]
        assert all(one != other for one, other in pairwise(first))
        verified = run_verify(source, target, VerifyOptions(as_of=AS_OF), SilentProgress(), StopSwitch())
        assert verified.verdict == "PASS"


@pytest.fixture
def client(mongo_server: MongoServer, monkeypatch: pytest.MonkeyPatch) -> MongoClient[Document]:
    """Return a client of what passes for a router."""
    monkeypatch.setattr(identity, "hello_of", lambda _: {"msg": "isdbgrid"})
    return mongo_server.client


@pytest.mark.parametrize(
    ("mode", "is_named"), [("full", True), ("off", False), ("autoSplitOnly", False), ("another", True)]
)
def test_a_balancer_that_may_move_documents_is_named(
    client: MongoClient[Document], mode: str, monkeypatch: pytest.MonkeyPatch, *, is_named: bool
) -> None:
    answer = {"mode": mode, "inBalancerRound": False, "numBalancerRounds": Int64(42), "ok": 1.0}
    monkeypatch.setattr(balancer, "status_of", lambda _: answer)
    found = balancer_remark(client)
    assert (found is not None) is is_named
    assert found is None or f"is on (mode {mode})" in found


def test_doctor_and_plan_show_once_that_the_balancer_is_on(
    stand_in: Cluster,
    empty_postgres_database: PostgresDatabase,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stand_in.client[stand_in.database.name]["audit"].insert_one(
        document(make_audit_record("acme", "audit-1", occurred_at=at(1)).wire())
    )
    monkeypatch.setattr(balancer, "status_of", lambda _: {"mode": "full", "ok": 1.0})
    config = write_config(tmp_path / "c.json", server_settings(empty_postgres_database, stand_in.database))
    for words in (("doctor",), ("backfill", "plan", *BETWEEN)):
        shown = " ".join(invoke(capsys, "--config", config, *words).out.split())
        assert shown.count("sh.stopBalancer() stops it") == 1


def test_a_user_who_may_not_read_the_balancer_learns_what_to_grant(
    client: MongoClient[Document], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(_: object) -> Document:
        raise OperationFailure("not authorized on admin", 13)

    # A server that is no router knows no such command.
    assert balancer_remark(client) is None
    monkeypatch.setattr(balancer, "status_of", refused)
    assert "the role read on the database config" in (balancer_remark(client) or "")
