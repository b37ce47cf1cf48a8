"""Refuse private names of other libraries: ``python -m tests.private_names``, a part of ``make check``.

A library may rename what its documentation does not have. Then a driver stops, or silently loses a mechanism.
So all code that is shipped or copied keeps to documented names. Exceptions and what counts as documented are
in :mod:`tests.documented_names`. The tests are not read: they may plant faults into a client.
"""

from __future__ import annotations

import ast
import sys
from collections import defaultdict
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Final

from typing_extensions import override

from tests.documented_names import (
    ALLOWED,
    BASES,
    DOCUMENTED,
    is_foreign,
    is_module,
    is_replaced,
    private_names_of,
    private_names_of_clients,
    undocumented_module,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

ROOT: Final = Path(__file__).parent.parent
FOLDERS: Final = ("core", "backends", "tools", "samples", "benchmarks", "docs")
BY_TEXT: Final = frozenset({"attrgetter", "delattr", "getattr", "hasattr", "setattr", "__setattr__"})
FRAMES: Final = frozenset({"_getframe", "f_globals", "f_locals"})
Defining = (ast.FunctionDef, ast.AsyncFunctionDef)


@cache
def imports_of(tree: ast.Module) -> dict[str, str]:
    """Return the full names of what a file imports, by the names that it uses."""
    found: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for item in node.names:
                top = item.name.partition(".")[0]
                found |= {item.asname: item.name} if item.asname else {top: top}
        elif isinstance(node, ast.ImportFrom) and node.module is not None and not node.level:
            found |= {item.asname or item.name: f"{node.module}.{item.name}" for item in node.names}
    return found


def full_name(node: ast.expr, imports: Mapping[str, str]) -> str:
    """Return the full name of what an expression names by way of an import, or nothing."""
    if isinstance(node, ast.Subscript):  # of a generic class
        return full_name(node.value, imports)
    if isinstance(node, ast.Attribute):
        owner = full_name(node.value, imports)
        return owner and f"{owner}.{node.attr}"
    return imports.get(node.id, "") if isinstance(node, ast.Name) else ""


class Ours:
    """Which private names we define, and which of our classes derive from a class of another library."""

    def __init__(self, trees: Mapping[str, ast.Module]) -> None:
        self._bases: defaultdict[str, set[str]] = defaultdict(set)
        for tree in trees.values():
            for node in ast.walk(tree):
                if isinstance(node, ast.ClassDef):
                    found = (full_name(base, imports_of(tree)) or ast.unparse(base) for base in node.bases)
                    self._bases[node.name].update(found)
        self.names = {name for tree in trees.values() for name in self._defined(tree, frozenset())}

    def foreign_bases(self, name: str, seen: frozenset[str] = frozenset()) -> frozenset[str]:
        """Return the classes of other libraries from which a class of ours derives, by way of ours too."""
        bases = self._bases[name] - seen
        foreign = frozenset(base for base in bases if "." in base and is_foreign(base))
        further = (self.foreign_bases(base.rpartition(".")[2], seen | bases) for base in bases - foreign)
        return foreign.union(*further)

    def _defined(self, node: ast.AST, theirs: frozenset[str]) -> Iterator[str]:
        """Yield the names that are defined inside a node, without those of the bases of its class."""
        for child in ast.iter_child_nodes(node):
            inner = theirs
            if isinstance(child, ast.ClassDef):
                if {"typing.Protocol", "typing_extensions.Protocol"} & self._bases[child.name]:
                    continue  # which describes what others define
                inner = frozenset().union(*map(private_names_of, self.foreign_bases(child.name)))
            elif isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef)):
                yield from {child.name} - theirs
            elif isinstance(child, ast.Name) and isinstance(child.ctx, ast.Store):
                yield from {child.id} - theirs
            elif isinstance(child, ast.Attribute) and isinstance(child.ctx, ast.Store):
                yield from {child.attr} - theirs if ast.unparse(child.value) in {"self", "cls"} else ()
            yield from self._defined(child, inner)


