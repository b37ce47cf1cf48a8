"""Which names of other libraries count as documented, and the uses of others that have a reason."""

from __future__ import annotations

import enum
import inspect
import re
import sys
import types
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from pydoc import locate
from typing import Final

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
        "NotedConnection.connect",
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
