"""The examples of the task runner."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

from hypothesis import strategies as st

from twinstore.models.fields import Actor
from twinstore.taskrunner.catalog import PACK_ARTIFACTS, PACK_RUN_APPROVALS, PACK_RUN_LOGS, PACK_RUNS
from twinstore.taskrunner.enums import PackApprovalStatus, PackArtifactStatus
from twinstore.taskrunner.module import MODULE
from twinstore.taskrunner.pack_artifacts import PackRunArtifact, PackRunArtifactUploader
from twinstore.taskrunner.pack_run_approvals import PackRunApproval, PackRunApprovalStore
from twinstore.taskrunner.pack_run_logs import PackRunLogEntry, PackRunLogStore
from twinstore.taskrunner.pack_runs import PackRunStateStore
from twinstore.taskrunner.storage import TaskRunnerSession
from twinstore.testing import scalars
from twinstore.testing.drawing import rows, values
from twinstore.testing.examples import ModuleExamples, example
from twinstore.testing.taskrunner.builders import (
    make_approval,
    make_artifact,
    make_log_entry,
    make_pack_run,
    rich_approval,
    rich_artifact,
    rich_log_entry,
    rich_pack_run,
)

if TYPE_CHECKING:
    from hypothesis.strategies import SearchStrategy

__all__ = ["TASKRUNNER_EXAMPLES"]

Session = TaskRunnerSession
OUTPUT: Final = "report"
# What a caller may decide, and nothing that is decided already, which needs an actor and an instant.
UNDECIDED: Final = {"status": st.just(PackApprovalStatus.PENDING), "completed_at": st.none()}


def of_the_run(session: Session, tenant: str, run_id: str) -> None:
    """Create the run to which a row belongs, where it is absent."""
    if session.pack_runs.get(run_id, tenant_id=tenant) is None:
        session.pack_runs.create(make_pack_run(tenant, run_id))


def small_entry(tenant: str, name: str) -> PackRunLogEntry:
    """Return the first entry of the run of that name."""
    del tenant
    return make_log_entry(name)


def rich_entry(tenant: str, name: str) -> PackRunLogEntry:
    """Return the first entry of the run of that name, with a value in every field."""
    del tenant
    return rich_log_entry(name)


def store_entry(session: Session, tenant: str, entry: PackRunLogEntry) -> PackRunLogEntry:
    """Append an entry to the log of its run."""
    of_the_run(session, tenant, entry.run_id)
    session.pack_run_logs.append([entry], tenant_id=tenant)
    return entry


def find_entry(session: Session, tenant: str, entry: PackRunLogEntry) -> PackRunLogEntry | None:
    """Return the entry that the log of a run has under the number of this one."""
    before = entry.sequence - 1
    found = session.pack_run_logs.read(entry.run_id, after_sequence=before, limit=1, tenant_id=tenant)
    return next((item for item in found if item.sequence == entry.sequence), None)


def small_artifact(tenant: str, name: str) -> PackRunArtifact:
    """Return the record of the output of the run of that name."""
    del tenant
    return make_artifact(name, OUTPUT)


def rich_output(tenant: str, name: str) -> PackRunArtifact:
    """Return the same with a value in every field."""
    del tenant
    return rich_artifact(name, OUTPUT)


def store_artifact(session: Session, tenant: str, artifact: PackRunArtifact) -> PackRunArtifact:
    """Record an output of a run."""
    of_the_run(session, tenant, artifact.run_id)
    return session.pack_artifacts.upload(artifact, tenant_id=tenant)


def pending_artifacts(tenant: str, key: str) -> SearchStrategy[PackRunArtifact]:
    """Return records that may be written whatever their fields hold."""
    status = st.just(PackArtifactStatus.PENDING)
    return rows(PACK_ARTIFACTS, tenant, key, status=status)


def store_approval(session: Session, tenant: str, approval: PackRunApproval) -> PackRunApproval:
    """Save an approval of a run."""
    of_the_run(session, tenant, approval.run_id)
    session.pack_run_approvals.save(approval.run_id, [approval], tenant_id=tenant)
    return session.pack_run_approvals.get_required(approval.run_id, approval.approval_id, tenant_id=tenant)


def drawn_approvals(tenant: str, key: str) -> SearchStrategy[PackRunApproval]:
    """Return approvals that wait, and such that are decided."""
    make = partial(rows, PACK_RUN_APPROVALS, tenant, key, tenant_id=st.just(tenant))
    decided = st.sampled_from(list(PackApprovalStatus)[1:])
    return make(**UNDECIDED) | make(status=decided, actor_id=values(Actor), completed_at=scalars.instants())


TASKRUNNER_EXAMPLES: Final = ModuleExamples(
    MODULE,
    (
        example(
            entity=PACK_RUNS,
            protocol=PackRunStateStore,
            small=make_pack_run,
            rich=rich_pack_run,
            store="save",
            orders={"list": "-updatedAt runId"},
        ),
        example(
            entity=PACK_RUN_LOGS,
            protocol=PackRunLogStore,
            small=small_entry,
            rich=rich_entry,
            store=store_entry,
            find=find_entry,
        ),
        example(
            entity=PACK_ARTIFACTS,
            protocol=PackRunArtifactUploader,
            small=small_artifact,
            rich=rich_output,
            store=store_artifact,
            drawn=pending_artifacts,
        ),
        example(
            entity=PACK_RUN_APPROVALS,
            protocol=PackRunApprovalStore,
            small=make_approval,
            rich=rich_approval,
            store=store_approval,
            drawn=drawn_approvals,
        ),
    ),
)
