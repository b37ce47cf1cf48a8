"""A driver stores what is described: outside ``special/`` it names no entity, no field and no module."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import TYPE_CHECKING, Final

from twinstore.plugins.modules import built_modules, module_plugins, module_spec

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT: Final = Path(__file__).parent.parent.parent
FOLDERS: Final = (ROOT / "backends", ROOT / "samples" / "own_driver" / "twinstore_sqlite")
# Its files are laid out by a customer: one table says where each entity stands, and the plug-in which module.
LAID_OUT: Final = {
    ROOT / "backends/filesystem/twinstore_filesystem" / name for name in ("layout.py", "plugin.py")
}
FILES: Final = sorted(
    path.relative_to(ROOT)
    for folder in FOLDERS
    for path in folder.rglob("*.py")
    if "special" not in path.parts and path not in LAID_OUT
)
SPECIAL: Final = sorted(
    path.relative_to(ROOT) for path in (ROOT / "backends").rglob("*.py") if "special" in path.parts
)
LONGEST_SPECIAL: Final = 200
# Names that mean the same outside every entity: those of any lease, or what a server has, too (MongoDB tells
# its processId, any statement may lock, and a store has sessions).
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
    """Yield the string literals of a file with their lines, docstrings left out."""
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
    assert len(FILES) > 20
    assert {"scheduler", "runs", "impact_snapshots", "tenantId", "deletedAt", "selectorDigest"} <= NAMES


def test_a_driver_imports_no_module_package_and_holds_no_name_of_one_of_an_entity_or_a_field() -> None:
    packages = tuple(f"twinstore.{name}" for name in module_plugins())
    for path in FILES:
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
