"""What authors of drivers import, besides ``twinstore.errors``, ``twinstore.observing`` and the kit.

Type checkers read ``driver.pyi``, which ``python -m twinstore.codegen.aio`` writes.
"""

from __future__ import annotations

from typing import Final

from twinstore.runtime.lazy import lazy_exports

# The light ones first: every host imports the plug-ins that are installed, and a name is looked for in this
# order.
PARTS: Final = (
    "twinstore.plugins.drivers",
    "twinstore.plugins.settings",
    "twinstore.plugins.options",
    "twinstore.plugins.modules",
    "twinstore.plugins.backend",
    "twinstore.access.defaults",
    "twinstore.access.errors",
    "twinstore.access.paging",
    "twinstore.access.protocol",
    "twinstore.access.query",
    "twinstore.access.retry",
    "twinstore.access.scope",
    "twinstore.access.unit_state",
    "twinstore.bulk.corruption",
    "twinstore.bulk.port",
    "twinstore.bulk.rows",
    "twinstore.bulk.unique_moves",
    "twinstore.catalog.conditions",
    "twinstore.catalog.entity",
    "twinstore.catalog.indexes",
    "twinstore.catalog.keys",
    "twinstore.catalog.row",
    "twinstore.catalog.tenancy",
    "twinstore.clock",
    "twinstore.documents",
    "twinstore.ledger",
    "twinstore.migrations.migration",
    "twinstore.models.canonical",
    "twinstore.models.fields",
    "twinstore.models.json_text",
    "twinstore.models.shapes",
    "twinstore.models.typed_objects",
    "twinstore.plugins.access_backend",
    "twinstore.plugins.module_spec",
    "twinstore.plugins.resources",
    "twinstore.runtime.cancellation",
    "twinstore.runtime.forks",
    "twinstore.runtime.service_log",
    "twinstore.storage.module",
    "twinstore.storage.open",
)

__getattr__, __dir__ = lazy_exports(__name__, PARTS)
