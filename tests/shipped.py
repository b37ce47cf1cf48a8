"""The migrations that this tree ships, as names: found in the folders, so that no test lists them."""

from __future__ import annotations

from typing import Final

from twinstore.ledger import LEDGER_MODULE
from twinstore.plugins.module_spec import ModuleSpec
from twinstore.scheduler.module import MODULE

__all__ = ["LEDGER_FILES", "MONGO_STEPS", "POSTGRES_FILES"]

# From this number on a migration runs on request only.
RELEASE: Final = 100


def names(
    store: str, suffix: str, *, keep_suffix: bool, module: ModuleSpec[object] = MODULE
) -> tuple[str, ...]:
    """Return the migrations that run by themselves, in their order."""
    found = sorted(item.name for item in module.migrations(store).iterdir() if item.name.endswith(suffix))
    shipped = (name for name in found if int(name[:3]) < RELEASE)
    return tuple(name if keep_suffix else name.removesuffix(suffix) for name in shipped)


POSTGRES_FILES: Final = names("postgres", ".sql", keep_suffix=True)
MONGO_STEPS: Final = names("mongo", ".json", keep_suffix=False)
LEDGER_FILES: Final = names("postgres", ".sql", keep_suffix=True, module=LEDGER_MODULE)
