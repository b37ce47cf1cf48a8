"""Other rules for a job that has copied: rows follow them, unless a service wrote them."""

from __future__ import annotations

import json
from contextlib import nullcontext
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import pytest
from pymongo import MongoClient

from tests.migration_tool.copy.test_between_servers import DIRECTIONS, opened
from tests.migration_tool.copy.test_rules import EVENT, RULES, RUN, job, make_stored_schedule, reasons, wires
from tests.support import ruled
from tests.support.copies import Pair, server_settings
from twinstore.bulk.port import Conflict
from twinstore.catalog.tenancy import Tenant
from twinstore.scheduler.catalog import AUDIT, RUNS, SCHEDULES
from twinstore.scheduler.enums import RunState
from twinstore.testing.scheduler.builders import moved
from twinstore_backfill.copy import worker
from twinstore_backfill.copy.earlier import EarlierForms, EarlierFormsError
from twinstore_backfill.outcome import Exit
from twinstore_backfill.rules.model import DropRule, JobRules, KeyRule, MapRule, ReplaceRule, Rule
from twinstore_backfill.rules.stored import rules_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.support.databases import MongoDatabase, PostgresDatabase

EARLIER: Final = {"hand": "manual", "old": "concelier"}
LATER: Final = {"hand": "excititor", "lost": "concelier"}
# By key, the trigger that is stored.
TRIGGERS: Final = {
    "changed-1": "hand",
    "changed-2": "hand",
    "same": "cron",
    "served": "hand",
    "refused-before": "lost",
    "refused-now": "old",
    "zchanged": "hand",
}


def words(values: dict[str, Any]) -> JobRules:
    return job((MapRule, "runs.trigger", {"values": values}))


@pytest.fixture
def pair(
    mongo_database: MongoDatabase, postgres_database: PostgresDatabase, tmp_path: Path
) -> Iterator[Pair]:
    """Return runs and schedules of another program, and an empty PostgreSQL."""
    settings = server_settings(mongo_database, postgres_database)
    with (
        opened(settings, DIRECTIONS[0], tmp_path) as pair,
        MongoClient[dict[str, Any]](mongo_database.url) as client,
    ):
        found = client[mongo_database.name]
        runs = ({**RUN, "_id": key, "trigger": word} for key, word in TRIGGERS.items())
        found["runs"].insert_many(runs, bypass_document_validation=True)
        yield pair


def insert(mongo_database: MongoDatabase, collection: str, *documents: dict[str, Any]) -> None:
    with MongoClient[dict[str, Any]](mongo_database.url) as client:
        client[mongo_database.name][collection].insert_many(documents, bypass_document_validation=True)


def edit(pair: Pair, key: str) -> None:
    """Write a run as a service of the target does."""
    run = pair.target.storage.runs.get("acme", key)
    assert run is not None
    pair.target.storage.runs.update(moved(run, RunState.CANCELLED))


def triggers(pair: Pair) -> dict[str, str]:
    return {key: row["trigger"] for key, row in wires(pair, RUNS).items()}


def check_later(pair: Pair, *, retry: bool = False) -> None:
    """Copy under the later rules and check every run."""
    dry = pair.copy(rules=words(LATER), execute=False, retry_quarantine=retry)
    result = pair.copy(rules=words(LATER), max_conflicts=9, retry_quarantine=retry)
    counts = result.totals.of("runs")
    assert all(dry.totals.of("runs")[name] == counts[name] for name in ("conflicts", "quarantined"))
    assert (result.exit, counts["conflicts"], counts["quarantined"]) == (Exit.DIFFERENT, 1, 1)
    assert triggers(pair) == {
        "changed-1": "excititor",
        "changed-2": "excititor",
        "same": "cron",
        "served": "manual",
        "refused-before": "concelier",
        "refused-now": "concelier",
        "zchanged": "excititor",
    }
    (line,) = (pair.directory / "conflicts.ndjson").read_text().splitlines()
    assert (json.loads(line)["key"], json.loads(line)["overwritten"]) == (["served"], False)
    # What earlier rules stored and these refuse stays, and neither the copy nor a verification is silent.
    assert reasons(pair, RUNS).keys() == {"refused-now"}
    report = pair.verify(rules=words(LATER))
    (runs,) = (item for item in report.entities if item.entity == "runs")
    assert (runs.counts.different, runs.counts.stale, report.verdict) == (1, 1, "FAIL")


def test_a_finished_copy_follows_other_rules(pair: Pair) -> None:
    first = pair.copy(rules=words(EARLIER))
    assert first.totals.of("runs")["quarantined"] == 1, reasons(pair, RUNS)
    edit(pair, "served")
    check_later(pair)
    # The rules are in the ledger alone: the report goes to others, and their words may be stored values.
    assert "applied_rules" not in (pair.directory / "backfill-report.json").read_text()
    # Back to the former ones.
    assert pair.copy(rules=words(EARLIER), max_conflicts=9).totals.of("runs")["conflicts"] == 1
    assert triggers(pair)["changed-1"] == "manual"


