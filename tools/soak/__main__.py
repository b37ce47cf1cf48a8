"""Soaks each database and prints a table; exit code 1 where anything was violated."""

from __future__ import annotations

import argparse
import json
import logging
import signal
import sys
import time
from dataclasses import asdict
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Final

from rich.console import Console
from rich.table import Table

from tools.soak.plan import USUAL_FAULTS, Fault, Plan
from tools.soak.program import OPERATIONS, Result, soak
from tools.soak.servers import DATABASES, own_server

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

DEFAULT_MINUTES: Final = 1.25
SHOWN: Final = 20
POOL: Final = 4


def arguments(given: Sequence[str] | None) -> argparse.Namespace:
    """Return what the command line asks for."""
    parser = argparse.ArgumentParser(prog="python -m tools.soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=DEFAULT_MINUTES, help="for each database")
    parser.add_argument("--seed", type=int, default=7, help="decides every random choice")
    parser.add_argument("--only", choices=DATABASES, help="this database alone")
    named = ",".join(Fault)
    parser.add_argument(
        "--faults", type=faults_of, default=USUAL_FAULTS, help=f"some of {named}; all but network by default"
    )
    parser.add_argument("--rarer", type=float, default=1, help="how many times rarer kills and outages are")
    parser.add_argument("--journals", type=Path, help="where the journals are kept")
    return parser.parse_args(given)


def faults_of(text: str) -> frozenset[Fault]:
    """Return the faults that a list names; ``none`` names none."""
    return frozenset() if text == "none" else frozenset(Fault(name) for name in text.split(","))


def table_of(results: Mapping[str, Result]) -> Table:
    """Return the table for people: a column for each database."""
    table = Table("", *results, title="Soak")
    for name in OPERATIONS:
        table.add_row(name, *(f"{result.operations[name]:,}" for result in results.values()))
    table.add_row("killed", *(str(result.kills) for result in results.values()))
    _add_kinds(table, "", [result.faults for result in results.values()])
    _add_kinds(table, "server: ", [result.outages for result in results.values()])
    table.add_row("refused while away", *(f"{result.refused:,}" for result in results.values()))
    table.add_row("outcome unknown", *(f"{result.unknown:,}" for result in results.values()))
    table.add_row("violations", *(str(len(result.violations)) for result in results.values()))
    return table


def _add_kinds(table: Table, before: str, figures: Sequence[Mapping[str, object]]) -> None:
    for kind in sorted({kind for of_one in figures for kind in of_one}):
        table.add_row(f"{before}{kind}", *(str(of_one.get(kind, "")) for of_one in figures))


def main(given: Sequence[str] | None = None) -> int:
    """Soak, print and judge."""
    options, results, console = arguments(given), dict[str, Result](), Console()
    # Each attempt to reach a server that is down; the answers that calls get are in the journal.
    for name in ("psycopg.pool", "twinstore"):
        logging.getLogger(name).setLevel(logging.ERROR)
    with TemporaryDirectory() as temporary:
        folder: Path = options.journals or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        # One after the other: each has the machine for itself.
        for name in DATABASES if options.only is None else (options.only,):
            with own_server(name, options.faults, POOL, options.seed) as server:
                plan = Plan(
                    settings=server.settings,
                    journal=folder / f"{name}.journal",
                    seed=options.seed,
                    seconds=options.minutes * 60,
                    start=time.monotonic_ns(),
                    faults=options.faults,
                    pool=POOL,
                    rarer=options.rarer,
                )
                results[name] = soak(plan, server)
    console.print(table_of(results))
    console.print(f"seed {options.seed}, {options.minutes:g} minutes for each database")
    for name, result in results.items():
        for missing in result.left_out:
            console.print(f"{name}: left out: {missing}", markup=False, soft_wrap=True)
        for wrong in result.violations[:SHOWN]:
            console.print(f"{name}: {wrong}", markup=False, soft_wrap=True)
    if options.journals is not None:
        report = {name: asdict(result) for name, result in results.items()}
        (options.journals / "results.json").write_text(json.dumps(report, indent=1), "utf-8")
    return int(any(result.violations for result in results.values()))


if __name__ == "__main__":
    # As an error, so that processes and servers end as well.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    sys.exit(main())
