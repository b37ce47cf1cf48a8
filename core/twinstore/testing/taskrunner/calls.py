"""Calls of repositories of the task runner other than look-ups and lists of pages, for any tenant."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, cast

from twinstore.catalog.tenancy import ALL_TENANTS
from twinstore.errors import DuplicateError, InvalidTransitionError, NotFoundError, ValidationError
from twinstore.taskrunner.catalog import PACK_ARTIFACTS, PACK_RUN_APPROVALS, PACK_RUN_LOGS, PACK_RUNS
from twinstore.taskrunner.enums import PackApprovalStatus, PackArtifactStatus
from twinstore.testing.calls import Step, TenantCall, Touch
from twinstore.testing.examples import OneOfEach
from twinstore.testing.instants import at
from twinstore.testing.taskrunner.builders import make_draft, make_step

if TYPE_CHECKING:
    from collections.abc import Callable

    from twinstore.catalog.entity import Entity
    from twinstore.errors import TwinstoreError
    from twinstore.taskrunner.storage import TaskRunnerSession
    from twinstore.testing.workspace import Workspace

__all__ = ["HARMLESS", "SYSTEM_CALLS", "TENANT_CALLS", "TOUCHES"]

LONG_AGO: Final = at().replace(year=2)
APPROVED: Final = PackApprovalStatus.APPROVED


def called(
    name: str, invoke: Callable[[TaskRunnerSession, str, OneOfEach], object], answer: object
) -> TenantCall:
    """Return a call in the types of the task runner."""
    return TenantCall(name, cast("Callable[[object, str, OneOfEach], object]", invoke), answer)


def touching(
    method: str,
    entity: Entity,
    call: Callable[[TaskRunnerSession, str, OneOfEach], object],
    *,
    repeatable: bool = False,
) -> Touch:
    """Return a call in the types of the task runner."""
    return Touch(method, entity, cast("Callable[[object, str, OneOfEach], object]", call), repeatable)


def run_id(one_of_each: OneOfEach) -> str:
    """Return the id of the run to which all other rows belong."""
    return one_of_each[PACK_RUNS].run_id


TENANT_CALLS: Final = (
    called(
        "pack_runs.create",
        lambda s, t, h: s.pack_runs.create(h[PACK_RUNS].evolve(tenant_id=t)),
        DuplicateError,
    ),
    called(
        "pack_run_logs.append",
        lambda s, t, h: s.pack_run_logs.append([h[PACK_RUN_LOGS]], tenant_id=t),
        NotFoundError,
    ),
    called(
        "pack_run_logs.append_next",
        lambda s, t, h: s.pack_run_logs.append_next(run_id(h), make_draft(), tenant_id=t),
        NotFoundError,
    ),
    called("pack_run_logs.read", lambda s, t, h: s.pack_run_logs.read(run_id(h), tenant_id=t), ()),
    called(
        "pack_run_logs.read_window",
        lambda s, t, h: s.pack_run_logs.read_window(run_id(h), LONG_AGO, at(9999), tenant_id=t),
        (),
    ),
    called(
        "pack_run_logs.last_sequence",
        lambda s, t, h: s.pack_run_logs.last_sequence(run_id(h), tenant_id=t),
        0,
    ),
    called(
        "pack_artifacts.upload",
        lambda s, t, h: s.pack_artifacts.upload(h[PACK_ARTIFACTS], tenant_id=t),
        NotFoundError,
    ),
    called("pack_artifacts.list", lambda s, t, h: s.pack_artifacts.list(run_id(h), tenant_id=t), ()),
    called(
        "pack_run_approvals.save",
        lambda s, t, h: s.pack_run_approvals.save(run_id(h), [h[PACK_RUN_APPROVALS]], tenant_id=t),
        NotFoundError,
    ),
    called("pack_run_approvals.list", lambda s, t, h: s.pack_run_approvals.list(run_id(h), tenant_id=t), ()),
    called(
        "pack_run_approvals.decide",
        lambda s, t, h: s.pack_run_approvals.decide(
            run_id(h), h[PACK_RUN_APPROVALS].approval_id, APPROVED, at(1), actor_id="ada", tenant_id=t
        ),
        NotFoundError,
    ),
)
# What sees all tenants; each answers the same when it is asked again.
SYSTEM_CALLS: Final = (
    called("pack_run_logs.purge", lambda s, _, __: s.pack_run_logs.purge(LONG_AGO), 0),
    called("pack_runs.get of all", lambda s, _, h: s.pack_runs.get(run_id(h), tenant_id=ALL_TENANTS), None),
    called(
        "pack_run_logs.append of all",
        lambda s, _, h: s.pack_run_logs.append([h[PACK_RUN_LOGS]], tenant_id=ALL_TENANTS),
        0,
    ),
    called(
        "pack_run_logs.read of all",
        lambda s, _, h: s.pack_run_logs.read(run_id(h), tenant_id=ALL_TENANTS),
        (),
    ),
    called(
        "pack_artifacts.list of all",
        lambda s, _, h: s.pack_artifacts.list(run_id(h), tenant_id=ALL_TENANTS),
        (),
    ),
    called(
        "pack_run_approvals.list of all",
        lambda s, _, h: s.pack_run_approvals.list(run_id(h), tenant_id=ALL_TENANTS),
        (),
    ),
)
TOUCHES: Final = (
    touching(
        "save as expected",
        PACK_RUNS,
        lambda s, _, h: s.pack_runs.save(h[PACK_RUNS], expected_updated_at=h[PACK_RUNS].updated_at),
        repeatable=True,
    ),
    touching(
        "read", PACK_RUN_LOGS, lambda s, t, h: s.pack_run_logs.read(run_id(h), tenant_id=t), repeatable=True
    ),
    touching(
        "append",
        PACK_RUN_LOGS,
        lambda s, t, h: s.pack_run_logs.append([h[PACK_RUN_LOGS]], tenant_id=t),
        repeatable=True,
    ),
    touching(
        "upload",
        PACK_ARTIFACTS,
        lambda s, t, h: s.pack_artifacts.upload(h[PACK_ARTIFACTS], tenant_id=t),
        repeatable=True,
    ),
    touching(
        "list",
        PACK_ARTIFACTS,
        lambda s, t, h: s.pack_artifacts.list(run_id(h), tenant_id=t),
        repeatable=True,
    ),
    touching(
        "list",
        PACK_RUN_APPROVALS,
        lambda s, t, h: s.pack_run_approvals.list(run_id(h), tenant_id=t),
        repeatable=True,
    ),
    touching(
        "decide",
        PACK_RUN_APPROVALS,
        lambda s, t, h: s.pack_run_approvals.decide(
            run_id(h), h[PACK_RUN_APPROVALS].approval_id, APPROVED, at(1), actor_id="ada", tenant_id=t
        ),
    ),
)


def refused(
    error: type[TwinstoreError], step: Callable[[TaskRunnerSession, Workspace, OneOfEach], object]
) -> tuple[type[TwinstoreError], Step]:
    """Return a step in the types of the task runner, with the error that it meets."""
    return error, cast("Step", step)


# Errors that a rule or an argument decides; the store has not failed, so the unit goes on.
HARMLESS: Final = {
    "step": refused(
        InvalidTransitionError,
        lambda u, _, h: u.pack_runs.save(
            h[PACK_RUNS].evolve(updated_at=at(1), steps=(make_step("a", status="succeeded"),))
        ),
    ),
    "missing step": refused(
        ValidationError, lambda u, _, h: u.pack_runs.save(h[PACK_RUNS].evolve(updated_at=at(1), steps=()))
    ),
    "output": refused(
        ValidationError,
        lambda u, b, h: u.pack_artifacts.upload(
            h[PACK_ARTIFACTS].evolve(status=PackArtifactStatus.COPIED), tenant_id=b.tenant
        ),
    ),
    "run of approvals": refused(
        NotFoundError, lambda u, b, _: u.pack_run_approvals.save("no-run", [], tenant_id=b.tenant)
    ),
    "run of another": refused(
        ValidationError,
        lambda u, b, h: u.pack_run_approvals.save(
            run_id(h), [h[PACK_RUN_APPROVALS].evolve(tenant_id=b.foreign)], tenant_id=b.tenant
        ),
    ),
}