class Reader(ast.NodeVisitor):
    """Finds the uses of private names in one file."""

    def __init__(self, tree: ast.Module, ours: Ours) -> None:
        self.found: dict[tuple[int, str], None] = {}
        self._ours = ours
        self._imports = imports_of(tree)
        self._bases: frozenset[str] = frozenset()  # of the class around the node, in other libraries
        self._kinds: dict[str, str] = {}  # the classes of variables and arguments
        for node in ast.walk(tree):
            if isinstance(node, ast.arg) and node.annotation is not None:
                self._kinds[node.arg] = full_name(node.annotation, self._imports)
            elif isinstance(node, ast.Assign) and isinstance(node.value, ast.Call):
                for target in node.targets:
                    self._kinds[ast.unparse(target)] = full_name(node.value.func, self._imports)
        self.visit(tree)

    def _refuse(self, node: ast.expr | ast.stmt, use: str | None = None) -> None:
        self.found[node.lineno, use or ast.unparse(node)] = None

    def _check_module(self, node: ast.expr | ast.stmt, name: str) -> None:
        if is_foreign(name) and (module := undocumented_module(name)):
            self._refuse(node, module)

    def _is_private(self, name: str) -> bool:
        """Whether a name belongs to another library, by itself or in the class around it."""
        if not name.startswith("_") or name in DOCUMENTED:
            return name in FRAMES
        return name not in self._ours.names or any(name in private_names_of(base) for base in self._bases)

    def _is_private_of(self, owner: ast.expr, name: str) -> bool:
        """Whether an attribute belongs to another library."""
        text = ast.unparse(owner)
        kind = full_name(owner, self._imports) or self._kinds.get(text)
        if kind and name not in FRAMES:
            return is_foreign(kind) and name not in DOCUMENTED
        is_other = text not in {"self", "cls", "super()"} and not kind
        return self._is_private(name) or (is_other and name in private_names_of_clients())

    def _is_private_text(self, node: ast.expr) -> bool:
        """Whether a text names something private, also inside a path with dots."""
        return isinstance(node, ast.Constant) and any(map(self._is_private, str(node.value).split(".")))

    @override
    def visit_Import(self, node: ast.Import) -> None:
        for item in node.names:
            self._check_module(node, item.name)

    @override
    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        for item in node.names if node.module and not node.level and is_foreign(node.module) else ():
            name = f"{node.module}.{item.name}"
            self._check_module(node, name)
            if item.name.startswith("_") and not is_module(name):
                self._refuse(node, name)

    @override
    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        around, self._bases = self._bases, self._ours.foreign_bases(node.name)
        for base in (full_name(base, self._imports) for base in node.bases):
            if is_foreign(base) and base not in BASES:
                self._refuse(node, f"class {node.name}({base})")
        for child in node.body:
            if isinstance(child, Defining) and (
                self._is_private(child.name) or is_replaced(child.name, self._bases)
            ):
                self._refuse(child, f"{node.name}.{child.name}")
        self.generic_visit(node)
        self._bases = around

    @override
    def visit_Attribute(self, node: ast.Attribute) -> None:
        self._check_module(node, full_name(node, self._imports))
        is_class_set = node.attr == "__class__" and not isinstance(node.ctx, ast.Load)
        is_worth_it = node.attr.startswith("_") or node.attr in FRAMES
        if is_class_set or (is_worth_it and self._is_private_of(node.value, node.attr)):
            self._refuse(node)
        self.generic_visit(node)

    @override
    def visit_Subscript(self, node: ast.Subscript) -> None:
        owner = ast.unparse(node.value)
        if owner.endswith(".__dict__") or (owner.startswith("vars(") and not owner.startswith("vars(self")):
            is_patch = isinstance(node.slice, ast.Constant) and not isinstance(node.ctx, ast.Load)
            if is_patch or self._is_private_text(node.slice):
                self._refuse(node)
        self.generic_visit(node)

    @override
    def visit_Call(self, node: ast.Call) -> None:
        name = ast.unparse(node.func).rpartition(".")[2]
        first = str(node.args[0].value) if node.args and isinstance(node.args[0], ast.Constant) else ""
        if name in BY_TEXT and any(map(self._is_private_text, node.args)):
            self._refuse(node)
        elif name == "getLogger" and is_foreign(first) and is_module(first.partition(".")[0]):
            self._refuse(node)
        elif name == "import_module":
            self._check_module(node, first)
        for keyword in node.keywords:
            if self._is_private(keyword.arg or ""):
                self._refuse(node, f"{keyword.arg}=")
        self.generic_visit(node)


def uses(trees: Mapping[str, ast.Module]) -> Iterator[tuple[str, int, str]]:
    """Yield path, line and text of each use of a private name in files that are given by path."""
    ours = Ours(trees)
    for path, tree in trees.items():
        yield from ((path, line, use) for line, use in Reader(tree, ours).found)


def main() -> int:
    """Print refused uses, and exceptions that nothing needs; return the exit code."""
    files = [*ROOT.glob("*.py"), *(path for folder in FOLDERS for path in (ROOT / folder).rglob("*.py"))]
    found = list(uses({str(path.relative_to(ROOT)): ast.parse(path.read_text("utf-8")) for path in files}))
    refused = [f"{path}:{line}: {use}" for path, line, use in found if (path, use) not in ALLOWED]
    unused = ALLOWED.keys() - {(path, use) for path, _, use in found}
    refused += [f"{path}: nothing needs the exception {use}" for path, use in unused]
    print(*sorted(refused), sep="\n", end="\n" if refused else "")  # noqa: T201  # what the program is for
    return 1 if refused else 0


if __name__ == "__main__":
    sys.exit(main())
