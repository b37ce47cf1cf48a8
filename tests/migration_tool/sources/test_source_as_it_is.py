"""Sources that other programs created: what they hold besides the rows, and what our names contain."""

from __future__ import annotations

from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final, cast
from uuid import uuid4

import psycopg
import pytest
from psycopg import sql
from pymongo import MongoClient
from pymongo.collation import Collation

from tests.migration_tool.sources.test_mongo import admin, guarded
from tests.support.copies import Pair, fill, open_store
from tests.support.foreign import Document, document, footprint, foreign_runs
from tests.support.servers import postgres_url
from twinstore.config import load_settings
from twinstore.errors import ValidationError
from twinstore.scheduler.catalog import SCHEDULER
from twinstore.testing.scheduler.builders import make_audit_record, make_schedule
from twinstore_backfill.copy.options import CopyOptions
from twinstore_backfill.outcome import Exit, PreflightError
from twinstore_backfill.plan import plan_copy

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pymongo.database import Database

    from tests.support.databases import PostgresDatabase, PostgresServer
    from twinstore_embedded import MongoServer

__all__ = ["admin", "guarded"]

DAY: Final = 86_400


@dataclass(frozen=True)
class Foreign:
    """A foreign database, and the pair that reads it as a user with no other right."""

    database: Database[Document]
    reader_url: str
    directory: Path

    @contextmanager
    def pair(self) -> Iterator[Pair]:
        mongo = {"ConnectionString": self.reader_url, "Database": self.database.name}
        persistence = {"Mongo": mongo, "Memory": {"Store": uuid4().hex}}
        settings = load_settings({"Persistence": persistence}, environ={})
        with ExitStack() as stack:
            source = stack.enter_context(open_store("scheduler", "mongo", settings, read_only=True))
            target = stack.enter_context(open_store("scheduler", "memory", settings))
            yield Pair(source, target, self.directory)


@pytest.fixture
def foreign(guarded: MongoServer, admin: MongoClient[Document], tmp_path: Path) -> Iterator[Foreign]:
    name = f"foreign_{uuid4().hex[:8]}"
    yield Foreign(admin[name], guarded.user_url(name, "reader", "read"), tmp_path)
    admin.drop_database(name)


def test_collation_validator_indexes_and_ttl_of_their_own_stay_as_they_are(
    foreign: Foreign, admin: MongoClient[Document]
) -> None:
    database = foreign.database
    insensitive = Collation("en", strength=1)
    refusing: Document = {"$jsonSchema": {"required": ["tenantId", "never"]}}
    for name in ("schedules", "triggers", "runs"):
        database.create_collection(name, collation=insensitive)
    database["runs"].create_index("finishedAt", expireAfterSeconds=180 * DAY, name="theirs")
    database["runs"].create_index([("tenantId", 1), ("state", -1)], name="also theirs")
    # A capped collection has no room for ever, but what it holds is read like anything else.
    database.create_collection("audit", capped=True, size=1 << 20, collation=insensitive)
    recent = datetime.now(UTC).replace(microsecond=0) - timedelta(days=2)
    # A tenant that their collation does not distinguish from the other one.
    others = [{**run, "tenantId": "Acmé"} for run in foreign_runs("other", 9)]
    database["runs"].insert_many([*foreign_runs("acme", 9, ended=recent), *others])
    schedules = [
        make_schedule("acme", f"s-{number}", name=f"n {number}", enabled=False) for number in range(5)
    ]
    database["schedules"].insert_many(document(item.wire()) for item in schedules)
    records = [make_audit_record("acme", f"audit-{number}") for number in range(7)]
    database["audit"].insert_many(document(item.wire()) for item in records)
    # Later than the rows, all of which it would refuse.
    database.command("collMod", "runs", validator=refusing)
    before = footprint(admin, database.name)
    with foreign.pair() as pair:
        assert plan_copy(pair.source, pair.target, CopyOptions()).rows == 30
        for execute in (False, True):
            result = pair.copy(as_of=None, execute=execute)
            assert (result.exit, result.totals.all()["written"]) == (Exit.OK, 30)
        report = pair.verify(as_of=None)
        assert (report.verdict, report.reasons, report.documents_equal) == ("PASS", (), 30)
        assert pair.copy(as_of=None).totals.all()["unchanged"] == 30
    assert footprint(admin, database.name) == before


