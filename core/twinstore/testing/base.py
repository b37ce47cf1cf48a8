"""The base of all contracts of modules: fixtures, cases from examples, and what absent capabilities mean."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import wraps
from typing import TYPE_CHECKING, ClassVar, Final, ParamSpec, TypeGuard, cast

import hypothesis
import pytest

from twinstore.errors import UnsupportedCapabilityError
from twinstore.storage.open import open_module
from twinstore.testing.calls import (
    fatal_steps_of,
    harmless_steps_of,
    listings_of,
    system_calls_of,
    system_listings_of,
    tenant_calls_of,
    touches_of,
    write_calls_of,
)
from twinstore.testing.examples import NAME
from twinstore.testing.probe import BackendFactory, Deployment
from twinstore.testing.scalars import EDGE_TEXTS
from twinstore.testing.workspace import AnyStorage, Workspace

if TYPE_CHECKING:
    from collections.abc import Iterator

    from twinstore.catalog.entity import Entity
    from twinstore.errors import TwinstoreError
    from twinstore.models.canonical import CanonicalModel
    from twinstore.testing.calls import Listing, Step, TenantCall, Touch
    from twinstore.testing.examples import ModuleExamples, OneOfEach

__all__ = [
    "BulkCases",
    "Contract",
    "CopyContract",
    "each",
    "each_example",
    "examples",
    "needs",
    "of_tenants",
    "where",
]

# Before the contracts are imported, so that their failures show both sides of a comparison.
pytest.register_assert_rewrite("twinstore.testing.contracts")

P = ParamSpec("P")
Choose = Callable[[type["Contract"]], Iterable[object]]
Applies = Callable[[type["Contract"]], bool]
TENANT: Final = "tenant-of-nobody"
# Attributes of a test: what it is asked of, by argument, and whether a module has anything to ask.
CASES: Final = "cases_of_kit"
APPLIES: Final = "applies_to_kit"


def each(argument: str, choose: Choose) -> Callable[[Callable[P, None]], Callable[P, None]]:
    """Ask a test of each case that a contract chooses from its module; of none: there is no such test.

    Args:
        argument: the argument of the test.
        choose: gets the contract; returns texts, or what has a ``name``.
    """

    def decorate(test: Callable[P, None]) -> Callable[P, None]:
        setattr(test, CASES, {**getattr(test, CASES, {}), argument: choose})
        return test

    return decorate


def where(applies: Applies) -> Callable[[Callable[P, None]], Callable[P, None]]:
    """Ask a test only of modules of which something holds."""

    def decorate(test: Callable[P, None]) -> Callable[P, None]:
        setattr(test, APPLIES, applies)
        return test

    return decorate


each_example = each("example", lambda kit: kit.module.examples)
of_tenants = where(lambda kit: bool(kit.module.of_tenants))


def name_of(case: object) -> str:
    """Return how a case is called."""
    return case if isinstance(case, str) else str(getattr(case, "name", case))


class Contract:
    """Base of the contracts of modules.

    A contract that is about one capability names it when it is defined: ``class BulkContract(Contract,
    capability="bulk")``. Its tests run where the capability is declared, and are refusals elsewhere.

    The test module provides the fixture ``backend_factory`` (a :class:`BackendFactory`) of class scope or
    wider. All tests of a class share one deployment and are separated by tenant; those that read all tenants
    take ``isolated_workspace``.

    Attributes:
        module: the examples from which the cases are made; each kit of a module names its own.
        workspace_class: what tests of the module work with.
        more_listings: lists in addition to those of the examples, such as one through a filter.
        more_calls: methods about one tenant in addition to look-ups and lists.
        more_system_calls: methods about all tenants in addition to look-ups and lists.
        more_touches: calls that must meet a broken row, in addition to look-ups and lists.
    """

    module: ClassVar[ModuleExamples]
    workspace_class: ClassVar[type[Workspace]] = Workspace
    more_listings: ClassVar[tuple[Listing, ...]] = ()
    more_calls: ClassVar[tuple[TenantCall, ...]] = ()
    more_system_calls: ClassVar[tuple[TenantCall, ...]] = ()
    more_touches: ClassVar[tuple[Touch, ...]] = ()

    def __init_subclass__(cls, *, capability: str | None = None) -> None:
        """Let every test of the class need a capability, and drop those that its module gives no case."""
        super().__init_subclass__()
        if capability is not None:
            for name, test in list(vars(cls).items()):
                if name.startswith("test_"):
                    setattr(cls, name, needs(capability)(test))
        if hasattr(cls, "module"):
            for name in dir(cls):
                if name.startswith("test_") and not _has_cases(cls, getattr(cls, name)):
                    setattr(cls, name, None)  # which pytest collects as little as what is not there

    def pytest_generate_tests(self, metafunc: pytest.Metafunc) -> None:
        """Ask a test of each of its cases; pytest calls this for every test of the class."""
        if not hasattr(self, "module"):
            raise pytest.UsageError(
                f"{type(self).__name__} is the contract of no module. Derive from the kit of a module, or "
                "name its examples: module = ..."
            )
        for argument, choose in _cases_of(metafunc.function).items():
            metafunc.parametrize(argument, list(choose(type(self))), ids=name_of)

    @pytest.fixture(scope="class")
    @classmethod
    def deployment(cls, backend_factory: BackendFactory) -> Iterator[Deployment]:
        """Make one deployment for all tests of the class."""
        with backend_factory(cls.module.module) as deployment:
            yield deployment

    @pytest.fixture(scope="class")
    @classmethod
    def storage(cls, deployment: Deployment) -> Iterator[AnyStorage]:
        """Open one storage for all tests of the class."""
        with deployment.open() as storage:
            yield storage

    @pytest.fixture
    def workspace(self, deployment: Deployment, storage: AnyStorage) -> Workspace:
        """Return a workspace with a separate tenant."""
        return self.workspace_class(deployment, storage)

    @pytest.fixture
    def isolated_workspace(self, backend_factory: BackendFactory) -> Iterator[Workspace]:
        """Return a workspace on a separate deployment."""
        with backend_factory(self.module.module) as deployment, deployment.open() as storage:
            yield self.workspace_class(deployment, storage)

    @classmethod
    def store_one_of_each(cls, workspace: Workspace) -> OneOfEach:
        """Store one row of each entity for the tenant of the workspace."""
        return cls.module.store_each(workspace.storage.unbound, workspace.tenant, workspace.id(NAME))

    @classmethod
    def store_typical(cls, session: object, workspace: Workspace, name: str = "a") -> CanonicalModel:
        """Store the small row of a name of the entity that represents all; return it."""
        entity = cls.module.typical.entity
        return cls.module.store_small(session, workspace.tenant, workspace.id(name), entity)

    @classmethod
    def found_typical(cls, session: object, workspace: Workspace, name: str = "a") -> object:
        """Return the row of a name of the entity that represents all. Absent: ``None``."""
        typical = cls.module.typical
        return typical.found(session, workspace.tenant, typical.small(workspace.tenant, workspace.id(name)))

    @classmethod
    def counts(cls, workspace: Workspace) -> list[int]:
        """Return how many rows are really stored of each entity that a session of the tenant reaches."""
        return [workspace.count(item.entity) for item in cls.module.of_tenants]

    @classmethod
    def write_everywhere(cls, session: object, workspace: Workspace) -> None:
        """Write one row of each entity that a session of the tenant reaches."""
        cls.module.store_each(session, workspace.tenant, workspace.id("a"), bound=True)

    @classmethod
    def write_and_read(cls, session: object, workspace: Workspace, number: int) -> None:
        """Write rows that a number distinguishes, and assert that the session reads each of them."""
        for place, item in enumerate(cls.module.of_tenants):
            # Another name for each: storing a child stores its parent too, which may be possible only once.
            name = workspace.id(f"{number}-{place}")
            model = cls.module.store_small(session, workspace.tenant, name, item.entity)
            assert item.found(session, workspace.tenant, model) == model

    @classmethod
    def populate(cls, workspace: Workspace) -> None:
        """Store rows of every entity, their keys in awkward order; at least two of each."""
        for item in cls.module.examples:
            for text in EDGE_TEXTS:
                item.store(
                    workspace.storage.unbound,
                    workspace.tenant,
                    item.rich(workspace.tenant, workspace.id(text)),
                )

    @classmethod
    def in_memory(cls) -> AnyStorage:
        """Open the module in memory, as another store than the one under test."""
        return open_module(cls.module.module.name, "memory", {})

    @classmethod
    def listings(cls) -> tuple[Listing, ...]:
        """Return the lists that show the rows of one tenant, or rows without a tenant."""
        return (*listings_of(cls.module), *cls.more_listings)

    @classmethod
    def system_listings(cls) -> tuple[Listing, ...]:
        """Return the lists that show the rows of all tenants."""
        return tuple(system_listings_of(cls.module))

    @classmethod
    def tenant_calls(cls) -> tuple[TenantCall, ...]:
        """Return the methods that are about one tenant."""
        named = {call.name for call in cls.more_calls}
        writes = (call for call in write_calls_of(cls.module) if call.name not in named)
        return (*tenant_calls_of(cls.module), *writes, *cls.more_calls)

    @classmethod
    def system_calls(cls) -> tuple[TenantCall, ...]:
        """Return the methods that see all tenants."""
        return (*system_calls_of(cls.module), *cls.more_system_calls)

    @classmethod
    def touches(cls) -> tuple[Touch, ...]:
        """Return the calls that must meet a broken row."""
        return (*touches_of(cls.module), *cls.more_touches)

    @classmethod
    def harmless_steps(cls) -> Mapping[str, tuple[type[TwinstoreError], Step]]:
        """Return steps that an argument or a rule refuses, with their errors; a unit goes on after them."""
        return dict(harmless_steps_of(cls.module))

    @classmethod
    def fatal_steps(cls) -> Mapping[str, Step]:
        """Return steps that the store refuses with ``DuplicateError``; a unit is lost after them.

        They may rely on :meth:`store_one_of_each` for both tenants of the workspace.
        """
        return dict(fatal_steps_of(cls.module))


def _cases_of(test: object) -> Mapping[str, Choose]:
    return getattr(test, CASES, {})


def _has_cases(kit: type[Contract], test: object) -> bool:
    """Whether the module of a kit gives a test something to ask."""
    applies: Applies = getattr(test, APPLIES, lambda _: True)
    return applies(kit) and all(any(True for _ in choose(kit)) for choose in _cases_of(test).values())


class BulkCases(Contract):
    """Base of the contracts that look at whole entities."""

    @pytest.fixture
    def exclusive_workspace(self, request: pytest.FixtureRequest, entity: Entity) -> Workspace:
        """Return a workspace in which other tests have no rows of an entity that its tenant would see.

        Rows of tenants are separated by tenant; rows without a tenant get a separate deployment.
        """
        name = "workspace" if entity.is_owned else "isolated_workspace"
        return cast("Workspace", request.getfixturevalue(name))


class CopyContract(BulkCases):
    """Base of the contracts about copies: their target has the schema of the ledger."""

    @property
    def entity(self) -> Entity:
        """The entity whose rows represent all."""
        return self.module.typical.entity

    @pytest.fixture
    def isolated_workspace(self, backend_factory: BackendFactory) -> Iterator[Workspace]:
        """Return a workspace on a separate deployment that has the schema of the ledger."""
        with backend_factory(self.module.module) as deployment, deployment.open() as storage:
            if storage.capabilities.bulk_target:
                storage.bulk.ledger_initializer.ensure_migrations()
            yield self.workspace_class(deployment, storage)

    @pytest.fixture(scope="class", autouse=True)
    @classmethod
    def ledger_schema(cls, storage: AnyStorage) -> None:
        """Create the schema of the ledger, as a copy does in its target."""
        if storage.capabilities.bulk_target:
            storage.bulk.ledger_initializer.ensure_migrations()


def needs(capability: str) -> Callable[[Callable[P, None]], Callable[P, None]]:
    """Run a test where the capability is declared; elsewhere assert that its use is refused.

    One of the arguments of the test must be a workspace.
    """

    def decorate(test: Callable[P, None]) -> Callable[P, None]:
        @wraps(test)
        def wrapper(*args: P.args, **kwargs: P.kwargs) -> None:
            workspace = next(filter(_is_workspace, (*args, *kwargs.values())), None)
            assert workspace is not None, f"{test.__name__} takes no workspace"
            if getattr(workspace.storage.capabilities, capability):
                test(*args, **kwargs)
            else:
                assert_refused(workspace.storage, capability)

        return wrapper

    return decorate


def _is_workspace(item: object) -> TypeGuard[Workspace]:
    return isinstance(item, Workspace)


def assert_refused(storage: AnyStorage, capability: str) -> None:
    """Assert that using an absent capability fails loudly."""
    use = USES[capability]
    with pytest.raises(UnsupportedCapabilityError) as refusal:
        use(storage)
    assert storage.capabilities.backend in refusal.value.message


def _open_session(storage: AnyStorage) -> None:
    with storage.sessions.open(TENANT):
        pass


def _open_unit(storage: AnyStorage) -> None:
    with storage.transaction(TENANT):
        pass


def _use_bulk(storage: AnyStorage) -> None:
    storage.bulk.entities()


def _be_a_target(storage: AnyStorage) -> None:
    storage.bulk.ledger_initializer.status()


USES: Final[dict[str, Callable[[AnyStorage], None]]] = {
    "bulk": _use_bulk,
    "bulk_target": _be_a_target,
    "sessions": _open_session,
    "transactions": _open_unit,
}


def examples(number: int) -> Callable[[Callable[P, None]], Callable[P, None]]:
    """Return hypothesis settings for contracts: inherited by many classes, slow servers, shared fixtures."""
    bounded = hypothesis.settings(
        max_examples=number,
        deadline=None,
        suppress_health_check=[
            hypothesis.HealthCheck.differing_executors,
            hypothesis.HealthCheck.function_scoped_fixture,
            hypothesis.HealthCheck.too_slow,
            hypothesis.HealthCheck.filter_too_much,
            hypothesis.HealthCheck.data_too_large,
        ],
    )
    # Threads of client libraries use the module random for their pauses, also while a row is drawn, and
    # hypothesis takes that for the strategy's doing.
    threads = pytest.mark.filterwarnings("ignore:Do not use the .random. module inside strategies")
    return lambda test: threads(bounded(test))
