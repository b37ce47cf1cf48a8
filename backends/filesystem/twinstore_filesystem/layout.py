"""Where the rows of each entity are stored: the one table of this driver that names entities.

state/runs/<run>.json                           one object
state/approvals/<run>.json                      an array, in order of the second part of the key
logs/runs/<run>.ndjson                          one object a line, in order of the second part of the key
artifacts/<run>/artifact-manifest.json          an array, in order of the second part of the key
state/runs/<run>.lock                           held by the writer of one of these
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from twinstore.catalog.conditions import Equals
from twinstore_filesystem.forms import ArrayForm, LinesForm, ObjectForm
from twinstore_filesystem.names import TEMPORARY, decoded, encoded, is_shortened
from twinstore_filesystem.tree import Place

if TYPE_CHECKING:
    from twinstore.access.query import Query
    from twinstore.catalog.entity import Entity
    from twinstore.catalog.keys import Key
    from twinstore_filesystem.forms import Form

STATE: Final = "state/runs"
LOCK_SUFFIX: Final = ".lock"


def first_part(key: Key) -> str:
    """Return the run to which a key belongs."""
    return str(key[0])


@dataclass(frozen=True, slots=True)
class FileLayout:
    """One file of one entity for each run.

    Attributes:
        folder: the folder below the root.
        suffix: what follows the name of the run: of the file, or with ``manifest`` of nothing.
        form: how the rows are stored in the file.
        manifest: the name of the file in the run's own folder.
        run_of: returns the run of a key.
        lock_of: returns whose lock guards the file of a run.
    """

    folder: str
    suffix: str
    form: Form
    manifest: str = ""
    run_of: Callable[[Key], str] = first_part
    lock_of: Callable[[str], str] = str

    def place(self, run: str) -> Place:
        """Return the file of a run."""
        return self.named(encoded(run))

    def named(self, name: str) -> Place:
        """Return the file of a run by its encoded id."""
        if self.manifest:
            return Place(self.folder, self.manifest, name)
        return Place(self.folder, f"{name}{self.suffix}")

    def name_of(self, entry: str) -> str | None:
        """Return the encoded id that an entry of the folder represents; ``None`` when it is not ours."""
        if not entry.endswith(self.suffix):
            return None
        name = entry[: len(entry) - len(self.suffix)]
        return name if decoded(name) is not None or is_shortened(name) else None

    def is_auxiliary(self, entry: str) -> bool:
        """Whether an entry is ours and holds no row: a lock, or what an interrupted write left."""
        kept = entry.removesuffix(TEMPORARY)
        if kept != entry:
            # A manifest is written in the folder of its run.
            return not self.manifest and self.name_of(kept) is not None
        return self.folder == STATE and is_lock(entry)

    def pinned(self, entity: Entity, query: Query) -> str | None:
        """Return the only run whose rows a query can match, ``None`` when there may be several."""
        equal = {item.field: item.value for item in query.where if isinstance(item, Equals)}
        parts = [equal.get(name) for name in entity.key]
        if self.run_of is first_part:
            parts = parts[:1]
        found = tuple(part for part in parts if isinstance(part, (str, int)))
        return self.run_of(found) if len(found) == len(parts) else None

    def lock(self, key: Key) -> Place:
        """Return the lock that guards the file of a key."""
        return Place(STATE, f"{encoded(self.lock_of(self.run_of(key)))}{LOCK_SUFFIX}")


def is_lock(entry: str) -> bool:
    """Whether an entry of the folder of states is a lock."""
    name = entry.removesuffix(LOCK_SUFFIX)
    return name != entry and (decoded(name) is not None or is_shortened(name))


LAYOUTS: Final[Mapping[str, FileLayout]] = {
    "pack_runs": FileLayout(STATE, ".json", ObjectForm()),
    "pack_run_approvals": FileLayout("state/approvals", ".json", ArrayForm()),
    "pack_run_logs": FileLayout("logs/runs", ".ndjson", LinesForm()),
    "pack_artifacts": FileLayout("artifacts", "", ArrayForm(), manifest="artifact-manifest.json"),
}
