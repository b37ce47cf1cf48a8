"""Refuse private names of other libraries: ``python -m tests.support.private_names``.

A library may rename what its documentation does not have. Then a driver stops, or silently loses a
mechanism. So all code that is shipped or copied keeps to documented names. Private are names with an
underscore, undocumented modules and base classes, replaced methods of a client, and frames. Exceptions, each
with its reason, and what counts as documented are below; add to it what the documentation of a library has.
The tests are not read: they may plant faults into a client.
"""

from __future__ import annotations

import ast
import enum
import inspect
import re
import sys
import types
from collections import defaultdict
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from pydoc import locate
from typing import TYPE_CHECKING, Final

from typing_extensions import override

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

# The packages of this repository.
OWN: Final = frozenset(
    {
        "acme_library",
        "benchmarks",
        "deployment",
        "docs",
        "scheduler_service",
        "tests",
        "twinstore",
        "twinstore_backfill",
        "twinstore_embedded",
        "twinstore_filesystem",
        "twinstore_memory",
        "twinstore_mongo",
        "twinstore_postgres",
        "twinstore_sqlite",
        "typing_extensions",  # the standard library of later versions
    }
)
# Libraries of which even a documented method is replaced only for a reason.
CLIENTS: Final = frozenset({"bson", "psycopg", "psycopg_pool", "pymongo"})
# The documented modules of libraries that have others too. Every other library documents all modules
# without a leading underscore.
MODULES: Final[dict[str, frozenset[str]]] = {
    "bson": frozenset(
        {
            "binary",
            "code",
            "codec_options",
            "datetime_ms",
            "dbref",
            "decimal128",
            "errors",
            "int64",
            "json_util",
        }
        | {"max_key", "min_key", "objectid", "raw_bson", "regex", "son", "timestamp", "tz_util"}
    ),
    "dotenv": frozenset(),
    "psycopg": frozenset(
        {"abc", "adapt", "conninfo", "copy", "crdb", "errors", "pq", "rows", "sql", "types", "types.json"}
        # Types of `pq.PGconn` and its like, which the page on `pq` describes; for type checkers only.
        | {"pq.abc"}
    ),
    "psycopg_pool": frozenset(),
    "pydantic": frozenset(
        {"alias_generators", "config", "fields", "functional_serializers", "functional_validators"}
        | {"json_schema", "networks", "types"}
    ),
    "pymongo": frozenset(
        {"client_session", "collation", "collection", "command_cursor", "cursor", "database", "driver_info"}
        | {
            "errors",
            "event_loggers",
            "monitoring",
            "operations",
            "read_concern",
            "read_preferences",
            "results",
        }
        | {"server_api", "uri_parser", "write_concern"}
    ),
    "prometheus_client": frozenset({"core", "exposition", "registry"}),
    "rich": frozenset(
        {"align", "columns", "console", "live", "markup", "measure", "padding", "panel", "progress"}
        | {"progress_bar", "protocol", "rule", "segment", "style", "table", "text", "theme"}
    ),
    # `get_command` on the page on Click, `TyperGroup` in the tutorial on commands, `TyperCommand` in the
    # reference of `Typer.command(cls=...)`.
    "typer": frozenset({"core", "main", "testing"}),
}
# Classes of other libraries of which their documentation derives others ...
EXTENDED: Final = frozenset(
    {
        "bson.codec_options.TypeDecoder",
        "psycopg.adapt.Dumper",
        "psycopg.adapt.Loader",
        "psycopg.sql.Composable",
        "pymongo.monitoring.ServerHeartbeatListener",
    }
)
# ... and of which one may be derived.
BASES: Final = EXTENDED | {
    "airflow.sdk.BaseOperator",
    "fastapi.Request",
    "fastapi.Response",
    "fastapi.routing.APIRoute",
    "hatchling.builders.hooks.plugin.interface.BuildHookInterface",
    "prometheus_client.registry.Collector",
    "psycopg.AsyncConnection",
    "psycopg.Connection",
    "psycopg.Cursor",
    "psycopg.OperationalError",
    "psycopg_pool.ConnectionPool",
    "pydantic.BaseModel",
    "pymongo.read_concern.ReadConcern",
    "rich.progress.ProgressColumn",
    "typer.core.TyperCommand",
    "typer.core.TyperGroup",
}
PYTHON: Final = (
    *(BaseException, dict, enum.Enum, int, str, type),
    *(types.FunctionType, types.GeneratorType, types.MethodType, types.ModuleType),
)
DOCUMENTED: Final = frozenset(
    {name for kind in PYTHON for name in dir(kind)}
    # Of named tuples, enumerations and the standard library.
    | {"_", "_asdict", "_exit", "_field_defaults", "_fields", "_make", "_replace", "_current_frames"}
    | {"__all__", "__copy__", "__doc__", "__enter__", "__exit__", "__getattr__", "__path__", "__version__"}
    | {
        "__weakref__",
        "__slots__",
        "__signature__",
        "__wrapped__",
        "__post_init__",
        "__metadata__",
        "__aenter__",
        "__aexit__",
    }
    # Of pydantic and Rich.
    | {"__get_pydantic_core_schema__", "__get_pydantic_json_schema__", "__pydantic_init_subclass__"}
    | {"__rich_console__", "__rich_repr__"}
    | {"_generate_next_value_", "_missing_", "_name_", "_value_"}
)
POSTGRES: Final = "backends/postgres/twinstore_postgres"
# File and use, and why nothing documented does. An exception that nothing needs any more is an error.
ALLOWED: Final[dict[tuple[str, str], str]] = {
    (
        f"{POSTGRES}/connection/cursors.py",
        "OwnCursor.adapters",
    ): "loaders of the application would change what is read",
    (
        f"{POSTGRES}/connection/deadlines.py",
        "TimedConnection.wait",
    ): "no setting of libpq ends a call to a frozen server",
    (
        f"{POSTGRES}/connection/pipeline.py",
        "psycopg.generators",
    ): "cursors take twice the processor time of a call",
    (
        f"{POSTGRES}/connection/pool.py",
        "RecordedConnection.connect",
    ): "a pool keeps to itself why it has no connection",
    (
        "backends/mongo/twinstore_mongo/client/positions.py",
        "PointInTime.document",
    ): "pymongo has no option for reads as of a time, and sends what this documented property returns",
    **{
        ("core/twinstore/models/canonical.py", use): "for type checkers, as the metaclass has no public name"
        for use in (
            "class FrozenMetaclass(pydantic._internal._model_construction.ModelMetaclass)",
            "pydantic._internal",
        )
    },
    **{
        (
            "core/twinstore/runtime/forks.py",
            use,
        ): "a child cannot release a lock that a thread of the parent holds"
        for use in (
            "Reentrant._at_fork_reinit",
            "Reentrant._is_owned",
            "cast('Reentrant', self)._at_fork_reinit",
            "cast('Reentrant', self)._is_owned",
        )
    },
    ("docs/parts/site.py", "getLogger('mkdocs.hooks.site')"): "MkDocs counts warnings of hooks by this name",
}
IN_SOURCE: Final = re.compile(r"(?:self\.|cls\.|def )(_\w+)")


