"""A part of the rows, by key and by date: exactly what was asked, and never taken for more."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import timedelta, timezone
from typing import TYPE_CHECKING, Any, cast

import pytest
from pymongo import MongoClient

from tests.migration_tool.copy.test_pairs import Places, fill_module, opened, places
from tests.support.copies import AS_OF, COPIED, MemoryPair, Pair, fill, invoke, write_config
from tests.support.databases import without_retention
from twinstore.catalog.entity import CopyPolicy, Entity
from twinstore.catalog.keys import KeyRange
from twinstore.config import load_settings
from twinstore.errors import ValidationError
from twinstore.plugins.modules import complete_modules
from twinstore.scheduler.catalog import AUDIT, EXECUTION_LOGS, RUNS
from twinstore.testing.instants import at
from twinstore.testing.scheduler.builders import make_audit_record
from twinstore_backfill.copy.options import CopyOptions
from twinstore_backfill.outcome import Exit
from twinstore_backfill.plan import plan_copy
from twinstore_backfill.process.stopping import StopSwitch
from twinstore_backfill.progress.record import SilentProgress
from twinstore_backfill.repair.engine import remove_extra
from twinstore_backfill.rules.model import NO_RULES
from twinstore_backfill.rules.reading import with_options
from twinstore_backfill.subset import Subset
from twinstore_backfill.verify.options import VerifyOptions

if TYPE_CHECKING:
    from datetime import datetime
    from pathlib import Path

    from tests.support.databases import MongoDatabase
    from twinstore.bulk.port import BulkPort
    from twinstore.catalog.keys import Key

__all__ = ["places"]
# Between UTF-16 surrogates and the private area, composed and not, in the orders of collations and of bytes.
HOSTILE = [
    "!",
    "$gt",
    "%00",
    "A",
    "Z",
    "a",
    "e\u0301",
    "z",
    "é",
    "ß",
    "\ud7ff",
    "\ue000",
    "\uffff",
    "\U00010000",
    "\U0010ffff",
]
HOSTILE.sort()
MILLISECOND = timedelta(milliseconds=1)
SKIPPED = {"C1": "skipped", "C4": "skipped", "C5": "skipped", "C6": "pass", "C8": "pass"}


def keys_of(port: BulkPort, entity: Entity) -> list[Key]:
    """Return the keys of an entity in order."""
    with port.view() as view:
        rows = [row for batch in view.rows(entity, KeyRange()) for row in batch]
    return [row.key for row in rows if row.key is not None and row.key not in entity.local_keys]


def texts(key: Key) -> tuple[str, ...]:
    return tuple(map(str, key))


def check_parts(pair: Pair, entities: list[Entity]) -> None:
    """Copy each entity in two parts, and see after each what the target holds and what is said of it."""
    for entity in entities:
        keys = keys_of(pair.source.bulk, entity)
        middle = keys[len(keys) // 2]
        first, rest = Subset(key_to=texts(middle)), Subset(key_from=texts(middle))
        one = (entity.name,)
        copied = pair.copy(entities=one, subset=first)
        assert (copied.exit, copied.totals.all()["read"]) == (Exit.OK, len(keys) // 2), entity.name
        assert keys_of(pair.target.bulk, entity) == keys[: len(keys) // 2]
        report = pair.verify(entities=one, subset=first, range_size=2)
        # Of one row alone the first part is empty, which proves nothing.
        assert (report.verdict, report.cutover_ready) == ("PARTIAL" if keys[1:] else "INCONCLUSIVE", False)
        missing = pair.verify(entities=one, subset=rest)
        assert (missing.verdict, missing.entities[0].counts.missing) == ("FAIL", len(keys) - len(keys) // 2)
        assert pair.verify(entities=one).verdict == "FAIL"
        pair.copy(entities=one, subset=rest, range_size=1)
        assert keys_of(pair.target.bulk, entity) == keys


def test_a_part_includes_its_first_instant_and_not_its_last() -> None:
    part = Subset(since=at(1), until=at(2))
    instants = (at(1) - MILLISECOND, at(1), at(2) - MILLISECOND, at(2), None)
    assert [part.admits(instant) for instant in instants] == [False, True, True, False, True]


def test_each_entity_is_copied_and_proved_part_by_part(pair: Pair) -> None:
    check_parts(pair, list(COPIED))
    assert (pair.verify().verdict, pair.copy().totals.all()["written"]) == ("PASS", 0)


def test_files_are_a_source_of_parts_like_any_other(places: Places, tmp_path: Path) -> None:
    with opened("taskrunner", places("filesystem"), places("memory"), tmp_path / "out") as pair:
        fill_module("taskrunner", cast("Any", pair.source.storage))
        check_parts(pair, list(pair.source.bulk.entities()))
        for entity in pair.source.bulk.entities():
            dates = dates_of(pair.source.bulk, entity)
            part = Subset(since=sorted(dates.values())[len(dates) // 2])
            report = pair.verify(entities=(entity.name,), subset=part)
            assert report.documents_equal == sum(map(part.admits, dates.values()))
        assert pair.verify().verdict == "PASS"


@pytest.mark.long
@pytest.mark.parametrize("module", [module.name for module in complete_modules() if module.kit])
@pytest.mark.parametrize(("source", "target"), [("mongo", "postgres"), ("postgres", "mongo")])
def test_each_entity_of_each_module_is_copied_part_by_part_between_servers(
    module: str, source: str, target: str, places: Places, tmp_path: Path
) -> None:
    with opened(module, places(source), places(target), tmp_path / "out") as pair:
        fill_module(module, cast("Any", pair.source.storage))
        entities = [
            item for item in pair.source.bulk.entities() if item.copy_policy is not CopyPolicy.LEFT_OUT
        ]
        check_parts(pair, entities)
        assert (pair.verify().verdict, pair.copy().totals.all()["written"]) == ("PASS", 0)


@pytest.mark.parametrize(
    ("source", "target"),
    [("mongo", "postgres"), pytest.param("postgres", "mongo", marks=pytest.mark.long)],
)
def test_bounds_are_in_the_order_of_code_points_on_every_server(
    source: str, target: str, places: Places, tmp_path: Path
) -> None:
    with opened("scheduler", places(source), places(target), tmp_path / "out") as pair:
        for name in HOSTILE:
            pair.source.storage.audit.append(make_audit_record("acme", name))
        for lower, upper in ((2, 7), (6, 12), (11, 14)):
            part = Subset(key_from=(HOSTILE[lower],), key_to=(HOSTILE[upper],))
            found = pair.copy(entities=("audit",), subset=part).totals.all()
            assert (found["read"], found["quarantined"]) == (upper - lower, 0)
            report = pair.verify(entities=("audit",), subset=part)
            assert (report.verdict, report.documents_equal) == ("PARTIAL", upper - lower)
        assert keys_of(pair.target.bulk, AUDIT) == [(name,) for name in HOSTILE[2:14]]
        # Rows that only the target has within the bounds are extra; rows outside are not examined.
        pair.target.storage.audit.append(make_audit_record("acme", "aa"))
        beside = (("a", "b", 1), ("aaa", "b", 0), ("A", "aa", 0))
        for low, high, extra in beside:
            part = Subset(key_from=(low,), key_to=(high,))
            assert pair.verify(entities=("audit",), subset=part).entities[0].counts.extra == extra


def dates_of(port: BulkPort, entity: Entity) -> dict[Key, datetime]:
    """Return when each row is dated."""
    assert entity.dated is not None
    with port.view() as view:
        records = [item for batch in view.records(entity, KeyRange()) for item in batch]
    dates = {
        item.key: entity.value(item.model, item.storage, entity.dated)
        for item in records
        if item.key is not None and item.model is not None
    }
    return cast("dict[Key, datetime]", dates)


def test_rows_of_a_period_are_copied_and_proved_of_every_entity(pair: Pair) -> None:
    for entity in COPIED:
        dates = dates_of(pair.source.bulk, entity)
        edge = sorted(dates.values())[len(dates) // 2]
        for part in (Subset(since=edge), Subset(until=edge), Subset(since=edge, until=edge + MILLISECOND)):
            wanted = {key for key, date in dates.items() if part.admits(date)}
            found = pair.copy(entities=(entity.name,), subset=part, execute=False)
            assert found.totals.all()["read"] == len(wanted), entity.name
        rest = Subset(until=edge)
        if entity.parent is not None:  # without which no store takes the row
            pair.copy(entities=(entity.parent.entity.name,))
        pair.copy(entities=(entity.name,), subset=Subset(since=edge))
        assert set(keys_of(pair.target.bulk, entity)) == {key for key in dates if dates[key] >= edge}
        report = pair.verify(entities=(entity.name,), subset=Subset(since=edge))
        assert (report.verdict, report.cutover_ready) == ("PARTIAL", False)
        missing = pair.verify(entities=(entity.name,), subset=rest).entities[0].counts.missing
        assert missing == sum(date < edge for date in dates.values())


def test_a_date_in_any_form_is_the_same_for_copy_and_comparison(
    places: Places, mongo_database: MongoDatabase, tmp_path: Path
) -> None:
    mongo = "mongo", load_settings(without_retention(mongo_database.config), environ={})
    with opened("scheduler", mongo, places("memory"), tmp_path / "out") as pair:
        fill(pair.source.storage, ["acme"])
        edge, reports = at(2), []
        unchecked: dict[str, Any] = {"bypass_document_validation": True}
        with MongoClient[dict[str, Any]](mongo_database.url) as client:
            audit, schedules = (client[mongo_database.name][name] for name in ("audit", "schedules"))
            for number, odd in enumerate(
                (
                    "2025-01-01T00:00:00.000000+00:00",
                    edge.astimezone(timezone(timedelta(hours=2))).isoformat(),
                    (edge - timedelta(microseconds=1)).isoformat(),
                    "yesterday",
                )
            ):
                audit.update_one({"_id": f"acme-audit-{number}"}, {"$set": {"occurredAt": odd}}, **unchecked)
            # Absent, it is the instant of making; in another type, the service does not read it.
            schedules.update_one({"_id": "acme-schedule-0"}, {"$unset": {"updatedAt": 1}}, **unchecked)
            schedules.update_one({"_id": "acme-schedule-1"}, {"$set": {"updatedAt": 7}}, **unchecked)
            # Its date is readable, but a copy of any period quarantines it.
            schedules.update_one({"_id": "acme-schedule-2"}, {"$set": {"unknown": 7}}, **unchecked)
        for part in (Subset(since=edge), Subset(until=edge), Subset(since=at(10**8))):
            copied = pair.copy(subset=part).totals
            report = pair.verify(subset=part)
            reports.append(report)
            assert [item for item in report.entities if item.counts.wrong] == []
            for entity in report.entities:
                assert entity.counts.quarantined == copied.of(entity.entity)["quarantined"], entity.entity
        # What cannot be read belongs to every period, so no period hides it.
        assert (reports[-1].verdict, reports[-1].entities[0].counts.quarantined) == ("INCONCLUSIVE", 2)


def test_a_part_of_some_tenants_is_that_of_each(places: Places, tmp_path: Path) -> None:
    with opened("scheduler", places("mongo"), places("postgres"), tmp_path / "out") as pair:
        for number in range(9):
            for tenant in ("a", "b", "c"):
                pair.source.storage.audit.append(make_audit_record(tenant, f"{number}-{tenant}"))
        some, bounds = (("audit",), ("a", "b")), Subset(key_from=("2",), key_to=("7-b",))
        copied = pair.copy(entities=some[0], tenants=some[1], subset=bounds)
        report = pair.verify(entities=some[0], tenants=some[1], subset=bounds)
        assert (copied.totals.all()["read"], report.verdict) == (11, "PARTIAL")
        wanted = [(f"{number}-{tenant}",) for number in range(2, 8) for tenant in "ab"][:11]
        assert keys_of(pair.target.bulk, AUDIT) == wanted
        fill(pair.source.storage, ["acme"])
        # The smallest possible number replaces the omitted part of the key, on both servers.
        pair.copy(entities=("schedules", "runs"))
        key = keys_of(pair.source.bulk, EXECUTION_LOGS)[0]
        one, bounds = ("execution_logs",), Subset(key_from=(str(key[0]),), key_to=(f"{key[0]}!",))
        assert pair.copy(entities=one, subset=bounds).totals.all()["read"] == 1
        assert pair.verify(entities=one, subset=bounds).documents_equal == 1


def test_a_pair_is_meant_when_either_side_is(pair: Pair) -> None:
    pair.copy()
    row = pair.target.storage.schedules.get("acme", "acme-schedule-0")
    assert row is not None
    later = row.updated_at + timedelta(days=400)
    pair.target.storage.schedules.upsert(row.evolve(name="changed on the target", updated_at=later))
    late, early = Subset(since=later), Subset(until=later)
    for part, entity in ((late, ("schedules",)), (early, ("schedules",))):
        report = pair.verify(entities=entity, subset=part)
        (found,) = report.entities
        assert (report.verdict, [item.key for item in found.different.shown]) == (
            "FAIL",
            [("acme-schedule-0",)],
        )
    # The source has no row that late, so a copy of this part cannot overwrite it.
    assert pair.copy(entities=("schedules",), subset=late).totals.all()["read"] == 0


def test_a_part_is_a_job_of_its_own_and_the_whole_copies_the_rest(pair: Pair) -> None:
    part = Subset(until=at(1))
    first = pair.copy(entities=("runs",), subset=part)
    narrowed = pair.copy(entities=("runs",))
    assert first.job is not None
    assert narrowed.job is not None
    assert (first.job["state"], first.complete, narrowed.job["id"] != first.job["id"]) == (
        "complete",
        True,
        True,
    )
    assert json.loads(first.settings["subset"])["dated_by"] == {"runs": "createdAt"}
    assert "subset" not in narrowed.settings
    whole = pair.copy()
    assert pair.verify().verdict == "PASS"
    jobs = {job.id for job in pair.target.ledger.jobs()}
    assert jobs == {first.job["id"], narrowed.job["id"], cast("dict[str, str]", whole.job)["id"]}
    # The same part in another notation is the same job, so two copies of it never run in parallel.
    again = pair.copy(entities=("runs",), subset=Subset(until=at(1).astimezone(timezone(timedelta(hours=2)))))
    assert cast("dict[str, str]", again.job)["id"] == first.job["id"]


def test_the_status_says_what_a_complete_copy_skipped(
    pair: MemoryPair, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pair.copy(tenants=("acme",), rules=with_options(NO_RULES, ["runs.legacy"]))
    config = write_config(tmp_path / "c.json", {"Persistence": {"Memory": {"Store": pair.names[1]}}})
    status = invoke(
        capsys, "--config", config, "backfill", "status", "--module", "scheduler", "--to", "memory"
    )
    assert '  these tenants only: "acme"\n' in status.out
    assert "  under these rules: drop runs.legacy\n" in status.out


def test_no_part_is_ever_ready_even_when_it_holds_every_row(pair: Pair) -> None:
    pair.copy()
    for part in (
        Subset(since=at(-(10**9))),
        Subset(until=at(10**8)),
        Subset(since=at(-(10**9)), until=at(10**8)),
    ):
        report = pair.verify(subset=part, require_ready=True)
        assert (report.verdict, report.cutover_ready, report.exit_code) == ("PARTIAL", False, 3)
        assert {item.id: item.result for item in report.checks} | SKIPPED == {
            item.id: item.result for item in report.checks
        }
    report = pair.verify(entities=("audit",), subset=Subset(key_from=("",)))
    assert (report.verdict, report.subset.key_from if report.subset else None) == ("PARTIAL", ("",))
    assert "--key-from" in report.next_step
    report = pair.verify(entities=("audit",), subset=Subset(key_from=("~~",)))
    assert (report.verdict, "check its bounds" in report.reasons[0]) == ("INCONCLUSIVE", True)


def test_extra_rows_of_a_part_are_removed_and_no_others(pair: Pair) -> None:
    pair.copy()
    for name in ("a-extra", "z-extra"):
        pair.target.storage.audit.append(make_audit_record("acme", name))
    options = CopyOptions(
        entities=("audit",), subset=Subset(key_from=("z",)), execute=True, out=pair.directory, as_of=AS_OF
    )
    done = remove_extra(pair.source, pair.target, options, AS_OF, SilentProgress(), StopSwitch())
    assert (done.found, done.removed, done.keyless) == ({"audit": 1}, {"audit": 1}, 0)
    assert ("a-extra",) in keys_of(pair.target.bulk, AUDIT)


def test_a_plan_counts_what_is_meant_on_both_sides(pair: Pair) -> None:
    pair.copy(entities=("audit",), subset=Subset(key_from=("umbrella",)))
    options = CopyOptions(entities=("audit",), subset=Subset(key_to=("umbrella-audit-1",)))
    plan = plan_copy(pair.source, pair.target, options).model_dump(mode="json")
    assert (plan["rows"], plan["entities"][0]["rows_in_target"]) == (5, 1)
    assert plan["entities"][0]["tenants"] == {"acme": 4, "umbrella": 1}
    # An estimate that is made by reading says what it leaves for the writing.
    assert "because a copy also writes" in plan["estimate"]["basis"]


@pytest.mark.parametrize(
    ("entity", "part", "problem"),
    [
        ("", {"key_from": ("a",)}, "name it with --entity"),
        ("audit", {"key_from": ("a", "b")}, "not a bound for the keys of audit"),
        ("audit", {"key_from": ("a\x00",)}, "not a bound"),
        ("audit", {"key_to": ("\ud800",)}, "not a bound"),
        ("audit", {"key_from": ("x" * 4097,)}, "not a bound"),
        ("audit", {"key_from": ("b",), "key_to": ("a",)}, "is not before"),
        ("audit", {"key_from": ("a",), "key_to": ("a",)}, "is not before"),
        ("audit", {"key_to": ("",)}, "is before every key"),
        ("execution_logs", {"key_to": ("",)}, "is before every key"),
        ("execution_logs", {"key_from": ("run", "one")}, "runId (text), sequence (int64)"),
        ("execution_logs", {"key_from": ("run", "9223372036854775808")}, "not a bound"),
        ("execution_logs", {"key_from": ("run", "1_0")}, "not a bound"),
        ("graph_jobs", {"key_from": ("AB",)}, "uuid (hex)"),
    ],
)
def test_bounds_that_are_no_keys_are_refused_by_every_command(
    entity: str, part: dict[str, Any], problem: str, pair: Pair
) -> None:
    subset, entities = Subset(**part), (entity,) if entity else ()
    for step in (
        lambda: pair.copy(entities=entities, subset=subset),
        lambda: pair.verify(entities=entities, subset=subset),
        lambda: plan_copy(pair.source, pair.target, CopyOptions(entities=entities, subset=subset)),
    ):
        with pytest.raises(ValidationError) as caught:
            step()
        assert problem in caught.value.message
    assert pair.target.bulk.counts(AUDIT) == {}


def test_a_bound_may_name_the_first_parts_of_a_key_only(pair: Pair) -> None:
    keys = keys_of(pair.source.bulk, EXECUTION_LOGS)
    (first, *_), *_ = keys[1:]
    part = Subset(key_from=(str(first),), key_to=(f"{first}0",))
    found = pair.copy(entities=("execution_logs",), subset=part, execute=False)
    assert found.totals.all()["read"] == sum(key[0] == first for key in keys)


def test_a_period_without_an_instant_is_refused() -> None:
    with pytest.raises(ValidationError, match="is not before --until"):
        Subset(since=at(1), until=at(1))
    with pytest.raises(ValidationError, match="leave it out, or --since"):
        VerifyOptions(mode="sample", subset=Subset(since=at(1)))


def test_an_entity_that_nothing_dates_is_refused_by_name() -> None:
    undated = replace(AUDIT, dated=None)
    with pytest.raises(ValidationError, match="rows of audit"):
        Subset(since=at(1)).check([RUNS, undated])
    with pytest.raises(ValueError, match="dated by actor"):
        replace(AUDIT, dated="actor")
    with pytest.raises(ValueError, match="dated by finishedAt"):
        replace(RUNS, dated="finishedAt")
