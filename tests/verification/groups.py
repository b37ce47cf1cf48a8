"""The groups of the verification suite: which cases each of them has, and what it is about.

A case belongs to every group that names its contract or its file.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

__all__ = ["DRIVERS", "GROUPS", "KITS", "Group", "drivers_named", "files_of_groups", "groups_of"]

DRIVERS: Final = ("memory", "mongo", "postgres")
KITS: Final = {driver: f"tests/contract/test_{driver}_contract.py" for driver in DRIVERS}
WORD: Final = re.compile("|".join(DRIVERS), re.IGNORECASE)
# Their cases are a suite of their own about the operations below the repositories.
OPERATIONS: Final = re.compile(r"::Test(Access|Defaults)::")


@dataclass(frozen=True, slots=True)
class Group:
    """One line of the report.

    Attributes:
        name: its name.
        contents: what it proves.
        contracts: the classes of the contract kit.
        files: test files beside the kit, by path.
        drivers: on which drivers it must have a case.
    """

    name: str
    contents: str
    contracts: frozenset[str] = frozenset()
    files: tuple[str, ...] = ()
    drivers: tuple[str, ...] = DRIVERS


def _group(
    name: str, contents: str, contracts: str, *files: str, drivers: tuple[str, ...] = DRIVERS
) -> Group:
    named = frozenset(f"{contract}Contract" for contract in contracts.split())
    return Group(name, contents, named, tuple(f"tests/{file}.py" for file in files), drivers)


SERVERS: Final = ("mongo", "postgres")
GROUPS: Final = (
    _group(
        "CRUD",
        "every method of every repository and service; create, read, update and delete of every entity",
        "KeyedRepository Paging FilteredList Race SchedulerRace Value SchedulerValue Retention Session "
        "SchedulerSession Transaction SchedulerTransaction Isolation SchedulerIsolation "
        "ScheduleRepository RunRepository TriggerRepository ImpactSnapshotRepository AuditRepository "
        "AuditService RunSummaryRepository RunSummaryService ExecutionLog WorkerRepository PolicyJob "
        "PolicyRunService GraphJobRepository GraphJobEvent GraphJobStore Lock",
    ),
    _group(
        "samples",
        "each JSON sample is loaded, written, read and compared byte by byte",
        "",
        "contract/test_samples_roundtrip",
    ),
    _group(
        "schedules",
        "soft delete, deleted ones on request, restore, markers, the list of what is due",
        "ScheduleRepository DueSchedule",
    ),
    _group(
        "runs",
        "creation, every move allowed and forbidden, counters, pages while rows are inserted",
        "RunRepository RunState Paging",
    ),
    _group(
        "triggers",
        "time zones, both clock changes, leap day, month ends, misfires, two workers",
        "TriggerRepository Firing",
        "unit/test_cron",
    ),
    _group(
        "graph jobs",
        "insert, list, update, expected status, log of events",
        "GraphJobRepository GraphJobEvent GraphJobStore",
        "contract/test_graph_job_special",
        "faults/test_graph_job_store",
    ),
    _group(
        "policy jobs, impact snapshots",
        "every method, lists by status and by run, races for leases, workers that are killed",
        "PolicyJob PolicyClaim PolicyRunService ImpactSnapshotRepository",
        "faults/test_claims",
        "faults/test_claim_edges",
    ),
    _group(
        "locks",
        "exclusion with 16 processes, timeout, renewal, expiry, take-over, killed holder, rising fence",
        "Lock",
        "faults/test_locks",
        "unit/test_lock_handles",
    ),
    _group("workers", "registration, heartbeat, detection of dead ones", "WorkerRepository"),
    _group(
        "tracking",
        "rules of fields, automatic instants, indexes, free metadata, slots, the silent, retention",
        "SessionRepository TaskRepository MachineRepository Slot Unit",
        "tracking/test_mongo_schema",
        "tracking/test_retention",
        "tracking/test_samples",
    ),
    _group(
        "task runner",
        "moves of steps, repeated appends, decisions, scopes, gate reasons, indexes, torn files, import",
        "PackRunState PackRunLog PackArtifact PackRunApproval RunScope",
        "taskrunner/test_configuration",
        "taskrunner/test_mongo_schema",
        "taskrunner/test_page",
        "taskrunner/test_row_level_security",
        "taskrunner/test_samples",
        "filesystem/test_contract",
        "backfill/test_filesystem_source",
    ),
    _group(
        "migrations",
        "twice in a row, eight processes at once, changed checksum, duplicates below a unique index",
        "Initializer",
        "migration/test_mongo_migrations",
        "migration/test_postgres_migrations",
        "migration/test_graph_jobs",
        "migration/test_release_0_1_0",
    ),
    _group(
        "tenancy",
        "reads and writes of another tenant on every method, missing setting, reuse of connections",
        "Tenancy",
        "contract/test_postgres_tenancy",
        "contract/test_postgres_data_source",
    ),
    _group(
        "switching",
        "the same code of a host on each configured driver",
        "",
        "docs/test_snippets",
        "backfill/test_sample_service",
        "contract/test_end_to_end",
    ),
    _group(
        "determinism",
        "lists, digests and roll-ups are equal across drivers, processes and orders of insertion",
        "RunSummaryService",
        "differential/test_drivers_agree",
        "unit/test_canonical",
    ),
    _group(
        "end to end",
        "a schedule falls due, fires, runs, finishes, and leaves summary, log and audit",
        "",
        "contract/test_end_to_end",
    ),
    _group(
        "backfill, parity",
        "pairs of drivers, resumption, conflicts, quarantine, deleted rows, verdicts and exit codes",
        "Bulk SchedulerBulk RangeWriter SchedulerRangeWriter Ledger RangeClaim",
        "backfill/test_copy",
        "backfill/test_verify",
        "backfill/test_into_postgres",
        "backfill/test_copy_mongo",
        "backfill/test_between_servers",
        "backfill/test_fresh_start",
        "backfill/test_exit_codes",
    ),
)


def groups_of(case: str, contract: str) -> tuple[Group, ...]:
    """Return the groups that a case belongs to.

    Args:
        case: its node id.
        contract: the class that defines it, empty for a function.
    """
    file = case.partition("::")[0]
    if file in KITS.values():
        return tuple(group for group in GROUPS if contract in group.contracts and not OPERATIONS.search(case))
    return tuple(group for group in GROUPS if file in group.files)


def drivers_named(case: str) -> frozenset[str]:
    """Return the drivers that the id of a case names; none for a case that is about no store."""
    return frozenset(word.lower() for word in WORD.findall(case))


def files_of_groups() -> tuple[str, ...]:
    """Return every test file that a group needs."""
    return (*KITS.values(), *dict.fromkeys(file for group in GROUPS for file in group.files))
