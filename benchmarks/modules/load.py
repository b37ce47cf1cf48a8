"""Fills the modules through their repositories and services, as hosts would, by several processes."""

from __future__ import annotations

from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from multiprocessing import get_context
from time import perf_counter
from typing import TYPE_CHECKING, Any, Final, cast

from benchmarks.modules.data import machines, pack_history, work_history
from twinstore.storage.open import open_module
from twinstore.taskrunner import PackApprovalStatus

if TYPE_CHECKING:
    from datetime import datetime

    from benchmarks.modules.data import PackHistory, WorkHistory
    from twinstore.taskrunner.storage import TaskRunnerStorage
    from twinstore.tracking.storage import TrackingStorage

__all__ = ["Load", "counted", "fill"]

# More than cores: a transaction mostly waits for the journal of the server.
PROCESSES: Final = 4
UNIT: Final = 25


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """What to write into one module.

    Attributes:
        module: ``taskrunner`` or ``tracking``.
        settings: of the store.
        count: how many pack runs, or sessions.
        first: the instant of the first of them.
        units: whether the store has transactions, of 25 runs each.
    """

    module: str
    settings: dict[str, Any]
    count: int
    first: datetime
    units: bool


def fill(load: Load) -> float:
    """Write everything and return the seconds that it took."""
    began = perf_counter()
    with ProcessPoolExecutor(PROCESSES, mp_context=get_context("spawn")) as pool:
        list(pool.map(partial(_share, load), range(PROCESSES)))
    return perf_counter() - began


def _share(load: Load, number: int) -> None:
    """Write the share of one process."""
    with open_module(load.module, config=load.settings) as storage:
        if load.module == "taskrunner":
            _write_packs(cast("TaskRunnerStorage", storage), load, number)
        else:
            _write_work(cast("TrackingStorage", storage), load, number)


def _numbers(load: Load, number: int) -> list[range]:
    """Return the numbers of one process in parts of a unit."""
    share = range(number * load.count // PROCESSES, (number + 1) * load.count // PROCESSES)
    return [share[at : at + UNIT] for at in range(0, len(share), UNIT)]


def _write_packs(storage: TaskRunnerStorage, load: Load, number: int) -> None:
    for numbers in _numbers(load, number):
        for tenant, histories in _by_tenant([pack_history(n, load.first) for n in numbers]).items():
            if load.units:
                storage.transact(partial(_write_histories, histories), tenant_id=tenant)
            else:
                _write_histories(histories, storage)


def _by_tenant(histories: list[PackHistory]) -> dict[str | None, list[PackHistory]]:
    found: dict[str | None, list[PackHistory]] = {}
    for history in histories:
        found.setdefault(history.run.tenant_id, []).append(history)
    return found


def _write_histories(histories: list[PackHistory], unit: Any) -> None:  # noqa: ANN401  # a storage or a unit of it
    for history in histories:
        run, tenant = history.run, history.run.tenant_id
        unit.pack_runs.create(run)
        unit.pack_run_logs.append(history.entries, tenant_id=tenant)
        unit.pack_artifacts.upload(history.artifact, tenant_id=tenant)
        if history.approvals:
            unit.pack_run_approvals.save(run.run_id, history.approvals, tenant_id=tenant)
        if history.decided:
            unit.pack_run_approvals.decide(
                run.run_id,
                history.approvals[0].approval_id,
                PackApprovalStatus.APPROVED,
                run.created_at,
                actor_id="ops",
                plan_hash=run.plan_hash,
                tenant_id=tenant,
            )


def _write_work(storage: TrackingStorage, load: Load, number: int) -> None:
    if number == 0:
        for machine in machines(load.first):
            storage.machines.create(machine)
    for numbers in _numbers(load, number):
        storage.transact(partial(_write_sessions, [work_history(n, load.first) for n in numbers]))


def _write_sessions(histories: list[WorkHistory], unit: Any) -> None:  # noqa: ANN401  # a unit
    for history in histories:
        unit.tracking_sessions.create(history.session)
        unit.tasks.create(history.task)
        if history.ended:
            unit.tasks.start(history.task.task_id, history.session.started_at)
            unit.tasks.complete(history.task.task_id, history.end)
            unit.tracking_sessions.complete(history.session.session_id, history.end)


def counted(storage: object) -> dict[str, int]:
    """Return how many rows of each entity a store holds."""
    bulk = cast("TrackingStorage", storage).bulk
    return {entity.name: sum(bulk.counts(entity).values()) for entity in bulk.entities()}