def test_a_ttl_by_another_instant_is_reported_before_it_takes_effect(foreign: Foreign) -> None:
    foreign.database["runs"].create_index("createdAt", expireAfterSeconds=900 * DAY)
    foreign.database["audit"].create_index("seenAt", expireAfterSeconds=3600)
    foreign.database["runs"].create_index("finishedAt", expireAfterSeconds=180 * DAY)
    foreign.database["runs"].insert_many(foreign_runs("acme", 2))
    with foreign.pair() as pair:
        told = [item for inventory in pair.source.bulk.inventory() for item in inventory.remarks]
        (age,) = {item.removed_after for item in pair.source.bulk.inventory() if item.entity == "runs"}
    assert age == timedelta(days=180)
    assert [item.partition(" by itself, ")[2].partition(";")[0] for item in told if "by itself" in item] == [
        "77,760,000 s after their createdAt",
        "3,600 s after their seenAt",
    ]


@pytest.mark.parametrize("host", [pytest.param("127.0.0.1", marks=pytest.mark.long), "localhost"])
def test_a_store_is_not_copied_onto_itself_by_another_name_or_user(
    foreign: Foreign, guarded: MongoServer, host: str
) -> None:
    """The reader learns the members of the set, and the administrator its number."""
    foreign.database["runs"].insert_many(foreign_runs("acme", 3))
    mongo = {"ConnectionString": guarded.url.replace("127.0.0.1", host), "Database": foreign.database.name}
    settings = load_settings({"Persistence": {"Mongo": mongo}}, environ={})
    with foreign.pair() as pair, open_store("scheduler", "mongo", settings) as same:
        assert same.bulk.identity != pair.source.bulk.identity
        twice = Pair(pair.source, same, foreign.directory)
        for step in (twice.copy, twice.verify):
            with pytest.raises(ValidationError, match="are the same store"):
                step()


def test_a_time_series_is_refused_with_what_to_do(foreign: Foreign) -> None:
    foreign.database.create_collection("runs", timeseries={"timeField": "createdAt"})
    with foreign.pair() as pair, pytest.raises(PreflightError, match="is a time series") as refused:
        pair.copy()
    assert "copy it into an ordinary collection" in refused.value.message


@pytest.mark.parametrize("host", [pytest.param("127.0.0.1", marks=pytest.mark.long), "localhost"])
def test_a_postgresql_is_not_copied_onto_itself_by_another_name_or_user(
    postgres_database: PostgresDatabase, tmp_path: Path, host: str
) -> None:
    """One role may learn the number of the cluster, and the other may not."""
    persistence = cast("dict[str, Any]", postgres_database.config["Persistence"])
    ours = load_settings({"Persistence": persistence}, environ={})
    url = postgres_database.superuser_url.replace("127.0.0.1", host)
    theirs = load_settings({"Persistence": {"Postgres": {"ConnectionString": url}}}, environ={})
    with (
        psycopg.connect(postgres_database.superuser_url, autocommit=True) as superuser,
        open_store("scheduler", "postgres", theirs, read_only=True) as source,
        open_store("scheduler", "postgres", ours) as same,
    ):
        superuser.execute("REVOKE EXECUTE ON FUNCTION pg_control_system() FROM PUBLIC")
        assert same.bulk.identity != source.bulk.identity
        pair = Pair(source, same, tmp_path)
        for step in (pair.copy, pair.verify):
            with pytest.raises(ValidationError, match="are the same store"):
                step()


