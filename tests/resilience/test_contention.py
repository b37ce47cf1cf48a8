"""Many threads write one row: both stores serve the same calls, and no writer is turned away."""

from __future__ import annotations

import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from threading import Barrier, Lock, Thread
from typing import TYPE_CHECKING, Any, Final, cast

import pytest

import twinstore
from tests.support.databases import fresh_settings
from twinstore.access.retry import CONTENTION_SECONDS
from twinstore.errors import ConcurrencyError
from twinstore.scheduler import ExecutionLogEntry, LogLevel, RunReason, RunState, RunSummary
from twinstore.testing.instants import START, at
from twinstore.testing.scheduler.builders import make_run, make_schedule, moved
from twinstore.testing.tracking.builders import make_machine, make_session

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.support.servers import Settings
    from twinstore.scheduler.storage import SchedulerSession, SchedulerStorage
    from twinstore.storage.open import Storage

TENANT: Final = "acme"
SERVERS: Final = ("mongo", "postgres")


@dataclass
class Outcome:
    """What became of the calls."""

    seconds: list[float] = field(default_factory=list)
    errors: list[BaseException] = field(default_factory=list)


def at_once(
    storage: Storage, threads: int, calls: int, work: Callable[[Storage, int, int], object]
) -> Outcome:
    """Let threads make calls, all at the same moment."""
    outcome, lock, start = Outcome(), Lock(), Barrier(threads)

    def run(number: int) -> None:
        start.wait()
        for turn in range(calls):
            begun = time.monotonic()
            error: BaseException | None = None
            try:
                work(storage, number, turn)
            except BaseException as caught:  # noqa: BLE001  # judged by the test
                error = caught
            with lock:
                outcome.seconds.append(time.monotonic() - begun)
                outcome.errors += [] if error is None else [error]

    running = [Thread(target=run, args=(number,), daemon=True) for number in range(threads)]
    for thread in running:
        thread.start()
    for thread in running:
        thread.join(120)
    return outcome


def project(storage: Storage, number: int, turn: int) -> None:
    run = make_run(TENANT, f"run-{number}", schedule_id="s")
    storage.scheduler.run_summary_service.project(moved(run, RunState.QUEUED) if turn % 2 else run)


def update_run(storage: Storage, number: int, turn: int) -> None:
    reason = RunReason(manual_reason=f"{number}:{turn}")
    assert storage.scheduler.runs.update(make_run(TENANT, "run", reason=reason))


def count_up(storage: Storage, number: int, turn: int) -> None:
    def more(session: Any) -> None:  # noqa: ANN401  # a session of the scheduler
        run = session.runs.get_required(TENANT, "run")
        stats = run.stats.evolve(candidates=run.stats.candidates + 1)
        assert session.runs.update(run.evolve(stats=stats))

    del number, turn
    storage.scheduler.transact(more, tenant_id=TENANT)


def append(storage: Storage, number: int, turn: int) -> None:
    entry = ExecutionLogEntry(
        tenant_id=TENANT,
        run_id="run",
        sequence=None,
        logged_at=START,
        level=LogLevel.INFO,
        message=f"{number}:{turn}",
    )
    storage.scheduler.execution_logs.append((entry,))


def upsert(storage: Storage, number: int, turn: int) -> None:
    storage.scheduler.schedules.upsert(make_schedule(TENANT, "hot", updated_by=f"{number}:{turn}"))


def upsert_summary(storage: Storage, number: int, turn: int) -> None:
    storage.scheduler.run_summaries.upsert(RunSummary.of(TENANT, "hot", (), at(number * 10 + turn)))


def assign(storage: Storage, number: int, turn: int) -> None:
    machines = storage.tracking.machines
    machines.assign_session("machine", f"session-{number}")
    if turn % 2:
        machines.release_session("machine", f"session-{number}")


# How many threads, and how many calls each, in the full form.
CASES: Final = {
    "projections": (project, 32, 4),
    "updates": (update_run, 24, 4),
    "units": (count_up, 8, 5),
    "appends": (append, 24, 4),
    "upserts": (upsert, 24, 4),
    "summaries": (upsert_summary, 24, 4),
    "slots": (assign, 16, 5),
}


@contextmanager
def opened(server: str, request: pytest.FixtureRequest) -> Iterator[Storage]:
    """Open both modules on one database, with the rows that are fought for."""
    with (
        fresh_settings(server, request) as settings,
        twinstore.open_storage(with_tracking(settings)) as storage,
    ):
        storage.tracking.initializer.ensure_migrations()
        storage.scheduler.runs.create(make_run(TENANT, "run"))
        storage.tracking.machines.create(make_machine(TENANT, "machine", docker_slots=tuple(range(40))))
        for number in range(16):
            storage.tracking.tracking_sessions.create(make_session(TENANT, f"session-{number}"))
        yield storage


