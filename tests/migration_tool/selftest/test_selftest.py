"""The self-test on real servers: every kind of corruption, of every field, on both stores, is found.

The full form corrupts every entity, the other one some of them.
"""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, cast

import pytest

from tests.migration_tool.copy.test_pairs import FOR_EVER, fill_module
from tests.support.copies import (
    COPIED,
    LEFT_OUT,
    fill,
    invoke,
    memory_pair,
    open_store,
    server_settings,
    write_config,
)
from twinstore.bulk.release import copy_writer
from twinstore.config import load_settings
from twinstore.models.shapes import shapes_of
from twinstore.scheduler.catalog import AUDIT, RUNS, SCHEDULER, TRIGGERS
from twinstore.testing.scheduler.builders import make_run, make_schedule
from twinstore_backfill.selftest.corruptions import Kind
from twinstore_backfill.selftest.rows import key_of_parent, sample_source, variant_rows, variants
from twinstore_memory.rows import store_unchecked, stored_rows

if TYPE_CHECKING:
    from pathlib import Path

    from tests.migration_tool.selftest.conftest import Places
    from tests.support.copies import Pair
    from tests.support.databases import MongoServer, PostgresServer
    from twinstore.catalog.entity import Entity
    from twinstore.scheduler.runs import Run

Report = dict[str, Any]
STORES: Final = {"Mongo": "Postgres", "Postgres": "Mongo"}
# The last run of a summary is also among its recent ones, and none of the tests' runs was started.
NEVER_FILLED: Final = {
    f"run_summaries: doc.{place}.{field}"
    for place in ("lastRun", "recent[]")
    for field in ("error", "startedAt")
} | {
    # Those of a policy job come and go with its status.
    "policy_jobs: doc.leaseOwner",
    "policy_jobs: doc.leaseExpiresAt",
    "policy_jobs: doc.cancelledAt",
}
# Only BSON can hold a name twice, and a table stores a missing value only as null.
ONE_STORE: Final = {Kind.KEY_DUPLICATED: "Mongo", Kind.POLICY: "Postgres"}


def test_all_that_is_planted_is_found_and_nothing_else(answer: tuple[int, Report]) -> None:
    code, report = answer
    assert (code, report["exit_code"], report["problems"]) == (0, 0, [])
    assert report["found"] == report["planted"]
    assert (report["false_alarms"], report["passed"], report["untested"]) == (0, True, [])


def test_each_store_is_the_corrupted_target_once_with_hundreds_of_corruptions(
    report: Report, *, long_form: bool
) -> None:
    assert {store["source"]: store["target"] for store in report["stores"]} == STORES
    for store in report["stores"]:
        assert store["found"] == store["planted"] > (700 if long_form else 400)
        assert (store["missed"], store["false_alarms"]) == ([], [])
        assert (store["verdict_before"], store["verdict"]) == ("PASS", "FAIL")


def test_no_kind_is_omitted(report: Report) -> None:
    for store in report["stores"]:
        kinds = {kind for kind in Kind if ONE_STORE.get(kind, store["target"]) == store["target"]}
        # No entity of the scheduler has a decimal; test_typed_values has those that have.
        kinds -= {Kind.SCALE}
        assert set(store["by_kind"]) == {kind.value for kind in kinds}
        assert all(counts["found"] == counts["planted"] for counts in store["by_kind"].values())


def test_typed_values_in_free_json_are_changed_and_turned_into_what_only_looks_like_them(
    report: Report,
) -> None:
    wanted = {
        "Mongo": (
            "doc.data.*",
            {
                ("value changed by the least step", "of a date"),
                *(
                    ("type changed", form)
                    for form in (
                        *("object", "object of an id", "text of an id", "object of bytes", "another subtype"),
                        *("object of a decimal", "text of a decimal", "double of a decimal", "another scale"),
                    )
                ),
            },
        ),
        "Postgres": ("doc.data.*.*", {("value changed by the least step", "of a date")}),
    }
    for store in report["stores"]:
        place, kinds = wanted[store["target"]]
        rows = [row for row in store["corruptions"] if row["entity"] == "execution_logs"]
        assert kinds <= {(row["kind"], row["form"]) for row in rows if row["field"] == place}


def test_every_chosen_entity_is_corrupted_and_no_other(report: Report, corrupted: tuple[Entity, ...]) -> None:
    chosen = {entity.name for entity in corrupted}
    left_out = {entity.name for entity in LEFT_OUT} if corrupted == COPIED else set[str]()
    for store in report["stores"]:
        assert {row["entity"] for row in store["corruptions"]} == chosen
        # Of the others only the schema can be judged.
        assert set(store["by_entity"]) - chosen == left_out


