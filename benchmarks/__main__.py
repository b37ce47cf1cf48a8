"""``python -m benchmarks``: measure, show, and write ``results.json``."""

from __future__ import annotations

import os
import sys
from dataclasses import asdict
from datetime import UTC, datetime
from time import monotonic
from typing import TYPE_CHECKING, Final

from rich.console import Console

from benchmarks.databases import SOURCE, open_databases
from benchmarks.goals import evaluate_goals
from benchmarks.groups import FURTHER, GROUPS
from benchmarks.loading import load as load_documents
from benchmarks.machine import facts, load_line
from benchmarks.markdown import introduction_of, markdown
from benchmarks.options import parse
from benchmarks.peers.groups import PEER_GROUPS
from benchmarks.report import document, goal_table, group_table, to_json
from benchmarks.schedule import measure

if TYPE_CHECKING:
    from collections.abc import Sequence

    from benchmarks.databases import BenchmarkDatabases
    from benchmarks.options import Options
    from benchmarks.schedule import Group, Samples

__all__ = ["main"]

OPENED: Final = {**GROUPS, **FURTHER}


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the benchmark; the results go to stdout and to the directory, progress to stderr."""
    options = parse(arguments)
    # Before the servers start and anything is loaded.
    load = os.getloadavg()
    _log(load_line(load[0]))
    with open_databases(options.directory, durable=options.durable) as databases:
        head: dict[str, object] = {
            "date": datetime.now(UTC).isoformat(timespec="seconds"),
            "options": asdict(options),
            "load_before": [round(value, 2) for value in load],
            "machine": facts(databases),
        }
        if not set(options.only) <= set(PEER_GROUPS):
            head["document_bytes"] = load_documents(databases, options.documents)
        measured = dict(_measured(databases, options))
    goals = list(evaluate_goals(measured))
    results = options.directory / "results.json"
    results.write_text(to_json(document(head, measured, goals)), encoding="utf-8")
    tables = results.with_suffix(".md")
    tables.write_text(markdown(introduction_of(head, measured), measured, goals), encoding="utf-8")
    console = Console(width=None if sys.stdout.isatty() else 130)
    console.print(load_line(load[0]), "")
    for group, samples in measured.values():
        if group.lines is None:
            console.print(group_table(group, samples), "")
        else:
            console.print("\n".join(group.lines(samples)), "", markup=False, highlight=False, soft_wrap=True)
    console.print(goal_table(goals))
    console.print(f"Written to {results} and {tables}.")


def _measured(databases: BenchmarkDatabases, options: Options) -> list[tuple[str, tuple[Group, Samples]]]:
    results = []
    end = monotonic() + 60 * options.minutes
    for number, name in enumerate(options.only):
        # An equal share of the time that is left, filling the tables included.
        until = monotonic() + (end - monotonic()) / (len(options.only) - number)
        chosen = options.of(name)
        with OPENED[name](_part(databases, options, chosen), chosen) as group:
            samples = measure(group, chosen.runs, _log, until - monotonic())
        results.append((name, (group, samples)))
    return results


def _part(databases: BenchmarkDatabases, options: Options, chosen: Options) -> BenchmarkDatabases:
    """Return databases with as many documents as a group wants."""
    if chosen.documents == options.documents:
        return databases
    return databases.take_from(f"{SOURCE}_part", chosen.documents)


def _log(text: str) -> None:
    sys.stderr.write(f"{text}\n")
    sys.stderr.flush()


if __name__ == "__main__":
    main()