def is_foreign(name: str) -> bool:
    """Whether a full name belongs to another distribution, and not to the standard library."""
    return name.partition(".")[0] not in sys.stdlib_module_names | OWN | {""}


@cache
def is_module(name: str) -> bool:
    """Whether a full name is that of a module."""
    try:
        return find_spec(name) is not None
    except (ImportError, AttributeError, ValueError):  # the part before the last dot is not a package
        return False


@cache
def undocumented_module(name: str) -> str | None:
    """Return the first module in a full name that the documentation of its library does not have."""
    top, *parts = name.split(".")
    for end, part in enumerate(parts, 1):
        inner = ".".join(parts[:end])
        is_documented = inner in MODULES[top] if top in MODULES else not part.startswith("_")
        if not is_documented and is_module(f"{top}.{inner}"):
            return f"{top}.{inner}"
    return None


@cache
def private_names_of(base: str) -> frozenset[str]:
    """Return the private names of a class of another library, by the sources of its modules."""
    found = locate(base)
    modules = {kind.__module__ for kind in inspect.getmro(found)} if isinstance(found, type) else set[str]()
    sources = [inspect.getsource(sys.modules[name]) for name in modules if is_foreign(name)]
    return frozenset(name for source in sources for name in IN_SOURCE.findall(source)) - DOCUMENTED


