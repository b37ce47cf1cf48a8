"""The commands for differences: inspect one row, repair, remove, compare again.

In memory, but for what the right of a role or an identity of a server decides.
"""

from __future__ import annotations

import json
import re
import stat
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import psycopg
import pytest
from bson import ObjectId
from pymongo import MongoClient

import twinstore
from tests.migration_tool.verify.test_corruptions import merged_settings
from tests.migration_tool.verify.test_verify import change, remove
from tests.support.copies import Answer, fill, invoke, memory_pair, open_store, write_config
from tests.support.databases import APP_ROLE
from twinstore.config import load_settings
from twinstore.scheduler.catalog import RUNS, SCHEDULES
from twinstore.testing.scheduler.builders import make_run, make_schedule
from twinstore_backfill.outcome import Exit
from twinstore_memory.rows import encode, store_unchecked, stored_rows

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.support.copies import MemoryPair
    from tests.support.databases import MongoDatabase, PostgresDatabase
    from twinstore.catalog.keys import Key
    from twinstore_memory.rows import DocumentRow

DAMAGE: Final = {
    "runs": "UPDATE scheduler.runs SET state = 3 WHERE id = 'acme-run-1'",
    "audit": "UPDATE scheduler.audit SET category = upper(category) WHERE id = 'acme-audit-1'",
    "missing": "DELETE FROM scheduler.run_summaries WHERE tenant_id || schedule_id = 'acmeacme-schedule-1'",
    "tenant": "UPDATE scheduler.runs SET tenant_id = 'globex' WHERE id = 'acme-run-2'",
    "extra": 'INSERT INTO scheduler.runs SELECT (jsonb_populate_record(r, \'{"id": "extra"}\')).*'
    " FROM scheduler.runs r WHERE id = 'acme-run-3'",
    "extra trigger": "UPDATE scheduler.triggers SET enabled = NOT enabled WHERE tenant_id = 'acme'",
}


@dataclass(frozen=True)
class Shop:
    """The commands on a copied pair of stores."""

    before: tuple[object, ...]
    sides: tuple[object, ...]
    directory: Path
    capsys: pytest.CaptureFixture[str]

    def __call__(self, command: str, *more: object) -> Answer:
        return invoke(self.capsys, *self.before, *command.split(), *self.sides, *more)

    @property
    def report(self) -> Path:
        return self.directory / "report"


@dataclass(frozen=True)
class Servers(Shop):
    """Two servers, with a connection past every rule to each."""

    sql: psycopg.Connection
    mongo: Any


@dataclass(frozen=True)
class Memories(Shop):
    """Two stores of this process."""

    pair: MemoryPair

    def on_target(self, command: str, *more: object) -> Answer:
        sides = (*self.sides[:2], *self.sides[4:6], *self.sides[8:])
        return invoke(self.capsys, *self.before, *command.split(), *sides, *more)


