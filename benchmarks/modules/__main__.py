"""``python -m benchmarks.modules``: load tracking and the task runner, copy, verify, and print a table."""

from __future__ import annotations

import sys
from argparse import ArgumentParser
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from benchmarks.modules.data import start
from benchmarks.modules.load import Load, counted, fill
from benchmarks.modules.stores import Stores, Timed, open_stores
from twinstore.plugins.modules import module_plugin, module_spec
from twinstore.storage.open import open_module

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Iterator, Sequence

    from twinstore.catalog.entity import Entity

__all__ = ["main"]

MONGO, POSTGRES, FILESYSTEM = "Mongo", "Postgres", "Filesystem"
LOADS: Final = (MONGO, FILESYSTEM)
LOADED: Final = "modules"
FILES: Final = "modules_files"
HEAD: Final = ("entity", "rows", "copy", "verify", "copy, of the raw scan", "verify, of the raw scan", "MB")


@dataclass(frozen=True, slots=True, kw_only=True)
class Way:
    """One direction that was measured.

    Attributes:
        title: what the table is called.
        lines: its lines.
    """

    title: str
    lines: list[tuple[str, ...]] = field(default_factory=list[tuple[str, ...]])


def main(arguments: Sequence[str] | None = None) -> None:
    """Load what is not loaded yet, measure every way, and print the tables."""
    parser = ArgumentParser(prog="python -m benchmarks.modules", description=__doc__)
    parser.add_argument("--count", type=int, default=100_000, help="pack runs, and sessions (%(default)s)")
    parser.add_argument("--files", type=int, default=10_000, help="pack runs as files (%(default)s)")
    parser.add_argument("--directory", type=Path, default=Path(".bench/modules"), help="(%(default)s)")
    parser.add_argument("--keep", action="store_true", help="measure what an earlier run has loaded")
    parser.add_argument("--load", nargs="+", choices=LOADS, default=LOADS, help="what to load (all)")
    parser.add_argument("--load-only", action="store_true", help="end when it is loaded")
    options = parser.parse_args(arguments)
    with open_stores(options.directory, LOADED) as stores:
        files = replace(stores, database=FILES)
        if not options.keep:
            loaded(stores, files, options)
        for way in () if options.load_only else measured(stores, files):
            show(way)


def loaded(stores: Stores, files: Stores, options: Namespace) -> None:
    """Fill MongoDB with both modules, and the directory with the task runner, through their services."""
    first = start()
    if MONGO in options.load:
        stores.empty()
        for module in ("taskrunner", "tracking"):
            settings = stores.settings(section_of(module), MONGO)
            load = Load(module=module, settings=settings, count=options.count, first=first, units=True)
            _load(stores, MONGO, load)
    if FILESYSTEM in options.load:
        files.empty()
        settings = files.settings("TaskRunner", FILESYSTEM)
        load = Load(module="taskrunner", settings=settings, count=options.files, first=first, units=False)
        _load(files, FILESYSTEM, load)


def _load(stores: Stores, driver: str, load: Load) -> None:
    module = load.module
    stores.migrate(module, section_of(module), driver)
    seconds = fill(load)
    with open_module(module, config=load.settings) as storage:
        rows = counted(storage)
    total = sum(rows.values())
    counts_text = ", ".join(f"{number:,} {name}" for name, number in rows.items())
    rate = f"{seconds:.0f} s, {total / seconds:,.0f} rows/s"
    log(f"{module} on {driver}: {counts_text} through the services in {rate}")


def measured(stores: Stores, files: Stores) -> Iterator[Way]:
    """Yield every way, measured."""
    back = replace(stores, returning=True)
    for module in ("taskrunner", "tracking"):
        yield _way(stores, module, MONGO, POSTGRES)
        stores.vacuum()
        yield _way(back, module, POSTGRES, MONGO)
    for target in (POSTGRES, MONGO):
        yield _way(files, "taskrunner", FILESYSTEM, target)


def _way(stores: Stores, module: str, source: str, target: str) -> Way:
    section = section_of(module)
    stores.migrate(module, section, target)
    way = Way(title=f"{section}, {source} to {target}")
    for entity in module_spec(module).catalog.entities:
        copied = stores.run("copy", entity, section, source, target)
        proved = stores.run("verify", entity, section, source, target)
        if copied.rows != proved.rows:
            raise RuntimeError(f"{entity.name}: {copied.rows} copied, {proved.rows} proved")
        raw = raw_rate(stores, entity, source)
        way.lines.append(line_of(entity, copied, proved, raw))
        log(f"{way.title}: {entity.name} {copied.rate:,.0f} and {proved.rate:,.0f} rows/s")
    return way


def raw_rate(stores: Stores, entity: Entity, source: str) -> float | None:
    """Return the rate of reading the source without decoding it, where a server is the source."""
    if source == FILESYSTEM:
        return None
    return stores.raw_mongo(entity) if source == MONGO else stores.raw_postgres(entity)


def line_of(entity: Entity, copied: Timed, proved: Timed, raw: float | None) -> tuple[str, ...]:
    """Return a line of the table."""
    shares = ["", ""] if raw is None else [f"{item.rate / raw:.3f}" for item in (copied, proved)]
    peak = max(copied.peak_bytes or 0, proved.peak_bytes or 0) / 1e6
    return (
        entity.name,
        f"{copied.rows:,}",
        f"{copied.rate:,.0f}",
        f"{proved.rate:,.0f}",
        *shares,
        f"{peak:.0f}",
    )


def show(way: Way) -> None:
    """Print a table in Markdown."""
    lines: list[Sequence[Any]] = [HEAD, ["---"] * len(HEAD), *way.lines]
    sys.stdout.write(f"**{way.title}**: rows per second\n\n")
    sys.stdout.writelines(f"| {' | '.join(line)} |\n" for line in lines)
    sys.stdout.write("\n")
    sys.stdout.flush()


def section_of(module: str) -> str:
    """Return how the settings spell a module."""
    return module_plugin(module).settings.section


def log(text: str) -> None:
    """Report the progress."""
    sys.stderr.write(f"{text}\n")
    sys.stderr.flush()


if __name__ == "__main__":
    main()
