"""The same commands with the fast path and without it, in turns."""

from __future__ import annotations

from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Final

from benchmarks.cli_cases import CliCases
from benchmarks.schedule import Case, Group
from benchmarks.script import hand_script

if TYPE_CHECKING:
    from collections.abc import Iterator

    from benchmarks.databases import BenchmarkDatabases
    from benchmarks.options import Options

__all__ = ["switching"]

WAYS: Final = ("fast path", "exact way")
OFF: Final = {"TWINSTORE_FAST_PATH": "off"}


@contextmanager
def switching(databases: BenchmarkDatabases, options: Options) -> Iterator[Group]:
    """Copy there, verify and copy back, with the native library and without it."""
    tools = {
        way: CliCases(
            databases, options.documents, options.jobs, options.profile, {} if way == WAYS[0] else OFF
        )
        for way in WAYS
    }
    databases.empty_postgres()
    hand_script(databases)
    cases = []
    for what in ("first copy", "verify", "copy back"):
        for way, tool in tools.items():
            name = f"{what}, {way}"
            prepare, run = {
                "first copy": (databases.empty_postgres, partial(tool.copy, name)),
                "verify": (databases.vacuum_postgres, partial(tool.verify, name)),
                "copy back": (databases.empty_mongo, partial(tool.copy_back, name)),
            }[what]
            against = () if way == WAYS[0] else (f"{what}, {WAYS[0]}",)
            cases.append(Case(name=name, prepare=prepare, run=run, against=against))
    yield Group(name="switch", title="With the fast path and without it", unit="documents", cases=cases)
