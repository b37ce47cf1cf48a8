"""What a plan must hold, and which statements may do otherwise, with their reason."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

# Rows examined for each row that a statement returns or may return, and pages of tables and indexes read.
RATIO: Final = 10
# So few rows a server may rather read and sort than follow an index: the hundredth part of a filled table.
FEW_ROWS: Final = 100
SHARE: Final = 100
# Pages that any statement reads on its way down the indexes that it uses.
DESCENT: Final = 60


class Fault(Enum):
    """What a plan may not do."""

    SCANS = "reads the whole table"
    EXAMINES = "examines too many rows"
    SORTS = "sorts"
    INDEX = "uses no index of the entity"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """What a server did for one statement.

    Attributes:
        statement: its name.
        mode: the kind of plan, where a server has several.
        examined: rows, or index entries, that were read.
        returned: rows that were returned or written.
        page: rows that may be returned at most.
        blocks: pages of tables and indexes that were read; 0 if a server does not report it, and for writes.
        indexes: those that were used.
        scans_all: whether a table was read from its beginning to its end.
        sorts: the kinds of sorts that no index spares; a server may also sort a few rows although one has
            their order, because that is cheaper.
        reads: whether a table was read at all.
    """

    statement: str
    mode: str = ""
    examined: int
    returned: int
    page: int
    blocks: int = 0
    indexes: frozenset[str]
    scans_all: bool
    sorts: tuple[str, ...]
    reads: bool

    @property
    def ratio(self) -> float:
        """Rows examined for each row that was returned or could be."""
        return self.examined / (self.returned + self.page)

    def faults(self, known: Iterable[str], few: int = FEW_ROWS) -> set[Fault]:
        """Return what it does that no plan may."""
        found = {Fault.SCANS} if self.scans_all else set()
        # Index entries that a condition skips are not rows, but they are on pages.
        pages = RATIO * (self.returned + self.page) + DESCENT
        many = self.examined > few and self.ratio > RATIO
        found |= {Fault.EXAMINES} if many or self.blocks > pages + few - FEW_ROWS else set()
        found |= {Fault.SORTS} if self.sorts else set()
        foreign = self.indexes - set(known)
        return found | ({Fault.INDEX} if foreign or (self.reads and not self.indexes) else set())

    def __str__(self) -> str:
        """Return it in one line."""
        return (
            f"{self.statement} {self.mode}: examined {self.examined}, returned {self.returned}, "
            f"page {self.page}, blocks {self.blocks}, indexes {sorted(self.indexes)}, "
            f"sorts {list(self.sorts)}"
        )


@dataclass(frozen=True, slots=True)
class Allowance:
    """What the statements of a name may do; the name is a pattern.

    Attributes:
        statements: the pattern.
        faults: what they may do.
        reason: why; with the index that leaves no other way where it is about a sort.
        optional: whether the server may also do without: on many rows, or in another module.
    """

    statements: str
    faults: frozenset[Fault]
    reason: str
    optional: bool = False

    def covers(self, name: str) -> bool:
        """Whether it is about a statement."""
        return fnmatchcase(name, self.statements)


def check_findings(
    findings: Iterable[Finding], known: Iterable[str], allowed: Iterable[Allowance], rows: int = 0
) -> tuple[list[str], list[str]]:
    """Return the faults that nothing allows, and the allowances, fault by fault, that nothing needs."""
    known, allowed = frozenset(known), tuple(allowed)
    needed: set[tuple[Allowance, Fault]] = set()
    bad: list[str] = []
    for finding in findings:
        for fault in sorted(finding.faults(known, max(FEW_ROWS, rows // SHARE)), key=lambda item: item.value):
            covering = [
                (item, fault) for item in allowed if fault in item.faults and item.covers(finding.statement)
            ]
            needed.update(covering)
            if not covering:
                bad.append(f"{fault.value}: {finding}")
    unneeded = [
        f"{item.statements}: {fault.value}"
        for item in allowed
        if not item.optional
        for fault in sorted(item.faults, key=lambda found: found.value)
        if (item, fault) not in needed
    ]
    return bad, unneeded


def figures(findings: Sequence[Finding], bad: Sequence[str], rows: int) -> str:
    """Return in a few lines what was explained and how it went."""
    worst = max((item for item in findings if ".bulk." not in item.statement), key=lambda item: item.ratio)
    names = {item.statement for item in findings}
    return (
        f"{len(names)} statements in {len(findings)} plans on {rows} rows of each entity; "
        f"{len(bad)} faults; worst ratio outside of copies {worst.ratio:.1f}: {worst}"
    )


EXAMINES, INDEX, SCANS, SORTS = Fault.EXAMINES, Fault.INDEX, Fault.SCANS, Fault.SORTS
BULK: Final = "copies and verifications read every row of an entity, or of a range of its keys, once"


def may(statements: str, *faults: Fault, because: str, optional: bool = False) -> Allowance:
    """Return an allowance."""
    return Allowance(statements, frozenset(faults), because, optional)


PAST: Final = "the end of a range is so many rows away, and those are passed over"
SAMPLE: Final = "few rows of a large entity are taken at random, and a small entity is counted"
# Policies keep a condition from the index of an expression unless its functions are leakproof, and those on
# JSON are not: such a key finds nothing by itself. The table is the customer's, so the key has no column.
HIDDEN: Final = "row-level security keeps the key inside the payload from uq_graph_job_events_event†"
# An index that begins with the tenant would cost every run and log entry, for what is asked seldom.
PURGED: Final = (
    "the index by age holds the rows of all tenants, and the others hold those of one in another order"
)
EVERY_COPY_ON_POSTGRES: Final = (
    may("*.bulk.counts*", EXAMINES, INDEX, SCANS, SORTS, because=BULK, optional=True),
    may("*.bulk.view*", EXAMINES, INDEX, SCANS, because=BULK, optional=True),
    may("*.bulk.cut*", EXAMINES, because=PAST, optional=True),
    may("*.bulk.sample_keys*", EXAMINES, INDEX, SCANS, SORTS, because=SAMPLE, optional=True),
)
EVERY_COPY_ON_MONGO: Final = (
    may("*.bulk.counts*", EXAMINES, INDEX, SCANS, because=BULK, optional=True),
    may("*.bulk.view*", EXAMINES, INDEX, SCANS, SORTS, because=BULK, optional=True),
    may("*.bulk.cut*", EXAMINES, because=PAST, optional=True),
    may("*.bulk.sample_keys*", EXAMINES, INDEX, SCANS, because=SAMPLE, optional=True),
)
COUNTS: Final = may("*.count*", EXAMINES, because="the answer is a number, for which every row counts")
COUNTS_OF_A_LARGE_TENANT: Final = may(
    "*.count*", INDEX, SCANS, because="the tenant has a quarter of all rows", optional=True
)
TASKRUNNER_ON_POSTGRES: Final = (
    COUNTS,
    COUNTS_OF_A_LARGE_TENANT,
    may(
        "*.bulk.cut*",
        SCANS,
        because="row-level security asks for the run of each row passed over, and reads all runs once for it",
    ),
)
TRACKING: Final = (
    COUNTS,
    may(
        "*.count no tenant, by status",
        INDEX,
        SCANS,
        because="every row of the entity counts",
        optional=True,
    ),
)
SCHEDULER_ON_POSTGRES: Final = (
    *EVERY_COPY_ON_POSTGRES,
    COUNTS,
    COUNTS_OF_A_LARGE_TENANT,
    may("graph_job_events.find*", EXAMINES, INDEX, SCANS, because=HIDDEN),
    may(
        "graph_job_events.change (lock)*",
        EXAMINES,
        INDEX,
        SCANS,
        because=f"only where the insert met the key: {HIDDEN}",
    ),
    may("graph_job_events.bulk.cut*", INDEX, SCANS, because=HIDDEN, optional=True),
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
    COUNTS,
    may("workers.count all tenants*", INDEX, SCANS, because="every row of the entity counts"),
    may(
        "runs.page a tenant, where scheduleId and state one of several and createdAt*",
        SORTS,
        because="the runs of one instant: ix_tenantId_scheduleId_createdAt__id† has them the other way",
    ),
)
LEDGER: Final = (
    may("ranges.count*", EXAMINES, because="every range of the job counts"),
    may("quarantine.count*", EXAMINES, because="every line of the job counts"),
    may(
        "ranges.page all tenants, where jobId and state and noted, order number",
        EXAMINES,
        because="a copy asks once, before its first range, and an index would cost each range a write",
    ),
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
    may(
        "ranges.page all tenants, where jobId and finishedAt After, order*",
        INDEX,
        SORTS,
        because="no range of the rows here is finished, so that the server knows it has nothing to find",
        optional=True,
    ),
    may("ranges.count*", INDEX, SCANS, SORTS, because="the job has many of all ranges", optional=True),
    may("quarantine.count*", INDEX, SCANS, because="the job has all lines", optional=True),
    may(
        "ranges.page all tenants, where jobId and entity and state and under, order*",
        SORTS,
        because="a copy asks once, under other rules, for the ranges that it opens again",
        optional=True,
    ),
    *(
        may(
            f"ranges.{operation} all tenants, where jobId and entity, order*",
            EXAMINES,
            because="before the ranges of an entity lie those of others of the job; a copy asks once",
            optional=True,
        )
        for operation in ("page", "remove")
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
    "taskrunner": (*EVERY_COPY_ON_MONGO, COUNTS),
    "twinstore": LEDGER,
}