@pytest.fixture
def on_servers(
    mongo_database: MongoDatabase,
    postgres_database: PostgresDatabase,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> Iterator[Servers]:
    config = write_config(tmp_path / "settings.json", merged_settings(mongo_database, postgres_database))
    with open_store("scheduler", "mongo", load_settings(config, environ={})) as store:
        store.storage.initializer.ensure_migrations()
        fill(store.storage, ["acme", "globex"])
    sides = ("--module", "scheduler", "--from", "mongo", "--to", "postgres")
    with (
        psycopg.connect(postgres_database.superuser_url, autocommit=True) as sql,
        MongoClient[dict[str, Any]](mongo_database.url) as client,
    ):
        mongo = client[mongo_database.name]
        shop = Servers(("--config", config, "backfill"), sides, tmp_path, capsys, sql, mongo)
        assert shop("copy", "--execute", "--out", tmp_path / "copy").code == Exit.OK
        yield shop


@pytest.fixture
def shop(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Iterator[Memories]:
    with memory_pair(tmp_path) as pair:
        fill(pair.source.storage)
        shop = Memories(("backfill",), pair.sides, tmp_path, capsys, pair)
        assert shop("copy", "--execute", "--out", tmp_path / "copy").code == Exit.OK
        yield shop


def damaged(shop: Memories) -> Answer:
    """Change a run, remove one and add one, and compare."""
    target = shop.pair.stores[1]
    change(target, RUNS, "acme-run-1", scheduleId="other")
    remove(target, RUNS, "acme-run-2")
    store_unchecked(target, encode(RUNS, make_run("acme", "extra")))
    answer = shop("verify", "--out", shop.report)
    assert answer.code == Exit.DIFFERENT
    return answer


def runs_in(shop: Memories) -> dict[Key, DocumentRow]:
    return dict(stored_rows(shop.pair.stores[1], RUNS))


def test_a_repair_by_key_list_ends_with_an_equal_recheck_and_then_all_is_equal(on_servers: Servers) -> None:
    shop = on_servers
    for statement in DAMAGE.values():
        found: Any = statement
        assert shop.sql.execute(found).rowcount
    assert shop("verify", "--out", shop.report).code == Exit.DIFFERENT
    dry = shop("repair", "--in", shop.report, "--format", "json")
    assert (dry.code, dry.json["remove"], dry.json["without_key"]) == (Exit.DIFFERENT, {"runs": 1}, {})
    assert dry.json["copy"] == {"triggers": 3, "runs": 2, "run_summaries": 1, "audit": 1}
    half = shop("repair", "--in", shop.report, "--execute", "--format", "json")
    assert "recheck" in half.json, half
    assert (half.code, half.json["recheck"]["verdict"]) == (Exit.DIFFERENT, "FAIL")
    assert half.json["repaired"]["written"] == {"triggers": 3, "runs": 2, "run_summaries": 1}
    # The application may only append to the audit, unless an administrator grants more for the repair.
    assert half.json["repaired"]["refused"]["audit"] == 1
    assert "append-only" in half.json["repaired"]["reasons"][0]
    assert (
        "Rows of audit are append-only: `repair` replaces them only while"
        in half.json["recheck"]["next_step"]
    )
    shop.sql.execute(f"GRANT DELETE ON scheduler.audit TO {APP_ROLE}")
    whole = shop("repair", "--in", shop.report, "--execute", "--delete-extra", "--format", "json")
    shop.sql.execute(f"REVOKE DELETE ON scheduler.audit FROM {APP_ROLE}")
    assert "recheck" in whole.json, whole
    assert (whole.code, whole.json["recheck"]["verdict"]) == (Exit.OK, "PARTIAL")
    assert whole.json["repaired"]["removed"] == {"runs": 1}
    assert whole.json["repaired"]["written"] == {"triggers": 0, "runs": 0, "run_summaries": 0, "audit": 1}
    again = shop("recheck", "--in", shop.report, "--out", shop.report, "--format", "json")
    assert (again.code, again.json["verdict"], again.json["mode"]) == (Exit.OK, "PARTIAL", "recheck")
    assert (again.json["cutover_ready"], again.json["documents_equal"]) == (False, 7)
    assert shop("verify").code == Exit.OK
    # A copy also reports what the role may not remove.
    shop.sql.execute(
        'INSERT INTO scheduler.audit SELECT (jsonb_populate_record(a, \'{"id": "extra"}\')).* '
        "FROM scheduler.audit AS a WHERE id = 'acme-audit-0'"
    )
    overwriting = ("--on-conflict", "overwrite", "--max-conflicts", 99, "--out", shop.directory / "copy")
    left = shop("copy", *overwriting, "--entity", "audit", "--delete-extra", "--execute")
    assert (left.code, "grant it DELETE on the table" in left.out) == (Exit.DIFFERENT, True), left.out


def test_a_recheck_finds_what_still_differs_and_names_only_that(shop: Memories) -> None:
    damaged(shop)
    remove(shop.pair.stores[1], RUNS, "extra")
    answer = shop("recheck", "--in", shop.report / "differences.ndjson", "--out", shop.directory / "again")
    assert answer.code == Exit.DIFFERENT
    lines = (shop.directory / "again" / "differences.ndjson").read_text().splitlines()
    assert {json.loads(line)["kind"] for line in lines} == {"different", "missing"}


def test_a_row_that_the_source_has_by_now_is_not_removed(shop: Memories) -> None:
    damaged(shop)
    shop.pair.source.storage.runs.create(make_run("acme", "extra"))
    answer = shop("repair", "--in", shop.report, "--execute", "--delete-extra", "--format", "json")
    assert (answer.json["repaired"]["removed"], answer.json["repaired"]["kept"]) == ({"runs": 0}, {"runs": 1})


def test_differences_of_other_stores_and_other_files_are_refused(shop: Memories) -> None:
    damaged(shop)
    report = shop.report / "parity-report.json"
    document = json.loads(report.read_text())
    document["target"]["identity"] = "another"
    report.write_text(json.dumps(document))
    before = runs_in(shop)
    answer = shop("repair", "--in", shop.report, "--execute", "--delete-extra")
    assert (answer.code, "is of another target" in answer.err) == (Exit.USAGE, True)
    assert shop("recheck", "--in", shop.directory / "nothing").code == Exit.USAGE
    for line in (
        "no json",
        '{"entity": "runs", "kind": "extra"}',
        '{"entity": "x", "kind": "extra", "key": ["a"]}',
    ):
        (shop.directory / "d.ndjson").write_text(f"{line}\n")
        answer = shop("repair", "--in", shop.directory / "d.ndjson", "--execute", "--delete-extra")
        assert (answer.code, "line 1" in answer.err) == (Exit.USAGE, True)
    assert runs_in(shop) == before


def test_a_copy_removes_what_only_the_target_has_on_request_alone(shop: Memories) -> None:
    damaged(shop)
    overwriting = ("--on-conflict", "overwrite", "--max-conflicts", 99, "--out", shop.directory / "copy")
    dry = shop("copy", *overwriting, "--delete-extra", "--format", "json")
    assert (dry.code, dry.json["extra"]) == (
        Exit.DIFFERENT,
        {"found": {"runs": 1}, "removed": {}, "without_key": 0, "recheck": None, "reasons": []},
    )
    assert ("extra",) in runs_in(shop)
    done = shop("copy", *overwriting, "--delete-extra", "--execute", "--format", "json")
    assert (done.json["extra"]["removed"], done.json["extra"]["recheck"]) == ({"runs": 1}, "PARTIAL")
    assert ("extra",) not in runs_in(shop)


def test_one_row_is_shown_with_its_values_only_on_request(shop: Memories) -> None:
    change(shop.pair.stores[1], RUNS, "acme-run-1", error="planted-value")
    plain = shop("diff", "--entity", "runs", "--key", "acme-run-1")
    assert (plain.code, "error" in plain.out, "planted-value" in plain.out) == (Exit.DIFFERENT, True, False)
    shown = shop("diff", "--entity", "runs", "--key", "acme-run-1", "--show-values", "--format", "json")
    (place,) = shown.json["differences"]
    assert (place["path"], place["source"], place["target"]) == ("doc.error", None, "planted-value")
    equal = shop("diff", "--entity", "runs", "--key", "acme-run-2")
    assert (equal.code, equal.out.strip()) == (Exit.OK, "runs acme-run-2: equal")
    two = ("--entity", "run_summaries", "--key", "acme", "--key", "acme-schedule-0")
    assert shop("diff", *two).code == Exit.OK
    assert shop("diff", "--entity", "run_summaries", "--key", "acme").code == Exit.USAGE
    assert shop("diff", "--entity", "runs", "--key", "nobody").code == Exit.USAGE


def mend(shop: Memories, *names: str) -> None:
    """Make bad rows of the source good ones."""
    for name in names:
        store_unchecked(shop.pair.stores[0], encode(RUNS, make_run("acme", name)))


class TestQuarantine:
    @pytest.fixture
    def bad(self, shop: Memories) -> Memories:
        for number in range(3):
            row = encode(RUNS, make_run("acme", f"bad-{number}"))
            store_unchecked(shop.pair.stores[0], replace(row, document={**row.document, "secret": "pl4nted"}))
        assert shop("copy", "--execute", "--out", shop.directory / "copy").code == Exit.INCONCLUSIVE
        return shop

    def test_it_is_listed_shown_and_exported_and_values_only_on_request(self, bad: Memories) -> None:
        answer = bad.on_target("quarantine list", "--format", "json")
        assert (answer.code, answer.json["count"]) == (Exit.OK, 3)
        reasons = [(reason["entity"], reason["documents"]) for reason in answer.json["reasons"]]
        assert reasons == [("runs", 3)]
        assert [item["key"] for item in answer.json["shown"]] == [["bad-0"], ["bad-1"], ["bad-2"]]
        assert "pl4nted" not in answer.out
        chosen = ("--entity", "runs", "--key", "bad-1")
        assert "secret" in bad.on_target("quarantine show", *chosen).out
        assert "pl4nted" not in bad.on_target("quarantine show", *chosen).out
        assert "pl4nted" in bad.on_target("quarantine show", *chosen, "--show-values").out
        assert bad.on_target("quarantine show", "--entity", "runs", "--key", "good").code == Exit.USAGE
        file = bad.directory / "all.ndjson"
        assert bad.on_target("quarantine export", "--out", file).code == Exit.OK
        for place, code, problem in (
            (file.parent, Exit.USAGE, "is a directory; name the file to write"),
            (file / "below", Exit.FAILED, "Nothing more can be written to"),
        ):
            refused = bad.on_target("quarantine export", "--out", place)
            assert (refused.code, problem in refused.err) == (code, True)
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
        assert len(file.read_text().splitlines()) == 3
        # A job that was never started has none.
        unknown = bad("quarantine retry", "--entity", "runs", "--execute")
        assert (unknown.code, "No copy with these options" in unknown.err) == (Exit.USAGE, True)
        assert bad.on_target("quarantine list", "--job", "nobody").code == Exit.USAGE
        # What two have in common is one reason.
        for key in "xyz":
            store_unchecked(bad.pair.stores[0], encode(SCHEDULES, make_schedule("acme", key, name="taken")))
        assert bad("copy", "--execute", "--out", bad.directory / "copy").code == Exit.INCONCLUSIVE
        reasons = bad.on_target("quarantine list", "--format", "json").json["reasons"]
        assert [(reason["entity"], reason["documents"]) for reason in reasons] == [
            ("runs", 3),
            ("schedules", 2),
        ]

    def test_they_are_tried_again_once_they_are_repaired(self, bad: Memories) -> None:
        mend(bad, "bad-0", "bad-1")
        dry = bad("quarantine retry")
        assert (dry.code, "3" in dry.out) == (Exit.DIFFERENT, True)
        out = ("--out", bad.directory / "copy")
        assert bad("quarantine retry", *out, "--execute").code == Exit.INCONCLUSIVE
        left = bad.on_target("quarantine list", "--format", "json")
        assert [item["key"] for item in left.json["shown"]] == [["bad-2"]]
        remove(bad.pair.stores[0], RUNS, "bad-2")
        assert bad("quarantine retry", *out, "--execute").code == Exit.OK
        assert bad.on_target("quarantine list").out.strip() == "The quarantine is empty."
        assert bad("verify").code == Exit.OK

    def test_those_of_a_copy_with_options_of_its_own_are_found_by_the_same_options(
        self, bad: Memories
    ) -> None:
        about = (
            "--key-from",
            "bad",
            "--as-of",
            "2025-10-27T00:00:00+00:00",
            "--ignore-unknown",
            "runs.legacy",
        )
        part = ("--entity", "runs", *about, "--out", bad.directory / "part")
        copied = bad("copy", *part, "--execute", "--format", "json")
        assert (copied.code, copied.json["totals"]["quarantined"]) == (Exit.INCONCLUSIVE, 3)
        mend(bad, "bad-0", "bad-1", "bad-2")
        # Not the ignored property: rules are no part of what identifies a job.
        for left_out in (slice(2, 4), slice(4, 6)):
            fewer = (*part[: left_out.start], *part[left_out.stop :])
            assert bad("quarantine retry", *fewer).code == Exit.USAGE
        tried = bad("quarantine retry", *part, "--execute", "--format", "json")
        assert (tried.code, tried.json["job"]["id"]) == (Exit.OK, copied.json["job"]["id"])


def test_an_identity_that_a_client_generated_is_different_and_repaired_once_for_all(
    on_servers: Servers,
) -> None:
    shop, database = on_servers, on_servers.mongo
    for name, identity in (("run_summaries", ObjectId()), ("locks", ObjectId()), ("execution_logs", "a:1")):
        document = database[name].find_one_and_delete({})
        # The validator refuses the next write of the service to such a document.
        changed = [{**document, "_id": identity}]
        database.command("insert", name, documents=changed, bypassDocumentValidation=True)
    back = ("--module", "scheduler", "--from", "postgres", "--to", "mongo", "--format", "json")
    command = shop.before
    found = invoke(shop.capsys, *command, "verify", *back, "--out", shop.report)
    fields = {item["entity"]: item["fields"][0]["path"] for item in found.json["entities"] if item["fields"]}
    assert fields == dict.fromkeys(("execution_logs", "run_summaries", "locks"), "beside._id")
    mended = invoke(shop.capsys, *command, "repair", *back, "--in", shop.report, "--execute")
    assert (mended.code, mended.json["recheck"]["verdict"]) == (Exit.OK, "PARTIAL")
    assert mended.json["repaired"]["written"] == dict.fromkeys(fields, 1)
    assert invoke(shop.capsys, *command, "verify", *back).json["verdict"] == "PASS"


GUIDE: Final = Path(__file__).parents[3] / "docs" / "backfill.md"


@pytest.mark.parametrize("role", ["app", "owner"])
def test_a_row_is_removed_as_the_guide_says_and_by_nothing_less(
    role: str, postgres_database: PostgresDatabase
) -> None:
    (block,) = re.findall(r"```sql\n(BEGIN;.*?)```", GUIDE.read_text(), re.DOTALL)
    (delete,) = re.findall(r"DELETE .*;", block)
    with twinstore.open_storage(postgres_database.config) as storage:
        for name in ("run-7", "run-8"):
            storage.scheduler.runs.create(make_run("acme", name))
    url = postgres_database.app_url if role == "app" else postgres_database.owner_url
    with psycopg.connect(url, autocommit=True) as connection:
        # As the guide warns: without a tenant nothing is there.
        assert connection.execute(delete).rowcount == 0
        for statement in block.strip().splitlines():
            found = connection.execute(statement.encode())
            if statement == delete:
                assert found.rowcount == 1
    with twinstore.open_storage(postgres_database.config) as storage:
        assert [run.id for run in storage.scheduler.runs.list("acme")] == ["run-8"]
