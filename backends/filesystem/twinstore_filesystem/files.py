"""The files of a unit of work: those it reads, and those it will write."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from twinstore.documents import DocumentRow
from twinstore_filesystem.forms import RunFile
from twinstore_filesystem.names import decoded, encoded

if TYPE_CHECKING:
    from twinstore.catalog.entity import Entity
    from twinstore.catalog.keys import Key
    from twinstore.clock import Clock
    from twinstore_filesystem.layout import FileLayout
    from twinstore_filesystem.locks import RunLocks
    from twinstore_filesystem.tree import Tree

Changes = dict["Entity", dict[str, dict["Key", DocumentRow | None]]]


class Files:
    """What the units of one storage share."""

    def __init__(self, tree: Tree, layouts: Mapping[str, FileLayout], locks: RunLocks, clock: Clock) -> None:
        self.tree, self.layouts, self.locks, self.clock = tree, layouts, locks, clock

    def layout(self, entity: Entity) -> FileLayout:
        """Return where an entity is stored."""
        return self.layouts[entity.name]

    def file(self, entity: Entity, run: str) -> RunFile:
        """Return the file of a run."""
        return RunFile(self.tree, entity, self.layout(entity).place(run), encoded(run), run)

    def remove_unfinished(self, run: str) -> None:
        """Remove what a killed writer of a run left; its lock must be held."""
        for layout in self.layouts.values():
            self.tree.remove_unfinished(layout.place(run))

    def all(self, entity: Entity) -> Iterator[RunFile]:
        """Yield the files of an entity, in no particular order, without foreign files.

        A link or socket under the name of a run is one that cannot be read.
        """
        layout = self.layout(entity)
        for entry in self.tree.entries(layout.folder):
            name = layout.name_of(entry.name)
            if name is not None and (entry.kind == "folder" or not layout.manifest):
                yield RunFile(self.tree, entity, layout.named(name), name, decoded(name))
