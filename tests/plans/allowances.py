"""The statements that may do what no other may, each with its reason; one that no longer does is an error."""

from __future__ import annotations

from typing import Final

from tests.plans.judging import Allowance, Fault

__all__ = ["MONGO", "POSTGRES"]

EXAMINES, INDEX, SCANS, SORTS = Fault.EXAMINES, Fault.INDEX, Fault.SCANS, Fault.SORTS
BULK: Final = "copies and verifications read every row of an entity, or of a range of its keys, once"
COUNTED: Final = "the answer is one number for each status, and every row of the tenant counts"


def may(statements: str, *faults: Fault, because: str) -> Allowance:
    """Return an allowance."""
    return Allowance(statements, frozenset(faults), because)


PAST: Final = "the end of a range is so many rows away, and those are passed over"
# Policies keep a condition from the index of an expression unless its functions are leakproof, and those on
# JSON are not: such a key finds nothing by itself. The table is the customer's, so the key has no column.
HIDDEN: Final = "row-level security keeps the key inside the payload from uq_graph_job_events_event†"

# An index that begins with the tenant would cost every run and log entry, for what is asked seldom.
PURGED: Final = (
    "the index by age holds the rows of all tenants, and the others hold those of one in another order"
)

EVERY_COPY_ON_POSTGRES: Final = (
    may("*.bulk.counts*", EXAMINES, INDEX, SCANS, SORTS, because=BULK),
    may("*.bulk.view*", EXAMINES, INDEX, SCANS, because=BULK),
    may("*.bulk.cut*", EXAMINES, because=PAST),
)
EVERY_COPY_ON_MONGO: Final = (
    may("*.bulk.counts*", EXAMINES, INDEX, SCANS, because=BULK),
    may("*.bulk.view*", EXAMINES, INDEX, SCANS, SORTS, because=BULK),
    may("*.bulk.cut*", EXAMINES, because=PAST),
)
TASKRUNNER_ON_POSTGRES: Final = (
    may(
        "*.bulk.cut*",
        SCANS,
        because="row-level security asks for the run of each row passed over, and reads all runs once for it",
    ),
)
TRACKING: Final = (
    may("sessions.count*", EXAMINES, because="every session of the project counts"),
    may("tasks.count*", EXAMINES, because="every task of the session or project counts"),
)
SCHEDULER_ON_POSTGRES: Final = (
    *EVERY_COPY_ON_POSTGRES,
    may("graph_jobs.count*", EXAMINES, because=COUNTED),
    may("policy_jobs.count*", EXAMINES, because=COUNTED),
    Allowance(
        "*_jobs.count*", frozenset({INDEX, SCANS}), "the tenant has a quarter of all rows", few_rows=True
    ),
    may("graph_job_events.find*", EXAMINES, INDEX, SCANS, because=HIDDEN),
    may(
        "graph_job_events.change (lock)*",
        EXAMINES,
        INDEX,
        SCANS,
        because=f"only where the insert met the key: {HIDDEN}",
    ),
    Allowance("graph_job_events.bulk.cut*", frozenset({INDEX, SCANS}), HIDDEN, few_rows=True),
    may("graph_job_events.bulk.flush*", EXAMINES, INDEX, SCANS, because=HIDDEN),
    may(
        "graph_job_events.page*",
        SORTS,
        because="the events of one instant: idx_graph_job_events_job† (job_id, created_at DESC) ends there",
    ),
    may(
        "policy_jobs.keys all tenants, where status and leaseExpiresAt*",
        SORTS,
        because="the leases that end in one instant: idx_policy_jobs_lease (lease_expires_at) ends there",
    ),
    may(
        "workers.mark (lock) all tenants, where status one of several and lastHeartbeatAt*",
        EXAMINES,
        INDEX,
        SCANS,
        SORTS,
        because="branches would choose rows before the locks of others are seen; where most workers are dead",
    ),
    may(
        "triggers.page a tenant, order nextFireAt id, next page*",
        SORTS,
        because="one page without and one with an instant: both come along idx_triggers_tenant_next",
    ),
    may(
        "runs.page a tenant, order createdAt id",
        SORTS,
        because="the runs of one instant: idx_runs_tenant_created† has them the other way",
    ),
    # Runs always; whether log entries too depends on what the statistics happen to say.
    may("*.remove a tenant*", EXAMINES, because=PURGED),
)
SCHEDULER_ON_MONGO: Final = (
    *EVERY_COPY_ON_MONGO,
    may("graph_jobs.count*", EXAMINES, because=COUNTED),
    may("policy_jobs.count*", EXAMINES, because=COUNTED),
    may(
        "runs.page a tenant, where scheduleId and state one of several and createdAt*",
        SORTS,
        because="the runs of one instant: ix_tenantId_scheduleId_createdAt__id† has them the other way",
    ),
)
LEDGER: Final = (
    may("ranges.count*", EXAMINES, because="every range of the job counts"),
    may(
        "jobs.page*",
        EXAMINES,
        INDEX,
        SCANS,
        SORTS,
        because="a target has as many jobs as copies were begun into it, which are dozens",
    ),
)

LEDGER_ON_POSTGRES: Final = (
    *LEDGER,
    Allowance("ranges.count*", frozenset({INDEX, SCANS}), "the job has many of all ranges", few_rows=True),
    may(
        "ranges.page all tenants, where jobId and entity, order*",
        EXAMINES,
        because="before the ranges of an entity lie those of others of the job, which has some thousands",
    ),
)

POSTGRES: Final[dict[str, tuple[Allowance, ...]]] = {
    "scheduler": SCHEDULER_ON_POSTGRES,
    "tracking": (*EVERY_COPY_ON_POSTGRES, *TRACKING),
    "taskrunner": (*EVERY_COPY_ON_POSTGRES, *TASKRUNNER_ON_POSTGRES),
    "twinstore": LEDGER_ON_POSTGRES,
}
MONGO: Final[dict[str, tuple[Allowance, ...]]] = {
    "scheduler": SCHEDULER_ON_MONGO,
    "tracking": (*EVERY_COPY_ON_MONGO, *TRACKING),
    "taskrunner": EVERY_COPY_ON_MONGO,
    "twinstore": LEDGER,
}
