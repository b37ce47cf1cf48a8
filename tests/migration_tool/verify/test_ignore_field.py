"""Known fields that a comparison ignores: counted and named, never PASS; no other difference is hidden."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

import psycopg
import pytest

from tests.migration_tool.verify.test_corruptions import merged_settings
from tests.support.copies import AS_OF, Pair, fill, invoke, memory_pair, open_store, write_config
from twinstore.bulk.port import Record
from twinstore.catalog.keys import KeyRange
from twinstore.catalog.tenancy import Tenant
from twinstore.config import load_settings
from twinstore.errors import ValidationError
from twinstore.scheduler.catalog import POLICY_JOBS, RUNS, SCHEDULER
from twinstore_backfill.ignored import check_ignored_fields, ignored_fields
from twinstore_backfill.outcome import Exit
from twinstore_backfill.report.texts import facts
from twinstore_backfill.verify.one_row import compare_row
from twinstore_backfill.verify.options import Approval, VerifyOptions

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.support.databases import MongoDatabase, PostgresDatabase


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[Pair]:
    """Return two sides that are equal, but for three runs whose numbers the target has changed."""
    with memory_pair(tmp_path) as pair:
        fill(pair.source.storage, ["acme"])
        pair.copy()
        for number in (1, 2, 4):
            found = pair.target.storage.runs.get("acme", f"acme-run-{number}")
            assert found is not None
            pair.target.storage.runs.update(found.evolve(stats=found.stats.evolve(queued=7, deltas=number)))
        yield pair


def ignoring(*texts: str, reason: str | None = None) -> dict[str, Any]:
    return {"ignored_fields": ignored_fields(texts, {texts[0]: reason} if reason else {})}


def test_the_field_is_counted_and_named_and_the_verdict_is_partial(pair: Pair) -> None:
    assert pair.verify().verdict == "FAIL"
    report = pair.verify(**ignoring("runs.stats", reason="counted anew by the new service"))
    assert (report.verdict, report.exit_code, report.cutover_ready) == ("PARTIAL", Exit.OK, False)
    assert {item.name: item.documents for item in report.equivalences}["ignored_field"] == 3
    (item,) = report.ignored
    assert (item.kind, item.path, item.reason) == ("field", "stats", "counted anew by the new service")
    assert ("Not compared", "runs.stats: counted anew by the new service") in facts(report)
    assert "--ignore-field" in report.next_step
    assert pair.verify(**ignoring("runs.stats"), require_ready=True).exit_code == Exit.INCONCLUSIVE


def test_equal_stores_are_not_proved_either_while_a_field_is_ignored(tmp_path: Path) -> None:
    with memory_pair(tmp_path) as pair:
        fill(pair.source.storage, ["acme"])
        pair.copy()
        report = pair.verify(**ignoring("runs.stats", reason="never mind"))
        assert (report.verdict, report.cutover_ready, report.equivalences) == ("PARTIAL", False, ())


def test_a_part_of_the_difference_is_not_enough(pair: Pair) -> None:
    report = pair.verify(**ignoring("runs.stats.queued"))
    (runs,) = (item for item in report.entities if item.entity == "runs")
    assert (report.verdict, runs.counts.different) == ("FAIL", 3)
    # Ignored differences are not listed with the others.
    assert {item.path for item in runs.fields} == {"doc.stats.deltas"}
    both = pair.verify(**ignoring("runs.stats.queued", "runs.stats.deltas"))
    assert (both.verdict, both.equivalences[0].documents) == ("PARTIAL", 3)


def test_one_row_is_compared_in_the_same_way(pair: Pair) -> None:
    key = ("acme-run-1",)
    fields = ignored_fields(["runs.stats"], {})
    found = compare_row(pair.source, pair.target, RUNS, key, AS_OF, ignored_fields=fields)
    assert (found.verdict, list(found.equivalences), list(found.places)) == (
        "equal",
        ["doc.stats (ignored_field)"],
        [],
    )
    assert compare_row(pair.source, pair.target, RUNS, key, AS_OF).verdict == "different"


def test_rows_that_one_side_lacks_are_found_all_the_same(pair: Pair) -> None:
    pair.source.storage.runs.create(
        cast("Any", pair.source.storage.runs.get("acme", "acme-run-1")).evolve(id="late")
    )
    report = pair.verify(**ignoring(*(f"runs.{name}" for name in ("stats", "error", "createdAt"))))
    (runs,) = (item for item in report.entities if item.entity == "runs")
    assert (report.verdict, [item.key for item in runs.missing.shown]) == ("FAIL", [("late",)])


@pytest.mark.parametrize("field", ["createdAt", "scheduleId", "state"])
def test_where_a_list_looks_the_proof_stays_open_whatever_reason_is_given(field: str, tmp_path: Path) -> None:
    values = {"createdAt": AS_OF, "scheduleId": "another", "state": "queued"}
    name = {"createdAt": "created_at", "scheduleId": "schedule_id", "state": "state"}[field]
    with memory_pair(tmp_path) as pair:
        fill(pair.source.storage, ["acme"])
        pair.copy()
        entity = pair.target.storage.runs.get("acme", "acme-run-1")
        assert entity is not None
        with pair.target.bulk.writer(RUNS, on_conflict="overwrite") as writer:
            changed = cast("Any", entity).evolve(**{name: values[field]})
            writer.write([Record(("acme-run-1",), Tenant("acme"), changed)])
            writer.flush()
            writer.commit()
        report = pair.verify(**ignoring(f"runs.{field}", reason="agreed"))
        (runs,) = (item for item in report.entities if item.entity == "runs")
        assert (report.verdict, report.cutover_ready) == ("INCONCLUSIVE", False)
        assert [item.paths for item in runs.unproved.shown] == [(f"doc.{field} (ignored_field)",)]


def test_what_follows_from_an_ignored_field_counts_under_its_own_name(tmp_path: Path) -> None:
    with memory_pair(tmp_path) as pair:
        fill(pair.source.storage, ["acme"])
        pair.copy()
        with pair.source.bulk.view() as view:
            (record,) = (item for batch in view.records(POLICY_JOBS, KeyRange()) for item in batch)
        job = cast("Any", record.model)
        members = cast("Any", type(job.priority))
        other = next(item for item in members if item is not job.priority)
        with pair.target.bulk.writer(POLICY_JOBS, on_conflict="overwrite") as writer:
            writer.write([replace(record, model=job.evolve(priority=other))])
            writer.flush()
            writer.commit()
        report = pair.verify(entities=("policy_jobs",), **ignoring("policy_jobs.priority", reason="agreed"))
        # Jobs are leased in the order of its rank.
        (found,) = report.entities[0].unproved.shown
        assert (report.verdict, found.paths) == ("INCONCLUSIVE", ("beside.priorityRank (ignored_field)",))


@pytest.mark.parametrize(
    ("path", "problem"),
    [
        ("runs", "names no field"),
        ("runs..stats", "names no field"),
        ("nothing.x", "no such entity"),
        ("runs.id", "identifies the row"),
        ("runs.tenantId", "identifies the row"),
        ("graph_jobs.uuid", "identifies the row"),
        ("runs.stat", "did you mean stats?"),
        ("runs.stats.queue", "did you mean queued?"),
        ("runs.state.x", "a value without fields"),
        ("runs.legacy", "--ignore-unknown"),
    ],
)
def test_what_identifies_a_row_and_what_is_no_field_is_refused(path: str, problem: str) -> None:
    with pytest.raises(ValidationError) as caught:
        check_ignored_fields(ignored_fields([path], {}), SCHEDULER.entities)
    assert problem in caught.value.message


def test_no_key_and_no_tenant_of_any_entity_can_be_ignored() -> None:
    for entity in SCHEDULER.entities:
        for name in {*entity.key, entity.tenant_field} - {None}:
            with pytest.raises(ValidationError):
                check_ignored_fields(ignored_fields([f"{entity.name}.{name}"], {}), SCHEDULER.entities)
        for name in entity.shapes.keys() - {*entity.key, entity.tenant_field, entity.document_id}:
            check_ignored_fields(ignored_fields([f"{entity.name}.{name}"], {}), SCHEDULER.entities)


def test_a_fresh_start_looks_at_everything() -> None:
    with pytest.raises(ValidationError, match="--start-clean checks the whole target"):
        VerifyOptions(approval=Approval("new", "olga"), **ignoring("runs.stats"))


def test_every_process_and_command_knows_what_is_asked(
    mongo_database: MongoDatabase,
    postgres_database: PostgresDatabase,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    settings = merged_settings(mongo_database, postgres_database)
    settings["Persistence"] = {**cast("dict[str, object]", settings["Persistence"]), "Scheduler": "Mongo"}
    config = write_config(tmp_path / "settings.json", settings)
    with open_store("scheduler", "mongo", load_settings(config, environ={})) as store:
        store.storage.initializer.ensure_migrations()
        fill(store.storage, ["acme", "umbrella"])
    job = tmp_path / "job.toml"
    job.write_text(
        'module = "scheduler"\nfrom = "mongo"\nto = "postgres"\n'
        '[[ignore-field]]\npath = "runs.stats"\nreason = "counted anew"\n'
    )

    def run(*given: object) -> tuple[int, dict[str, Any]]:
        answer = invoke(capsys, "--config", config, "backfill", "--job-file", job, *given, "--format", "json")
        return answer.code, answer.json

    part = ("--since", "2020-01-01T00:00:00+00:00", "--until", "2200-01-01T00:00:00+00:00")
    code, copied = run("copy", "--execute", "--out", tmp_path / "copy", *part)
    assert (code, copied["subset"]["dated_by"]["runs"]) == (Exit.OK, "createdAt")
    with psycopg.connect(postgres_database.superuser_url, autocommit=True) as sql:
        sql.execute("UPDATE scheduler.runs SET stats = stats || '{\"queued\": 7}' WHERE id LIKE 'acme%'")
    # The second process compares by the same question as the first.
    code, found = run("verify", "--jobs", 2, "--range-size", 2, "--out", tmp_path / "report", *part)
    assert (code, found["verdict"], found["ignored"][0]["reason"]) == (
        Exit.OK,
        "PARTIAL",
        "counted anew",
    ), found["reasons"]
    assert found["equivalences"] == [{"name": "ignored_field", "documents": 7}]
    narrowed = ("verify", "--range-size", 2, "--entity", "runs")
    keys = ("--key-from", "acme-run-2", "--key-to", "umbrella-run-1")
    code, found = run(*narrowed, *keys)
    assert (found["verdict"], found["documents_equal"], found["subset"]["key_to"]) == (
        "PARTIAL",
        6,
        ["umbrella-run-1"],
    )
    assert run("plan", "--entity", "runs", *keys)[1]["rows"] == 6
    row = ("--entity", "runs", "--key", "acme-run-1")
    assert run("diff", *row)[1]["verdict"] == "equal"
    status = invoke(
        capsys, "--config", config, "backfill", "status", "--module", "scheduler", "--to", "postgres"
    )
    assert "a part only: rows dated since" in status.out
    # What makes a row unreadable for the service is no matter of taste.
    with psycopg.connect(postgres_database.superuser_url, autocommit=True) as sql:
        sql.execute("UPDATE scheduler.runs SET stats = stats || '{\"queued\": -1}' WHERE id = 'acme-run-2'")
    code, found = run(*narrowed, *keys)
    assert (code, found["entities"][0]["counts"]["different"]) == (Exit.DIFFERENT, 1)
    job.write_text('module = "scheduler"\nfrom = "mongo"\nto = "postgres"\n')
    assert run(*narrowed)[1]["verdict"] == "FAIL"
    answer = json.dumps(run("verify", *part, "--key-from", "a"))
    assert "name it with --entity" in answer
