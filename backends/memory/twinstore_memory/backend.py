"""The memory driver: any module, in the memory of one process."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, TypeVar

from typing_extensions import override

from twinstore.access_backend import AccessBackend
from twinstore.backend import Capabilities, ModuleBackend, wrong_handle
from twinstore.documents.steps import OneUnit, OwnUnits
from twinstore.scope import UNBOUND
from twinstore_memory.access import MemoryAccess
from twinstore_memory.bulk import MemoryBulk
from twinstore_memory.initializer import initializer_class
from twinstore_memory.settings import MemorySettings
from twinstore_memory.store import DRIVER, MemoryDatabase, Unit, shared_store
from twinstore_memory.unit import MemoryUnit

if TYPE_CHECKING:
    from collections.abc import Iterator

    from twinstore.access import Access
    from twinstore.backend import OpenRequest
    from twinstore.documents.steps import Steps
    from twinstore.modules import ModuleSpec
    from twinstore.scope import Scope
    from twinstore_memory.initializer import MemoryInitializer

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
        return MemoryBulk(self, self._module.catalog.entities)

    @override
    def unbound(self) -> Access:
        return self.access_by(OwnUnits(self.begin, unbound=True, repeats=False), UNBOUND)

    @contextmanager
    @override
    def open_session(self, scope: Scope, *, causal_consistency: bool) -> Iterator[Access]:
        del causal_consistency  # reads always see earlier writes
        steps = OwnUnits(self.begin, repeats=False)
        try:
            yield self.access_by(steps, scope)
        finally:
            steps.state.closed = True

    @contextmanager
    @override
    def open_transaction(self, scope: Scope, *, read_only: bool) -> Iterator[Access]:
        unit = self.begin(read_only=read_only, isolated=True)
        try:
            yield self.access_by(OneUnit(unit), scope)
            unit.commit()
        finally:
            unit.rollback()

    @override
    def join(self, handle: object, scope: Scope) -> Access:
        """Join a :class:`~twinstore_memory.store.Unit` that the caller began and will end."""
        if not isinstance(handle, Unit) or handle.store is not self.store:
            raise wrong_handle(handle, "a unit of its own store", DRIVER)
        return self.access_by(OneUnit(MemoryUnit(handle)), scope)

    @override
    def check_ready(self) -> None:
        """Do nothing: there is neither a server nor a schema."""

    def begin(self, *, read_only: bool = False, isolated: bool = False) -> MemoryUnit:
        """Open a unit of work."""
        return MemoryUnit(self.store.begin(read_only=read_only, isolated=isolated))

    def access_by(self, steps: Steps, scope: Scope) -> MemoryAccess:
        """Return an access that takes its steps in some units."""
        return MemoryAccess(steps, scope, self._module.catalog.entities, self.begin, DRIVER)


def open_backend(request: OpenRequest) -> MemoryBackend[object]:
    """Open the store that the settings name, or one of its own."""
    settings = request.settings
    name = settings.store if isinstance(settings, MemorySettings) else None
    return MemoryBackend(request.module, None if name is None else shared_store(name))