PARTITIONED: Final = """
CREATE TABLE scheduler.parted (LIKE scheduler.runs INCLUDING DEFAULTS) PARTITION BY HASH (tenant_id);
CREATE TABLE scheduler.parted_0 PARTITION OF scheduler.parted FOR VALUES WITH (MODULUS 2, REMAINDER 0);
CREATE TABLE scheduler.parted_1 PARTITION OF scheduler.parted FOR VALUES WITH (MODULUS 2, REMAINDER 1);
INSERT INTO scheduler.parted SELECT * FROM scheduler.runs;
DROP TABLE scheduler.runs CASCADE;
ALTER TABLE scheduler.parted RENAME TO runs;
CREATE INDEX theirs ON scheduler.runs (state, created_at DESC);
"""
GENERATED: Final = """
ALTER TABLE scheduler.runs DROP COLUMN schema_version;
ALTER TABLE scheduler.runs ADD COLUMN schema_version text GENERATED ALWAYS AS ('scheduler.run@1') STORED;
"""
VIEW: Final = """
ALTER TABLE scheduler.runs RENAME TO their_runs;
CREATE VIEW scheduler.runs AS SELECT * FROM scheduler.their_runs;
"""


@pytest.mark.parametrize(
    "change",
    [
        *(pytest.param(change, marks=pytest.mark.long) for change in (PARTITIONED, GENERATED)),
        PARTITIONED + GENERATED,
        VIEW,
    ],
)
def test_tables_of_other_kinds_are_read_by_a_role_that_may_select_and_nothing_else(
    postgres_database: PostgresDatabase, postgres_server: PostgresServer, tmp_path: Path, change: str
) -> None:
    role = f"reader_{uuid4().hex[:8]}"
    name = sql.Identifier(role)
    persistence = cast("dict[str, Any]", postgres_database.config["Persistence"])
    ours = load_settings({"Persistence": persistence}, environ={})
    with open_store("scheduler", "postgres", ours) as store:
        fill(store.storage)
    with psycopg.connect(postgres_database.superuser_url, autocommit=True) as superuser:
        superuser.execute(change.encode())
        for statement in (
            "CREATE ROLE {} LOGIN BYPASSRLS PASSWORD 'reader'",
            "GRANT USAGE ON SCHEMA scheduler TO {}",
            "GRANT SELECT ON ALL TABLES IN SCHEMA scheduler TO {}",
        ):
            superuser.execute(sql.SQL(statement).format(name))
        before = rows_and_writers(superuser)
        url = postgres_url(postgres_database.superuser_url, user=role, password="reader")
        theirs = {"Postgres": {"ConnectionString": url}, "Memory": {"Store": uuid4().hex}}
        settings = load_settings({"Persistence": theirs}, environ={})
        with (
            open_store("scheduler", "postgres", settings, read_only=True) as source,
            open_store("scheduler", "memory", settings) as target,
        ):
            pair = Pair(source, target, tmp_path)
            assert pair.copy().exit is Exit.OK
            report = pair.verify()
            assert (report.verdict, report.reasons) == ("PASS", ())
        assert rows_and_writers(superuser) == before
        superuser.execute(sql.SQL("DROP OWNED BY {}").format(name))
    postgres_server.admin.execute(sql.SQL("DROP ROLE {}").format(name))


def rows_and_writers(superuser: psycopg.Connection[Any]) -> list[Any]:
    """Return every row with its place and its last writer, in partitions and behind views too."""
    found = superuser.execute(
        "SELECT relname FROM pg_class c WHERE c.relnamespace = 'scheduler'::regnamespace "
        "AND c.relkind = 'r' ORDER BY 1"
    ).fetchall()
    names = [name for (name,) in found]
    assert {entity.name for entity in SCHEDULER.entities} - {"runs"} <= set(names)
    query = "SELECT ctid::text, xmin::text, t::text FROM scheduler.{} AS t ORDER BY ctid"
    return [
        (name, superuser.execute(sql.SQL(query).format(sql.Identifier(name))).fetchall()) for name in names
    ]
