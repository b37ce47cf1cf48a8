"""Render the JUnit file of a whole test run as ``verification-report.md``: results by group and driver.

``python -m tests.support.verification_report [FILE] [--only postgres] [--update-docs]``

``make test`` and ``make test-long`` write the file. The name of its suite is the level and the commit of the
run. Exit code 1: a case failed, or a group has no case on a driver. Exit code 2: there is no such run.

A baseline of a fresh start on PostgreSQL alone is ``TWINSTORE_TEST_ONLY=postgres make test``, then this with
``--only postgres``. ``--update-docs`` renews the support table of docs/capabilities.md from a long run; then
``make docs``.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections import Counter
from dataclasses import dataclass
from datetime import datetime
from functools import cache, cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Final
from xml.etree import ElementTree as ET

from docs.parts.support import SUPPORT, support_text
from docs.parts.tables import NONE, code, table
from twinstore.plugins.modules import built_modules, module_spec
from twinstore.testing import DriverContract
from twinstore.testing.matrix import PROPERTY, matrix_of, method_names
from twinstore.testing.matrix import Case as MethodCase

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

JUNIT: Final = Path(__file__).parents[2] / "verification-report.xml"
LEVELS: Final = {
    "test": "`make test`: of tests that have two forms, the bounded one",
    "test-long": "`make test-long`: the full form of every test",
}

KITS: Final = {driver: f"drivers/{driver}/test_contract" for driver in ("memory", "mongo", "postgres")}
DRIVERS: Final = (*KITS, "filesystem")
NO_DRIVER: Final = "no driver"
# By group its contracts of the kit and its other test files below tests/. A case can be in several groups.
GROUPS: Final = {
    "CRUD": "KeyedRepository Paging FilteredList Race SchedulerRace Value SchedulerValue Retention Session "
    "SchedulerSession Transaction SchedulerTransaction Isolation SchedulerIsolation ScheduleRepository "
    "RunRepository TriggerRepository ImpactSnapshotRepository AuditRepository AuditService "
    "RunSummaryRepository RunSummaryService ExecutionLog WorkerRepository PolicyJob PolicyRunService "
    "GraphJobRepository GraphJobEvent GraphJobStore Lock",
    "samples": "drivers/test_samples_roundtrip",
    "schedules": "ScheduleRepository DueSchedule",
    "runs": "RunRepository RunState Paging",
    "triggers": "TriggerRepository Firing unit/test_cron",
    "graph jobs": "GraphJobRepository GraphJobEvent GraphJobStore drivers/test_without_special "
    "resilience/test_graph_job_store",
    "policy jobs, impact snapshots": "PolicyJob PolicyClaim PolicyRunService ImpactSnapshotRepository "
    "resilience/test_claims",
    "locks": "Lock resilience/test_locks unit/test_lock_handles",
    "workers": "WorkerRepository",
    "tracking": "SessionRepository TaskRepository MachineRepository Slot Unit schema/test_tracking "
    "drivers/test_tracking_retention",
    "task runner": "PackRunState PackRunLog PackArtifact PackRunApproval RunScope "
    "schema/test_taskrunner_configuration schema/test_taskrunner docs/test_task_runner_page "
    "drivers/postgres/test_taskrunner_tenancy drivers/filesystem/test_contract "
    "migration_tool/sources/test_filesystem",
    "migrations": "Initializer schema/test_mongo_migrations schema/test_postgres_migrations "
    "schema/test_revert schema/test_release_0_1_0",
    "tenancy": "Tenancy drivers/postgres/test_tenancy drivers/postgres/test_data_source",
    "switching": "docs/test_snippets service/test_bodies drivers/test_end_to_end",
    "determinism": "RunSummaryService drivers/agreement/test_drivers unit/test_canonical",
    "end to end": "drivers/test_end_to_end",
    "backfill, parity": "Bulk SchedulerBulk RangeWriter SchedulerRangeWriter Ledger RangeClaim "
    "migration_tool/copy/test_copy migration_tool/copy/test_pairs migration_tool/copy/test_kinds_of_keys "
    "migration_tool/copy/test_between_servers migration_tool/verify/test_verify "
    "migration_tool/sources/test_fresh_start migration_tool/sources/test_filesystem "
    "migration_tool/cli/test_exit_codes",
}
# Every group must have cases on the drivers with a kit, these on files too.
ON_FILES: Final = {"task runner", "backfill, parity"}
# The drivers of a case are those that its id names, or else those of its file here.
DRIVERS_OF_FILES: Final = {
    "migration_tool/copy/test_between_servers": "mongo postgres",
    "migration_tool/copy/test_copy": "memory",
    "migration_tool/cli/test_exit_codes": "mongo postgres",
    "service/test_bodies": "mongo postgres",
    "migration_tool/verify/test_verify": "memory",
    "resilience/test_claims": "postgres",
    "resilience/test_locks": "postgres",
    "schema/test_taskrunner": "mongo",
    "schema/test_tracking": "mongo",
    "schema/test_taskrunner_configuration": "mongo",
    "docs/test_task_runner_page": "mongo postgres",
    "drivers/postgres/test_taskrunner_tenancy": "postgres",
}
NAMED: Final = re.compile("|".join(DRIVERS), re.IGNORECASE)
# Their cases are about the operations below the repositories.
OPERATIONS: Final = {"TestAccess", "TestDefaults"}
# From the best to the worst.
OUTCOMES: Final = ("passed", "skipped", "failed")
TAGS: Final = {"failure": "failed", "error": "failed", "skipped": "skipped"}


@dataclass(frozen=True)
class Case:
    """A test of a JUnit file.

    Attributes:
        place: its module and classes, separated by dots; empty for a file that could not be imported.
        name: its name and parameters.
        outcome: one of ``OUTCOMES``; an error in a fixture is a failure.
        seconds: the time of all its phases.
        calls: whether any call of a method returned something, by method; only a long run records it.
    """

    place: str
    name: str
    outcome: str
    seconds: float
    calls: Mapping[str, bool]

    @cached_property
    def id(self) -> str:
        """Return the node id of pytest."""
        path, *classes = re.split(r"\.(?=[A-Z])", self.place or self.name)
        names = [*classes, self.name] if self.place else []
        return "::".join([f"{path.replace('.', '/')}.py", *names])

    @cached_property
    def file(self) -> str:
        """Return the file as groups name it."""
        return self.id.partition("::")[0].removeprefix("tests/").removesuffix(".py")

    @cached_property
    def drivers(self) -> tuple[str, ...]:
        """Return the drivers that it is about."""
        found = NAMED.findall(self.id) or DRIVERS_OF_FILES.get(self.file, "").split()
        return tuple(dict.fromkeys(word.lower() for word in found))

    @cached_property
    def subject(self) -> str:
        """Return what groups name: the contract of a case of a kit, and the file of any other."""
        if self.file not in KITS.values():
            return self.file
        kit, test = self.place.rpartition(".")[2], self.name.partition("[")[0]
        return "" if kit in OPERATIONS else contracts_of_kits().get((kit, test), "")


@cache
def contracts_of_kits() -> dict[tuple[str, str], str]:
    """Return the contract that defines a test, by kit and name of the test."""
    return {
        (kit, test): cls.__name__.removesuffix("Contract")
        for kit, found in DriverContract.kits().items()
        for cls in reversed(found.__mro__)
        for test in vars(cls)
    }


@dataclass(frozen=True, slots=True)
class Run:
    """What a JUnit file holds.

    Attributes:
        level: a key of ``LEVELS``.
        commit: the commit of the working copy, and whether it had changes.
        started: the time at which it began.
        cases: its cases.
    """

    level: str
    commit: str
    started: str
    cases: Sequence[Case]


def case_of(element: ET.Element) -> Case:
    """Read a test case."""
    calls = element.find(f"properties/property[@name='{PROPERTY}']")
    outcomes = (TAGS.get(child.tag, "passed") for child in element)
    return Case(
        place=element.get("classname", ""),
        name=element.get("name", ""),
        outcome=max(outcomes, key=OUTCOMES.index, default="passed"),
        seconds=float(element.get("time", 0)),
        calls={} if calls is None else json.loads(calls.get("value", ""))["methods"],
    )


def cases_of(suite: ET.Element) -> dict[str, Case]:
    """Return the cases of a suite by id; pytest writes a second element for an error in a teardown."""
    cases: dict[str, Case] = {}
    for case in map(case_of, suite.iter("testcase")):
        both = (case, cases.get(case.id, case))
        cases[case.id] = max(both, key=lambda item: OUTCOMES.index(item.outcome))
    return cases


def read_run(path: Path, levels: Iterable[str] = LEVELS) -> Run:
    """Read a JUnit file of a whole run of one of these levels.

    Raises:
        ValueError: it is no such file.
    """
    advice = f"run {' or '.join(f'`make {level}`' for level in levels)} to its end, without ARGS"
    if not path.is_file():
        raise ValueError(f"{path} does not exist: {advice}")
    (whole,) = ET.parse(path).getroot().iter("testsuite")  # noqa: S314  # pytest wrote it
    level, _, commit = whole.get("name", "").partition(" ")
    if level not in levels:
        raise ValueError(f"{path} holds a run of {level!r}: {advice}")
    started = datetime.fromisoformat(whole.get("timestamp", "")).isoformat(timespec="seconds")
    return Run(level, commit, started, tuple(cases_of(whole).values()))


Results = dict[str, dict[str, list[Case]]]
"""Cases by group and driver."""


def results_of(cases: Iterable[Case]) -> Results:
    """Sort cases into groups and drivers."""
    groups = {name: set(words.split()) for name, words in GROUPS.items()}
    found: Results = {name: {driver: [] for driver in (*DRIVERS, NO_DRIVER)} for name in GROUPS}
    for case in cases:
        for name in (name for name, subjects in groups.items() if case.subject in subjects):
            for driver in case.drivers or [NO_DRIVER]:
                found[name][driver].append(case)
    return found


def missing_of(results: Results, drivers: Iterable[str]) -> list[str]:
    """Return the pairs of group and driver of which no case ran; a skipped case shows nothing."""
    return [
        f"{group} on {driver}"
        for group, found in results.items()
        for driver in drivers
        if (driver in KITS or group in ON_FILES) and all(case.outcome == "skipped" for case in found[driver])
    ]


def counted(cases: Sequence[Case]) -> str:
    """Return how many cases had which outcome, and their time."""
    outcomes = Counter(case.outcome for case in cases)
    others = [f"**{outcomes[name]:,} {name}**" for name in ("failed", "skipped") if outcomes[name]]
    seconds = sum(case.seconds for case in cases)
    return ", ".join([f"{outcomes['passed']:,} passed", *others, f"{seconds:,.1f} s"]) if cases else NONE


def listed(title: str, lines: Iterable[str]) -> list[str]:
    """Return a list below its title; without lines there is neither."""
    items = [f"- {line}" for line in lines]
    return [f"## {title}", "", *items, ""] if items else []


def report_of(run: Run, drivers: tuple[str, ...]) -> tuple[bool, str]:
    """Return whether a run passed, and the report about some drivers as Markdown."""
    results = results_of(run.cases)
    missing = missing_of(results, drivers)
    failed = [case for case in run.cases if case.outcome == "failed"]
    passed = not failed and not missing
    grouped = {case.id for found in results.values() for cases in found.values() for case in cases}
    columns = (*drivers, NO_DRIVER)
    rows = [[group, *(counted(found[column]) for column in columns)] for group, found in results.items()]
    alone = "" if drivers == DRIVERS else "; a baseline of a fresh start, without the other drivers"
    return passed, "\n".join(
        [
            "# Verification report",
            "",
            f"- result: **{'passed' if passed else 'failed'}**",
            f"- level: {LEVELS[run.level]}",
            f"- commit: {run.commit}",
            f"- started: {run.started}",
            f"- drivers: {', '.join(drivers)}{alone}",
            f"- all cases: {counted(run.cases)}; {len(run.cases) - len(grouped):,} are in no group",
            "",
            *listed("Failed", (code(case.id) for case in failed)),
            *listed("Without a case that ran", missing),
            "## Groups",
            "",
            "Cases and their time. A case can be in several groups and about several drivers.",
            "",
            table(("Group", *columns), rows),
            "",
        ]
    )


def support_of(cases: Iterable[Case]) -> dict[str, list[str]]:
    """Return the drivers on which a case of the kit exercised each method of each module."""
    driver_of = {file: driver for driver, file in KITS.items()}
    seen = [
        MethodCase(case.id, driver=driver_of[case.file], outcome=case.outcome, methods=case.calls)
        for case in cases
        if case.file in driver_of
    ]
    methods = [name for module in built_modules() for name in method_names(module_spec(module))]
    matrix = matrix_of(seen, methods, KITS)
    return {method: [driver for driver in KITS if found[driver]] for method, found in matrix.items()}


def arguments(given: Sequence[str] | None) -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.support.verification_report")
    parser.add_argument("file", nargs="?", type=Path, default=JUNIT, help="the JUnit file of a whole run")
    parser.add_argument("--only", choices=("mongo", "postgres"), help="report about this driver alone")
    parser.add_argument("--update-docs", action="store_true", help="renew the data of docs/capabilities.md")
    return parser.parse_args(given)


def main(given: Sequence[str] | None = None) -> int:
    """Write the report next to the file; return the exit code."""
    options = arguments(given)
    try:
        run = read_run(options.file, ("test-long",) if options.update_docs else LEVELS)
    except ValueError as error:
        sys.stderr.write(f"{error}\n")
        return 2
    passed, text = report_of(run, (options.only,) if options.only else DRIVERS)
    path: Path = options.file.with_suffix(".md")
    path.write_text(text, "utf-8")
    if options.update_docs:
        SUPPORT.write_text(support_text(support_of(run.cases)), "utf-8")
    sys.stdout.write(f"{'passed' if passed else 'failed'}: {path}\n")
    return 0 if passed else 1


if __name__ == "__main__":
    sys.exit(main())
