"""A module on a store of documents: everything but what the store is."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING, ClassVar, TypeVar

from typing_extensions import override

from twinstore.access.scope import UNBOUND
from twinstore.documents.access import DocumentAccess, SingleUnit, UnitPerCall
from twinstore.plugins.access_backend import AccessBackend
from twinstore.runtime.forks import cleanup_unless_forked

if TYPE_CHECKING:
    from twinstore.access.protocol import Access
    from twinstore.access.scope import Scope
    from twinstore.documents.access import DocumentUnit, Steps
    from twinstore.documents.one_table import ScriptInitializer
    from twinstore.migrations.applied import SchemalessInitializer
    from twinstore.plugins.backend import Capabilities
    from twinstore.plugins.module_spec import ModuleSpec

R = TypeVar("R")


class DocumentBackend(AccessBackend[R]):
    """Base of a driver whose store keeps documents; what is left are the unit and the initializer.

    Attributes:
        initializer: creates and upgrades the schema of the module; the constructor of the driver sets it.
        repeats: whether a step that lost a race is repeated; not where units wait for each other.
    """

    initializer: ScriptInitializer | SchemalessInitializer
    repeats: ClassVar[bool] = True

    def __init__(self, module: ModuleSpec[R], capabilities: Capabilities) -> None:
        """Take the module, and what the driver can do; ``backend`` in it is the name of the driver."""
        # Before the base, which asks for the name of the driver.
        self._capabilities = capabilities
        super().__init__(module)

    @property
    @override
    def driver(self) -> str:
        return self._capabilities.backend

    @property
    @override
    def capabilities(self) -> Capabilities:
        return self._capabilities

    @abstractmethod
    def begin(self, *, read_only: bool = False, isolated: bool = False) -> DocumentUnit:
        """Open a unit of work; no I/O yet.

        Args:
            read_only: the unit will not write.
            isolated: a caller opened it. It reads one state, that of its first call, and loses to the first
                writer, at once or when that one has committed. Otherwise it reads what is committed, and
                waits for others.
        """

    @abstractmethod
    def joined(self, handle: object) -> DocumentUnit:
        """Return a unit over the transaction of a caller, who ends it; ``commit`` is never called.

        Raises:
            ConfigurationError: the handle is not a transaction of this store; see ``wrong_handle``.
        """

    def check_ready(self) -> None:
        """Check that the schema is as it is shipped; see :meth:`ModuleBackend.check_ready`."""
        self.initializer.check_applied()

    @override
    def unbound(self) -> Access:
        return self.access_by(UnitPerCall(self.begin, unbound=True, repeats=self.repeats), UNBOUND)

    @contextmanager
    @override
    def open_session(self, scope: Scope, *, causal_consistency: bool) -> Generator[Access]:
        del causal_consistency  # reads always see earlier writes
        steps = UnitPerCall(self.begin, repeats=self.repeats)
        try:
            yield self.access_by(steps, scope)
        finally:
            steps.state.closed = True

    @contextmanager
    @override
    def open_transaction(self, scope: Scope, *, read_only: bool) -> Generator[Access]:
        unit = self.begin(read_only=read_only, isolated=True)
        with cleanup_unless_forked(unit.rollback):
            yield self.access_by(SingleUnit(unit), scope)
            # Inside the block, whose end rolls back: after a commit that does nothing any more.
            unit.commit()

    @override
    def join(self, handle: object, scope: Scope) -> Access:
        return self.access_by(SingleUnit(self.joined(handle)), scope)

    def access_by(self, steps: Steps, scope: Scope) -> Access:
        """Return an access that takes its steps in some units."""
        entities = self._module.catalog.entities
        return DocumentAccess(steps, scope, entities, self.begin, self.driver)