def test_markers_derived_columns_tenants_and_counters_are_corrupted_too(report: Report) -> None:
    by_target = {store["target"]: set(store["by_role"]) for store in report["stores"]}
    both = {"field", "key", "tenant", "storage marker", "derived column", "version counter", "schema"}
    assert by_target["Postgres"] == both | {"payload", "index-only column"}
    assert by_target["Mongo"] == both | {"joined identity"}


def test_every_field_has_a_value_in_some_row_but_those_that_only_change_in_two_places(
    report: Report, corrupted: tuple[Entity, ...]
) -> None:
    chosen = {entity.name for entity in corrupted}
    for store in report["stores"]:
        # A column next to the payload that also concerns the lease.
        beside = {"policy_jobs: beside.leaseOwner"} if store["target"] == "Postgres" else set()
        wanted = {place for place in NEVER_FILLED | beside if place.partition(":")[0] in chosen}
        assert set(store["never_filled"]) == wanted


def test_what_a_server_refuses_is_named_with_what_refuses_it(report: Report) -> None:
    for store in report["stores"]:
        assert store["refused"] != []
        assert all(row["constraint"] and row["field"] and row["kind"] for row in store["refused"])
    tables = next(store for store in report["stores"] if store["target"] == "Postgres")
    found = {(row["entity"], row["field"], row["constraint"]) for row in tables["refused"]}
    assert ("triggers", "doc.scheduleId", "triggers_schedule_id_fkey") in found
    assert ("execution_logs", "doc.level", "not null of level") in found


def test_what_is_free_by_definition_is_planted_and_not_named(report: Report) -> None:
    for store in report["stores"]:
        assert {row["role"] for row in store["free"]} >= {"version counter"}


def test_one_of_each_kind_alone_ends_as_it_must(report: Report) -> None:
    alone = [row for store in report["stores"] for row in store["alone"]]
    assert {row["kind"] for row in alone} == {
        kind.value for kind in set(Kind) - {Kind.INDEX, Kind.KEY, Kind.POLICY, Kind.SCALE}
    }
    assert {(row["problem"], row["cutover_ready"]) for row in alone} == {("", False)}
    # PARTIAL is what a comparison of one entity says that finds nothing: of what is free by definition.
    assert {row["verdict"] for row in alone} == {"FAIL", "PARTIAL"}
    assert all(store["alone"] for store in report["stores"])


def test_foreign_keys_are_dropped_although_they_go_with_the_key_of_the_parent(report: Report) -> None:
    tables = next(store for store in report["stores"] if store["target"] == "Postgres")
    parts = [row for row in tables["schema"] if row["form"] == "foreign key"]
    assert {row["entity"] for row in parts} >= {"triggers", "execution_logs"}
    assert [row for row in parts if not row["found"]] == []


def test_the_report_for_people_says_the_same(
    report: Report, places: Places, corrupted: tuple[Entity, ...]
) -> None:
    text = (places.directory / "selftest-report.md").read_text()
    assert f"Found {report['found']:,} of {report['planted']:,} planted corruptions; no false alarms" in text
    for entity in corrupted:
        assert entity.name.replace("_", "\\_") in text
    for kind in set(Kind) - {Kind.SCALE}:  # of which the scheduler has no field
        assert kind.value in text


def test_the_scratch_databases_are_empty_again(report: Report, places: Places) -> None:
    assert report["passed"]
    keep = {"scheduler": {"run_retention_days": 0}}
    settings = load_settings(places.scratch, environ={}).with_options(keep)
    for backend in STORES:
        with open_store("scheduler", backend, settings) as store:
            assert {entity.name: store.bulk.counts(entity) for entity in SCHEDULER.entities} == {
                entity.name: {} for entity in SCHEDULER.entities
            }
            assert store.storage.initializer.verify() == ()


@pytest.mark.long
def test_on_its_own_servers_it_writes_the_same_report_except_for_the_envelope(
    report: Report, places: Places, tmp_path: Path
) -> None:
    assert places.run("--out", tmp_path) == 0
    again: Report = json.loads((tmp_path / "selftest-report.json").read_text())
    assert {**again, "envelope": None} == {**report, "envelope": None}


