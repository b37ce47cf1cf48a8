"""The report as data and as Markdown; the same run gives the same text."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Final

from docs.parts.tables import NONE
from tests.verification.groups import GROUPS, Group, groups_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

__all__ = ["NO_STORE", "Facts", "markdown", "report_of", "short_id"]

NO_STORE: Final = "no store"
# As `pytest` calls them; an error in a fixture is a failure.
OUTCOMES: Final = ("passed", "failed", "skipped")
Case = dict[str, Any]
Report = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Facts:
    """What the report says of the run itself.

    Attributes:
        version: of twinstore.
        commit: of the working copy, and whether it was changed since.
        written_at: the instant at which the run began, as text.
        python: the version of the interpreter.
        drivers: those that the run is about.
    """

    version: str
    commit: str
    written_at: str
    python: str
    drivers: tuple[str, ...]


def report_of(run: Mapping[str, Any], drivers_by_case: Mapping[str, list[str]], facts: Facts) -> Report:
    """Return the report as data.

    Args:
        run: what the plug-in ``twinstore.testing.matrix`` wrote.
        drivers_by_case: the drivers that each case is about, by node id.
        facts: what is said of the run.
    """
    cases: list[Case] = run["cases"]
    groups = [group_report(group, cases, drivers_by_case, facts.drivers) for group in GROUPS]
    methods = {
        method: {driver.lower(): [short_id(case) for case in found] for driver, found in by_driver.items()}
        for method, by_driver in run["methods"].items()
    }
    missing = missing_of(methods, facts.drivers)
    failed = sum(case["outcome"] == "failed" for case in cases)
    return {
        **asdict(facts),
        "servers": servers_of(cases),
        "result": "failed" if failed or missing or not methods else "passed",
        "cases": len(cases),
        "failed": failed,
        "groups": groups,
        "methods": methods,
        "missing": missing,
    }


def servers_of(cases: Iterable[Case]) -> dict[str, str]:
    """Return the version of the server behind each driver; a driver without server has none."""
    found = {case["driver"].lower(): case["server"] for case in cases if case["driver"]}
    return {driver: version for driver, version in sorted(found.items()) if version}


def missing_of(methods: Mapping[str, Mapping[str, Sequence[str]]], drivers: tuple[str, ...]) -> list[str]:
    """Return the pairs of method and driver that no case exercises, also where a whole kit did not run."""
    return [
        f"{method} on {driver}"
        for method, by_driver in methods.items()
        for driver in drivers
        if not by_driver.get(driver)
    ]


def group_report(
    group: Group, cases: Iterable[Case], drivers_by_case: Mapping[str, list[str]], drivers: tuple[str, ...]
) -> Report:
    """Return what became of the cases of a group, by driver."""
    found: dict[str, list[Case]] = {driver: [] for driver in (*drivers, NO_STORE)}
    for case in cases:
        if group in groups_of(case["id"], case["contract"]):
            for driver in drivers_by_case.get(case["id"]) or [NO_STORE]:
                if driver in found:
                    found[driver].append(case)
    return {
        "name": group.name,
        "contents": group.contents,
        "without_case": [driver for driver in drivers if not found[driver]],
        "drivers": {driver: tally(items) for driver, items in found.items() if items},
    }


def tally(cases: list[Case]) -> Report:
    """Count cases by what became of them."""
    outcomes = Counter(case["outcome"] for case in cases)
    return {
        "cases": len(cases),
        **{outcome: outcomes[outcome] for outcome in OUTCOMES},
        "seconds": round(sum(case["seconds"] for case in cases), 1),
        "failures": [short_id(case["id"]) for case in cases if case["outcome"] == "failed"],
    }


def short_id(case: str) -> str:
    """Return the id of a case without the classes between file and test."""
    parts = case.split("::")
    return f"{parts[0]}::{parts[-1]}"


def markdown(report: Report) -> str:
    """Return the report for people."""
    return "\n".join([*_head(report), *_groups(report), *_methods(report)])


def _head(report: Report) -> list[str]:
    servers = ", ".join(f"{driver} {version}" for driver, version in report["servers"].items())
    lines = [
        "# Verification report",
        "",
        f"- result: **{report['result']}**, {report['cases']:,} cases, {report['failed']} failed",
        f"- twinstore {report['version']}, commit {report['commit']}",
        f"- run of {report['written_at']}, Python {report['python']}",
        f"- drivers: {', '.join(report['drivers'])}; servers: {servers or 'none'}",
    ]
    if len(report["drivers"]) == 1:
        lines += [f"- a baseline of a fresh start on {report['drivers'][0]} alone: no other server ran"]
    return [*lines, ""]


def _groups(report: Report) -> list[str]:
    columns = (*report["drivers"], NO_STORE)
    lines = ["## Groups", "", "Cases that passed, and their time. A case may stand in several groups.", ""]
    lines += _table(
        ("Group", *columns), ([item["name"], *_cells(item, columns)] for item in report["groups"])
    )
    lines += [""]
    for item in report["groups"]:
        lines += [f"- **{item['name']}**: {item['contents']}{_lack(item)}"]
        lines += [
            f"  - failed: `{case}`" for counted in item["drivers"].values() for case in counted["failures"]
        ]
    return [*lines, ""]


def _lack(item: Report) -> str:
    return f". **No test on {', '.join(item['without_case'])}**" if item["without_case"] else ""


def _cells(item: Report, columns: tuple[str, ...]) -> list[str]:
    cells: list[str] = []
    for column in columns:
        counted = item["drivers"].get(column)
        if counted is None:
            cells.append(NONE if column == NO_STORE else "**no test**")
        else:
            others = [f"**{counted[name]} {name}**" for name in OUTCOMES[1:] if counted[name]]
            cells.append(", ".join([f"{counted['passed']} passed", *others, f"{counted['seconds']} s"]))
    return cells


def _methods(report: Report) -> list[str]:
    lines = ["## Methods", ""]
    if report["missing"]:
        lines += ["**Without a case that passed and was answered:**", ""]
        lines += [*(f"- {item}" for item in report["missing"]), ""]
    else:
        lines += ["Every public method of every repository and service has its cases: 100 %.", ""]
    lines += [
        "Cases that passed and in which a call of the method was answered, as observed while they ran.",
        "",
    ]
    rows = (
        [f"`{method}`", *(str(len(by_driver.get(driver, ()))) for driver in report["drivers"])]
        for method, by_driver in report["methods"].items()
    )
    return [*lines, *_table(("Method", *report["drivers"]), rows), ""]


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    lines = (head, ["---"] * len(head), *rows)
    return [f"| {' | '.join(row)} |" for row in lines]
