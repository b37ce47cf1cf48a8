"""Import paths and names of earlier releases, which work for one release and warn."""

from __future__ import annotations

import sys
import warnings
from functools import partial
from importlib import import_module
from importlib.machinery import ModuleSpec
from typing import TYPE_CHECKING, Final, cast

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from importlib.abc import Loader
    from types import ModuleType

# Where the names of a module are now, the place of most of them first. Only modules that documentation and
# samples named are here.
MOVED: Final[Mapping[str, tuple[str, ...]]] = {
    "twinstore.access": ("twinstore.access.protocol", "twinstore.access.defaults", "twinstore.catalog.row"),
    "twinstore.access_backend": ("twinstore.plugins.access_backend",),
    "twinstore.aio.threads": ("twinstore.aio.calls",),
    "twinstore.backend": (
        "twinstore.plugins.backend",
        "twinstore.access.unit_state",
        "twinstore.plugins.settings",
        "twinstore.plugins.resources",
    ),
    "twinstore.bulk": ("twinstore.bulk.port", "twinstore.bulk.rows", "twinstore.catalog.keys"),
    "twinstore.cancelling": ("twinstore.runtime.cancellation",),
    "twinstore.canonical": ("twinstore.models.canonical",),
    "twinstore.catalog": (
        "twinstore.catalog.entity",
        "twinstore.catalog.keys",
        "twinstore.catalog.indexes",
        "twinstore.catalog.tenancy",
    ),
    "twinstore.checks": ("twinstore.plugins.checks",),
    "twinstore.failures": ("twinstore.errors", "twinstore.access.errors"),
    "twinstore.fields": ("twinstore.models.fields",),
    "twinstore.forks": ("twinstore.runtime.forks",),
    "twinstore.installed": ("twinstore.storage.installed",),
    "twinstore.jsondates": ("twinstore.models.fields",),
    "twinstore.jsontext": ("twinstore.models.json_text",),
    "twinstore.migrations": ("twinstore.migrations.migration", "twinstore.errors"),
    "twinstore.modelrules": ("twinstore.models.rules",),
    "twinstore.module_storage": ("twinstore.storage.module",),
    "twinstore.modules": ("twinstore.plugins.modules", "twinstore.plugins.module_spec"),
    "twinstore.moving": ("twinstore.bulk.unique_moves",),
    "twinstore.options": ("twinstore.plugins.options",),
    "twinstore.ordering": ("twinstore.models.collections",),
    "twinstore.paging": ("twinstore.access.paging",),
    "twinstore.planting": ("twinstore.bulk.corruption",),
    "twinstore.plugins": ("twinstore.plugins.drivers",),
    "twinstore.query": ("twinstore.access.query", "twinstore.catalog.conditions"),
    "twinstore.redaction": ("twinstore.runtime.secrets",),
    "twinstore.repository": ("twinstore.access.repository",),
    "twinstore.retrying": ("twinstore.access.retry", "twinstore.runtime.service_log"),
    "twinstore.rulechecks": ("twinstore.models.rules",),
    "twinstore.scope": ("twinstore.access.scope", "twinstore.models.fields"),
    "twinstore.shapes": ("twinstore.models.shapes",),
    "twinstore.statements": ("twinstore.plugins.statements",),
    "twinstore.storage": ("twinstore.storage.open",),
    "twinstore.stored": ("twinstore.bulk.rows",),
    "twinstore.tenancy": ("twinstore.catalog.tenancy",),
    "twinstore.variants": ("twinstore.models.shapes",),
    "twinstore.written": ("twinstore.access.results",),
    "twinstore_postgres.datasource": ("twinstore_postgres.connection.data_source",),
    "twinstore_postgres.deadlines": ("twinstore_postgres.connection.deadlines",),
}

