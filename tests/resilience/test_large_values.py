"""Rows as large as they may be, through every method that stores one, and arguments of any length."""

from __future__ import annotations

import inspect
import time
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from itertools import chain, islice
from typing import TYPE_CHECKING, Any, Final, cast

import pytest

import twinstore
from tests.support.databases import for_every_module, fresh_settings, migrate, without_retention
from tests.support.proxies import through_proxy
from twinstore.access.guard import MAX_BYTES, size_of
from twinstore.errors import TwinstoreError, ValidationError
from twinstore.scheduler import ExecutionLogEntry, GraphJobStatus, PolicyRunJobStatus, RunState
from twinstore.testing.instants import START
from twinstore.testing.scheduler.builders import (
    make_image,
    make_impact_set,
    make_policy_job,
    make_run,
    make_selector,
    moved,
)
from twinstore.testing.scheduler.examples import SCHEDULER_EXAMPLES
from twinstore.testing.scheduler.graph_jobs import digits_of, make_graph_build_job
from twinstore.testing.taskrunner.builders import make_draft, make_log_entry, make_pack_run
from twinstore.testing.taskrunner.examples import TASKRUNNER_EXAMPLES
from twinstore.testing.tracking.builders import make_session, make_task, project_of
from twinstore.testing.tracking.examples import TRACKING_EXAMPLES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.support.proxies import CountingProxy
    from twinstore.models.canonical import CanonicalModel
    from twinstore.storage.open import Storage
    from twinstore.testing.examples import Example, ModuleExamples

TENANT: Final = "acme"
SERVERS: Final = {"mongo": "Mongo", "postgres": "Postgres"}
MODULES: Final = (SCHEDULER_EXAMPLES, TASKRUNNER_EXAMPLES, TRACKING_EXAMPLES)
# What a server itself adds to a row, such as a second form of the key.
ALLOWANCE: Final = 10_000
# What is repeated is repeated for ten seconds at least.
SECONDS: Final = 9
LONGEST_MESSAGE: Final = 2000
# No bounded text may be as long.
PROBE: Final = 10_000
whose_messages_are_bounded: Final = pytest.mark.parametrize(
    "storage", ["mongo", pytest.param("postgres", marks=pytest.mark.long)], indirect=True
)


@pytest.fixture(params=SERVERS)
def storage(request: pytest.FixtureRequest) -> Iterator[Storage]:
    """Open every module on a server."""
    with every_module(request.param, request) as found:
        yield found


@contextmanager
def every_module(server: str, request: pytest.FixtureRequest) -> Iterator[Storage]:
    """Open every module on a server."""
    with fresh_settings(server, request) as fresh:
        settings = without_retention(for_every_module(fresh, SERVERS[server]))
        migrate(settings)
        with twinstore.open_storage(settings) as found:
            yield found


def grown(model: CanonicalModel, size: int) -> CanonicalModel | None:
    """Return a model with a text that makes it so large, ``None`` where every field of it is bounded."""
    for name in type(model).model_fields:
        for shape in (str, lambda text: {"a": text}):
            try:
                found = model.evolve(**{name: shape("x" * PROBE)})
            except ValueError:
                continue
            return model.evolve(**{name: shape("x" * (PROBE + size - size_of(found.wire())))})
    return None


def named(item: Example) -> str:
    """Return the name of the row of an entity, and of its parent; others may have the parent stored too."""
    return f"large-{item.name}"


def sized(module: ModuleExamples, size: int) -> Iterator[tuple[Example, CanonicalModel]]:
    """Yield the entities of a module that can have rows of any size, each with one of this size."""
    for item in module.examples:
        if (large := grown(item.small(TENANT, named(item)), size)) is not None:
            yield item, large


def of_module(storage: Storage, module: ModuleExamples) -> Any:  # noqa: ANN401  # of any module
    """Return the repositories of a module."""
    return storage.module(module.module.name).unbound


def test_nearly_every_entity_can_be_large() -> None:
    found = [item.name for module in MODULES for item, _ in sized(module, 2 * PROBE)]
    assert len(found) >= 12, found