@cache
def private_names_of_clients() -> frozenset[str]:
    """Return the private names that the sources of the clients define."""
    specs = filter(None, map(find_spec, CLIENTS))
    folders = [Path(place) for spec in specs for place in spec.submodule_search_locations or ()]
    sources = (path.read_text("utf-8") for folder in folders for path in folder.rglob("*.py"))
    return frozenset(name for source in sources for name in IN_SOURCE.findall(source)) - DOCUMENTED


def is_replaced(name: str, bases: frozenset[str]) -> bool:
    """Whether a method of a class takes the place of a public one of a client."""
    clients = [base for base in bases - EXTENDED if base.partition(".")[0] in CLIENTS]
    return not name.startswith("_") and any(hasattr(locate(base), name) for base in clients)


ROOT: Final = Path(__file__).parents[2]
FOLDERS: Final = ("core", "backends", "tools/backfill", "tools/embedded", "samples", "benchmarks", "docs")
BY_TEXT: Final = frozenset({"attrgetter", "delattr", "getattr", "hasattr", "setattr", "__setattr__"})
FRAMES: Final = frozenset({"_getframe", "f_globals", "f_locals"})
FUNCTIONS: Final = (ast.FunctionDef, ast.AsyncFunctionDef)


class Source:
    """A file: its syntax tree, its package, and the full names of what it imports."""

    def __init__(self, path: str, tree: ast.Module) -> None:
        self.tree, self.nodes = tree, list(ast.walk(tree))
        self.package = next((part for part in Path(path).parts if part in OWN), "")
        self.imports: dict[str, str] = {}
        for node in self.nodes:
            if isinstance(node, ast.Import):
                for item in node.names:
                    top = item.name.partition(".")[0]
                    self.imports |= {item.asname: item.name} if item.asname else {top: top}
            elif isinstance(node, ast.ImportFrom) and node.module is not None and not node.level:
                self.imports |= {
                    item.asname or item.name: f"{node.module}.{item.name}" for item in node.names
                }

    def imported(self, node: ast.expr) -> str:
        """Return the full name of what an expression names by way of an import, or nothing."""
        if isinstance(node, ast.Subscript):  # of a generic class
            return self.imported(node.value)
        if isinstance(node, ast.Attribute):
            owner = self.imported(node.value)
            return owner and f"{owner}.{node.attr}"
        return self.imports.get(node.id, "") if isinstance(node, ast.Name) else ""

    def kind(self, node: ast.expr) -> str:
        """Return the full name of the class that an expression or annotation names."""
        if isinstance(node, ast.BinOp):  # ... | None
            return self.kind(node.left)
        return self.imported(node) or f"{self.package}.{ast.unparse(node).partition('[')[0]}"


class OwnNames:
    """Which private names we define, and which of our classes derive from a class of another library."""

    def __init__(self, sources: Sequence[Source]) -> None:
        self._bases: defaultdict[tuple[str, str], set[str]] = defaultdict(set)
        for source in sources:
            for node in source.nodes:
                if isinstance(node, ast.ClassDef):
                    self._bases[source.package, node.name].update(map(source.kind, node.bases))
                elif isinstance(node, ast.Assign) and is_foreign(full := source.imported(node.value)):
                    # Another name of a class.
                    self._bases[source.package, ast.unparse(node.targets[0])].add(full)
        self.classes = frozenset(self._bases)
        self.names = {name for source in sources for name in self._defined(source, source.tree, frozenset())}

    def foreign_bases(self, name: str, seen: frozenset[str] = frozenset()) -> frozenset[str]:
        """Return the classes of other libraries from which a class derives, by way of ours too."""
        bases = self._bases.get(key_of(name), set[str]()) - seen
        foreign = frozenset(filter(is_foreign, bases))
        return foreign.union(*(self.foreign_bases(base, seen | bases) for base in bases - foreign))

    def _defined(self, source: Source, node: ast.AST, theirs: frozenset[str]) -> Iterator[str]:
        """Yield the names that are defined inside a node, without those of the bases of its class."""
        for child in ast.iter_child_nodes(node):
            inner = theirs
            if isinstance(child, ast.ClassDef):
                name = f"{source.package}.{child.name}"
                if any(base.endswith(".Protocol") for base in self._bases[key_of(name)]):
                    continue  # it describes what others define
                inner = frozenset().union(*map(private_names_of, self.foreign_bases(name)))
            elif isinstance(child, FUNCTIONS):
                yield from {child.name} - theirs
            elif isinstance(child, ast.Name) and isinstance(child.ctx, ast.Store):
                yield from {child.id} - theirs
            elif isinstance(child, ast.Attribute) and isinstance(child.ctx, ast.Store):
                yield from {child.attr} - theirs if ast.unparse(child.value) in {"self", "cls"} else ()
            yield from self._defined(source, child, inner)


