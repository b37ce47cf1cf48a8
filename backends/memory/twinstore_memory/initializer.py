"""The initialiser of a driver that has no schema."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from twinstore.migrations.applied import SchemalessInitializer
from twinstore.storage.driver_names import named_initializer
from twinstore_memory.store import DRIVER

if TYPE_CHECKING:
    from twinstore.plugins.module_spec import ModuleSpec


class MemoryInitializer(SchemalessInitializer):
    """Implements :class:`~twinstore.migrations.migration.Initializer`: there is nothing to migrate."""

    def __init__(self, module: str) -> None:
        super().__init__(module, DRIVER, "Storage in memory has no schema;")


@cache
def initializer_class(module: ModuleSpec[object]) -> type[MemoryInitializer]:
    """Return the initialiser of a module."""
    return named_initializer(MemoryInitializer, module, DRIVER)
