"""Soaks each database and prints a table; exit code 1 where anything was violated."""

from __future__ import annotations

import argparse
import json
import logging
import sys
import time
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Final

from rich.console import Console
from rich.table import Table

from tests.faults.outages import outages_of
from tests.soak.plan import Plan
from tests.soak.program import OPERATIONS, Result, soak

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from tests.faults.outages import Outages
    from tests.servers import Settings

DATABASES: Final = ("mongo", "postgres")
DEFAULT_MINUTES: Final = 1.25
SHOWN: Final = 20
# On a busy machine a primary that lives may be silent for a second, and nothing was planned for its loss.
ELECTION_MS: Final = 3000


def arguments(given: Sequence[str] | None) -> argparse.Namespace:
    """Return what the command line asks for."""
    parser = argparse.ArgumentParser(prog="python -m tests.soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=DEFAULT_MINUTES, help="for each database")
    parser.add_argument("--seed", type=int, default=7, help="decides every random choice")
    parser.add_argument("--only", choices=DATABASES, help="this database alone")
    parser.add_argument("--settings", type=Path, help="a JSON file with the settings of each database")
    parser.add_argument("--journals", type=Path, help="where the journals are kept")
    return parser.parse_args(given)


@contextmanager
def database(name: str, options: argparse.Namespace) -> Iterator[tuple[Settings, Outages | None]]:
    """Give the settings of a database, and its server where that is ours to restart.

    Servers of a file belong to somebody else and are left alone.
    """
    if options.settings is not None:
        yield json.loads(options.settings.read_text("utf-8"))[name], None
        return
    with outages_of(name, election_ms=ELECTION_MS) as server:
        yield server.settings, server


def names_of(options: argparse.Namespace) -> tuple[str, ...]:
    """Return which databases are asked for."""
    if options.settings is not None:
        return tuple(json.loads(options.settings.read_text("utf-8")))
    return DATABASES if options.only is None else (options.only,)


def table_of(results: Mapping[str, Result]) -> Table:
    """Return the table for people: a column for each database."""
    table = Table("", *results, title="Soak")
    for name in OPERATIONS:
        table.add_row(name, *(f"{result.operations[name]:,}" for result in results.values()))
    table.add_row("workers killed", *(str(result.kills) for result in results.values()))
    for kind in sorted({kind for result in results.values() for kind in result.outages}):
        counts = (result.outages.get(kind) for result in results.values())
        table.add_row(f"server: {kind}", *("" if count is None else str(count) for count in counts))
    table.add_row("refused while away", *(f"{result.refused:,}" for result in results.values()))
    table.add_row("of these unknown", *(f"{result.unknown:,}" for result in results.values()))
    table.add_row("healed within (s)", *(f"{result.healed:.1f}" for result in results.values()))
    table.add_row("takeovers", *(str(result.takeovers) for result in results.values()))
    table.add_row("violations", *(str(len(result.violations)) for result in results.values()))
    return table


def main(given: Sequence[str] | None = None) -> int:
    """Soak, print and judge."""
    options, results, console = arguments(given), dict[str, Result](), Console()
    # Each attempt to reach a server that is away; what calls are told stands in the journal.
    logging.getLogger("psycopg.pool").setLevel(logging.ERROR)
    with TemporaryDirectory() as temporary:
        folder: Path = options.journals or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        # One after the other: each has the machine for itself.
        for name in names_of(options):
            with database(name, options) as (settings, server):
                plan = Plan(
                    settings=settings,
                    journal=folder / f"{name}.journal",
                    seed=options.seed,
                    seconds=options.minutes * 60,
                    start=time.monotonic_ns(),
                )
                results[name] = soak(plan, server)
    console.print(table_of(results))
    console.print(f"seed {options.seed}, {options.minutes:g} minutes for each database")
    for name, result in results.items():
        for wrong in result.violations[:SHOWN]:
            console.print(f"{name}: {wrong}", markup=False, soft_wrap=True)
    if options.journals is not None:
        told = {name: asdict(result) for name, result in results.items()}
        (options.journals / "results.json").write_text(json.dumps(told, indent=1), "utf-8")
    return int(any(result.violations for result in results.values()))


if __name__ == "__main__":
    sys.exit(main())
