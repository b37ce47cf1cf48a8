"""Which names of other libraries count as documented, and the uses of others that have a reason."""

from __future__ import annotations

import enum
import types
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
    }
)
# Libraries of which even a documented method is replaced only for a reason.
CLIENTS: Final = frozenset({"bson", "psycopg", "psycopg_pool", "pymongo"})
# The documented modules of libraries that have others beside them. Of every other library a module is documented
# if its name has no leading underscore.
MODULES: Final[dict[str, frozenset[str]]] = {
    "bson": frozenset(
        {"binary", "code", "codec_options", "datetime_ms", "dbref", "decimal128", "errors", "int64", "json_util"}
        | {"max_key", "min_key", "objectid", "raw_bson", "regex", "son", "timestamp", "tz_util"}
    ),
    "psycopg": frozenset(
        {"abc", "adapt", "capabilities", "conninfo", "copy", "crdb", "errors", "pq", "rows", "sql", "types"}
        | {"types.composite", "types.enum", "types.hstore", "types.json", "types.multirange", "types.range"}
    ),
    "psycopg_pool": frozenset(),
    "pydantic": frozenset(
        {"alias_generators", "aliases", "annotated_handlers", "config", "dataclasses", "errors", "fields"}
        | {"functional_serializers", "functional_validators", "json_schema", "networks", "root_model"}
        | {"type_adapter", "types", "version"}
    ),
    "pymongo": frozenset(
        {"change_stream", "client_options", "client_session", "collation", "collection", "command_cursor", "cursor"}
        | {"database", "driver_info", "encryption", "errors", "event_loggers", "monitoring", "operations"}
        | {"read_concern", "read_preferences", "results", "server_api", "uri_parser", "write_concern"}
    ),
    "prometheus_client": frozenset({"core", "exposition", "parser", "registry"}),
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
BASES: Final = EXTENDED | frozenset[str]()
PYTHON: Final = (
    *(BaseException, dict, enum.Enum, int, str, type),
    *(types.FunctionType, types.GeneratorType, types.MethodType, types.ModuleType),
)
DOCUMENTED: Final = frozenset(
    {name for kind in PYTHON for name in dir(kind)}
    # Of named tuples, enumerations and the standard library.
    | {"_", "_asdict", "_exit", "_field_defaults", "_fields", "_make", "_replace", "_current_frames"}
    | {"__all__", "__copy__", "__doc__", "__enter__", "__exit__", "__getattr__", "__path__", "__version__"}
    | {"__weakref__", "__slots__", "__wrapped__", "__post_init__", "__metadata__", "__aenter__", "__aexit__"}
    # Of pydantic and Rich.
    | {"__get_pydantic_core_schema__", "__get_pydantic_json_schema__", "__pydantic_init_subclass__"}
    | {"__rich_console__"}
    | {"_generate_next_value_", "_missing_", "_name_", "_value_"}
)
# File and use, and why nothing documented does.
ALLOWED: Final[dict[tuple[str, str], str]] = {}