def store_parent(session: Any, module: ModuleExamples, item: Example) -> None:  # noqa: ANN401  # of any module
    """Store the parent of a row, if it has one and it is not there."""
    if item.entity.parent is not None:
        parent = module.of(item.entity.parent.entity)
        small = parent.small(TENANT, named(item))
        if parent.found(session, TENANT, small) is None:
            parent.store(session, TENANT, small)


def stored_and_found(storage: Storage, module: ModuleExamples, item: Example, model: CanonicalModel) -> None:
    """Store a row and find it by every way."""
    session = of_module(storage, module)
    store_parent(session, module, item)
    stored = item.store(session, TENANT, model)
    assert size_of(stored.wire()) >= size_of(model.wire()) - ALLOWANCE
    assert item.found(session, TENANT, stored) is not None, item.name


@pytest.mark.parametrize(
    "module",
    [pytest.param(item, marks=[pytest.mark.long] * (item is not MODULES[0])) for item in MODULES],
    ids=lambda module: module.module.name,
)
def test_the_largest_row_is_taken_and_one_beyond_it_is_refused_alike(
    storage: Storage, module: ModuleExamples, *, long_form: bool
) -> None:
    """Of one entity, in the full form of each."""
    entities = None if long_form else 1
    for item, large in islice(sized(module, MAX_BYTES + 1), entities):
        refused(storage, module, item, large)
    for item, large in islice(sized(module, MAX_BYTES - ALLOWANCE), entities):
        stored_and_found(storage, module, item, large)


def refused(storage: Storage, module: ModuleExamples, item: Example, large: CanonicalModel) -> None:
    """Check that a row is refused."""
    session = of_module(storage, module)
    store_parent(session, module, item)
    with pytest.raises(ValidationError, match=r"16\.71 MB, and a row may have 16\.71 MB"):
        item.store(session, TENANT, large)


@whose_messages_are_bounded
def test_a_unit_of_a_long_error_and_its_summary_commits(storage: Storage) -> None:
    scheduler = storage.scheduler
    for number in range(3):
        run = scheduler.runs.create(make_run(TENANT, f"run-{number}", schedule_id="s"))
        for state in (RunState.QUEUED, RunState.RUNNING):
            run = moved(run, state)
            scheduler.runs.update(run)
        failed = moved(run, RunState.ERROR, error="x" * 8_100_000)
        with scheduler.transaction(TENANT) as unit:
            assert unit.runs.update(failed)
            unit.run_summary_service.project(failed)
    summary = scheduler.run_summaries.get_required(TENANT, "s")
    assert summary.counters.error == 3
    assert all("8100000 characters in all" in (entry.error or "") for entry in summary.recent)


@whose_messages_are_bounded
def test_thirty_megabytes_of_log_in_one_call_are_refused_with_what_to_do(storage: Storage) -> None:
    scheduler, taskrunner = storage.scheduler, storage.taskrunner
    scheduler.runs.create(make_run(TENANT, "run"))
    scheduler.runs.create(make_run(TENANT, "other"))
    taskrunner.pack_runs.create(make_pack_run(TENANT, "run"))
    text = "x" * 1_000_000
    entries = [
        ExecutionLogEntry(tenant_id=TENANT, run_id=run, logged_at=START, message=text)
        for run in ("run", "other")
        for _ in range(15)
    ]
    packed = [make_log_entry("run", number, message=text) for number in range(1, 31)]
    for refused in (
        lambda: scheduler.execution_logs.append(entries),
        lambda: taskrunner.pack_run_logs.append(packed, tenant_id=TENANT),
    ):
        with pytest.raises(ValidationError, match=r"have 30\.\d\d MB together, .* Split them over several"):
            refused()
    assert scheduler.execution_logs.list(TENANT, "run") == ()
    assert taskrunner.pack_run_logs.last_sequence("run", tenant_id=TENANT) == 0
    for part in (packed[:15], packed[15:]):
        assert taskrunner.pack_run_logs.append(part, tenant_id=TENANT) == 15


def methods_of(repository: object) -> Iterator[tuple[str, Any]]:
    """Yield the public methods of a repository."""
    for name, method in inspect.getmembers(repository, inspect.ismethod):
        if not name.startswith("_") and name != "tuned":
            yield name, method


def texts_of(method: Any) -> list[str]:  # noqa: ANN401  # any method
    """Return the parameters of a method that are texts."""
    signature = inspect.signature(method)
    return [item.name for item in signature.parameters.values() if str(item.annotation).startswith("str")]


