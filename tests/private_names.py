"""Refuse private names of other libraries: ``python -m tests.private_names``, a part of ``make check``.

The next release of a library may rename what its documentation does not have. Then a driver stops, or loses a
mechanism in silence. So everything that is shipped or copied keeps to documented names; the exceptions and what
counts as documented are in :mod:`tests.documented_names`. Tests may plant faults into a client: they are not read.
"""

from __future__ import annotations

import ast
import inspect
import re
import sys
from collections import defaultdict
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from pydoc import locate
from typing import TYPE_CHECKING, Final

from typing_extensions import override

from tests.documented_names import ALLOWED, BASES, CLIENTS, DOCUMENTED, EXTENDED, MODULES, OWN

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

ROOT: Final = Path(__file__).parent.parent
FOLDERS: Final = ("core", "backends", "tools", "samples", "benchmarks", "docs")
BY_NAME: Final = frozenset({"attrgetter", "delattr", "getattr", "hasattr", "setattr", "__setattr__"})
FRAMES: Final = frozenset({"_getframe", "f_globals", "f_locals"})


def is_foreign(name: str) -> bool:
    """Whether a full name belongs to another distribution; the standard library is none."""
    return name.split(".")[0] not in sys.stdlib_module_names | OWN


def is_module(name: str) -> bool:
    """Whether a full name is that of a module."""
    try:
        return find_spec(name) is not None
    except (ImportError, AttributeError, ValueError):  # what stands before the last dot is no package
        return False


@cache
def undocumented_module(name: str) -> str | None:
    """Return the first module in a full name that the documentation of its library does not have."""
    top, *parts = name.split(".")
    documented = MODULES.get(top)
    for end, part in enumerate(parts, 1):
        inner = ".".join(parts[:end])
        is_documented = not part.startswith("_") if documented is None else inner in documented
        if not is_documented and is_module(f"{top}.{inner}"):
            return f"{top}.{inner}"
    return None


@cache
def private_names_of(base: str) -> frozenset[str]:
    """Return the private names of a class of another library, by the sources of its modules."""
    found = locate(base)
    modules = {kind.__module__ for kind in inspect.getmro(found)} if isinstance(found, type) else set[str]()
    sources = (inspect.getsource(sys.modules[name]) for name in modules if is_foreign(name))
    return frozenset(name for source in sources for name in re.findall(r"(?:self\.|cls\.|def )(_\w+)", source))


class Names:
    """Which private names are ours, and which classes of ours derive from one of another library."""

    def __init__(self, trees: Mapping[str, ast.Module]) -> None:
        """Read all files."""
        self._bases: defaultdict[str, set[str]] = defaultdict(set)
        for tree in trees.values():
            imports = imports_of(tree)
            for node in ast.walk(tree):
                if isinstance(node, ast.ClassDef):
                    self._bases[node.name] |= {full_name(base, imports) or ast.unparse(base) for base in node.bases}
        self.own = {name for tree in trees.values() for name in self._defined(tree, set())}

    def foreign_bases(self, name: str, seen: frozenset[str] = frozenset()) -> set[str]:
        """Return the classes of other libraries from which a class of ours derives."""
        bases = self._bases[name] - seen
        direct = {base for base in bases if "." in base and is_foreign(base)}
        further = (self.foreign_bases(base.rpartition(".")[2], seen | bases) for base in bases - direct)
        return direct.union(*further)

    def _defined(self, node: ast.AST, theirs: set[str]) -> Iterator[str]:
        """Yield the names that are defined in a node, except ``theirs``: those of the class around it."""
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.ClassDef):
                bases = self.foreign_bases(child.name)
                if "typing.Protocol" not in self._bases[child.name]:  # that describes what others define
                    yield from self._defined(child, set().union(*map(private_names_of, bases)))
                continue
            yield from {name for name in defined_by(child) if name not in theirs}
            yield from self._defined(child, theirs)


def defined_by(node: ast.AST) -> Iterator[str]:
    """Yield the names that a node defines by itself."""
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
        yield node.name
    elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
        yield node.id
    elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store) and is_own_object(node.value):
        yield node.attr


def is_own_object(node: ast.expr) -> bool:
    """Whether an expression is ``self`` or ``cls``."""
    return isinstance(node, ast.Name) and node.id in {"self", "cls"}


def imports_of(tree: ast.Module) -> dict[str, str]:
    """Return the full names of what a file imports, by the names that it uses."""
    found: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {item.asname: item.name for item in node.names if item.asname}
            found |= {name: name for item in node.names if not item.asname for name in item.name.split(".")[:1]}
        elif isinstance(node, ast.ImportFrom) and node.module is not None and not node.level:
            found |= {item.asname or item.name: f"{node.module}.{item.name}" for item in node.names}
    return found


def full_name(node: ast.expr, imports: Mapping[str, str]) -> str | None:
    """Return the full name of what an expression names by way of an import."""
    if isinstance(node, ast.Subscript):  # of a generic class
        return full_name(node.value, imports)
    if isinstance(node, ast.Attribute):
        owner = full_name(node.value, imports)
        return f"{owner}.{node.attr}" if owner else None
    return imports.get(node.id) if isinstance(node, ast.Name) else None


