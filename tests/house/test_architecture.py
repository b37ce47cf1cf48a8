"""Core, drivers and tools name no module; a driver names no entity and no field outside ``special/``.

And the checks of packages and layers find what they are for.
"""

from __future__ import annotations

import ast
import re
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

from tests.support.layers import circle_in, imports_of, packages, upward
from twinstore.plugins.modules import built_modules, module_plugins, module_spec

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parent.parent.parent
PACKAGES = sorted(
    file.parent.relative_to(ROOT)
    for pattern in ("core/*/__init__.py", "backends/*/*/__init__.py", "tools/*/*/__init__.py")
    for file in ROOT.glob(pattern)
)
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
TOOL = PROJECT["tool"]


def test_every_room_is_found() -> None:
    assert {path.parts[0] for path in PACKAGES} == {"core", "backends", "tools"}


@pytest.mark.parametrize("package", PACKAGES, ids=str)
def test_a_package_is_shipped_typed_checked_and_measured(package: Path) -> None:
    wheel = TOOL["hatch"]["build"]["targets"]["wheel"]["packages"]
    folders = [
        TOOL["hatch"]["build"]["dev-mode-dirs"],
        TOOL["mypy"]["mypy_path"],
        TOOL["pyright"]["extraPaths"],
    ]
    names = [
        TOOL["coverage"]["run"]["source_pkgs"],
        TOOL["importlinter"]["root_packages"],
        TOOL["ruff"]["lint"]["isort"]["known-first-party"],
    ]
    assert (ROOT / package / "py.typed").exists()
    assert str(package) in wheel
    assert all(str(package.parent) in listed for listed in folders)
    assert all(package.name in listed for listed in names)


@pytest.mark.parametrize("package", [path for path in PACKAGES if path.parts[0] == "backends"], ids=str)
def test_a_driver_is_an_entry_point_and_bound_by_the_import_contracts(package: Path) -> None:
    entry_points = PROJECT["project"]["entry-points"]["twinstore.backends"]
    assert f"{package.name}.plugin" in entry_points.values()
    for contract in TOOL["importlinter"]["contracts"]:
        lists = [listed for listed in contract.values() if isinstance(listed, list)]
        assert all(package.name in listed for listed in lists if "twinstore_mongo" in listed), contract[
            "name"
        ]


WORDS: Final = re.compile("scheduler|tracking|task_?runner", re.IGNORECASE)
# The packages of the modules, their kits, the statements that a driver has for a module, and the
# demo, which shows one.
PLACES: Final = (
    "core/twinstore/scheduler/",
    "core/twinstore/tracking/",
    "core/twinstore/taskrunner/",
    "core/twinstore/testing/scheduler/",
    "core/twinstore/testing/tracking/",
    "core/twinstore/testing/taskrunner/",
    "tools/backfill/twinstore_backfill/demo/",
)
# A driver that stores one module alone says which.
OF_ONE_MODULE: Final = {
    "backends/filesystem/twinstore_filesystem/plugin.py": ['modules=frozenset({"taskrunner"}),']
}
FILES: Final = sorted(
    path.relative_to(ROOT)
    for room in ("core", "backends", "tools/backfill", "tools/embedded")
    for path in (ROOT / room).rglob("*.py")
    if not path.relative_to(ROOT).as_posix().startswith(PLACES) and "special" not in path.parts
)


def lines_about_a_module(text: str) -> list[str]:
    """Return the lines of a file that name a module; docstrings, comments and help texts count."""
    return [line.strip() for line in text.splitlines() if WORDS.search(line)]


def test_there_are_files_to_look_at_and_lines_that_would_be_found() -> None:
    assert len(FILES) > 200
    assert {path.parts[0] for path in FILES} == {"core", "backends", "tools"}
    bad = ['"""The scheduler."""', "TaskRunnerOptions", "# for task_runner", "open('TRACKING')"]
    assert lines_about_a_module("\n".join(bad)) == bad
    assert all((ROOT / place).is_dir() for place in PLACES)


def test_no_line_names_a_module() -> None:
    found = {path.as_posix(): lines_about_a_module((ROOT / path).read_text("utf-8")) for path in FILES}
    assert {path: lines for path, lines in found.items() if lines} == OF_ONE_MODULE