# The public names that earlier releases had, by which one replaces them.
RENAMED: Final[Mapping[str, str]] = {
    "HELD": "UNIQUE_VALUE_TAKEN",
    "LifeInCopy": "CopyPolicy",
    "Marking": "MarkRule",
    "Moment": "ServerClock",
    "NOTHING_BESIDE": "NO_ADDITIONAL_VALUES",
    "Obstacle": "UniqueConflict",
    "OpenPlanter": "OpenCorruptionWriter",
    "OwnProcess": "ProcessGuard",
    "PAUSE_SECONDS": "LOG_INTERVAL_SECONDS",
    "PlantRefusedError": "CorruptionRefusedError",
    "Planter": "CorruptionWriter",
    "Sets": "FieldUpdates",
    "StaysInProcess": "NotPicklable",
    "Stepwise": "PartialProgress",
    "Survey": "Inventory",
    "TURNS": "RETRY_QUEUES",
    "Turns": "RetryQueues",
    "Twice": "DuplicateMember",
    "asked_without": "when_missing",
    "ending": "cleanup_unless_forked",
    "forbidden_move": "invalid_transition",
    "given_up": "cancelled",
    "keep": "retain",
    "left_out_values": "omitted_values",
    "marked_in_portions": "mark_in_batches",
    "migrating": "logs_migration",
    "names_lost": "lossy_map_reason",
    "no_number_left": "sequence_exhausted",
    "note_back": "log_recovered",
    "note_body": "record_body",
    "note_connected": "log_connected",
    "note_lock_wait": "report_lock_wait",
    "note_lost": "log_unavailable",
    "note_lost_race": "log_lost_race",
    "note_ready": "log_ready",
    "obstacles": "unique_conflicts",
    "of_one_process": "guard_stream",
    "pauses": "backoff_delays",
    "reason_of_obstacle": "conflict_reason",
    "repeat": "retry",
    "standing": "migration_problems",
    "whole": "single_page",
}

ABSENT: Final = object()


class MovedModules:
    """Finds a module under its earlier path; asked last, for what no other finder has found.

    The abstract base classes of finders would take longer to import than this package.
    """

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return how to import a moved module."""
        del path, target
        return ModuleSpec(fullname, cast("Loader", self)) if fullname in MOVED else None

    def create_module(self, spec: ModuleSpec) -> None:
        """Leave it to Python to create the module."""

    def exec_module(self, module: ModuleType) -> None:
        """Warn, and let the module ask its new places for names."""
        _warn(module.__name__, MOVED[module.__name__])
        module.__doc__ = f"Moved to {', '.join(MOVED[module.__name__])}."
        vars(module).update(__getattr__=partial(_name_of, module.__name__))


def deprecated_getattr(package: str) -> Callable[[str], object]:
    """Return the ``__getattr__`` of a package that has the name of an earlier module.

    Args:
        package: its import name.
    """

    def find(name: str) -> object:
        """Return a name of the earlier module, with a warning."""
        found = _name_of(package, name)
        _warn(f"{package}.{name}", MOVED[package])
        return found

    return find


def renamed_getattr(package: str, depth: int = 2) -> Callable[[str], object]:
    """Return the ``__getattr__`` of a package some of whose names were renamed.

    Args:
        package: its import name.
        depth: how many frames above the warning the name is used.
    """

    def find(name: str) -> object:
        """Return what has a new name, with a warning."""
        if name not in RENAMED:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        found = getattr(import_module(package), RENAMED[name])
        warnings.warn(
            f"{package}.{name} is {RENAMED[name]} now; the next release drops the old name.",
            DeprecationWarning,
            stacklevel=depth,
        )
        return found

    return find


def install() -> None:
    """Let Python find the moved modules."""
    sys.meta_path.append(MovedModules())


def _name_of(module: str, name: str) -> object:
    if not name.startswith("__"):  # of a module itself, such as its path
        for place in MOVED[module]:
            # Not `vars`: some modules make their names when they are asked for.
            if (found := getattr(import_module(place), RENAMED.get(name, name), ABSENT)) is not ABSENT:
                return found
    raise AttributeError(f"module {module!r} has no attribute {name!r}")


def _warn(earlier: str, places: Sequence[str]) -> None:
    # The statement that imports: frames of the import system do not count.
    warnings.warn(
        f"{earlier} has moved to {' and '.join(places)}; the next release drops the old path.",
        DeprecationWarning,
        stacklevel=3,
    )