def key_of(name: str) -> tuple[str, str]:
    """Return package and last part of a full name: packages export names of their modules."""
    return name.partition(".")[0], name.rpartition(".")[2]


class Reader(ast.NodeVisitor):
    """Finds the uses of private names in one file."""

    def __init__(self, source: Source, own_names: OwnNames) -> None:
        self.found: dict[tuple[int, str], None] = {}
        self._source, self._own_names = source, own_names
        self._bases: frozenset[str] = frozenset()  # of the class around the node, in other libraries
        self._kinds: dict[str, str] = {}  # the classes of variables, arguments and attributes
        for node in source.nodes:
            if isinstance(node, ast.arg) and node.annotation is not None:
                self._kinds[node.arg] = source.kind(node.annotation)
            elif isinstance(node, ast.AnnAssign):
                name = ast.unparse(node.target)
                self._kinds |= dict.fromkeys((name, f"self.{name}"), source.kind(node.annotation))
            elif isinstance(node, ast.Assign) and isinstance(node.value, ast.Call):
                self._kinds |= dict.fromkeys(map(ast.unparse, node.targets), source.kind(node.value.func))
        self.visit(source.tree)

    def _refuse(self, node: ast.expr | ast.stmt, use: str | None = None) -> None:
        self.found[node.lineno, use or ast.unparse(node)] = None

    def _check_module(self, node: ast.expr | ast.stmt, name: str) -> None:
        if is_foreign(name) and (module := undocumented_module(name)):
            self._refuse(node, module)

    def _is_private(self, name: str) -> bool:
        """Whether a name belongs to another library, by itself or in the class around it."""
        if not name.startswith("_") or name in DOCUMENTED:
            return name in FRAMES
        return name not in self._own_names.names or any(
            name in private_names_of(base) for base in self._bases
        )

    def _is_private_of(self, owner: ast.expr, name: str) -> bool:
        """Whether an attribute belongs to another library."""
        if name in FRAMES or name in DOCUMENTED:
            return name in FRAMES
        text = ast.unparse(owner)
        kind = self._source.imported(owner) or self._kinds.get(text, "")
        if is_foreign(kind):
            return True
        top, last = key_of(kind)
        if top in sys.stdlib_module_names - {"typing"}:
            return False
        is_ours = (
            text in {"self", "cls", "super()"} or last == "Self" or (top, last) in self._own_names.classes
        )
        theirs = [private_names_of(base) for base in self._own_names.foreign_bases(kind) | self._bases]
        theirs += [] if is_ours else [private_names_of_clients()]
        return name not in self._own_names.names or any(name in names for names in theirs)

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
        around, self._bases = (
            self._bases,
            self._own_names.foreign_bases(f"{self._source.package}.{node.name}"),
        )
        for base in map(self._source.kind, node.bases):
            if is_foreign(base) and base not in BASES:
                self._refuse(node, f"class {node.name}({base})")
        for child in node.body:
            if isinstance(child, FUNCTIONS) and (
                self._is_private(child.name) or is_replaced(child.name, self._bases)
            ):
                self._refuse(child, f"{node.name}.{child.name}")
        self.generic_visit(node)
        self._bases = around

    @override
    def visit_Attribute(self, node: ast.Attribute) -> None:
        self._check_module(node, self._source.imported(node))
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
        is_logger = name == "getLogger" and is_foreign(first) and is_module(first.partition(".")[0])
        if is_logger or (name in BY_TEXT and any(map(self._is_private_text, node.args))):
            self._refuse(node)
        elif name == "import_module":
            self._check_module(node, first)
        for keyword in node.keywords:
            if self._is_private(keyword.arg or ""):
                self._refuse(node, f"{keyword.arg}=")
        self.generic_visit(node)


def uses(trees: Mapping[str, ast.Module]) -> Iterator[tuple[str, int, str]]:
    """Yield path, line and text of each use of a private name in files that are given by path."""
    sources = {path: Source(path, tree) for path, tree in trees.items()}
    own_names = OwnNames([*sources.values()])
    for path, source in sources.items():
        yield from ((path, line, use) for line, use in Reader(source, own_names).found)


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
