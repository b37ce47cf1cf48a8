"""The initialiser of a driver whose schema is a few folders."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from typing_extensions import override

from twinstore.migrations.applied import SchemalessInitializer
from twinstore.storage.driver_names import named_initializer
from twinstore_filesystem.errors import DRIVER

if TYPE_CHECKING:
    from collections.abc import Set as AbstractSet

    from twinstore.migrations.migration import Consent, MigrationReport
    from twinstore.plugins.module_spec import ModuleSpec
    from twinstore_filesystem.tree import Tree


class FilesystemInitializer(SchemalessInitializer):
    """Implements :class:`~twinstore.migrations.migration.Initializer`.

    Folders are made when they are written to.
    """

    def __init__(self, module: str, tree: Tree) -> None:
        super().__init__(module, DRIVER, "Files have no schema;")
        self._tree = tree

    @override
    def ensure_migrations(
        self, *, release: bool = False, accept: AbstractSet[Consent] = frozenset()
    ) -> MigrationReport:
        """Make the root when it is absent; there is nothing else to make."""
        self._tree.prepare()
        return super().ensure_migrations(release=release, accept=accept)


@cache
def initializer_class(module: ModuleSpec[object]) -> type[FilesystemInitializer]:
    """Return the initialiser of a module."""
    return named_initializer(FilesystemInitializer, module, DRIVER)
