"""A migration from Python: what the command line does, with models, events and a token that cancels."""

from __future__ import annotations

import asyncio
import signal
from _thread import interrupt_main
from dataclasses import replace
from threading import Timer
from typing import TYPE_CHECKING, Any, Final, cast

import pytest

from tests.support.copies import AS_OF, fill, invoke, open_store, server_settings, write_config
from twinstore.config import load_settings
from twinstore.errors import ValidationError
from twinstore.migration import (
    CancelToken,
    CopyOptions,
    InterruptedRunError,
    JobRules,
    Migration,
    Side,
    VerifyOptions,
)
from twinstore.scheduler.catalog import RUNS, SCHEDULES
from twinstore.testing.scheduler.builders import make_run
from twinstore_backfill.outcome import Exit
from twinstore_backfill.process.secrets import REDACTOR
from twinstore_backfill.rules.model import DropRule
from twinstore_backfill.verify.options import Approval
from twinstore_memory.rows import store_unchecked, stored_rows

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.support.copies import MemoryPair
    from tests.support.databases import MongoDatabase, PostgresDatabase
    from twinstore.migration import CopyReport, ParityReport, PartState, PlanReport, Run

SECRET: Final = "hunter2-of-nobody"
ACCEPTED: Final = """
[[accept]]
kind = "model:state"
entity = "runs"
most = 1
reason = "agreed in the review"
approved-by = "Ada"
"""
COMPARED: Final = VerifyOptions(as_of=AS_OF)
SLOW: Final = CopyOptions(execute=True, as_of=AS_OF, range_size=1, max_rate=40, jobs=1)


@pytest.fixture
def migration(pair: MemoryPair, tmp_path: Path) -> Migration:
    """Return a migration between two stores in memory."""
    left, right = (
        Side("memory", write_config(tmp_path / f"{name}.json", {"Persistence": {"Memory": {"Store": name}}}))
        for name in pair.names
    )
    return Migration(left, right, "scheduler", title="Move to tables")


def execution(tmp_path: Path, *entities: str) -> CopyOptions:
    return CopyOptions(execute=True, as_of=AS_OF, out=tmp_path / "copy", entities=entities)


def test_each_step_gives_a_model(migration: Migration, pair: MemoryPair, tmp_path: Path) -> None:
    plan = migration.plan(CopyOptions(as_of=AS_OF)).result()
    dry = migration.copy(CopyOptions(as_of=AS_OF)).result()
    assert (plan.rows, dry.executed, dry.totals.written) == (dry.totals.read, False, plan.rows)
    copied = migration.copy(execution(tmp_path)).result()
    assert (copied.complete, copied.exit_code, copied.totals, copied.title) == (
        True,
        Exit.OK,
        dry.totals,
        "Move to tables",
    )
    assert (tmp_path / "copy" / "backfill-report.json").exists()
    report = migration.verify(COMPARED, out=tmp_path / "report").result()
    assert (report.verdict, report.title) == ("PASS", "Move to tables")
    assert (tmp_path / "report" / "parity-report.html").exists()
    del pair


def test_what_differs_is_repaired(migration: Migration, pair: MemoryPair, tmp_path: Path) -> None:
    out = tmp_path / "report"
    migration.copy(execution(tmp_path)).result()
    pair.target.storage.runs.create(make_run("acme", "only-here"))
    changed = pair.target.storage.schedules.get_required("acme", "acme-schedule-0")
    pair.target.storage.schedules.upsert(changed.evolve(name="another"))
    assert migration.verify(COMPARED, out=out).result().verdict == "FAIL"
    pending = migration.repair(out, COMPARED).result()
    assert (pending.to_copy, pending.to_remove) == ({SCHEDULES.name: 1}, {RUNS.name: 1})
    assert (pending.executed, pending.exit_code) == (False, Exit.DIFFERENT)
    done = migration.repair(out, COMPARED, execute=True, delete_extra=True).result()
    assert (done.repaired["written"], done.repaired["removed"]) == ({SCHEDULES.name: 1}, {RUNS.name: 1})
    assert migration.verify(COMPARED, differences=out).result().documents_equal == 1
    assert migration.verify(COMPARED).result().verdict == "PASS"


