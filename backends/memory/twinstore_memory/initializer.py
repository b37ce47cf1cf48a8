"""The initialiser of a driver that has no schema."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from typing_extensions import override

from twinstore.migrations import Initializer, MigrationReport
from twinstore_memory.store import DRIVER

if TYPE_CHECKING:
    from collections.abc import Collection
    from collections.abc import Set as AbstractSet

    from twinstore.migrations import Consent, Effect, MigrationStatus
    from twinstore.modules import ModuleSpec

__all__ = ["MemoryInitializer", "initializer_class"]


class MemoryInitializer(Initializer):
    """Implements :class:`~twinstore.migrations.Initializer`: there is nothing to migrate."""

    def __init__(self, module: str) -> None:
        self._module = module

    @override
    def ensure_migrations(
        self, *, release: bool = False, accept: AbstractSet[Consent] = frozenset()
    ) -> MigrationReport:
        """Return an empty report."""
        del release, accept
        return MigrationReport(module=self._module, backend=DRIVER)

    @override
    def effects(self, *, release: bool = False) -> tuple[Effect, ...]:
        """Return nothing: no server acts on the rows."""
        del release
        return ()

    @override
    def status(self) -> tuple[MigrationStatus, ...]:
        """Return no migration."""
        return ()

    @override
    def verify(self, *, additions: bool = True) -> tuple[str, ...]:
        """Return no difference."""
        del additions
        return ()

    @override
    def export(self, names: Collection[str] | None = None) -> str:
        """Return a comment that says so."""
        del names
        return "# Storage in memory has no schema; there is nothing to apply.\n"


@cache
def initializer_class(module: ModuleSpec[object]) -> type[MemoryInitializer]:
    """Return the initialiser of a module, a class of its own under the name that hosts know."""
    return type(
        f"{module.title}{DRIVER}Initializer",
        (MemoryInitializer,),
        {"__doc__": f"The initialiser of {module.name}.", "__module__": __name__},
    )
