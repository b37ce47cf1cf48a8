"""Whether imports lead one way only: no circle of files or packages, and no package that imports a later one.

Counted are all imports, those for annotations and those inside functions too. Run by ``make check``.
"""

from __future__ import annotations

import ast
import sys
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

ROOT: Final = Path(__file__).parents[2]
# Packages and files of each distribution from the lowest one; those of one line do not import each other.
LAYERS: Final[Mapping[str, tuple[str, ...]]] = {
    "core/twinstore": (
        "errors",
        "runtime",
        "driver module",
        "models",
        "clock catalog observing",
        "access migrations",
        "bulk",
        "fast plugins",
        "config documents ledger",
        "storage",
        "aio fastapi migration",
        "scheduler tracking taskrunner",
        "codegen",
        "testing",
    ),
    "backends/mongo/twinstore_mongo": (
        "settings",
        "client",
        "mapping",
        "access",
        "special",
        "schema",
        "bulk",
        "backend",
        "plugin testing",
    ),
    "backends/postgres/twinstore_postgres": (
        "settings",
        "mapping",
        "connection",
        "access",
        "special",
        "schema",
        "bulk",
        "backend",
        "plugin",
    ),
    "backends/memory/twinstore_memory": (),
    "backends/filesystem/twinstore_filesystem": (),
    "tools/backfill/twinstore_backfill": (),
    "tools/embedded/twinstore_embedded": (),
}


def imports_of(folder: Path) -> dict[str, set[str]]:
    """Return by dotted name which modules of a package each of its modules imports."""
    files = {_dotted(path, folder): path for path in folder.rglob("*.py")}
    return {name: set(_imported(path, files.keys())) - {name} for name, path in files.items()}


def _dotted(path: Path, folder: Path) -> str:
    parts = path.relative_to(folder.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def _imported(path: Path, known: Iterable[str]) -> Iterator[str]:
    modules = frozenset(known)
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module is not None:
            below = {f"{node.module}.{alias.name}" for alias in node.names} & modules
            # A package that hands on names imports its parts; who names a part does not import the package.
            yield from below or ({node.module} & modules)
        elif isinstance(node, ast.Import):
            yield from {alias.name for alias in node.names} & modules


def circle_in(graph: Mapping[str, Iterable[str]]) -> list[str]:
    """Return a circle of a graph, the first name repeated at its end; nothing where there is none."""
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return list(reversed(error.args[1]))
    return []


def packages(graph: Mapping[str, Iterable[str]]) -> dict[str, set[str]]:
    """Return the graph of the packages, and of the files next to them."""
    found: dict[str, set[str]] = {}
    for name, targets in graph.items():
        if (own := _part(name)) is not None:
            found.setdefault(own, set()).update(_part(target) or own for target in targets)
            found[own].discard(own)
    return found


def _part(name: str) -> str | None:
    _, _, below = name.partition(".")
    return below.partition(".")[0] or None


def upward(graph: Mapping[str, Iterable[str]], layers: Iterable[str]) -> Iterator[str]:
    """Yield the arrows of packages that lead to a later layer, or to another package of the same one."""
    rank = {part: number for number, line in enumerate(layers) for part in line.split()}
    for own, targets in graph.items():
        for target in targets:
            if own not in rank or target not in rank:
                yield f"{own if own not in rank else target} stands in no layer"
            elif rank[target] >= rank[own]:
                yield f"{own} imports {target}, which is not below it"


def problems() -> Iterator[str]:
    """Yield what is wrong in the shipped packages."""
    for folder, layers in LAYERS.items():
        files = imports_of(ROOT / folder)
        parts = packages(files)
        for graph in (files, parts):
            if found := circle_in(graph):
                yield f"{folder}: a circle: {' -> '.join(found)}"
        if layers:
            yield from (f"{folder}: {line}" for line in sorted(set(upward(parts, layers))))


def main() -> int:
    """Print the problems; return whether there are any."""
    found = list(problems())
    sys.stdout.writelines(f"{line}\n" for line in found)
    return int(bool(found))


if __name__ == "__main__":
    sys.exit(main())