@pytest.mark.long
@pytest.mark.parametrize("module", ["tracking", "taskrunner"])
def test_in_modules_with_generated_ids_and_free_json_all_is_found_too(
    module: str,
    mongo_server: MongoServer,
    postgres_server: PostgresServer,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    with (
        mongo_server.database() as source,
        mongo_server.database() as documents,
        postgres_server.empty_database() as tables,
    ):
        settings = {**source.config, **FOR_EVER}
        with open_store(module, "mongo", load_settings(settings, environ={})) as store:
            store.storage.initializer.ensure_migrations()
            fill_module(module, cast("Any", store.storage))
        scratch = write_config(tmp_path / "scratch.json", server_settings(documents, tables))
        config = ("--config", write_config(tmp_path / "source.json", settings))
        sides = ("--module", module, "--from", "mongo", "--to", "postgres", "--scratch", scratch)
        answer = invoke(capsys, *config, "backfill", "selftest", *sides, "--out", tmp_path)
    report = json.loads((tmp_path / "selftest-report.json").read_text())
    assert (answer.code, report["problems"], report["false_alarms"]) == (0, [], 0)
    assert report["found"] == report["planted"] > 400
    assert report["untested"] == []


def test_a_seed_chooses_the_same_rows_and_another_one_others(pair: Pair) -> None:
    port = pair.source.bulk
    # Of an entity that no other one refers to: the rows that its children name come on top.
    first, again, other = (sample_source(port, 4, seed)["audit"].records for seed in (1, 1, 2))
    assert list(first) == list(again) == sorted(first)
    assert set(first) != set(other)
    assert len(first) == len(other) == 4


def test_every_tenant_gives_rows_and_what_one_lacks_another_gives(pair: Pair) -> None:
    storage = pair.source.storage
    for number in range(40):
        storage.runs.create(make_run("large", f"large-{number}"))
    tenants = sample_source(pair.source.bulk, 30, 0)["runs"].tenants
    assert tenants == {"acme": 7, "umbrella": 7, "large": 16}


def test_the_parents_of_what_was_taken_come_along(pair: Pair) -> None:
    storage = pair.source.storage
    for number in range(30):
        storage.schedules.upsert(make_schedule("acme", f"more-{number:02}"))
    samples = sample_source(pair.source.bulk, 10, 3)
    parents = {key_of_parent(TRIGGERS, record) for record in samples["triggers"].records.values()}
    assert parents <= samples["schedules"].records.keys()


def test_more_tenants_than_rows_are_wanted_give_as_many_rows_as_are_wanted(pair: Pair) -> None:
    assert [len(sample_source(pair.source.bulk, 1, seed)["audit"].records) for seed in range(4)] == [
        1,
        1,
        1,
        1,
    ]


def test_variants_of_a_row_have_every_field_and_as_few_as_may_be(pair: Pair) -> None:
    record = next(iter(sample_source(pair.source.bulk, 50, 0)["runs"].records.values()))
    record.model = make_run("acme", "r", finished_at=None)
    filled, bare = variants(RUNS, record)
    names = {shape.wire for shape in shapes_of(RUNS.model)}
    given, least = (set(cast("Run", item.model).wire()) for item in (filled, bare))
    # These three are in other states than this one, which a model changes only with their instants.
    assert given >= names - {"error", "finishedAt", "startedAt"}
    assert "é" in str(cast("Run", filled.model).reason)
    assert least == {"schemaVersion", "id", "tenantId", "trigger", "state", "stats", "createdAt"}
    assert (filled.key, bare.key) == (record.key, record.key)


def test_variants_have_keys_and_parents_of_their_own_that_a_store_accepts(pair: Pair) -> None:
    samples = sample_source(pair.source.bulk, 50, 0)
    made = variant_rows(samples, lambda _: True)
    pair.copy()
    for entity in COPIED:
        records = sorted(made[entity.name], key=lambda record: record.key or ())
        keys = {record.key for record in records}
        assert len(keys) == len(records) > 0
        assert keys.isdisjoint(samples[entity.name].records)
        with copy_writer(pair.target.bulk, entity) as writer:
            writer.write(records)
            assert writer.flush().rejected == ()
            writer.commit()
    parents = {key_of_parent(TRIGGERS, record) for record in made["triggers"]}
    assert parents <= {record.key for record in made["schedules"]}
    assert len(parents) == len(made["triggers"])


def test_a_row_that_no_copy_includes_is_counted_and_skipped(tmp_path: Path) -> None:
    with memory_pair(tmp_path) as pair:
        fill(pair.source.storage)
        rows = stored_rows(pair.stores[0], AUDIT)
        key, row = min(rows.items())
        store_unchecked(pair.stores[0], replace(row, document={**row.document, "occurredAt": "some day"}))
        sample = sample_source(pair.source.bulk, 50, 0)["audit"]
    assert (sample.unreadable, len(sample.records)) == (1, len(rows) - 1)
    assert key not in sample.records
