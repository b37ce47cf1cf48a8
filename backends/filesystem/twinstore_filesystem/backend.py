"""A module in files: what the driver can do, and how its parts belong together."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, TypeVar

from typing_extensions import override

from twinstore.access.unit_state import wrong_handle
from twinstore.documents import DocumentBackend
from twinstore.documents.access import UnitPerCall
from twinstore.errors import ConfigurationError
from twinstore.plugins.backend import Capabilities
from twinstore_filesystem.access import FilesystemAccess
from twinstore_filesystem.bulk import FilesystemBulk
from twinstore_filesystem.errors import DRIVER
from twinstore_filesystem.files import Files
from twinstore_filesystem.initializer import initializer_class
from twinstore_filesystem.layout import LAYOUTS, FileLayout
from twinstore_filesystem.locks import RunLocks
from twinstore_filesystem.settings import FilesystemSettings
from twinstore_filesystem.tree import Tree
from twinstore_filesystem.unit import FileUnit

if TYPE_CHECKING:
    from twinstore.access.protocol import Access
    from twinstore.access.scope import Scope
    from twinstore.documents.access import Steps
    from twinstore.plugins.backend import OpenRequest
    from twinstore.plugins.module_spec import ModuleSpec

R = TypeVar("R")
CAPABILITIES: Final = Capabilities(
    backend=DRIVER,
    cross_process_locks=True,
    bulk=True,
    bulk_target=False,
    remedy="Use the driver of a server; this one keeps each run in separate files.",
)


class FilesystemBackend(DocumentBackend[R]):
    """Implements :class:`~twinstore.plugins.backend.ModuleBackend` for a module that has a layout."""

    def __init__(
        self, module: ModuleSpec[R], request: OpenRequest, layouts: Mapping[str, FileLayout] = LAYOUTS
    ) -> None:
        super().__init__(module, CAPABILITIES)
        if not isinstance(request.settings, FilesystemSettings):
            raise ConfigurationError(f"{DRIVER} needs its own settings.", driver=DRIVER)
        lacking = [entity.name for entity in module.catalog.entities if entity.name not in layouts]
        if lacking:
            raise ConfigurationError(
                f"{DRIVER} has no place for {', '.join(lacking)} of {module.name}; choose another driver.",
                driver=DRIVER,
            )
        self._tree = Tree(request.settings.root, read_only=request.read_only)
        locks = RunLocks(self._tree, request.settings.lock_timeout_ms / 1000)
        self._files = Files(self._tree, layouts, locks, request.clock)
        self.initializer = initializer_class(module)(module.name, self._tree)

    @property
    @override
    def bulk(self) -> FilesystemBulk:
        return FilesystemBulk(self, self._files, self._module.catalog.entities)

    @contextmanager
    @override
    def open_session(self, scope: Scope, *, causal_consistency: bool) -> Generator[Access]:
        """Refuse: there are no sessions."""
        del causal_consistency
        self.capabilities.require("sessions")
        yield self.access_by(UnitPerCall(self.begin), scope)

    @contextmanager
    @override
    def open_transaction(self, scope: Scope, *, read_only: bool) -> Generator[Access]:
        """Refuse: there are no transactions."""
        del read_only
        self.capabilities.require("transactions")
        yield self.access_by(UnitPerCall(self.begin), scope)

    @override
    def joined(self, handle: object) -> FileUnit:
        """Refuse: there is no transaction of a caller to join."""
        raise wrong_handle(handle, "no handle", DRIVER)

    @override
    def check_ready(self) -> None:
        """Check that the root is a folder that this process may write to; make it when it is absent."""
        self._tree.prepare()

    @override
    def begin(self, *, read_only: bool = False, isolated: bool = False) -> FileUnit:
        del isolated  # files are read as they are at the moment
        return FileUnit(self._files, read_only=read_only)

    @override
    def access_by(self, steps: Steps, scope: Scope) -> FilesystemAccess:
        entities = self._module.catalog.entities
        return FilesystemAccess(steps, scope, entities, self.begin, self.capabilities, self._files)


def open_backend(request: OpenRequest) -> FilesystemBackend[object]:
    """Open the module that the request names."""
    return FilesystemBackend(request.module, request)
