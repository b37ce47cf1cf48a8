"""The self-test on real servers: every kind of corruption, of every field, on both stores, is found."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, Final

from tests.backfill.toolkit import COPIED, open_store
from twinstore.catalog import LifeInCopy
from twinstore.config import load_settings
from twinstore.scheduler.catalog import SCHEDULER
from twinstore_backfill.selftest.kinds import Kind

if TYPE_CHECKING:
    from tests.backfill.selftest.conftest import Places

Report = dict[str, Any]
STORES: Final = {"Mongo": "Postgres", "Postgres": "Mongo"}
# BSON alone holds a name twice, and a table tells a missing value by null only.
ONE_STORE: Final = {Kind.KEY_DOUBLED: "Mongo", Kind.POLICY: "Postgres"}


def test_all_that_is_planted_is_found_and_nothing_else(answer: tuple[int, Report]) -> None:
    code, report = answer
    assert (code, report["exit_code"], report["problems"]) == (0, 0, [])
    assert report["found"] == report["planted"]
    assert (report["false_alarms"], report["passed"], report["untested"]) == (0, True, [])


def test_each_store_is_the_corrupted_target_once_with_hundreds_of_corruptions(report: Report) -> None:
    assert {store["source"]: store["target"] for store in report["stores"]} == STORES
    for store in report["stores"]:
        assert store["found"] == store["planted"] > 700
        assert (store["missed"], store["false_alarms"]) == ([], [])
        assert (store["verdict_before"], store["verdict"]) == ("PASS", "FAIL")


def test_no_kind_is_left_out(report: Report) -> None:
    for store in report["stores"]:
        kinds = {kind for kind in Kind if ONE_STORE.get(kind, store["target"]) == store["target"]}
        assert set(store["by_kind"]) == {kind.value for kind in kinds}
        assert all(counts["found"] == counts["planted"] for counts in store["by_kind"].values())


def test_every_entity_that_is_copied_is_corrupted_in_rows_of_its_own(report: Report) -> None:
    left_out = {entity.name for entity in SCHEDULER.entities if entity.life is LifeInCopy.LEFT_OUT}
    for store in report["stores"]:
        together = [row for row in store["corruptions"] if not row["alone"]]
        rows = Counter((row["entity"], tuple(row["key"])) for row in together)
        assert max(rows.values()) == 1
        assert {entity for entity, _ in rows} == {entity.name for entity in COPIED}
        # Of the others only the schema can be judged.
        assert set(store["by_entity"]) - {entity for entity, _ in rows} == left_out


def test_markers_derived_columns_tenants_and_counters_are_corrupted_too(report: Report) -> None:
    by_target = {store["target"]: set(store["by_role"]) for store in report["stores"]}
    both = {"field", "key", "tenant", "storage marker", "derived column", "version counter", "schema"}
    assert by_target["Postgres"] == both | {"payload", "index-only column"}
    assert by_target["Mongo"] == both | {"joined identity"}


def test_what_a_server_refuses_is_named_with_what_refuses_it(report: Report) -> None:
    for store in report["stores"]:
        assert store["refused"] != []
        assert all(row["constraint"] and row["field"] and row["kind"] for row in store["refused"])
    tables = next(store for store in report["stores"] if store["target"] == "Postgres")
    found = {(row["entity"], row["field"], row["constraint"]) for row in tables["refused"]}
    assert ("triggers", "doc.scheduleId", "triggers_schedule_id_fkey") in found
    assert ("schedules", "doc.name", "not null of name") in found


def test_what_is_free_by_definition_is_planted_and_not_named(report: Report) -> None:
    for store in report["stores"]:
        assert {row["role"] for row in store["free"]} >= {"version counter"}


def test_one_of_each_kind_alone_ends_as_it_must(report: Report) -> None:
    for store in report["stores"]:
        wanted = {kind for kind, row in store["by_kind"].items() if row["planted"]} - {
            Kind.INDEX.value,
            Kind.KEY.value,
            Kind.POLICY.value,
        }
        assert {row["kind"] for row in store["alone"]} == wanted
        assert {(row["problem"], row["cutover_ready"]) for row in store["alone"]} == {("", False)}
        assert {row["verdict"] for row in store["alone"]} == {"FAIL", "PARTIAL"}


def test_the_report_for_people_tells_the_same(report: Report, places: Places) -> None:
    text = (places.directory / "selftest-report.md").read_text()
    assert f"Found {report['found']:,} of {report['planted']:,} planted corruptions; no false alarms" in text
    for entity in COPIED:
        assert entity.name.replace("_", "\\_") in text
    for kind in Kind:
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