def test_written_rows_are_counted(pair: Pair) -> None:
    pair.copy(rules=words(EARLIER))
    wanted = {"read": 7, "written": 5, "unchanged": 1, "conflicts": 0, "quarantined": 1, "expired": 0}
    for execute in (False, True):
        totals = pair.copy(rules=words(LATER), execute=execute).totals.of("runs")
        assert {name: totals[name] for name in wanted} == wanted


@pytest.mark.parametrize("finished", [1, 2])
def test_an_interrupted_copy_follows_other_rules(
    finished: int, pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    pair.copy(rules=words(EARLIER))
    edit(pair, "served")
    honest, copied = worker.copy_range, list[int]()

    def failing(context: worker.CopyContext, claim: Any) -> worker.CopiedRange:  # noqa: ANN401
        if len(copied) == finished:
            raise KeyboardInterrupt
        copied.append(claim.number)
        return honest(context, claim)

    # In part under third rules, and in part as the first copy left them.
    with monkeypatch.context() as patch:
        patch.setattr(worker, "copy_range", failing)
        with pytest.raises(KeyboardInterrupt):
            pair.copy(rules=words({"hand": "cron"}), jobs=1, max_conflicts=9)
    assert "cron" in triggers(pair).values() or finished == 1
    check_later(pair)


def test_a_retry_of_the_quarantine_follows_other_rules(pair: Pair) -> None:
    pair.copy(rules=words(EARLIER))
    edit(pair, "served")
    check_later(pair, retry=True)


def test_a_name_that_is_taken_stays_a_conflict_and_the_others_follow(
    pair: Pair, mongo_database: MongoDatabase
) -> None:
    insert(mongo_database, "schedules", *map(make_stored_schedule, ("s-1", "s-2", "s-3")))
    drop: tuple[type[Rule], str, dict[str, Any]] = (DropRule, "schedules.__v", {})
    assert pair.copy(rules=job(drop), entities=("schedules",)).exit is Exit.OK
    rules = job(
        (ReplaceRule, "schedules.name", {"old": "s-1", "by": "s-2"}),
        (ReplaceRule, "schedules.name", {"old": "s-3", "by": "x"}),
        drop,
    )
    result = pair.copy(rules=rules, entities=("schedules",), max_conflicts=9)
    assert result.totals.of("schedules")["conflicts"] == 1
    names = {key: row["name"] for key, row in wires(pair, SCHEDULES).items()}
    assert names == {"s-1": "nightly s-1", "s-2": "nightly s-2", "s-3": "nightly x"}


def test_rows_that_are_only_appended_stay_and_a_new_copy_is_proposed(
    pair: Pair, mongo_database: MongoDatabase
) -> None:
    insert(mongo_database, "audit", {**EVENT, "_id": "a", "message": "old"})
    pair.copy(entities=("audit",))
    rules = job((ReplaceRule, "audit.message", {"old": "old", "by": "new"}))
    result = pair.copy(entities=("audit",), rules=rules, max_conflicts=9)
    assert wires(pair, AUDIT)["a"]["message"] == "old"
    assert [item.remedy for item in result.causes] == [
        "twinstore backfill copy --target-config empty.json --execute"
    ]


def test_other_keys_begin_the_copy_again(pair: Pair, mongo_database: MongoDatabase) -> None:
    insert(mongo_database, "audit", *({**EVENT, "_id": f"id-{n}", "no": f"no-{9 - n}"} for n in range(8)))
    pair.copy(entities=("audit",), rules=job((DropRule, "audit.no", {})))
    pair.copy(entities=("audit",), rules=job((KeyRule, "audit.no", {})), retry_quarantine=True)
    assert {f"no-{9 - number}" for number in range(8)} <= wires(pair, AUDIT).keys()


@pytest.mark.parametrize("rules", [RULES, JobRules(ruled.RULES), words(LATER)])
def test_rules_are_the_same_after_the_ledger_has_kept_them(rules: JobRules) -> None:
    kept = rules_of(json.loads(json.dumps(rules.documents())))
    assert [replace(rule, line=1, reason="", number=1) for rule in kept] == [
        replace(rule, line=1, reason="", number=1) for rule in rules
    ]


def test_backwards_no_row_is_taken_for_one_of_earlier_rules(pair: Pair) -> None:
    # A row of the source has one form then, and the rules change what is written.
    settings = {"applied_rules": json.dumps([words(EARLIER).documents(), words(LATER).documents()])}
    for reverse in (False, True):
        forms = EarlierForms(pair.target.bulk, settings, replace(words(LATER), reverse=reverse))
        with nullcontext() if reverse else pytest.raises(EarlierFormsError):
            forms.require_none(RUNS, [Conflict(("served",), Tenant("acme"))])