def test_what_a_job_accepts_ends_as_the_command_does(
    pair: MemoryPair, migration: Migration, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    row = stored_rows(pair.stores[0], RUNS)["acme-run-3",]
    store_unchecked(pair.stores[0], replace(row, document={**row.document, "state": "lost"}))
    open_cause = migration.copy(execution(tmp_path)).result()
    assert (open_cause.exit_code, open_cause.exceptions) == (Exit.INCONCLUSIVE, ())
    job = tmp_path / "job.toml"
    job.write_text(ACCEPTED)
    accepting = Migration(migration.source, migration.target, "scheduler", rules=job)
    report = accepting.copy(execution(tmp_path)).result()
    assert (report.exit_code, [item.rows for item in report.exceptions]) == (Exit.OK, [1])
    proof = accepting.verify(COMPARED).result()
    assert (proof.verdict, proof.approved_exceptions) == ("PASS", 1)
    files = zip(("--source-config", "--target-config"), (migration.source, migration.target), strict=True)
    sides = [item for option, side in files for item in (option, side.settings)]
    names = ("--module", "scheduler", "--from", "memory", "--to", "memory", "--as-of", AS_OF.isoformat())
    answer = invoke(capsys, "backfill", "--job-file", job, "copy", *names, *sides, "--format", "json")
    dry = accepting.copy(CopyOptions(as_of=AS_OF)).result().document()
    assert (answer.code, {**answer.json, "envelope": None}) == (Exit.OK, {**dry, "envelope": None})


RULE: Final = JobRules((DropRule(number=1, line=1, entity="runs", path=("legacy",)),))
REFUSED: Final[tuple[tuple[str, Callable[[Migration], object]], ...]] = (
    ("needs --reason TEXT and --approved-by NAME", lambda _: Approval("no data yet", " ")),
    (
        "different rules",
        lambda migration: Migration(
            migration.source, migration.target, migration.module, JobRules(reverse=True)
        ).copy(CopyOptions(rules=RULE)),
    ),
    (
        "the Path of a job file, not str",
        lambda _: Migration("memory", "memory", "scheduler", cast("Any", "x")),
    ),
)


@pytest.mark.parametrize(("message", "make"), REFUSED)
def test_what_a_command_refuses_is_refused_here(
    migration: Migration, message: str, make: Callable[[Migration], object]
) -> None:
    with pytest.raises(ValidationError, match=f"(?i){message}"):
        make(migration)


def test_a_url_replaces_the_place_of_its_side_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    kept = {"Persistence": {"Mongo": {"ConnectionString": "mongodb://other/db"}, "Scheduler": "Memory"}}
    settings = load_settings({**kept, "Scheduler": {"Storage": {"RunRetentionDays": 7}}})
    monkeypatch.setenv("LEGACY", f"mongodb://ada.l:{SECRET}@host/db")
    migration = Migration("env:LEGACY", "memory", "scheduler", settings=settings)
    found = load_settings(migration.source.settings)
    assert migration.source.backend == found.backend_name("scheduler") == "Mongo"
    assert "7" in {entry.text for entry in found.entries.values() if entry.path[-1] == "RunRetentionDays"}
    assert "mongodb://other/db" not in {entry.text for entry in found.entries.values()}
    # Servers and clients name the user in their messages, which reports repeat.
    assert "ada.l" not in REDACTOR.clean('no user "ada.l" at mongodb://ada.l@host/db')


def test_events_tell_how_far_each_part_is(migration: Migration, tmp_path: Path) -> None:
    run = migration.copy(execution(tmp_path))
    assert not run.done
    last: dict[str, PartState] = {}
    for event in run:
        assert event.part not in last or event.done >= last[event.part].done
        last[event.part] = event
    report = run.result()
    assert run.result() is report
    assert {name: state.outcomes["written"] for name, state in last.items() if state.done} == {
        item.entity: item.total.written for item in report.entities if item.total.read
    }
    assert all(state.finished for state in last.values())


def test_an_error_is_the_result_and_the_directory_says_why(migration: Migration, tmp_path: Path) -> None:
    run = migration.copy(execution(tmp_path, "runz"))
    assert list(run) == []
    with pytest.raises(ValidationError, match="Unknown entity 'runz'"):
        run.result()
    refused = migration.copy(SLOW, cancel=stopped())
    with pytest.raises(InterruptedRunError, match=r"^Cancelled"):
        refused.result()


def stopped() -> CancelToken:
    token = CancelToken()
    token.cancel()
    return token


def test_asyncio_waits_and_cancels(migration: Migration, tmp_path: Path) -> None:
    async def whole() -> tuple[CopyReport, list[PartState]]:
        run = migration.copy(execution(tmp_path))
        return await run, [event async for event in run]

    async def cancelled() -> str:
        run = migration.verify(COMPARED)
        task = asyncio.ensure_future(run)
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert run.done
        return "ended"

    report, events = asyncio.run(whole())
    assert report.complete
    assert {event.part for event in events} == {item.entity for item in report.entities}
    assert asyncio.run(cancelled()) == "ended"


class LeftError(Exception):
    """The error of a consumer."""


def fail() -> None:
    raise LeftError


def each_event(run: Run[CopyReport], body: Callable[[], object]) -> None:
    for _ in run:
        body()


def interrupted_body(run: Run[CopyReport]) -> None:
    with pytest.raises(KeyboardInterrupt):
        each_event(run, lambda: signal.raise_signal(signal.SIGINT))


def interrupted_wait(run: Run[CopyReport]) -> None:
    Timer(0.5, interrupt_main).start()
    with pytest.raises(KeyboardInterrupt):
        list(run)


def failed_body(run: Run[CopyReport]) -> None:
    with pytest.raises(LeftError):
        each_event(run, fail)


def left_loop(run: Run[CopyReport]) -> None:
    for _ in run:
        break


def left_async_loop(run: Run[CopyReport]) -> None:
    async def leave() -> None:
        async for _ in run:
            break

    asyncio.run(leave())
    assert run.done


def cancelled_task(run: Run[CopyReport]) -> None:
    async def follow() -> None:
        async for _ in run:
            cast("asyncio.Task[None]", asyncio.current_task()).cancel()

    with pytest.raises(asyncio.CancelledError):
        asyncio.run(follow())
    assert run.done


def cancelled_twice(run: Run[CopyReport]) -> None:
    for _ in run:
        run.cancel()
        run.cancel()


LEAVING: Final = (
    interrupted_body,
    interrupted_wait,
    failed_body,
    left_loop,
    left_async_loop,
    cancelled_task,
    cancelled_twice,
)


@pytest.mark.parametrize("leave", LEAVING)
def test_a_run_whose_events_are_left_is_cancelled(
    migration: Migration, caplog: pytest.LogCaptureFixture, leave: Callable[[Run[CopyReport]], None]
) -> None:
    run = migration.copy(replace(SLOW, execute=False, max_rate=1))
    leave(run)
    with pytest.raises(InterruptedRunError, match=r"^Cancelled"):
        run.result()
    # asyncio and concurrent.futures log what nobody retrieves, or what comes after the loop has ended.
    assert [record for record in caplog.records if record.name in {"asyncio", "concurrent.futures"}] == []


def test_a_run_that_is_cancelled_before_it_begins_opens_nothing(tmp_path: Path) -> None:
    file = write_config(tmp_path / "gone.json", {"Persistence": {"Mongo": {"ConnectionString": "not a URL"}}})
    run = Migration(Side("mongo", file), Side("mongo", file), "scheduler").copy(cancel=stopped())
    with pytest.raises(InterruptedRunError, match=r"^Cancelled"):
        run.result()


def test_two_runs_at_a_time_print_and_lose_nothing(
    migration: Migration, capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    async def both() -> tuple[ParityReport, PlanReport]:
        return await asyncio.gather(migration.verify(COMPARED), migration.plan(CopyOptions(as_of=AS_OF)))

    migration.copy(execution(tmp_path)).result()
    report, plan = asyncio.run(both())
    assert (report.verdict, report.documents_equal) == ("PASS", plan.rows)
    assert capfd.readouterr() == ("", "")


def test_no_secret_is_shown() -> None:
    settings = load_settings({"Persistence": {"Mongo": {"ConnectionString": f"mongodb://u:{SECRET}@h/d"}}})
    migration = Migration(Side("mongo", settings), Side("mongo", settings), "scheduler")
    assert SECRET not in f"{migration!r} {migration.source!r} {migration.copy()!r}"


@pytest.fixture
def moving(
    mongo_database: MongoDatabase, postgres_database: PostgresDatabase, tmp_path: Path
) -> tuple[Migration, tuple[object, ...]]:
    """Return a migration from MongoDB to PostgreSQL, and the same as arguments of a command."""
    file = write_config(tmp_path / "settings.json", server_settings(mongo_database, postgres_database))
    with open_store("scheduler", "Mongo", load_settings(file)) as source:
        fill(source.storage)
    made = Migration(Side("mongo", file), Side("postgres", file), "scheduler")
    names = ("--module", "scheduler", "--from", "mongo", "--to", "postgres")
    return made, ("--config", file, "backfill", "copy", *names)


def test_what_python_begins_the_command_goes_on_with(
    moving: tuple[Migration, tuple[object, ...]], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    migration, command = moving
    more = ("--execute", "--as-of", AS_OF.isoformat(), "--out", tmp_path / "out", "--format", "json")
    run = migration.copy(SLOW)
    for event in run:
        if event.part == RUNS.name and event.done:
            run.cancel()
    with pytest.raises(InterruptedRunError, match=r"^Cancelled\. Finished ranges are saved"):
        run.result()
    left = migration.plan(CopyOptions(as_of=AS_OF)).result()
    there = sum(item.rows_in_target for item in left.entities)
    assert 0 < there < left.rows
    answer = invoke(capsys, *command, *more)
    report = answer.json
    assert (answer.code, report["complete"]) == (Exit.OK, True)
    # Its ranges of one row are those that were planned here.
    assert report["job"]["generation"] == 1
    assert migration.verify(COMPARED).result().verdict == "PASS"


def test_what_the_command_begins_python_goes_on_with(
    moving: tuple[Migration, tuple[object, ...]], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    migration, command = moving
    # It stops at the first conflict, with ranges of one row each.
    migration.copy(CopyOptions(execute=True, entities=(SCHEDULES.name,), as_of=AS_OF)).result()
    with open_store("scheduler", "Postgres", load_settings(migration.target.settings)) as target:
        schedules = target.storage.schedules
        changed = schedules.get_required("acme", "acme-schedule-0")
        schedules.upsert(changed.evolve(name="another"))
    more = (
        "--execute",
        "--as-of",
        AS_OF.isoformat(),
        "--out",
        tmp_path / "out",
        "--range-size",
        1,
        "--jobs",
        1,
    )
    assert invoke(capsys, *command, *more).code == Exit.DIFFERENT
    options = CopyOptions(execute=True, as_of=AS_OF, on_conflict="overwrite", out=tmp_path / "out")
    report = migration.copy(options).result()
    assert (report.complete, report.job and report.job.generation) == (True, 1)
    before = migration.verify(COMPARED).result()
    assert (before.verdict, before.switch, before.cutover_ready) == ("PASS", None, True)
    # Once the service uses the target, a proof comes too late for a switch.
    settings = load_settings({"Persistence": {"Scheduler": "Postgres"}}, environ={})
    switched = Migration(migration.source, migration.target, "scheduler", settings=settings)
    late = switched.verify(COMPARED).result()
    assert (late.verdict, late.switch, late.cutover_ready) == ("PASS", "Postgres", False)