FOLDERS: Final = (ROOT / "backends", ROOT / "samples" / "own_driver" / "twinstore_sqlite")
# A customer defines the layout of its files: one table maps each entity to its place, the plug-in the module.
LAID_OUT: Final = {
    ROOT / "backends/filesystem/twinstore_filesystem" / name for name in ("layout.py", "plugin.py")
}
DRIVER_FILES: Final = sorted(
    path.relative_to(ROOT)
    for folder in FOLDERS
    for path in folder.rglob("*.py")
    if "special" not in path.parts and path not in LAID_OUT
)
SPECIAL: Final = sorted(
    path.relative_to(ROOT) for path in (ROOT / "backends").rglob("*.py") if "special" in path.parts
)
LONGEST_SPECIAL: Final = 200
# Names with the same meaning outside every entity: those of any lease, and those of a server (MongoDB reports
# its processId, any statement may lock, and a database has sessions).
PLAIN_WORDS: Final = frozenset(
    {
        "acquiredAt",
        "action",
        "enabled",
        "error",
        "expiresAt",
        "fence",
        "id",
        "kind",
        "lock",
        "message",
        "mode",
        "name",
        "payload",
        "processId",
        "reason",
        "sessions",
        "state",
        "tenant",
        "total",
        "trigger",
        "type",
        "uuid",
    }
)


def described_names() -> frozenset[str]:
    """Return the names of modules, entities, their fields, markers and derived fields."""
    names: set[str] = set(module_plugins())
    for module in built_modules():
        for entity in module_spec(module).catalog.entities:
            names |= {entity.name, entity.singular, *entity.known}
            names |= {shape.name for shape in entity.shapes.values()}
    return frozenset(names - PLAIN_WORDS)


NAMES: Final = described_names()
IN_A_STATEMENT: Final = re.compile(
    r"\b(?:{})\"?\.[\w\"{{]|(?:FROM|INTO|UPDATE|JOIN|TABLE)\s+(?:{})\b".format(*["|".join(sorted(NAMES))] * 2)
)


def literals(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Yield the string literals of a file with their lines, without docstrings."""
    prose = {
        id(node.body[0].value)
        for node in ast.walk(tree)
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef))
        and node.body
        and isinstance(node.body[0], ast.Expr)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and id(node) not in prose:
            value = node.value.decode("latin-1") if isinstance(node.value, bytes) else node.value
            if isinstance(value, str):
                yield node.lineno, value


def imports(tree: ast.Module) -> Iterator[str]:
    """Yield the modules that a file imports."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module is not None:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)


def test_there_are_files_and_names_to_look_at() -> None:
    assert len(DRIVER_FILES) > 20
    assert {"scheduler", "runs", "impact_snapshots", "tenantId", "deletedAt", "selectorDigest"} <= NAMES


def test_a_driver_imports_no_module_package_and_holds_no_name_of_one_of_an_entity_or_a_field() -> None:
    packages = tuple(f"twinstore.{name}" for name in module_plugins())
    for path in DRIVER_FILES:
        tree = ast.parse((ROOT / path).read_text(encoding="utf-8"))
        assert [name for name in imports(tree) if name.startswith(packages)] == [], path
        found = [
            (line, text)
            for line, text in literals(tree)
            if text.strip() in NAMES or IN_A_STATEMENT.search(text)
        ]
        assert found == [], path


def test_what_is_special_to_a_module_stays_small() -> None:
    lengths = {path: len((ROOT / path).read_text().splitlines()) for path in SPECIAL}
    assert {path: lines for path, lines in lengths.items() if lines > LONGEST_SPECIAL} == {}


def written(folder: Path, **files: str) -> Path:
    for name, text in files.items():
        path = folder / f"{name.replace('__', '/')}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder


def test_a_circle_is_found_also_by_an_import_for_annotations_and_one_in_a_function(tmp_path: Path) -> None:
    folder = written(
        tmp_path / "house",
        attic="if TYPE_CHECKING:\n    from house.cellar import Stairs\n",
        cellar="def f():\n    from house import attic\n",
        garden="import house.attic\n",
    )
    graph = imports_of(folder)
    assert graph["house.garden"] == {"house.attic"}
    assert circle_in(graph) in (
        ["house.attic", "house.cellar", "house.attic"],
        ["house.cellar", "house.attic", "house.cellar"],
    )


def test_packages_without_a_circle_of_files_may_have_one(tmp_path: Path) -> None:
    folder = written(
        tmp_path / "house",
        upper__bed="from house.lower.oven import Oven\n",
        upper__roof="",
        lower__oven="",
        lower__door="from house.upper import roof\n",
    )
    graph = imports_of(folder)
    assert circle_in(graph) == []
    assert circle_in(packages(graph))
    assert list(upward(packages(graph), ("lower", "upper"))) == ["lower imports upper, which is not below it"]
    assert set(upward(packages(graph), ("lower",))) == {"upper stands in no layer"}


def test_an_arrow_in_one_layer_is_named(tmp_path: Path) -> None:
    graph = packages(imports_of(written(tmp_path / "house", left="from house.right import x\n", right="")))
    assert list(upward(graph, ("left right",))) == ["left imports right, which is not below it"]
