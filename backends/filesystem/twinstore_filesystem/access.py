"""Access to the rows in files: that of a store of documents, without transactions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from typing_extensions import override

from twinstore.access.query import label_of_value
from twinstore.access.repository import PURGE
from twinstore.documents import DocumentAccess, DocumentRow
from twinstore.documents.access import SingleUnit
from twinstore.models.canonical import CanonicalModel
from twinstore.runtime.forks import cleanup_unless_forked
from twinstore_filesystem.errors import DRIVER
from twinstore_filesystem.purging import purge
from twinstore_filesystem.rows import FileRow, decoded_row
from twinstore_filesystem.unit import FileUnit

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from twinstore.access.protocol import Access
    from twinstore.access.query import Query
    from twinstore.access.scope import Scope
    from twinstore.catalog.entity import Entity
    from twinstore.catalog.row import Row
    from twinstore.catalog.tenancy import Tenants
    from twinstore.documents import DocumentUnit
    from twinstore.documents.access import Steps
    from twinstore.plugins.backend import Capabilities
    from twinstore_filesystem.files import Files

M = TypeVar("M", bound=CanonicalModel)


class FilesystemAccess(DocumentAccess):
    """Implements :class:`~twinstore.access.protocol.Access`.

    A call that writes one file is all or nothing.
    """

    def __init__(  # noqa: PLR0917  # what a backend hands to its access
        self,
        steps: Steps,
        scope: Scope,
        entities: Sequence[Entity],
        begin: Callable[[], DocumentUnit],
        capabilities: Capabilities,
        files: Files,
    ) -> None:
        """Take the way to the files, what opens a unit, what the driver can do, and the files."""
        super().__init__(steps, scope, entities, begin, DRIVER)
        self._files = files
        self._capabilities = capabilities

    @override
    def count(self, entity: Entity, query: Query, by: str) -> dict[str, int]:
        # In one pass over the files.
        every = replace(query, after=None)
        return self._steps.take(lambda unit: counted(unit, entity, every, by))

    @override
    def special(self, operation: str) -> Callable[..., object] | None:
        # Within a unit its files are locked and partly staged, so that there it goes the general way.
        if operation != PURGE or self._steps.in_unit:
            return None
        return partial(purge, self._files, self._steps, self._entities)

    @contextmanager
    @override
    def unit(self, scope: Tenants, *, atomic: bool = True) -> Generator[Access]:
        if self._steps.in_unit:
            yield self
            return
        if atomic:
            self._capabilities.require("transactions")
        unit = self._begin()
        with cleanup_unless_forked(unit.rollback):
            steps = SingleUnit(unit)
            yield FilesystemAccess(
                steps, self._scope, self._entities, self._begin, self._capabilities, self._files
            )
            unit.commit()

    @override
    def _row(self, entity: Entity[M], row: DocumentRow) -> Row[M]:
        return decoded_row(entity, row)


def counted(unit: DocumentUnit, entity: Entity, query: Query, by: str) -> dict[str, int]:
    """Return how many rows of a list there are by the text of a field.

    Raises:
        DocumentDecodeError: one is not JSON in its place, so its group is unknown.
    """
    found: Counter[str] = Counter()
    for row in unit.matching(entity, query) if isinstance(unit, FileUnit) else ():
        if isinstance(row, FileRow) and row.error is not None:
            decoded_row(entity, row)
        found[label_of_value(row.value(by))] += 1
    return dict(found)
