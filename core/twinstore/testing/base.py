"""The base of all contracts: fixtures, and what absent capabilities mean."""

from __future__ import annotations

from functools import wraps
from typing import TYPE_CHECKING, Final, ParamSpec

import hypothesis
import pytest

from twinstore.errors import UnsupportedCapabilityError
from twinstore.testing.probe import BackendFactory, Deployment
from twinstore.testing.workspace import Workspace

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from twinstore.scheduler.storage import SchedulerStorage

__all__ = ["Contract", "CopyContract", "examples", "needs"]

# Before the contracts are imported, so that their failures show both sides of a comparison.
pytest.register_assert_rewrite("twinstore.testing.contracts")

P = ParamSpec("P")
TENANT: Final = "tenant-of-nobody"


class Contract:
    """Base of the contracts.

    A contract that is about one capability names it when it is defined: ``class BulkContract(Contract,
    capability="bulk")``. Its tests run where the capability is declared, and are refusals elsewhere.

    The test module provides the fixture ``backend_factory`` (a :class:`BackendFactory`) of class scope or
    wider. All tests of a class share one deployment and keep apart by tenant; those that look at all tenants
    take ``isolated_workspace``.
    """

    def __init_subclass__(cls, *, capability: str | None = None) -> None:
        """Let every test of the class need a capability."""
        super().__init_subclass__()
        if capability is not None:
            for name, test in list(vars(cls).items()):
                if name.startswith("test_"):
                    setattr(cls, name, needs(capability)(test))

    @pytest.fixture(scope="class")
    @classmethod
    def deployment(cls, backend_factory: BackendFactory) -> Iterator[Deployment]:
        """Make one deployment for all tests of the class."""
        with backend_factory() as deployment:
            yield deployment

    @pytest.fixture(scope="class")
    @classmethod
    def storage(cls, deployment: Deployment) -> Iterator[SchedulerStorage]:
        """Open one storage for all tests of the class."""
        with deployment.open() as storage:
            yield storage

    @pytest.fixture
    def workspace(self, deployment: Deployment, storage: SchedulerStorage) -> Workspace:
        """Return a workspace with a tenant of its own."""
        return Workspace(deployment, storage)

    @pytest.fixture
    def isolated_workspace(self, backend_factory: BackendFactory) -> Iterator[Workspace]:
        """Return a workspace on a deployment of its own."""
        with backend_factory() as deployment, deployment.open() as storage:
            yield Workspace(deployment, storage)


class CopyContract(Contract):
    """Base of the contracts about copies: their target has the schema of the ledger."""

    @pytest.fixture(scope="class", autouse=True)
    @classmethod
    def ledger_schema(cls, storage: SchedulerStorage) -> None:
        """Create the schema of the ledger, as a copy does in its target."""
        if storage.capabilities.bulk:
            storage.bulk.ledger_initializer.ensure_migrations()


def needs(capability: str) -> Callable[[Callable[P, None]], Callable[P, None]]:
    """Run a test where the capability is declared; elsewhere assert that its use is refused.

    One of the arguments of the test must be a workspace.
    """

    def decorate(test: Callable[P, None]) -> Callable[P, None]:
        @wraps(test)
        def wrapper(*args: P.args, **kwargs: P.kwargs) -> None:
            workspace = next(
                (item for item in (*args, *kwargs.values()) if isinstance(item, Workspace)), None
            )
            assert workspace is not None, f"{test.__name__} takes no workspace"
            if getattr(workspace.storage.capabilities, capability):
                test(*args, **kwargs)
            else:
                assert_refused(workspace.storage, capability)

        return wrapper

    return decorate


def assert_refused(storage: SchedulerStorage, capability: str) -> None:
    """Assert that using an absent capability fails loudly."""
    use = USES[capability]
    with pytest.raises(UnsupportedCapabilityError) as refusal:
        use(storage)
    assert storage.capabilities.backend in refusal.value.message


def _open_session(storage: SchedulerStorage) -> None:
    with storage.sessions.open(TENANT):
        pass


def _open_unit(storage: SchedulerStorage) -> None:
    with storage.transaction(TENANT):
        pass


def _use_bulk(storage: SchedulerStorage) -> None:
    storage.bulk.entities()


USES: Final[dict[str, Callable[[SchedulerStorage], None]]] = {
    "bulk": _use_bulk,
    "sessions": _open_session,
    "transactions": _open_unit,
}


def examples(number: int) -> Callable[[Callable[P, None]], Callable[P, None]]:
    """Return hypothesis settings for contracts: inherited by many classes, slow servers, shared fixtures."""
    return hypothesis.settings(
        max_examples=number,
        deadline=None,
        suppress_health_check=[
            hypothesis.HealthCheck.differing_executors,
            hypothesis.HealthCheck.function_scoped_fixture,
            hypothesis.HealthCheck.too_slow,
            hypothesis.HealthCheck.filter_too_much,
        ],
    )
