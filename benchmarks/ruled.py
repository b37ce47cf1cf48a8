"""A copy and a verification of runs of which five rules change a tenth each, and of the same runs without."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from benchmarks.cli_cases import CliCases
from benchmarks.databases import SOURCE
from benchmarks.schedule import Case, Group

if TYPE_CHECKING:
    from collections.abc import Iterator

    from benchmarks.databases import BenchmarkDatabases
    from benchmarks.options import Options

__all__ = ["FINAL", "RULED", "ruling"]

FINAL, RULED = "final form", "under rules"
DIRTY: Final = f"{SOURCE}_ruled"
# By the last digit of the id, what another program left.
WARTS: Final[dict[int, dict[str, Any]]] = {
    0: {"$set": {"state": {"$concat": ["old-", "$state"]}}},
    1: {"$set": {"createdAt": {"$dateToString": {"date": "$createdAt", "format": "%d.%m.%Y %H:%M:%S"}}}},
    2: {"$set": {"plan": "$scheduleId", "scheduleId": "$$REMOVE"}},
    3: {"$unset": "stats.newLow"},
    4: {"$set": {"reason.cursor": {"$concat": [" ", "$reason.cursor"]}}},
}
STATES: Final = ", ".join(f'old-{state} = "{state}"' for state in ("completed", "error", "running", "queued"))
RULES: Final = f"""
[[map]]
path = "runs.state"
values = {{ {STATES}, old-cancelled = "cancelled" }}
reason = "other words"
[[date]]
path = "runs.createdAt"
formats = ["%d.%m.%Y %H:%M:%S"]
zone = "UTC"
reason = "texts"
[[rename]]
path = "runs.plan"
to = "scheduleId"
reason = "another name"
[[default]]
path = "runs.stats.newLow"
value = 0
reason = "no counter"
[[trim]]
path = "runs.reason.cursor"
reason = "blanks"
"""


@contextmanager
def ruling(databases: BenchmarkDatabases, options: Options) -> Iterator[Group]:
    """Copy and verify both."""
    dirty = databases.take_from(DIRTY, options.documents)
    dirty.client[DIRTY].command("collMod", "runs", validationLevel="off")
    for digit, wart in WARTS.items():
        dirty.runs().update_many({"_id": {"$regex": f"{digit}$"}}, [wart])
    file = databases.directory / "rules.toml"
    file.write_text(RULES, encoding="utf-8")
    tool = CliCases(databases, options.documents, options.jobs, options.profile)
    ruled = replace(tool, databases=dirty, before=("--job-file", str(file)))
    cases = []
    for way, chosen in ((FINAL, tool), (RULED, ruled)):
        copy, verify = f"copy, {way}", f"verify, {way}"

        def fill(chosen: CliCases = chosen, copy: str = copy) -> None:
            databases.empty_postgres()
            chosen.copy(copy)
            databases.vacuum_postgres()

        of = [() if way == FINAL else (f"{what}, {FINAL}",) for what in ("copy", "verify")]
        cases += [
            Case(name=copy, prepare=databases.empty_postgres, run=partial(chosen.copy, copy), against=of[0]),
            Case(name=verify, prepare=fill, run=partial(chosen.verify, verify), against=of[1]),
        ]
    yield Group(name="rules", title="Under rules", unit="documents", cases=cases)
    databases.client.drop_database(DIRTY)
