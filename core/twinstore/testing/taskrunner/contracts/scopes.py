"""Runs of a tenant, runs without one, and all of them: three scopes over every method."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final

import pytest

from twinstore.catalog.tenancy import ALL_TENANTS
from twinstore.clock import SystemClock
from twinstore.errors import DuplicateError, NotFoundError, TenantScopeError
from twinstore.taskrunner.enums import PackApprovalStatus
from twinstore.taskrunner.module import MODULE
from twinstore.taskrunner.options import TaskRunnerOptions
from twinstore.taskrunner.pack_runs import PackRunQueryOptions
from twinstore.taskrunner.storage import TaskRunnerStorage
from twinstore.testing.base import needs
from twinstore.testing.instants import at
from twinstore.testing.taskrunner.builders import (
    make_approval,
    make_artifact,
    make_draft,
    make_log_entry,
    make_pack_run,
)
from twinstore.testing.taskrunner.cases import TaskRunnerCases
from twinstore.testing.workspace import all_pages

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from twinstore.catalog.tenancy import AllTenants
    from twinstore.taskrunner.pack_runs import PackRunState
    from twinstore.taskrunner.storage import TaskRunnerSession
    from twinstore.testing.taskrunner.cases import TaskRunnerWorkspace

    Scope = str | AllTenants | None

__all__ = ["RunScopeContract"]

PURPOSE: Final = "contract kit"


@dataclass(frozen=True, slots=True)
class Owned:
    """A run with an entry, a record and an approval, and who owns them."""

    run: PackRunState

    @property
    def id(self) -> str:
        """The id of the run."""
        return self.run.run_id

    @classmethod
    def stored(cls, session: TaskRunnerSession | TaskRunnerStorage, tenant: str | None, run_id: str) -> Owned:
        """Store them."""
        run = session.pack_runs.create(make_pack_run(tenant, run_id))
        session.pack_run_logs.append([make_log_entry(run_id)], tenant_id=tenant)
        session.pack_artifacts.upload(make_artifact(run_id, "report"), tenant_id=tenant)
        session.pack_run_approvals.save(run_id, [make_approval(tenant, run_id)], tenant_id=tenant)
        return cls(run)


def reads_of(session: TaskRunnerSession | TaskRunnerStorage, owned: Owned, scope: Scope) -> list[bool]:
    """Return which reads find something of a run in a scope."""
    logs, artifacts, approvals = session.pack_run_logs, session.pack_artifacts, session.pack_run_approvals
    return [
        session.pack_runs.get(owned.id, tenant_id=scope) is not None,
        bool(logs.read(owned.id, tenant_id=scope)),
        bool(logs.read_window(owned.id, at(-1), at(1), tenant_id=scope)),
        logs.last_sequence(owned.id, tenant_id=scope) > 0,
        artifacts.get(owned.id, "report", tenant_id=scope) is not None,
        bool(artifacts.list(owned.id, tenant_id=scope)),
        approvals.get(owned.id, "release", tenant_id=scope) is not None,
        bool(approvals.list(owned.id, tenant_id=scope)),
    ]


def writes_of(owned: Owned) -> list[Callable[[TaskRunnerSession | TaskRunnerStorage, Scope], object]]:
    """Return the writes that need the run of a scope."""
    run_id, approved = owned.id, PackApprovalStatus.APPROVED
    approval = make_approval(owned.run.tenant_id, run_id, "late")
    return [
        lambda s, scope: s.pack_run_logs.append([make_log_entry(run_id, 2)], tenant_id=scope),
        lambda s, scope: s.pack_run_logs.append_next(run_id, make_draft(), tenant_id=scope),
        lambda s, scope: s.pack_artifacts.upload(make_artifact(run_id, "late"), tenant_id=scope),
        lambda s, scope: s.pack_artifacts.upload(make_artifact(run_id, "report", notes="x"), tenant_id=scope),
        lambda s, scope: s.pack_run_approvals.save(run_id, [approval], tenant_id=scope),
        lambda s, scope: s.pack_run_approvals.decide(
            run_id, "release", approved, at(1), actor_id="ada", tenant_id=scope
        ),
    ]


def ids_of(storage: TaskRunnerSession | TaskRunnerStorage, scope: Scope) -> set[str]:
    """Return the runs of a scope."""
    return {
        run.run_id
        for run in all_pages(
            lambda token: storage.pack_runs.list(
                PackRunQueryOptions(limit=200, page_token=token), tenant_id=scope
            )
        )
    }


class RunScopeContract(TaskRunnerCases):
    """A query for a tenant, for none or for all sees the runs of that scope and what belongs to them."""

    def test_each_scope_sees_its_own_runs_and_what_belongs_to_them(
        self, workspace: TaskRunnerWorkspace
    ) -> None:
        storage, mine, other = workspace.storage, workspace.tenant, workspace.foreign
        runs = {
            tenant: Owned.stored(storage, tenant, workspace.id(f"of {tenant}"))
            for tenant in (mine, other, None)
        }
        for owner, owned in runs.items():
            for scope in (mine, other, None, ALL_TENANTS):
                sees = scope in {owner, ALL_TENANTS}
                assert reads_of(storage, owned, scope) == [sees] * 8
                if not sees:
                    for write in writes_of(owned):
                        with pytest.raises(NotFoundError):
                            write(storage, scope)
            for write in writes_of(owned):
                write(storage, owner)
        for scope in (mine, other, None):
            assert ids_of(storage, scope) & {item.id for item in runs.values()} == {runs[scope].id}
        assert {item.id for item in runs.values()} <= ids_of(storage, ALL_TENANTS)

    def test_the_id_of_a_run_is_taken_for_everybody(self, workspace: TaskRunnerWorkspace) -> None:
        owned = Owned.stored(workspace.storage, None, workspace.id("shared"))
        for tenant in (workspace.tenant, workspace.foreign):
            for store in (workspace.storage.pack_runs.create, workspace.storage.pack_runs.save):
                with pytest.raises(DuplicateError):
                    store(owned.run.evolve(tenant_id=tenant))

    def test_writes_of_all_tenants_reach_the_run_of_anybody(self, workspace: TaskRunnerWorkspace) -> None:
        for tenant in (workspace.tenant, None):
            owned = Owned.stored(workspace.storage, tenant, workspace.id(f"all {tenant}"))
            for write in writes_of(owned):
                write(workspace.storage, ALL_TENANTS)
            assert workspace.storage.pack_run_logs.last_sequence(owned.id, tenant_id=tenant) == 3

    @needs("transactions")
    def test_a_unit_without_tenant_is_about_runs_without_tenant(self, workspace: TaskRunnerWorkspace) -> None:
        owned = Owned.stored(workspace.storage, workspace.tenant, workspace.id("mine"))
        for opened in (workspace.storage.transaction, workspace.storage.sessions.open):
            with opened() as unit:
                free = Owned.stored(unit, None, workspace.id(f"free {opened.__name__}"))
                assert reads_of(unit, free, None) == [True] * 8
                assert reads_of(unit, owned, None) == [False] * 8
                for scope in (workspace.tenant, ALL_TENANTS):
                    with pytest.raises(TenantScopeError):
                        unit.pack_runs.get(free.id, tenant_id=scope)
            assert reads_of(workspace.storage, free, None) == [True] * 8
        with workspace.storage.transaction(purpose=PURPOSE) as unit:
            assert reads_of(unit, owned, ALL_TENANTS) == [True] * 8
            with pytest.raises(TenantScopeError):
                unit.pack_runs.get(owned.id)

    def test_where_tenancy_is_enforced_every_call_names_a_tenant(
        self, workspace: TaskRunnerWorkspace
    ) -> None:
        free = Owned.stored(workspace.storage, None, workspace.id("free"))
        with enforcing(workspace) as storage:
            assert not storage.admits_no_tenant
            calls: list[Callable[[], object]] = [
                storage.pack_runs.list,
                lambda: storage.pack_runs.create(make_pack_run(None, workspace.id("new"))),
                lambda: storage.pack_runs.save(free.run),
                lambda: reads_of(storage, free, None),
                *(partial(write, storage, None) for write in writes_of(free)),
            ]
            for call in calls:
                with pytest.raises(TenantScopeError):
                    call()
            owned = Owned.stored(storage, workspace.tenant, workspace.id("mine"))
            assert reads_of(storage, owned, workspace.tenant) == [True] * 8
            assert reads_of(storage, free, ALL_TENANTS) == [True] * 8
            with pytest.raises(TenantScopeError), storage.transaction():
                pass
        assert workspace.storage.pack_runs.get(workspace.id("new")) is None


@contextmanager
def enforcing(workspace: TaskRunnerWorkspace) -> Generator[TaskRunnerStorage]:
    """Open another storage on the same data that demands a tenant of every call."""
    with workspace.deployment.open_module(MODULE) as backend:
        yield TaskRunnerStorage(backend, SystemClock(), options=TaskRunnerOptions(tenancy_enforced=True))