class Reader(ast.NodeVisitor):
    """Finds the private names that one file uses."""

    def __init__(self, tree: ast.Module, names: Names) -> None:
        """Read what the file imports, and of which classes its variables are."""
        self.found: list[tuple[int, str]] = []
        self._names = names
        self._imports = imports_of(tree)
        self._bases: set[str] = set()  # of the class around the node, as far as they belong to other libraries
        self._kinds: dict[str, str | None] = {}
        for node in ast.walk(tree):
            if isinstance(node, ast.arg) and node.annotation is not None:
                self._kinds[node.arg] = full_name(node.annotation, self._imports)
            elif isinstance(node, ast.Assign) and isinstance(node.value, ast.Call):
                kind = full_name(node.value.func, self._imports)
                self._kinds |= {target.id: kind for target in node.targets if isinstance(target, ast.Name)}
        self.visit(tree)

    def _refuse(self, node: ast.expr | ast.stmt, use: str) -> None:
        self.found.append((node.lineno, use))

    def _is_private(self, name: str, owner: ast.expr | None) -> bool:
        """Whether a name is private to another library, as an attribute of ``owner``."""
        if not name.startswith("_") or name in DOCUMENTED:
            return False
        kind = owner and (full_name(owner, self._imports) or self._kinds.get(ast.unparse(owner)))
        if kind:
            return is_foreign(kind)
        return name not in self._names.own or any(name in private_names_of(base) for base in self._bases)

    def _check_module(self, node: ast.expr | ast.stmt, name: str) -> None:
        module = undocumented_module(name) if is_foreign(name) else None
        if module is not None:
            self._refuse(node, module)

    @override
    def visit_Import(self, node: ast.Import) -> None:
        for item in node.names:
            self._check_module(node, item.name)

    @override
    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        for item in node.names if node.module is not None and not node.level else ():
            self._check_module(node, f"{node.module}.{item.name}")
            if item.name.startswith("_") and is_foreign(node.module or ""):
                self._refuse(node, f"{node.module}.{item.name}")

    @override
    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        around, self._bases = self._bases, self._names.foreign_bases(node.name)
        for base in {full_name(base, self._imports) or "" for base in node.bases} - BASES:
            if base and is_foreign(base):
                self._refuse(node, f"class {node.name}({base})")
        for child in node.body:
            if isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef)):
                self._check_method(node, child.name, child)
        self.generic_visit(node)
        self._bases = around

    def _check_method(self, owner: ast.ClassDef, name: str, node: ast.stmt) -> None:
        is_private = any(name in private_names_of(base) for base in self._bases) and name not in DOCUMENTED
        clients = {base for base in self._bases if base.split(".")[0] in CLIENTS} - EXTENDED
        is_replaced = not name.startswith("_") and any(hasattr(locate(base), name) for base in clients)
        if is_private or is_replaced or (name.startswith("__") and name not in DOCUMENTED | self._names.own):
            self._refuse(node, f"{owner.name}.{name}")

    @override
    def visit_Attribute(self, node: ast.Attribute) -> None:
        self._check_module(node, full_name(node, self._imports) or "")
        is_class_set = node.attr == "__class__" and not isinstance(node.ctx, ast.Load)
        if is_class_set or node.attr in FRAMES or self._is_private(node.attr, node.value):
            self._refuse(node, ast.unparse(node))
        self.generic_visit(node)

    @override
    def visit_Subscript(self, node: ast.Subscript) -> None:
        of = ast.unparse(node.value)
        if of.startswith("vars(") or of.endswith(".__dict__"):
            is_patched = not isinstance(node.ctx, ast.Load)
            self._check_text(node, node.slice, is_refused=is_patched and not of.startswith(("vars(self", "self.")))
        self.generic_visit(node)

    @override
    def visit_Call(self, node: ast.Call) -> None:
        name = ast.unparse(node.func).rpartition(".")[2]
        if name in BY_NAME:
            for argument in node.args:
                self._check_text(node, argument)
        elif name in {"import_module", "__import__"} and node.args and isinstance(node.args[0], ast.Constant):
            self._check_module(node, str(node.args[0].value))
        elif name == "getLogger" and node.args and isinstance(node.args[0], ast.Constant):
            if is_foreign(str(node.args[0].value)):
                self._refuse(node, ast.unparse(node))
        for keyword in node.keywords:
            if keyword.arg is not None and self._is_private(keyword.arg, None):
                self._refuse(node, f"{keyword.arg}=")
        self.generic_visit(node)

    def _check_text(self, node: ast.expr, text: ast.expr, *, is_refused: bool = False) -> None:
        """Check a name that is given as text: of a path of attributes each part."""
        parts = str(text.value).split(".") if isinstance(text, ast.Constant) else []
        if is_refused or any(part in FRAMES or self._is_private(part, None) for part in parts):
            self._refuse(node, ast.unparse(node))


def uses(trees: Mapping[str, ast.Module]) -> Iterator[tuple[str, int, str]]:
    """Yield path, line and use of each private name in the files that are given by path."""
    names = Names(trees)
    for path, tree in trees.items():
        for line, use in Reader(tree, names).found:
            yield path, line, use


def main() -> int:
    """Print what is refused, and exceptions that nothing needs any more; return the code to exit with."""
    files = [*ROOT.glob("*.py"), *(path for folder in FOLDERS for path in (ROOT / folder).rglob("*.py"))]
    found = list(uses({str(path.relative_to(ROOT)): ast.parse(path.read_text("utf-8")) for path in files}))
    refused = [f"{path}:{line}: {use}" for path, line, use in found if (path, use) not in ALLOWED]
    unused = ALLOWED.keys() - {(path, use) for path, _, use in found}
    for line in (*sorted(refused), *(f"{path}: the exception {use} is not needed" for path, use in sorted(unused))):
        print(line)  # noqa: T201  # what the program is for
    return 1 if refused or unused else 0


if __name__ == "__main__":
    sys.exit(main())
