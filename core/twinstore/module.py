"""What authors of modules import, besides ``twinstore.errors``, ``twinstore.observing`` and the kit.

Type checkers read ``module.pyi``, which ``python -m twinstore.codegen.aio`` writes.
"""

from __future__ import annotations

from typing import Final

from twinstore.runtime.lazy import lazy_exports

# The light ones first: every host imports the plug-ins that are installed, and a name is looked for in this
# order.
PARTS: Final = (
    "twinstore.plugins.options",
    "twinstore.plugins.modules",
    "twinstore.access.defaults",
    "twinstore.access.keyed",
    "twinstore.access.paging",
    "twinstore.access.protocol",
    "twinstore.access.query",
    "twinstore.access.repository",
    "twinstore.access.retry",
    "twinstore.access.results",
    "twinstore.access.scope",
    "twinstore.bulk.stored",
    "twinstore.catalog.conditions",
    "twinstore.catalog.entity",
    "twinstore.catalog.indexes",
    "twinstore.catalog.keys",
    "twinstore.catalog.row",
    "twinstore.catalog.tenancy",
    "twinstore.clock",
    "twinstore.models.canonical",
    "twinstore.models.collections",
    "twinstore.models.fields",
    "twinstore.models.rules",
    "twinstore.models.shapes",
    "twinstore.models.typed_objects",
    "twinstore.plugins.checks",
    "twinstore.plugins.module_spec",
    "twinstore.storage.module",
    "twinstore.storage.data",
)

__getattr__, __dir__ = lazy_exports(__name__, PARTS)
