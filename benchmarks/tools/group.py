"""Other tools compared with ours, if they are installed: ``pip install --group bench``."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Final

from psycopg import sql

from benchmarks.cli_cases import CliCases
from benchmarks.postgres_limits import copy_in, prebuilt_rows
from benchmarks.schedule import Case, Group, Sample
from benchmarks.script import SCRIPT, hand_script

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from benchmarks.databases import BenchmarkDatabases
    from benchmarks.options import Options

__all__ = ["comparing"]

OURS: Final = "first copy"
ROOFLINE: Final = "COPY, two connections"
SLING: Final = "sling_linux_amd64"
MISSING: Final = (
    "{} is not installed, so it is not measured; run: pip install --group bench (pip 25.1 or newer)\n"
)
# No data about a benchmark may be sent anywhere.
SILENT: Final = {"SLING_DISABLE_TELEMETRY": "TRUE", "RUNTIME__DLTHUB_TELEMETRY": "false"}


@dataclass(frozen=True, slots=True)
class Tool:
    """Another tool: its package, the schema that it fills, and what starts it."""

    name: str
    package: str
    schema: str
    command: Sequence[str]


def tools(databases: BenchmarkDatabases) -> Iterator[Tool]:
    """Yield the tools, each with its defaults."""
    found = find_spec(SLING)
    program = Path(found.origin or "").parent / "bin" / "sling-linux-amd64" if found else Path()
    stream = ("--src-conn", "BENCH_MONGO", "--src-stream", f"{databases.source}.runs")
    target = ("--tgt-conn", "BENCH_POSTGRES", "--tgt-object", "sling_bench.runs", "--mode", "full-refresh")
    yield Tool("sling 1.4.11", SLING, "sling_bench", [str(program), "run", *stream, *target])
    places = (databases.mongo_url, databases.source, databases.superuser_url)
    directory = str((databases.directory / "dlt").absolute())
    words = [sys.executable, "-m", "benchmarks.tools.dlt_copy", *places, directory]
    yield Tool("dlt 1.31", "dlt", "dlt_bench", words)


@contextmanager
def comparing(databases: BenchmarkDatabases, options: Options) -> Iterator[Group]:
    """Copy MongoDB to PostgreSQL; every rate counts the start of the process."""
    ours = CliCases(databases, options.documents, options.jobs)
    databases.empty_postgres()
    hand_script(databases)
    rows = prebuilt_rows(databases)
    prepare = databases.empty_postgres
    roofline = Case(name=ROOFLINE, prepare=prepare, run=partial(copy_in, databases, rows, 2))
    script = Case(
        name=SCRIPT, prepare=prepare, run=lambda: _with_start(hand_script(databases)), against=(ROOFLINE,)
    )
    cases = [roofline, script]
    for tool in tools(databases):
        if find_spec(tool.package) is None:
            sys.stderr.write(MISSING.format(tool.name))
            continue
        run = partial(_run, databases, options.documents, tool)
        drop = partial(_drop, databases, tool)
        cases.append(Case(name=tool.name, prepare=drop, run=run, against=(ROOFLINE, SCRIPT)))
    against = tuple(case.name for case in cases)
    cases.append(Case(name=OURS, prepare=prepare, run=lambda: _with_start(ours.copy(OURS)), against=against))
    title = "Other tools, MongoDB to PostgreSQL, with the start of the process"
    yield Group(name="tools", title=title, unit="documents", cases=cases)
    for tool in tools(databases):
        _drop(databases, tool)


def _with_start(sample: Sample) -> Sample:
    return replace(sample, seconds=sample.whole_seconds or sample.seconds)


def _run(databases: BenchmarkDatabases, documents: int, tool: Tool) -> Sample:
    environment = {
        **os.environ,
        **SILENT,
        "SLING_HOME_DIR": str((databases.directory / "sling").absolute()),
        "BENCH_MONGO": databases.mongo_url,
        "BENCH_POSTGRES": f"{databases.superuser_url}?sslmode=disable",
    }
    began = perf_counter()
    ended = subprocess.run(tool.command, env=environment, capture_output=True, text=True, check=False)
    seconds = perf_counter() - began
    if ended.returncode:
        raise RuntimeError(
            f"{tool.name} ended with {ended.returncode}:\n{ended.stdout[-1000:]}{ended.stderr[-1000:]}"
        )
    with closing(databases.superuser()) as connection:
        count = sql.SQL("SELECT count(*) FROM {}").format(sql.Identifier(tool.schema, "runs"))
        found = connection.execute(count).fetchone()
    if found != (documents,):
        raise RuntimeError(f"{tool.name} copied {found} of {documents} documents")
    return Sample(units=documents, seconds=seconds)


def _drop(databases: BenchmarkDatabases, tool: Tool) -> None:
    """Remove what a tool has made, and what it remembers of it."""
    shutil.rmtree(databases.directory / "dlt", ignore_errors=True)
    with closing(databases.superuser()) as connection:
        connection.execute(sql.SQL("DROP SCHEMA IF EXISTS {} CASCADE").format(sql.Identifier(tool.schema)))
        connection.execute("CHECKPOINT")
