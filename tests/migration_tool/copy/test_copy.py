"""The rules of a copy, on memory stores: fast, and every kind of bad row can be planted."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING

import pytest
from typing_extensions import override

from tests.support.copies import (
    AS_OF,
    COPIED,
    LEFT_OUT,
    TENANTS,
    MemoryPair,
    contents_of,
    fill,
    memory_pair,
    rows_of,
)
from twinstore.bulk.port import ImportOutcome
from twinstore.catalog.keys import KeyRange
from twinstore.errors import LeaseLostError, TwinstoreError, ValidationError
from twinstore.ledger import RangeState
from twinstore.models.json_text import format_timestamp
from twinstore.scheduler.catalog import AUDIT, RUNS, SCHEDULES
from twinstore.scheduler.enums import RunState
from twinstore.testing.instants import at
from twinstore.testing.scheduler.builders import make_audit_record, make_run, make_schedule
from twinstore.testing.scheduler.examples import SCHEDULER_EXAMPLES
from twinstore_backfill.copy import engine
from twinstore_backfill.copy.control import RateLimiter
from twinstore_backfill.copy.engine import run_copy
from twinstore_backfill.copy.lease import ProcessIdentity, start_time
from twinstore_backfill.copy.options import CopyOptions, job_id, job_settings
from twinstore_backfill.copy.reader import RangeReader
from twinstore_backfill.copy.worker import copy_ranges
from twinstore_backfill.outcome import Exit, InterruptedRunError
from twinstore_backfill.process.stopping import StopRequestedError, StopSwitch
from twinstore_backfill.progress.record import SilentProgress
from twinstore_memory.bulk import MemoryView
from twinstore_memory.rows import DocumentRow, encode, store_unchecked, stored_rows, table

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from twinstore.bulk.port import Record
    from twinstore.catalog.entity import Entity
    from twinstore.catalog.keys import Key
    from twinstore_backfill.copy.worker import CopyContext

SIGTERM = 15
NO_TEXT = (17,)
LONG = timedelta(seconds=60)


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[MemoryPair]:
    with memory_pair(tmp_path) as pair:
        yield pair


def lines(pair: MemoryPair, name: str) -> list[dict[str, object]]:
    return [json.loads(line) for line in (pair.directory / name).read_text().splitlines()]


def stamps(pair: MemoryPair) -> dict[Key, object]:
    store = pair.stores[1]
    return {row: store.slot(table(RUNS).name, row) for row in stored_rows(store, RUNS)}


def at_first_read_of(entity: Entity, action: Callable[[], None], monkeypatch: pytest.MonkeyPatch) -> None:
    """Do something while the first range of an entity is being copied."""
    honest, actions = MemoryView.records, [action]

    def records(
        self: MemoryView,
        read: Entity,
        within: KeyRange,
        *,
        tenant_id: str | None = None,
        batch_size: int = 1000,
    ) -> Iterator[list[Record]]:
        if read == entity and actions:
            actions.pop()()
        return honest(self, read, within, tenant_id=tenant_id, batch_size=batch_size)

    monkeypatch.setattr(MemoryView, "records", records)


def test_a_copy_brings_every_entity_over_byte_for_byte(pair: MemoryPair) -> None:
    fill(pair.source.storage)
    result = pair.copy()
    assert result.exit is Exit.OK
    for entity in COPIED:
        assert contents_of(pair.target.bulk, entity) == contents_of(pair.source.bulk, entity) != []


def test_what_comes_again_by_itself_stays_where_it_is(pair: MemoryPair) -> None:
    for entity in LEFT_OUT:
        SCHEDULER_EXAMPLES.store_small(pair.source.storage.unbound, "acme", "acme-1", entity)
        assert pair.source.bulk.counts(entity) == {"acme": 1}
    fill(pair.source.storage)
    assert pair.copy().exit is Exit.OK
    assert {entity.name: pair.target.bulk.counts(entity) for entity in LEFT_OUT} == {
        entity.name: {} for entity in LEFT_OUT
    }


def test_without_execute_nothing_is_written_and_the_counts_say_what_would_be(pair: MemoryPair) -> None:
    fill(pair.source.storage)
    result = pair.copy(execute=False, out=None)
    assert result.totals.all()["written"] == sum(rows_of(pair.source.bulk).values())
    assert sum(rows_of(pair.target.bulk).values()) == 0
    assert list(pair.target.ledger.jobs()) == []
    assert list(pair.directory.iterdir()) == []


def test_a_dry_run_distinguishes_unchanged_rows_from_conflicts(pair: MemoryPair) -> None:
    fill(pair.source.storage)
    pair.copy(entities=["schedules"])
    run = make_run("acme", "acme-run-1", created_at=at(77))
    pair.target.storage.runs.create(run)
    result = pair.copy(execute=False)
    assert result.totals.of("schedules")["unchanged"] == 6
    assert [entry["key"] for entry in result.conflicts] == [["acme-run-1"]]
    assert result.exit is Exit.DIFFERENT


def test_a_second_complete_run_is_a_new_generation_that_writes_no_row(pair: MemoryPair) -> None:
    fill(pair.source.storage)
    first = pair.copy()
    before = stamps(pair)
    second = pair.copy()
    assert first.job is not None
    assert second.job is not None
    assert (first.job["generation"], second.job["generation"]) == (1, 2)
    assert second.totals.all()["written"] == 0
    assert second.totals.all()["unchanged"] == first.totals.all()["written"]
    assert stamps(pair) == before


def test_entities_and_tenants_can_be_chosen(pair: MemoryPair) -> None:
    fill(pair.source.storage)
    pair.copy(entities=["runs"], tenants=["umbrella"])
    assert rows_of(pair.target.bulk) == {**dict.fromkeys(rows_of(pair.target.bulk), 0), "runs": 7}
    pair.copy(entities=["audit"], tenants=["umbrella", "acme"])
    assert rows_of(pair.target.bulk)["audit"] == 8


def test_counts_are_kept_by_entity_and_tenant(pair: MemoryPair) -> None:
    fill(pair.source.storage)
    result = pair.copy()
    runs = next(item for item in result.totals.document(result.entities) if item["entity"] == "runs")
    assert runs["tenants"] == [
        {
            "tenant": tenant,
            "read": 7,
            "written": 7,
            "unchanged": 0,
            "conflicts": 0,
            "quarantined": 0,
            "expired": 0,
            "text_timestamp": 0,
            "torn_tail": 0,
            "ignored": 0,
        }
        for tenant in TENANTS
    ]


def test_an_unknown_entity_is_refused_before_anything_is_written(pair: MemoryPair) -> None:
    with pytest.raises(ValidationError, match="Unknown entity 'rnus'; known: schedules, triggers, runs"):
        pair.copy(entities=["rnus"])
    assert list(pair.target.ledger.jobs()) == []


def test_a_store_is_never_copied_onto_itself(pair: MemoryPair) -> None:
    options = CopyOptions(execute=True, out=pair.directory)
    with pytest.raises(ValidationError, match="the same store"):
        run_copy(pair.source, pair.source, options, SilentProgress(), StopSwitch())


def test_expired_rows_are_skipped_and_counted(pair: MemoryPair) -> None:
    for name, days in (("old", 181), ("edge", 180), ("young", 179)):
        created = AS_OF - timedelta(days=days, seconds=60)
        row = encode(RUNS, make_run("acme", name, state=RunState.CANCELLED, created_at=created))
        store_unchecked(pair.stores[0], row)
    result = pair.copy()
    assert result.totals.all()["expired"] == 2
    assert [key for (key,) in stored_rows(pair.stores[1], RUNS)] == ["young"]


class TestConflicts:
    def test_the_target_row_stays_and_the_run_stops_with_exit_1(self, pair: MemoryPair) -> None:
        fill(pair.source.storage)
        pair.target.storage.runs.create(make_run("acme", "acme-run-1", created_at=at(77)))
        result = pair.copy(jobs=1)
        assert result.exit is Exit.DIFFERENT
        assert not result.complete
        assert "more than 0 conflicts" in result.stopped
        assert lines(pair, "conflicts.ndjson")[0]["key"] == ["acme-run-1"]
        stored = pair.target.storage.runs.get_required("acme", "acme-run-1")
        assert stored.created_at == at(77)

    def test_overwriting_afterwards_opens_only_the_range_with_the_conflict(self, pair: MemoryPair) -> None:
        fill(pair.source.storage)
        pair.target.storage.runs.create(make_run("acme", "acme-run-1", created_at=at(77)))
        pair.copy(jobs=1)
        result = pair.copy(on_conflict="overwrite")
        assert result.exit is Exit.OK
        assert result.complete
        assert [entry["overwritten"] for entry in lines(pair, "conflicts.ndjson")] == [True]
        assert pair.verify().verdict == "PASS"

    def test_the_same_command_succeeds_once_the_conflict_is_gone(self, pair: MemoryPair) -> None:
        fill(pair.source.storage)
        conflicting = encode(RUNS, make_run("acme", "acme-run-1", created_at=at(77)))
        store_unchecked(pair.stores[1], conflicting)
        pair.copy()
        store_unchecked(pair.stores[1], stored_rows(pair.stores[0], RUNS)["acme-run-1",])
        result = pair.copy()
        assert result.exit is Exit.OK
        assert lines(pair, "conflicts.ndjson") == []

    def test_the_run_goes_on_up_to_the_limit(self, pair: MemoryPair) -> None:
        fill(pair.source.storage)
        pair.target.storage.runs.create(make_run("acme", "acme-run-1", created_at=at(77)))
        result = pair.copy(max_conflicts=1)
        assert result.complete
        assert result.exit is Exit.DIFFERENT
        assert rows_of(pair.target.bulk) == rows_of(pair.source.bulk)

    def test_append_only_entities_are_never_overwritten(self, pair: MemoryPair) -> None:
        fill(pair.source.storage)
        pair.target.storage.audit.append(make_audit_record("acme", "acme-audit-1", action="other"))
        result = pair.copy(on_conflict="overwrite", max_conflicts=5)
        assert result.exit is Exit.DIFFERENT
        assert stored_rows(pair.stores[1], AUDIT)["acme-audit-1",].document["action"] == "other"


class TestQuarantine:
    @pytest.fixture(autouse=True)
    def bad_rows(self, pair: MemoryPair) -> None:
        fill(pair.source.storage)
        source, good = pair.stores[0], encode(RUNS, make_run("acme", "bad"))
        bad_documents: dict[str, dict[str, object]] = {
            "bad-state": {"state": "lost"},
            "bad-field": {"foreign": 1},
            "bad-nul": {"error": "a\x00b", "state": "error"},
            "bad-type": {"createdAt": 17},
        }
        for key, changes in bad_documents.items():
            store_unchecked(source, DocumentRow(RUNS, (key,), {**good.document, "id": key, **changes}, {}))
        store_unchecked(source, DocumentRow(RUNS, NO_TEXT, {**good.document, "id": 17}, {}))

    def test_bad_rows_never_stop_the_load_and_never_leave_it_green(self, pair: MemoryPair) -> None:
        result = pair.copy()
        assert result.exit is Exit.INCONCLUSIVE
        assert result.complete
        assert rows_of(pair.target.bulk)["runs"] == 14
        kept = lines(pair, "quarantine.ndjson")
        assert {str(entry["key"]) for entry in kept} == {
            "['bad-field']",
            "['bad-nul']",
            "['bad-state']",
            "['bad-type']",
            "None",
        }
        assert all(entry["reason"] and entry["raw"] for entry in kept)

    def test_the_report_shows_reasons_but_no_content(self, pair: MemoryPair) -> None:
        pair.copy()
        report = json.loads((pair.directory / "backfill-report.json").read_text())
        assert report["quarantine"]["count"] == 5
        assert all(
            set(item) == {"entity", "tenant", "key", "reason"} for item in report["quarantine"]["shown"]
        )

    def test_verification_of_the_rest_is_inconclusive_not_green_and_not_red(self, pair: MemoryPair) -> None:
        pair.copy()
        report = pair.verify()
        assert report.verdict == "INCONCLUSIVE"
        assert report.exit_code == Exit.INCONCLUSIVE
        runs = next(entity for entity in report.entities if entity.entity == "runs")
        assert runs.quarantined.count == 5

    def test_a_limit_stops_the_run_and_a_repaired_source_lets_it_finish(self, pair: MemoryPair) -> None:
        stopped = pair.copy(max_quarantine=1, jobs=1)
        assert not stopped.complete
        assert "more than 1 quarantined" in stopped.stopped
        for key in ("bad-state", "bad-field", "bad-nul", "bad-type"):
            store_unchecked(pair.stores[0], encode(RUNS, make_run("acme", key)))
        finished = pair.copy(max_quarantine=1)
        assert finished.complete
        assert [entry["key"] for entry in lines(pair, "quarantine.ndjson")] == [None]

    def test_a_row_that_only_the_target_refuses_is_kept_too(self, pair: MemoryPair) -> None:
        pair.target.storage.schedules.upsert(make_schedule("acme", "other", name="acme-schedule-1"))
        result = pair.copy(max_conflicts=9)
        assert result.totals.of("schedules")["quarantined"] == 1
        refused = next(entry for entry in lines(pair, "quarantine.ndjson") if entry["entity"] == "schedules")
        assert refused["key"] == ["acme-schedule-1"]
        assert json.loads(str(refused["raw"]))["doc"]["id"] == "acme-schedule-1"


class TestLease:
    def started(self, pair: MemoryPair, holder: str) -> str:
        """Start the job of ``pair.copy()`` as another process and keep its lease."""
        options = CopyOptions(as_of=AS_OF)
        settings = job_settings(options, pair.source, pair.target, COPIED)
        ledger = pair.target.ledger
        ledger.start(job_id(settings), settings, AS_OF)
        ledger.acquire(job_id(settings), holder, timedelta(seconds=60))
        return job_id(settings)

    def test_a_held_lease_keeps_others_out_and_names_its_holder(self, pair: MemoryPair) -> None:
        self.started(pair, "elsewhere/17/4711")
        with pytest.raises(LeaseLostError, match=r"elsewhere/17/4711.*until"):
            pair.copy()

    def test_a_living_process_of_this_host_keeps_its_lease(self, pair: MemoryPair) -> None:
        parent = replace(ProcessIdentity.this_process(), pid=1, started=start_time(1) or "")
        self.started(pair, str(parent))
        with pytest.raises(LeaseLostError):
            pair.copy()

    def test_a_dead_process_of_this_host_is_taken_over_at_once(self, pair: MemoryPair) -> None:
        fill(pair.source.storage)
        self.started(pair, str(replace(ProcessIdentity.this_process(), started="1")))
        assert pair.copy().complete

    def test_the_lease_is_given_back_at_the_end(self, pair: MemoryPair) -> None:
        pair.copy()
        ledger = pair.target.ledger
        assert [ledger.lease(job.id) for job in ledger.jobs()] == [None]

    def test_a_zombie_cannot_commit(self, pair: MemoryPair, monkeypatch: pytest.MonkeyPatch) -> None:
        fill(pair.source.storage)
        ledger = pair.target.ledger

        def take_everything_away() -> None:
            """Take the lease, and every range of the runs, in the middle of the first one."""
            (job,) = ledger.jobs()
            held = ledger.lease(job.id)
            ledger.acquire(job.id, "usurper", LONG, dead=held.holder if held else None)
            (at_work,) = ledger.ranges(job.id, "runs", state=RangeState.COPYING)
            ledger.leave(job.id, at_work.worker or "")
            while ledger.take(job.id, "usurper", "runs", LONG):
                pass

        at_first_read_of(RUNS, take_everything_away, monkeypatch)
        with pytest.raises(LeaseLostError):
            pair.copy(jobs=1, lease=timedelta(seconds=0.3))
        assert rows_of(pair.target.bulk)["schedules"] == 6
        assert rows_of(pair.target.bulk)["runs"] == 0


class TestInterruption:
    def interrupted_at(self, pair: MemoryPair, part: str) -> None:
        stop = StopSwitch()

        class Interrupter(SilentProgress):
            @override
            def start(self, name: str, total: int, done: int = 0, *, estimated: bool = False) -> None:
                del total, done, estimated
                if name == part:
                    stop.request(SIGTERM)

        options = CopyOptions(execute=True, out=pair.directory, as_of=AS_OF, range_size=3)
        run_copy(pair.source, pair.target, options, Interrupter(), stop)

    def test_a_signal_stops_at_a_safe_point_says_how_to_go_on_and_gives_the_lease_back(
        self, pair: MemoryPair
    ) -> None:
        fill(pair.source.storage)
        with pytest.raises(InterruptedRunError, match=r"SIGTERM.*run the same command again") as caught:
            self.interrupted_at(pair, "runs")
        assert caught.value.signal_number == SIGTERM
        ledger = pair.target.ledger
        assert [ledger.lease(job.id) for job in ledger.jobs()] == [None]

    def test_finished_ranges_are_not_copied_again(self, pair: MemoryPair) -> None:
        fill(pair.source.storage)
        with pytest.raises(InterruptedRunError):
            self.interrupted_at(pair, "audit")
        ledger = pair.target.ledger
        (job,) = ledger.jobs()
        before = [item for item in ledger.ranges(job.id) if item.finished_at is not None]
        assert {item.entity for item in before} >= {"schedules", "runs"}
        assert pair.copy().complete
        after = {item.number: item for item in ledger.ranges(job.id)}
        assert [after[item.number] for item in before] == before
        assert pair.verify().verdict == "PASS"


class Nowhere:
    """A sink that must not be asked to keep anything."""

    def quarantine(self, entry: object, original: object) -> None:
        del original
        pytest.fail(f"{entry} is fine")

    def conflict(self, entry: object) -> None:
        pytest.fail(f"{entry} is fine")


def test_a_range_whose_driver_lost_a_record_is_not_committed(pair: MemoryPair) -> None:
    fill(pair.source.storage)
    reader = RangeReader(SCHEDULES, expired=None, lines=Nowhere())
    with pair.source.bulk.view() as view:
        for batch in view.records(SCHEDULES, KeyRange()):
            assert reader.wanted(batch) == batch
    with pytest.raises(TwinstoreError, match="accounted for 5 of 6 records"):
        reader.tally(ImportOutcome({"acme": 3, "umbrella": 2}, {}))


def test_the_limiter_makes_callers_wait_until_their_documents_fit() -> None:
    clock = [0.0]
    waits: list[float] = []

    class Patience(StopSwitch):
        @override
        def pause(self, seconds: float) -> None:
            waits.append(seconds)
            clock[0] += seconds

    limiter = RateLimiter(100, Patience(), now=lambda: clock[0])
    for _ in range(4):
        limiter.take(50)
    assert clock[0] == pytest.approx(2.0)
    assert len(waits) == 4


def test_an_idle_limiter_saves_up_no_more_than_one_second() -> None:
    clock = [0.0]
    stopped = StopSwitch()
    stopped.request()
    limiter = RateLimiter(100, stopped, now=lambda: clock[0])
    clock[0] = 3600.0
    limiter.take(100)
    with pytest.raises(StopRequestedError):
        limiter.take(1)


def test_a_copy_says_that_its_source_changed_meanwhile(
    pair: MemoryPair, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(pair.source.storage)
    assert pair.copy().source_changes == ()

    def write_meanwhile(context: CopyContext, jobs: int) -> None:
        pair.source.storage.runs.create(make_run("acme", "late", created_at=at(900)))
        pair.source.storage.schedules.soft_delete("acme", "acme-schedule-0", "ada", at(950))
        copy_ranges(context, jobs)

    monkeypatch.setattr(engine, "copy_ranges", write_meanwhile)
    changes = {str(item["entity"]): item for item in pair.copy(max_conflicts=9).source_changes}
    runs, schedules = changes["runs"], changes["schedules"]
    assert (runs["rows_before"], runs["rows_after"]) == (14, 15)
    assert (runs["latest_before"], runs["latest_after"]) == (
        format_timestamp(at(6)),
        format_timestamp(at(900)),
    )
    assert (schedules["rows_before"], schedules["rows_after"]) == (6, 6)
    assert schedules["latest_after"] == format_timestamp(at(950))
