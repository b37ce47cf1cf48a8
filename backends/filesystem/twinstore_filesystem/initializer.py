"""The initialiser of a driver whose schema is a few folders."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from typing_extensions import override

from twinstore.migrations import Initializer, MigrationReport
from twinstore_filesystem.errors import DRIVER

if TYPE_CHECKING:
    from collections.abc import Collection
    from collections.abc import Set as AbstractSet

    from twinstore.migrations import Consent, Effect, MigrationStatus
    from twinstore.modules import ModuleSpec
    from twinstore_filesystem.tree import Tree

__all__ = ["FilesystemInitializer", "initializer_class"]


class FilesystemInitializer(Initializer):
    """Implements :class:`~twinstore.migrations.Initializer`: folders are made when they are written to."""

    def __init__(self, module: str, tree: Tree) -> None:
        """Take the module and the tree."""
        self._module = module
        self._tree = tree

    @override
    def ensure_migrations(
        self, *, release: bool = False, accept: AbstractSet[Consent] = frozenset()
    ) -> MigrationReport:
        """Make the root when it is absent; there is nothing else to make."""
        del release, accept
        self._tree.prepare()
        return MigrationReport(module=self._module, backend=DRIVER)

    @override
    def effects(self, *, release: bool = False) -> tuple[Effect, ...]:
        """Return nothing: nobody acts on the rows by itself."""
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
        return "# Files have no schema; there is nothing to apply.\n"


@cache
def initializer_class(module: ModuleSpec[object]) -> type[FilesystemInitializer]:
    """Return the initialiser of a module, a class of its own under the name that hosts know."""
    return type(
        f"{module.title}{DRIVER}Initializer",
        (FilesystemInitializer,),
        {"__doc__": f"The initialiser of {module.name}.", "__module__": __name__},
    )
