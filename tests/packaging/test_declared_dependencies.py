"""Every import is declared in pyproject.toml, in the extra that needs it."""

from __future__ import annotations

import ast
import sys
import tomllib
from functools import cache
from importlib.metadata import packages_distributions
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT: Final = Path(__file__).parents[2]
TEXT: Final = (ROOT / "pyproject.toml").read_text()
PYPROJECT: Final = tomllib.loads(TEXT)
PROJECT: Final = PYPROJECT["project"]
SHIPPED: Final = PYPROJECT["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]
OWN: Final = frozenset({"scheduler_service", *(Path(folder).name for folder in SHIPPED)})
EXTRAS: Final[dict[str, list[str]]] = PROJECT["optional-dependencies"]
# Imports allowed besides the base dependencies: the extras with which a part is used. The longest path wins.
PARTS: Final[dict[str, tuple[str, ...]]] = {
    "core/twinstore": (),
    "core/twinstore/fastapi.py": ("service",),
    "core/twinstore/observing/otel.py": ("otel",),
    "core/twinstore/observing/prometheus.py": ("metrics",),
    "core/twinstore/testing": ("testing",),
    "backends/filesystem": (),
    "backends/memory": (),
    "backends/mongo": ("mongo",),
    "backends/postgres": ("postgres",),
    "tools/backfill": ("backfill",),
    "tools/backfill/twinstore_backfill/engines/dask.py": ("backfill", "dask"),
    "tools/backfill/twinstore_backfill/engines/testing.py": ("backfill", "testing"),
    "tools/backfill/twinstore_backfill/progress/prometheus.py": ("backfill", "metrics"),
    "tools/backfill/twinstore_backfill/serve": ("serve",),
    "tools/embedded": ("embedded",),
    "samples/service": ("postgres", "service"),
}
# Shipped in addition to the packages, for the demo.
FOLDERS: Final = (
    "core",
    "backends",
    "tools/backfill",
    "tools/embedded",
    "samples/service/scheduler_service",
)
FILES: Final = sorted(path for folder in FOLDERS for path in (ROOT / folder).rglob("*.py"))


def imported(path: Path) -> Iterator[str]:
    """Yield the top-level names that a file imports, wherever in it."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (name.name.partition(".")[0] for name in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module is not None:
            yield node.module.partition(".")[0]


def declared(*extras: str) -> frozenset[str]:
    """Return the distributions that an installation with these extras contains."""
    requirements = [*PROJECT["dependencies"], *(item for extra in extras for item in EXTRAS[extra])]
    found: set[str] = set()
    for item in map(Requirement, requirements):
        if item.name == PROJECT["name"]:
            found |= declared(*item.extras)
        else:
            found.add(canonicalize_name(item.name))
    return frozenset(found)


@cache
def distributions() -> dict[str, list[str]]:
    return {
        name: [canonicalize_name(item) for item in items] for name, items in packages_distributions().items()
    }


def part_of(path: str) -> str:
    return max((part for part in PARTS if path.startswith(part)), key=len)


@pytest.mark.parametrize("part", PARTS)
def test_every_import_of_a_part_is_declared_for_it(part: str) -> None:
    allowed = declared(*PARTS[part])
    missing = {
        f"{path.relative_to(ROOT)} imports {name}"
        for path in FILES
        if part_of(str(path.relative_to(ROOT))) == part
        for name in imported(path)
        if name not in sys.stdlib_module_names | OWN
        and not allowed & {*distributions().get(name, ["no distribution"])}
    }
    assert missing == set()


# Those of which more than names and types is used: attributes of their objects, or how their texts look.
LOOKED_INTO: Final = (
    "croniter",
    "orjson",
    "pluggy",
    "psycopg",
    "psycopg-pool",
    "pydantic",
    "pydantic-core",
    "pymongo",
    "python-dotenv",
    "pyyaml",
)


def test_what_is_inspected_has_an_upper_bound_with_its_reason_next_to_it() -> None:
    wanted = [*PROJECT["dependencies"], *EXTRAS["mongo"], *EXTRAS["postgres"]]
    bounded = {
        canonicalize_name(item.name): item
        for item in map(Requirement, wanted)
        if any(bound.operator == "<" for bound in item.specifier)
    }
    assert sorted(bounded) == sorted(LOOKED_INTO)
    for line in TEXT.splitlines():
        if any(f'"{item}"' in line for item in wanted if ",<" in item):
            assert " # " in line, line
