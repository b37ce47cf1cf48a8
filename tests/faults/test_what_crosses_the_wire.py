"""What removes, counts or releases rows, or asks for their number, never loads their documents."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Final

import pytest

import twinstore
from tests.every_module import for_every_module, migrate
from tests.stores import fresh_settings, kept
from tests.wires import over
from twinstore.scheduler import ExecutionLogEntry, GraphJobStatus, PolicyRunJobStatus, RunState
from twinstore.testing.instants import START
from twinstore.testing.scheduler.builders import make_image, make_impact_set, make_run, make_selector, moved
from twinstore.testing.scheduler.graph_jobs import digits_of, make_graph_build_job
from twinstore.testing.scheduler.policy_builders import make_policy_job
from twinstore.testing.taskrunner.builders import make_draft, make_log_entry, make_pack_run
from twinstore.testing.tracking.builders import make_session, make_task, project_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.wires import CountingWire
    from twinstore.storage.open import Storage

SERVERS: Final = {"mongo": "Mongo", "postgres": "Postgres"}
ROWS: Final = 3
# A document has so many bytes; a call may bring back so few.
TEXT: Final = "x" * 400_000
FEW: Final = 40_000
DAY: Final = timedelta(days=1)
LATER: Final = START + 4000 * DAY


@dataclass(frozen=True)
class Rows:
    """The rows of one case, under a tenant and names of its own."""

    storage: Storage
    tenant: str

    @property
    def names(self) -> list[str]:
        """The names of the rows."""
        return [f"{self.tenant}-{number}" for number in range(ROWS)]

    @property
    def first(self) -> str:
        """The name of the first one."""
        return self.names[0]

    def runs(self) -> None:
        runs = self.storage.scheduler.runs
        for name in self.names:
            run = runs.create(make_run(self.tenant, name))
            for state, error in ((RunState.QUEUED, None), (RunState.RUNNING, None), (RunState.ERROR, TEXT)):
                run = moved(run, state, error=error)
                runs.update(run)

    def logs(self) -> None:
        self.runs()
        self.storage.scheduler.execution_logs.append([self.entry(TEXT) for _ in range(ROWS)])

    def entry(self, message: str) -> ExecutionLogEntry:
        return ExecutionLogEntry(tenant_id=self.tenant, run_id=self.first, logged_at=START, message=message)

    def snapshots(self) -> None:
        large = make_impact_set(
            selector=make_selector(tenant_id=None), images=(make_image(1, labels={"a": TEXT}),)
        )
        for name in self.names:
            self.storage.scheduler.impact_snapshots.upsert(self.tenant, large.evolve(snapshot_id=name))

    def policy_jobs(self) -> None:
        jobs = self.storage.scheduler.policy_jobs
        for name in self.names:
            jobs.create(make_policy_job(self.tenant, name, metadata={"text": TEXT}))

    def leased_jobs(self) -> None:
        self.policy_jobs()
        self.storage.scheduler.policy_jobs.lease_many("host", START + DAY, tenant_id=self.tenant)

    def graph_jobs(self) -> None:
        for name in self.names:
            job = make_graph_build_job(self.tenant, name, metadata={"text": TEXT})
            self.storage.scheduler.graph_jobs.insert(job)

    def pack_log(self) -> None:
        self.storage.taskrunner.pack_runs.create(make_pack_run(self.tenant, self.first))
        entries = [make_log_entry(self.first, number, message=TEXT) for number in range(1, ROWS + 1)]
        self.storage.taskrunner.pack_run_logs.append(entries, tenant_id=self.tenant)

    def sessions(self) -> None:
        for name in self.names:
            self.storage.tracking.tracking_sessions.create(
                make_session(self.tenant, name, metadata={"text": TEXT})
            )

    def ended_sessions(self) -> None:
        self.sessions()
        for name in self.names:
            self.storage.tracking.tracking_sessions.complete(name, START)

    def tasks(self) -> None:
        self.sessions()
        for name in self.names:
            task = make_task(self.tenant, name, session_id=self.first, task_name=TEXT)
            self.storage.tracking.tasks.create(task)


def graph_id(name: str) -> str:
    """Return the id of a graph job."""
    return f"gbj_{digits_of(name)}"


Call = "tuple[Callable[[Rows], None], Callable[[Rows], object], object]"
CASES: Final[dict[str, tuple[Callable[[Rows], None], Callable[[Rows], object], object]]] = {
    "runs.purge_finished": (
        Rows.logs,
        lambda r: r.storage.scheduler.runs.purge_finished(LATER, tenant_id=r.tenant),
        ROWS,
    ),
    "execution_logs.purge": (
        Rows.logs,
        lambda r: r.storage.scheduler.execution_logs.purge(LATER, tenant_id=r.tenant),
        ROWS,
    ),
    "execution_logs.append": (
        Rows.logs,
        lambda r: r.storage.scheduler.execution_logs.append((r.entry("short"),))[0].sequence,
        ROWS + 1,
    ),
    "impact_snapshots.delete": (
        Rows.snapshots,
        lambda r: r.storage.scheduler.impact_snapshots.delete(r.tenant, r.first),
        True,
    ),
    "impact_snapshots.purge_generated": (
        Rows.snapshots,
        lambda r: r.storage.scheduler.impact_snapshots.purge_generated(LATER, tenant_id=r.tenant),
        ROWS,
    ),
    "policy_jobs.count_by_status": (
        Rows.policy_jobs,
        lambda r: r.storage.scheduler.policy_jobs.count_by_status(r.tenant),
        {PolicyRunJobStatus.PENDING: ROWS},
    ),
    "policy_jobs.delete": (
        Rows.policy_jobs,
        lambda r: r.storage.scheduler.policy_jobs.delete(r.tenant, r.first),
        True,
    ),
    "graph_jobs.count_by_status": (
        Rows.graph_jobs,
        lambda r: r.storage.scheduler.graph_jobs.count_by_status(r.tenant),
        {GraphJobStatus.QUEUED: ROWS},
    ),
    "graph_jobs.delete": (
        Rows.graph_jobs,
        lambda r: r.storage.scheduler.graph_jobs.delete(r.tenant, graph_id(r.first)),
        True,
    ),
    "pack_run_logs.last_sequence": (
        Rows.pack_log,
        lambda r: r.storage.taskrunner.pack_run_logs.last_sequence(r.first, tenant_id=r.tenant),
        ROWS,
    ),
    "pack_run_logs.append_next": (
        Rows.pack_log,
        lambda r: (
            r.storage.taskrunner.pack_run_logs.append_next(r.first, make_draft(), tenant_id=r.tenant).sequence
        ),
        ROWS + 1,
    ),
    "pack_run_logs.purge": (
        Rows.pack_log,
        lambda r: r.storage.taskrunner.pack_run_logs.purge(LATER) >= ROWS,
        True,
    ),
    "sessions.count_by_status": (
        Rows.sessions,
        lambda r: sum(r.storage.tracking.tracking_sessions.count_by_status(project_of(r.tenant)).values()),
        ROWS,
    ),
    "sessions.purge_expired": (
        Rows.ended_sessions,
        lambda r: r.storage.tracking.tracking_sessions.purge_expired(LATER),
        ROWS,
    ),
    "tasks.progress": (
        Rows.tasks,
        lambda r: r.storage.tracking.tasks.progress(session_id=r.first).total,
        ROWS,
    ),
    "tasks.delete": (Rows.tasks, lambda r: r.storage.tracking.tasks.delete(r.first), True),
}


@contextmanager
def opened(server: str, request: pytest.FixtureRequest) -> Iterator[tuple[CountingWire, Storage]]:
    """Open every module over a wire that counts."""
    with fresh_settings(server, request) as fresh:
        settings = kept(for_every_module(fresh, SERVERS[server]))
        migrate(settings)
        wire, counted = over(settings)
        with wire, twinstore.open_storage(counted) as storage:
            yield wire, storage


@pytest.mark.parametrize("server", SERVERS)
def test_what_removes_or_counts_loads_no_document(server: str, request: pytest.FixtureRequest) -> None:
    loaded: dict[str, int] = {}
    with opened(server, request) as (wire, storage):
        for number, (name, (store, call, answer)) in enumerate(CASES.items()):
            rows = Rows(storage, f"t{number}")
            store(rows)
            before = wire.received
            assert call(rows) == answer, name
            if wire.received - before > FEW:
                loaded[name] = wire.received - before
    assert loaded == {}


@pytest.mark.parametrize("server", SERVERS)
def test_a_lease_loads_the_job_that_it_answers_and_no_other(
    server: str, request: pytest.FixtureRequest
) -> None:
    with opened(server, request) as (wire, storage):
        rows = Rows(storage, "t")
        rows.policy_jobs()
        before = wire.received
        assert storage.scheduler.policy_jobs.lease_next("host", START + DAY) is not None
        assert wire.received - before < len(TEXT) + FEW
        before = wire.received
        rest = storage.scheduler.policy_jobs.lease_many("host", START + DAY)
        assert len(rest) == ROWS - 1
        assert wire.received - before < len(rest) * len(TEXT) + FEW


@pytest.mark.parametrize("server", SERVERS)
def test_a_release_loads_each_job_once(server: str, request: pytest.FixtureRequest) -> None:
    with opened(server, request) as (wire, storage):
        rows = Rows(storage, "t")
        rows.leased_jobs()
        before = wire.received
        assert storage.scheduler.policy_jobs.release_expired(LATER) == ROWS
        assert wire.received - before < ROWS * len(TEXT) + FEW