@pytest.mark.parametrize(
    "storage", ["postgres", pytest.param("mongo", marks=pytest.mark.long)], indirect=True
)
def test_texts_of_16_megabytes_as_arguments_are_judged_quickly_and_not_repeated(storage: Storage) -> None:
    text = "x" * 16_000_000
    slow: list[str] = []
    units = (storage.scheduler.unbound, storage.taskrunner.unbound, storage.tracking.unbound)
    for repository, found in chain.from_iterable(map(parts_of, units)):
        for name, method in methods_of(found):
            for parameter in texts_of(method):
                begun, told = time.monotonic(), ""
                try:
                    method(**filled(method, parameter, text))
                except (TwinstoreError, TypeError) as error:
                    told = str(error)
                if time.monotonic() - begun > SECONDS or len(told) > LONGEST_MESSAGE:
                    slow.append(f"{repository}.{name}({parameter}): {told[:200]}")
    assert slow == []


def parts_of(unit: object) -> list[tuple[str, object]]:
    """Return the attributes of a dataclass with slots."""
    return [(name, getattr(unit, name)) for name in cast("Any", unit).__dataclass_fields__]


def filled(method: Any, parameter: str, text: str) -> dict[str, object]:  # noqa: ANN401  # any method
    """Return arguments of which one is the text; the others are acceptable ids where they are texts."""
    found: dict[str, object] = {}
    for item in inspect.signature(method).parameters.values():
        if item.name == parameter:
            found[item.name] = text
        elif item.default is inspect.Parameter.empty and item.kind is not item.VAR_KEYWORD:
            found[item.name] = "acme" if str(item.annotation).startswith("str") else None
    return found


ROWS: Final = 3
# The size of a document, and the few bytes that a call may bring back.
TEXT: Final = "x" * 400_000
FEW: Final = 40_000
DAY: Final = timedelta(days=1)
LATER: Final = START + 4000 * DAY


@dataclass(frozen=True)
class Rows:
    """The rows of one case, under a separate tenant and names."""

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
def opened(server: str, request: pytest.FixtureRequest) -> Iterator[tuple[CountingProxy, Storage]]:
    """Open every module over a wire that counts."""
    with fresh_settings(server, request) as fresh:
        settings = without_retention(for_every_module(fresh, SERVERS[server]))
        migrate(settings)
        proxy, counted = through_proxy(settings)
        with proxy, twinstore.open_storage(counted) as storage:
            yield proxy, storage


@pytest.mark.parametrize("server", SERVERS)
def test_what_removes_or_counts_loads_no_document(server: str, request: pytest.FixtureRequest) -> None:
    loaded: dict[str, int] = {}
    with opened(server, request) as (proxy, storage):
        for number, (name, (store, call, answer)) in enumerate(CASES.items()):
            rows = Rows(storage, f"t{number}")
            store(rows)
            before = proxy.received
            assert call(rows) == answer, name
            if proxy.received - before > FEW:
                loaded[name] = proxy.received - before
    assert loaded == {}


@pytest.mark.parametrize("server", SERVERS)
def test_a_lease_loads_the_job_that_it_answers_and_no_other(
    server: str, request: pytest.FixtureRequest
) -> None:
    with opened(server, request) as (proxy, storage):
        rows = Rows(storage, "t")
        rows.policy_jobs()
        before = proxy.received
        assert storage.scheduler.policy_jobs.lease_next("host", START + DAY) is not None
        assert proxy.received - before < len(TEXT) + FEW
        before = proxy.received
        rest = storage.scheduler.policy_jobs.lease_many("host", START + DAY)
        assert len(rest) == ROWS - 1
        assert proxy.received - before < len(rest) * len(TEXT) + FEW


@pytest.mark.parametrize("server", SERVERS)
def test_a_release_loads_each_job_once(server: str, request: pytest.FixtureRequest) -> None:
    with opened(server, request) as (proxy, storage):
        rows = Rows(storage, "t")
        rows.leased_jobs()
        before = proxy.received
        assert storage.scheduler.policy_jobs.release_expired(LATER) == ROWS
        assert proxy.received - before < ROWS * len(TEXT) + FEW
