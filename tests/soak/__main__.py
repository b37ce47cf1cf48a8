"""Soaks each database and prints a table; exit code 1 where anything was violated."""

from __future__ import annotations

import argparse
import json
import sys
import time
from contextlib import ExitStack, contextmanager
from dataclasses import asdict
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Final

from rich.console import Console
from rich.table import Table

import twinstore_embedded
from tests.servers import mongo_config, postgres_config
from tests.soak.plan import Plan
from tests.soak.program import OPERATIONS, Result, soak
from tests.stores import kept

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

DATABASES: Final = ("mongo", "postgres")
DEFAULT_MINUTES: Final = 1.25
SHOWN: Final = 20


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
def databases(options: argparse.Namespace, folder: Path) -> Iterator[dict[str, dict[str, Any]]]:
    """Give the settings of each database: those of a file, or of servers that run as long as this does."""
    if options.settings is not None:
        yield json.loads(options.settings.read_text("utf-8"))
        return
    wanted = DATABASES if options.only is None else (options.only,)
    found: dict[str, dict[str, Any]] = {}
    with ExitStack() as stack:
        if "mongo" in wanted:
            mongo = twinstore_embedded.start_mongo(folder / "data", owned=True)
            stack.callback(mongo.stop)
            found["mongo"] = kept(mongo_config(mongo.url, "soak"))
        if "postgres" in wanted:
            postgres = twinstore_embedded.start_postgres(folder / "data", owned=True)
            stack.callback(postgres.stop)
            found["postgres"] = kept(postgres_config(postgres.app_url(), postgres.owner_url()))
        yield found


def table_of(results: Mapping[str, Result]) -> Table:
    """Return the table for people: a column for each database."""
    table = Table("", *results, title="Soak")
    for name in OPERATIONS:
        table.add_row(name, *(f"{result.operations[name]:,}" for result in results.values()))
    table.add_row("workers killed", *(str(result.kills) for result in results.values()))
    table.add_row("takeovers", *(str(result.takeovers) for result in results.values()))
    table.add_row("violations", *(str(len(result.violations)) for result in results.values()))
    return table


def main(given: Sequence[str] | None = None) -> int:
    """Soak, print and judge."""
    options, results, console = arguments(given), dict[str, Result](), Console()
    with TemporaryDirectory() as name, databases(options, Path(name)) as found:
        folder: Path = options.journals or Path(name)
        folder.mkdir(parents=True, exist_ok=True)
        for database, settings in found.items():
            plan = Plan(
                settings=settings,
                journal=folder / f"{database}.journal",
                seed=options.seed,
                seconds=options.minutes * 60,
                start=time.monotonic_ns(),
            )
            results[database] = soak(plan)
    console.print(table_of(results))
    console.print(f"seed {options.seed}, {options.minutes:g} minutes for each database")
    for database, result in results.items():
        for wrong in result.violations[:SHOWN]:
            console.print(f"{database}: {wrong}", markup=False, soft_wrap=True)
    if options.journals is not None:
        told = {database: asdict(result) for database, result in results.items()}
        (options.journals / "results.json").write_text(json.dumps(told, indent=1), "utf-8")
    return int(any(result.violations for result in results.values()))


if __name__ == "__main__":
    sys.exit(main())