def with_tracking(settings: Settings) -> Settings:
    """Return settings in which tracking is where the scheduler is."""
    persistence = cast("dict[str, Any]", settings["Persistence"])
    return {**settings, "Persistence": {**persistence, "Tracking": persistence["Scheduler"]}}


def check(server: str, case: str, request: pytest.FixtureRequest, share: int = 1) -> Outcome:
    """Let threads compete for one row; check the store and return what became of the threads."""
    work, threads, calls = CASES[case]
    with opened(server, request) as storage:
        begun = time.monotonic()
        outcome = at_once(storage, threads // share, calls, work)
        # In the report of a test that fails, and with -rP.
        sys.stdout.write(
            f"{server} {case}: {len(outcome.seconds)} calls in {time.monotonic() - begun:.2f} s, slowest "
            f"{max(outcome.seconds):.2f} s, {len(outcome.errors)} errors\n"
        )
        assert outcome.errors == []
        judge(storage, case, threads // share, calls)
    return outcome


def judge(storage: Storage, case: str, threads: int, calls: int) -> None:
    """Check that nothing which was confirmed is missing."""
    match case:
        case "projections":
            assert len(storage.scheduler.run_summaries.get_required(TENANT, "s").recent) == min(threads, 20)
        case "units":
            assert storage.scheduler.runs.get_required(TENANT, "run").stats.candidates == threads * calls
        case "appends":
            found = storage.scheduler.execution_logs.list(TENANT, "run", limit=1000)
            assert [entry.sequence for entry in found] == [*range(1, threads * calls + 1)]
            assert len({entry.message for entry in found}) == threads * calls
        case "slots":
            assert len(storage.tracking.machines.get_required("machine").active_sessions) == threads
        case _:
            pass


@pytest.mark.parametrize("server", SERVERS)
@pytest.mark.parametrize("case", CASES)
def test_no_writer_is_refused_a_row_that_others_write(
    server: str, case: str, request: pytest.FixtureRequest, *, long_form: bool
) -> None:
    outcome = check(server, case, request, share=1 if long_form else 2)
    assert max(outcome.seconds) < CONTENTION_SECONDS


WAIT: Final = 20


def queued(session: SchedulerSession | SchedulerStorage, tenant: str) -> list[str]:
    return [run.id for run in session.runs.list(tenant) if run.state is RunState.QUEUED]


def queue_if_none_is(
    unit: SchedulerSession, tenant: str, name: str, *, common: bool, meanwhile: Callable[[], object]
) -> None:
    """Queue a run in a unit that has seen no queued one; ``common``: write the row that represents all."""
    if queued(unit, tenant):
        return
    meanwhile()
    if common:
        place = unit.runs.get_required(tenant, f"{tenant}-place")
        stats = place.stats.evolve(candidates=place.stats.candidates + 1)
        unit.runs.update(place.evolve(stats=stats))
    run = unit.runs.get_required(tenant, f"{tenant}-{name}")
    unit.runs.update(moved(run, RunState.QUEUED))


def race(storage: SchedulerStorage, tenant: str, *, common: bool, repeated: bool) -> None:
    """Queue two runs, the second while the first one has looked and not yet written."""
    for name in ("place", "one", "two"):
        storage.runs.create(make_run(tenant, f"{tenant}-{name}"))

    def competitor() -> None:
        with storage.transaction(tenant) as unit:
            queue_if_none_is(unit, tenant, "two", common=common, meanwhile=bool)

    with ThreadPoolExecutor(1) as other:

        def meanwhile() -> None:
            other.submit(competitor).result(WAIT)

        def first(unit: SchedulerSession) -> None:
            queue_if_none_is(unit, tenant, "one", common=common, meanwhile=meanwhile)

        storage.transact(first, tenant_id=tenant, attempts=None if repeated else 1)


def test_two_units_that_write_different_rows_both_commit(storage: SchedulerStorage, tenant: str) -> None:
    race(storage, tenant, common=False, repeated=False)
    assert sorted(queued(storage, tenant)) == [f"{tenant}-one", f"{tenant}-two"]


@pytest.mark.parametrize("repeated", [False, True])
def test_of_two_units_that_write_a_common_row_the_first_one_wins(
    storage: SchedulerStorage, tenant: str, *, repeated: bool
) -> None:
    if repeated:
        race(storage, tenant, common=True, repeated=True)
    else:
        with pytest.raises(ConcurrencyError):
            race(storage, tenant, common=True, repeated=False)
    assert queued(storage, tenant) == [f"{tenant}-two"]
