"""The memory driver: any module, in the memory of one process."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, TypeVar

from typing_extensions import override

from twinstore.access_backend import AccessBackend
from twinstore.backend import Capabilities, ModuleBackend, wrong_handle
from twinstore.scope import UNBOUND
from twinstore_memory.access import MemoryAccess
from twinstore_memory.bulk import MemoryBulk
from twinstore_memory.initializer import initializer_class
from twinstore_memory.settings import MemorySettings
from twinstore_memory.store import DRIVER, MemoryDatabase, Unit, shared_store
from twinstore_memory.units import Joined, Single

if TYPE_CHECKING:
    from collections.abc import Iterator

    from twinstore.access import Access
    from twinstore.backend import OpenRequest
    from twinstore.modules import ModuleSpec
    from twinstore.scope import Scope
    from twinstore_memory.initializer import MemoryInitializer
    from twinstore_memory.units import Link

__all__ = ["CAPABILITIES", "MemoryBackend", "open_backend"]

R = TypeVar("R")

CAPABILITIES: Final = Capabilities(
    backend=DRIVER,
    transactions=True,
    sessions=True,
    server_clock=True,
    bulk=True,
    remedy="Use the driver of a server; this one lives in the memory of one process.",
)


class MemoryBackend(AccessBackend[R], ModuleBackend[R]):
    """Implements :class:`~twinstore.backend.ModuleBackend` for any module."""

    def __init__(self, module: ModuleSpec[R], store: MemoryDatabase | None = None) -> None:
        """Take the module and the store; default: one of its own."""
        super().__init__(module)
        self.store = store or MemoryDatabase()
        self._initializer = initializer_class(module)(module.name)

    @property
    @override
    def driver(self) -> str:
        return DRIVER

    @property
    @override
    def capabilities(self) -> Capabilities:
        return CAPABILITIES

    @property
    @override
    def initializer(self) -> MemoryInitializer:
        """Says that there is nothing to migrate."""
        return self._initializer

    @property
    @override
    def bulk(self) -> MemoryBulk:
        return MemoryBulk(self.store, self._module.catalog, self.capabilities)

    @override
    def unbound(self) -> Access:
        return self._access(Single(self.store, unbound=True), UNBOUND)

    @contextmanager
    @override
    def open_session(self, scope: Scope, *, causal_consistency: bool) -> Iterator[Access]:
        del causal_consistency  # reads always see earlier writes
        link = Single(self.store)
        try:
            yield self._access(link, scope)
        finally:
            link.state.closed = True

    @contextmanager
    @override
    def open_transaction(self, scope: Scope, *, read_only: bool) -> Iterator[Access]:
        unit = self.store.begin(read_only=read_only, isolated=True)
        try:
            yield self._access(Joined(unit), scope)
            unit.commit()
        finally:
            unit.rollback()

    @override
    def join(self, handle: object, scope: Scope) -> Access:
        """Join a :class:`~twinstore_memory.store.Unit` that the caller began and will end."""
        if not isinstance(handle, Unit) or handle.store is not self.store:
            raise wrong_handle(handle, "a unit of its own store", DRIVER)
        return self._access(Joined(handle), scope)

    @override
    def check_ready(self) -> None:
        """Do nothing: there is neither a server nor a schema."""

    def _access(self, link: Link, scope: Scope) -> Access:
        return MemoryAccess(link, scope, self._module.catalog.entities)


def open_backend(request: OpenRequest) -> MemoryBackend[object]:
    """Open the store that the settings name, or one of its own."""
    settings = request.settings
    name = settings.store if isinstance(settings, MemorySettings) else None
    return MemoryBackend(request.module, None if name is None else shared_store(name))
