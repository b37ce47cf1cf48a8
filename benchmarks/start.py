"""What commands and a storage cost before their first document, compared with the import of the clients."""

from __future__ import annotations

import json
import os
import sys
from contextlib import contextmanager
from dataclasses import replace
from enum import StrEnum
from functools import partial
from typing import TYPE_CHECKING, Final

from benchmarks.children import PROGRAM, run_child
from benchmarks.cli_cases import CliCases
from benchmarks.databases import SOURCE
from benchmarks.markdown import head, line, ratio_text
from benchmarks.schedule import Case, Group, Sample

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from benchmarks.children import Child
    from benchmarks.databases import BenchmarkDatabases
    from benchmarks.options import Options
    from benchmarks.schedule import Samples

__all__ = ["COPIES", "HELPS", "OPENED", "REFERENCE", "VERIFICATIONS", "Imported", "starting"]

DOCUMENTS: Final = 100
JOBS: Final = (1, 2)
REFERENCE: Final = "import of the clients"
HELPS: Final = {
    "twinstore --help": ("--help",),
    "copy --help": ("backfill", "copy", "--help"),
    "verify --help": ("backfill", "verify", "--help"),
}
COPIES: Final = {jobs: f"copy of {DOCUMENTS}, --jobs {jobs}" for jobs in JOBS}
VERIFICATIONS: Final = {jobs: f"verify of {DOCUMENTS}, --jobs {jobs}" for jobs in JOBS}
OPENED: Final = {"Postgres": "open_storage and get, PostgreSQL", "Mongo": "open_storage and get, MongoDB"}

PYTHON: Final = (sys.executable, "-c")
IMPORT: Final = "import pymongo, psycopg, psycopg_pool, pydantic"
GET: Final = """
import json, sys
import twinstore
with twinstore.open_storage(json.loads(sys.argv[1])) as storage:
    storage.scheduler.runs.get_required(*sys.argv[2:])
"""
# The names of the modules are the last line of the output.
IMPORT_AND_LIST: Final = f"{IMPORT}; import sys; print(*sys.modules)"
RUN_AND_LIST: Final = (
    "import sys; from twinstore_backfill.cli import main; sys.exit(main() or print(*sys.modules))"
)
# Of a process that may write no bytecode, each start would compile the modules again.
CACHED: Final = {"PYTHONDONTWRITEBYTECODE": ""}
TITLE: Final = "Commands before their first document"


class Imported(StrEnum):
    """Whose modules are counted."""

    CLIENTS = "the clients"
    ALL = "a copy"
    OURS = "a copy, ours"


@contextmanager
def starting(databases: BenchmarkDatabases, options: Options) -> Iterator[Group]:
    """Helps, commands over few documents, and one get; a unit is a process, its start included."""
    count = min(DOCUMENTS, options.documents)
    databases = databases.take_from(f"{SOURCE}_start", count)
    tools = {jobs: CliCases(databases, count, jobs, environment=CACHED) for jobs in JOBS}
    modules = imported(databases, tools[JOBS[0]])
    run = databases.runs().find_one({}, {"tenantId": 1}) or {}
    cases = [Case(name=REFERENCE, run=partial(program, PYTHON, [IMPORT]))]
    for name, words in HELPS.items():
        cases.append(_case(name, partial(program, PROGRAM, words)))
    for jobs, name in COPIES.items():
        cases.append(_case(name, partial(command, tools[jobs].copy, name), databases.empty_postgres))
    for jobs, name in VERIFICATIONS.items():
        cases.append(_case(name, partial(command, tools[jobs].verify, name), databases.vacuum_postgres))
    for driver, name in OPENED.items():
        words = (GET, json.dumps(databases.settings(driver)), run["tenantId"], run["_id"])
        cases.append(_case(name, partial(program, PYTHON, words)))
    lines = partial(start_lines, modules)
    yield Group(name="start", title=TITLE, unit="processes", cases=cases, facts=modules, lines=lines)
    databases.client.drop_database(databases.source)


def program(start: Sequence[str], arguments: Sequence[str]) -> Sample:
    """Run a program."""
    child = _run(start, arguments)
    return Sample(
        units=1,
        seconds=child.seconds,
        peak_bytes=child.peak_bytes,
        client_seconds=child.processor_seconds,
        watch_seconds=child.watch_seconds,
    )


def command(run: Callable[[str], Sample], name: str) -> Sample:
    """Run a command, which reports how long it took without its start."""
    sample = run(name)
    return replace(sample, units=1, seconds=sample.whole_seconds or sample.seconds)


def imported(databases: BenchmarkDatabases, tool: CliCases) -> dict[str, float]:
    """Return how many modules are imported at the end of a first copy, and by the clients alone."""
    databases.empty_postgres()
    out = databases.directory / "out" / "modules"
    words = tool.arguments("copy", "mongo", "postgres", databases.settings_file(), out)
    copy = _modules(RUN_AND_LIST, [*words, "--execute"])
    ours = [name for name in copy if name.startswith("twinstore")]
    clients = _modules(IMPORT_AND_LIST, [])
    return {Imported.CLIENTS: len(clients), Imported.ALL: len(copy), Imported.OURS: len(ours)}


def start_lines(modules: Mapping[str, float], samples: Samples) -> Iterator[str]:
    """Yield a table, and the numbers of modules."""
    yield from [f"**{TITLE}**: medians; ratios are times, so more is slower", ""]
    yield from head(["", "s", "CPU s", f"time, of the {REFERENCE}", "CPU time, of it", "MB"])
    for case in samples.by_case:
        medians = [samples.middle(case, cost) or 0.0 for cost in (_time, _processor)]
        ratios = [samples.cost_ratio(case, REFERENCE, cost) for cost in (_time, _processor)]
        peak = samples.peak(case)
        yield line(
            [
                case,
                *(f"{value:.3f}" for value in medians),
                *("" if ratio is None else ratio_text(ratio) for ratio in ratios),
                "" if peak is None else f"{peak:.0f}",
            ]
        )
    yield from ["", "; ".join(f"modules of {name}: {number:.0f}" for name, number in modules.items())]


def _case(name: str, run: Callable[[], Sample], prepare: Callable[[], object] = lambda: None) -> Case:
    return Case(name=name, run=run, prepare=prepare, against=(REFERENCE,))


def _run(start: Sequence[str], arguments: Sequence[str]) -> Child:
    return run_child(arguments, expected=0, program=start, environment={**os.environ, **CACHED})


def _modules(code: str, arguments: Sequence[str]) -> list[str]:
    return _run(PYTHON, [code, *arguments]).text.splitlines()[-1].split()


def _time(sample: Sample) -> float:
    return sample.seconds


def _processor(sample: Sample) -> float | None:
    return sample.client_seconds
