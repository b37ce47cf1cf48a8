"""The memory driver: any module, in the memory of one process."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeVar

from typing_extensions import override

from twinstore.access.unit_state import wrong_handle
from twinstore.documents import DocumentBackend
from twinstore.plugins.backend import Capabilities
from twinstore_memory.access import MemoryAccess
from twinstore_memory.bulk import MemoryBulk
from twinstore_memory.initializer import initializer_class
from twinstore_memory.settings import MemorySettings
from twinstore_memory.store import DRIVER, MemoryDatabase, Unit, shared_store
from twinstore_memory.unit import MemoryUnit

if TYPE_CHECKING:
    from twinstore.access.scope import Scope
    from twinstore.documents.access import Steps
    from twinstore.plugins.backend import OpenRequest
    from twinstore.plugins.module_spec import ModuleSpec

R = TypeVar("R")

CAPABILITIES: Final = Capabilities(
    backend=DRIVER,
    transactions=True,
    sessions=True,
    server_clock=True,
    bulk=True,
    remedy="Use the driver of a server; this one lives in the memory of one process.",
)


class MemoryBackend(DocumentBackend[R]):
    """Any module, as a store of documents."""

    repeats = False

    def __init__(self, module: ModuleSpec[R], store: MemoryDatabase | None = None) -> None:
        """Take the module and the store; default: a separate store."""
        super().__init__(module, CAPABILITIES)
        self.store = store or MemoryDatabase()
        self.initializer = initializer_class(module)(module.name)

    @property
    @override
    def bulk(self) -> MemoryBulk:
        return MemoryBulk(self, self._module.catalog.entities, self.store.name)

    @override
    def begin(self, *, read_only: bool = False, isolated: bool = False) -> MemoryUnit:
        return MemoryUnit(self.store.begin(read_only=read_only, isolated=isolated))

    @override
    def joined(self, handle: object) -> MemoryUnit:
        """Join a :class:`~twinstore_memory.store.Unit` that the caller began and will end."""
        if not isinstance(handle, Unit) or handle.store is not self.store:
            raise wrong_handle(handle, "a unit of the same store", DRIVER)
        return MemoryUnit(handle)

    @override
    def access_by(self, steps: Steps, scope: Scope) -> MemoryAccess:
        return MemoryAccess(steps, scope, self._module.catalog.entities, self.begin, DRIVER)


def open_backend(request: OpenRequest) -> MemoryBackend[object]:
    """Open the store that the settings name, or a separate one."""
    settings = request.settings
    name = settings.store if isinstance(settings, MemorySettings) else None
    return MemoryBackend(request.module, None if name is None else shared_store(name))
