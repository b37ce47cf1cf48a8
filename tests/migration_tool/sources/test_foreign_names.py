"""Names that begin with ``_`` and that no description creates are unknown properties, on either side."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, cast

import bson
import pytest
from bson import Binary, Code, Decimal128, ObjectId, Regex
from bson.raw_bson import RawBSONDocument
from pymongo import MongoClient

from tests.migration_tool.verify.test_corruptions import merged_settings
from tests.support.copies import Answer, fill, invoke, open_store, write_config
from twinstore.catalog.row import Row
from twinstore.config import load_settings
from twinstore.fast.library import SWITCH
from twinstore.scheduler.catalog import EXECUTION_LOGS, RUNS
from twinstore.testing.scheduler.builders import make_run
from twinstore.testing.scheduler.examples import SCHEDULER_EXAMPLES
from twinstore_backfill.outcome import Exit
from twinstore_backfill.rules.model import NO_RULES
from twinstore_backfill.rules.reading import with_options
from twinstore_backfill.selftest.rows import sample_source
from twinstore_backfill.verify.rules import verifier_changes
from twinstore_mongo.mapping.codec import codec_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.support.databases import MongoDatabase, MongoServer, PostgresDatabase
    from twinstore.scheduler.execution_logs import ExecutionLogEntry

Document = dict[str, Any]
NOON: Final = datetime(2025, 10, 26, 12, tzinfo=UTC)
SECRET: Final = "a-value-of-mine"
# Of each kind that a client gives back.
VALUES: Final[tuple[object, ...]] = (
    *({"a": {"b": [1, 2.5, None]}}, [{"a": NOON}, 3.0], 1.5, NOON, True, None, 2**40, SECRET),
    *(Decimal128("1.50"), ObjectId(), Binary(b"x", 4), Regex("^a", "i"), Code("f()")),
)
RUN_COUNT: Final = 240
TEXT_VALUE: Final = b"\x02\x00\x00\x00a\x00"
# Types that a client gives as something else.
ALTERED: Final = {0x06: b"", 0x0E: TEXT_VALUE, 0x0C: TEXT_VALUE + b"twelve bytes"}
EVERY_V: Final = '[[ignore-unknown]]\npath = "*.__v"\nreason = "left by a mapper"\n'


@dataclass(frozen=True)
class Migration:
    """A source in MongoDB, a target, and the commands between them."""

    source: Any
    target: Any
    config: Path
    target_config: Path
    to: str
    directory: Path
    capsys: pytest.CaptureFixture[str]

    def __call__(self, name: str, *more: object, job: str = "", path: str = "native") -> Answer:
        """Run a command with the fast path or without it."""
        front: tuple[object, ...] = ()
        if job:
            (self.directory / "job.toml").write_text(job)
            front = ("--job-file", self.directory / "job.toml")
        out = () if name in {"diff", "plan"} else ("--out", self.directory / name)
        sides = ("--source-config", self.config, "--target-config", self.target_config)
        names = ("--module", "scheduler", "--from", "mongo", "--to", self.to)
        with pytest.MonkeyPatch.context() as patch:
            if path == "off":
                patch.setenv(SWITCH, "off")
            return invoke(self.capsys, "backfill", *front, name, *names, *sides, *out, *more, *JSON)

    def both(self, name: str, *more: object, job: str = "") -> Answer:
        """Run a command in both ways, whose answers agree but for the envelope."""
        one, other = (self(name, *more, job=job, path=path) for path in ("native", "off"))
        assert (one.code, without_envelope(one)) == (other.code, without_envelope(other))
        return one

    def put(self, entity: str, key: object, element: tuple[int, bytes, bytes]) -> None:
        """Give a document of the source another element of a name, of any type."""
        kind, name, value = element
        found = self.source[entity].find_one_and_delete({"_id": key})
        found.pop(name.decode(), None)
        rest, new = bson.encode(found)[4:-1], bytes([kind]) + name + b"\x00" + value
        inner = new + rest if name == b"_id" else rest + new
        raw = (len(inner) + 5).to_bytes(4, "little") + inner + b"\x00"
        self.source[entity].insert_one(RawBSONDocument(raw), bypass_document_validation=True)


JSON: Final = ("--format", "json")


def ignored_of(answer: Answer) -> dict[tuple[str, str], int]:
    """Return how many documents lost an ignored property in a copy, by entity and tenant."""
    return {
        (item["entity"], tenant["tenant"]): tenant["ignored"]
        for item in answer.json["entities"]
        for tenant in item["tenants"]
    }


def without_envelope(answer: Answer) -> Document:
    left_out = {"envelope", "fast_path", "as_of"}
    return {name: value for name, value in answer.json.items() if name not in left_out}


@pytest.fixture
def to_postgres(
    mongo_database: MongoDatabase,
    postgres_database: PostgresDatabase,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Migration]:
    """Return a source with runs for several ranges of digests, and an empty PostgreSQL."""
    monkeypatch.setattr("twinstore_backfill.verify.partition.ROWS_PER_DIGEST", RUN_COUNT // 3)
    config = write_config(tmp_path / "settings.json", merged_settings(mongo_database, postgres_database))
    with open_store("scheduler", "mongo", load_settings(config, environ={})) as store:
        store.storage.initializer.ensure_migrations()
        fill(store.storage, ["acme"])
    with MongoClient[Document](mongo_database.url) as client:
        source = client[mongo_database.name]
        codec = codec_of(RUNS)
        runs = (make_run(f"t{number % 3}", f"run-{number:04}") for number in range(RUN_COUNT))
        source["runs"].insert_many(codec.encode(Row(run)) for run in runs)
        yield Migration(source, None, config, config, "postgres", tmp_path, capsys)


@pytest.fixture
def to_mongo(
    mongo_database: MongoDatabase,
    mongo_server: MongoServer,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> Iterator[Migration]:
    """Return a source in MongoDB and an empty target in MongoDB."""
    with mongo_server.migrated_database() as other, MongoClient[Document](mongo_database.url) as client:
        configs = []
        for name, database in (("source", mongo_database), ("target", other)):
            settings = {**database.config, "Scheduler": {"Storage": {"RunRetentionDays": 0}}}
            configs.append(write_config(tmp_path / f"{name}.json", settings))
        with open_store("scheduler", "mongo", load_settings(configs[0], environ={})) as store:
            store.storage.initializer.ensure_migrations()
            fill(store.storage, ["acme"])
        source, target = client[mongo_database.name], client[other.name]
        yield Migration(source, target, configs[0], configs[1], "mongo", tmp_path, capsys)


def counts_of(answer: Answer, entity: str) -> Document:
    (found,) = (item["counts"] for item in answer.json["entities"] if item["entity"] == entity)
    return {name: count for name, count in found.items() if count}


def shares_of(answer: Answer) -> tuple[int, int]:
    found = (answer.json.get("envelope") or answer.json)["fast_path"]
    return found["rows"], found["of"]


def test_a_foreign_name_is_quarantined_and_nothing_of_it_is_lost_in_silence(to_postgres: Migration) -> None:
    runs, audit = to_postgres.source["runs"], to_postgres.source["audit"]
    changed = runs.update_many({"tenantId": "t0"}, {"$set": {"_updatedAt": NOON}}).modified_count
    audit.update_many({}, {"$set": {"_class": SECRET, "legacy": SECRET, "_nothing": None}})
    plan = to_postgres("plan")
    assert plan.json["unknown"] == ["runs._updatedAt", "audit._class", "audit.legacy"]
    assert SECRET not in plan.out
    assert to_postgres("plan", "--ignore-unknown", "*._class").json["unknown"] == [
        "runs._updatedAt",
        "audit.legacy",
    ]
    copied = to_postgres("copy", "--execute")
    assert copied.json["quarantine"]["count"] == changed + audit.count_documents({})
    assert {item["reason"] for item in copied.json["quarantine"]["shown"] if item["entity"] == "runs"} == {
        "Run _updatedAt: Unknown property; remove it or correct its name"
    }
    answer = to_postgres.both("verify")
    assert (answer.code, answer.json["verdict"]) == (Exit.INCONCLUSIVE, "INCONCLUSIVE")
    assert counts_of(answer, "runs") == {"equal": RUN_COUNT + 7 - changed, "quarantined": changed}
    # The service goes on reading such a document.
    with open_store("scheduler", "mongo", load_settings(to_postgres.config, environ={})) as store:
        assert store.storage.runs.get("t0", "run-0000") is not None


def test_a_property_that_is_ignored_everywhere_keeps_the_fast_path(to_postgres: Migration) -> None:
    runs = to_postgres.source["runs"]
    for number, item in enumerate(runs.find({}, {"_id": 1})):
        runs.update_one(item, {"$set": {"__v": VALUES[number % len(VALUES)]}})
    to_postgres.source["audit"].update_many({}, {"$set": {"__v": 0}})
    with_v = runs.count_documents({"__v": {"$exists": True}}) + 4
    without_reason = ("--ignore-unknown", "*.__v")
    copied = to_postgres("copy", "--execute", *without_reason)
    assert (copied.code, copied.json["quarantine"]["count"]) == (Exit.OK, 0)
    rows, of = shares_of(copied)
    assert (rows >= RUN_COUNT, of > rows) == (True, True)
    again = to_postgres("copy", "--execute", *without_reason, path="off")
    assert (again.code, again.json["totals"]["written"]) == (Exit.OK, 0)
    # Counted with the fast path and without it, by owner too.
    for answer in (copied, again):
        assert answer.json["totals"]["ignored"] == with_v
        assert ignored_of(answer) == ignored_of(copied)
    assert sum(ignored_of(copied).values()) == with_v

    ready = to_postgres.both("verify", job=EVERY_V)
    assert (ready.code, ready.json["verdict"], ready.json["cutover_ready"]) == (Exit.OK, "PASS", True)
    assert {item["name"]: item["documents"] for item in ready.json["equivalences"]}["ignored"] == with_v
    assert ready.json["ignored"] == [
        {"entity": "*", "path": "__v", "kind": "unknown", "reason": "left by a mapper"}
    ]
    assert shares_of(ready)[0] >= RUN_COUNT
    assert SECRET not in ready.out

    unproved = to_postgres.both("verify", *without_reason)
    assert (unproved.code, counts_of(unproved, "runs")["unproved"]) == (Exit.INCONCLUSIVE, with_v - 4)
    row = ("--entity", "runs", "--key", "run-0001")
    assert to_postgres("diff", *row).json["verdict"] == "stale"
    assert to_postgres("diff", *row, job=EVERY_V).json["verdict"] == "equal"


def test_types_that_no_copy_takes_lead_to_the_same_verdict_wherever_they_are(to_postgres: Migration) -> None:
    logs = to_postgres.source["execution_logs"]
    codec, example = codec_of(EXECUTION_LOGS), SCHEDULER_EXAMPLES.of(EXECUTION_LOGS)
    rows = [example.small("t0", f"log-{number}").evolve(run_id=f"run-{3 * number:04}") for number in range(3)]
    made = [codec.encode(Row(cast("ExecutionLogEntry", row))) for row in rows]
    logs.insert_many(made)
    job = EVERY_V.replace("*", "runs")
    assert to_postgres("copy", "--execute", job=job).code == Exit.OK
    clean = to_postgres.both("verify", job=job)
    assert (clean.code, clean.json["verdict"]) == (Exit.OK, "PASS")
    for number, (kind, value) in enumerate(ALTERED.items()):
        to_postgres.put("runs", f"run-{number:04}", (kind, b"_version", value))
        to_postgres.put("runs", f"run-{number + 10:04}", (kind, b"__v", value))
        # No server stores an undefined id.
        if kind != 0x06:
            to_postgres.put("execution_logs", made[number]["_id"], (kind, b"_id", value))
    answer = to_postgres.both("verify", job=job)
    assert (answer.code, answer.json["verdict"]) == (Exit.DIFFERENT, "FAIL")
    assert counts_of(answer, "runs") == {"equal": RUN_COUNT + 7 - 6, "stale": 6}
    assert counts_of(answer, "execution_logs")["stale"] == 2
    # The documents in other ranges count as before.
    assert shares_of(answer)[0] >= RUN_COUNT // 2


def test_what_a_copy_does_with_a_foreign_name_is_verified_and_repaired(
    to_mongo: Migration,
) -> None:
    assert to_mongo("copy", "--execute").code == Exit.OK
    source, target = to_mongo.source["runs"], to_mongo.target["runs"]
    target.update_one({"_id": "acme-run-1"}, {"$set": {"_theirs": 1}})
    source.update_one({"_id": "acme-run-2"}, {"$set": {"__v": 1}})
    for side in (source, target):
        side.update_one({"_id": "acme-run-3"}, {"$set": {"__v": 1}})
    found = to_mongo.both("verify")
    assert found.code == Exit.DIFFERENT
    assert counts_of(found, "runs") == {"equal": 4, "different": 1, "stale": 1, "undecodable": 1}
    copied = to_mongo.both("copy")
    assert (copied.json["totals"]["conflicts"], copied.json["totals"]["quarantined"]) == (1, 2)

    found = to_mongo.both("verify", job=EVERY_V)
    assert counts_of(found, "runs") == {"equal": 5, "different": 2}
    assert {item["path"].partition(" (")[0] for item in paths_of(found)} >= {"doc.__v", "doc._theirs"}
    copied = to_mongo.both("copy", job=EVERY_V)
    assert (copied.json["totals"]["conflicts"], copied.json["totals"]["quarantined"]) == (1, 0)
    repaired = to_mongo("repair", "--in", to_mongo.directory / "verify", "--execute", job=EVERY_V)
    assert (repaired.code, repaired.json["repaired"]["written"]) == (Exit.OK, {"runs": 2})
    assert not target.count_documents({"$or": [{"__v": 1}, {"_theirs": 1}]})
    assert to_mongo.both("verify", job=EVERY_V).json["verdict"] == "PASS"


def paths_of(answer: Answer) -> list[Document]:
    (found,) = (item["fields"] for item in answer.json["entities"] if item["entity"] == "runs")
    fields: list[Document] = found
    return fields


def test_a_null_that_both_sides_hold_leads_to_the_same_verdict_in_both_ways(to_mongo: Migration) -> None:
    assert to_mongo("copy", "--execute").code == Exit.OK
    for side in (to_mongo.source, to_mongo.target):
        side["schedules"].update_one(
            {"_id": "acme-schedule-0"}, {"$set": {"notify": None}}, bypass_document_validation=True
        )
        side["runs"].update_one(
            {"_id": "acme-run-1"}, {"$set": {"error": None, "deltas": None}}, bypass_document_validation=True
        )
    to_mongo.both("verify")


def test_a_name_that_the_description_creates_is_never_dropped_and_one_inside_of_another_is(
    to_mongo: Migration,
) -> None:
    jobs = to_mongo.source["graph_jobs"]
    jobs.update_many({}, {"$set": {"_createdAt": NOON}})
    to_mongo.source["runs"].update_many({}, {"$set": {"stats.old": 7}})
    paths = ("*._updatedAt", "*._createdAt", "*._version", "runs.stats.old")
    job = "".join(EVERY_V.replace("*.__v", path) for path in paths)
    assert to_mongo("copy", "--execute", job=job).code == Exit.OK
    for item in jobs.find():
        found = to_mongo.target["graph_jobs"].find_one({"_id": item["_id"]})
        assert found is not None
        assert (found["_updatedAt"], "_createdAt" in found) == (item["_updatedAt"], False)
    assert not to_mongo.target["runs"].count_documents({"stats.old": {"$exists": True}})
    assert to_mongo.both("verify", job=job).json["verdict"] == "PASS"


def test_a_self_test_takes_its_sample_without_what_is_ignored(to_mongo: Migration) -> None:
    to_mongo.source["runs"].update_many({}, {"$set": {"__v": 0}})
    rules = with_options(NO_RULES, ["*.__v"])
    with open_store("scheduler", "mongo", load_settings(to_mongo.config, environ={})) as store:
        changed = store.changed(verifier_changes(rules, store.bulk.entities()))
        left, taken = (sample_source(side.bulk, 50, 0) for side in (store, changed))
    assert not left["runs"].records
    assert (len(taken["runs"].records), taken["runs"].unreadable) == (7, 0)


def test_a_plan_names_the_option_to_paste(to_postgres: Migration, capsys: pytest.CaptureFixture[str]) -> None:
    to_postgres.source["audit"].update_many({}, {"$set": {"_my field": SECRET, "_\x1b[2J": 1}})
    sides = ("--module", "scheduler", "--from", "mongo", "--to", "postgres")
    answer = invoke(capsys, "--config", to_postgres.config, "backfill", "plan", *sides)
    assert "\n  --ignore-unknown 'audit.\"_my field\"'\n" in answer.out
    assert SECRET not in answer.out
    # No name of a document reaches the terminal as a command to it.
    assert "\x1b" not in answer.out
