from __future__ import annotations

import inspect
from collections import Counter
from collections.abc import Callable
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any, cast

import pytest
from hypothesis import Phase, find, given, settings
from hypothesis import strategies as st

import twinstore.testing
from tests.support.distributions import LIBRARY, install_distribution
from tests.support.library.kit import LIBRARY_EXAMPLES, LibraryContract
from twinstore.catalog.entity import Entity
from twinstore.codegen.aio import facades
from twinstore.models.canonical import CanonicalJsonSerializer, CanonicalModel
from twinstore.plugins.modules import built_modules, module_spec
from twinstore.scheduler.catalog import TRIGGERS, WORKERS
from twinstore.scheduler.enums import RunState
from twinstore.scheduler.module import MODULE
from twinstore.scheduler.policy_jobs import PolicyRunJob
from twinstore.testing import (
    AccessDefaultsContract,
    CopyStateContract,
    DataContract,
    DriverContract,
    KeyedRepositoryContract,
    ModuleContract,
    scalars,
    scheduler,
)
from twinstore.testing.examples import ModuleExamples
from twinstore.testing.scheduler import SCHEDULER_EXAMPLES, SchedulerContract, builders, strategies

# What a session has, by attribute.
PROTOCOLS: dict[str, Any] = {
    facade.attribute: getattr(import_module(facade.module), facade.protocol) for facade in facades(MODULE)
}
METHODS = {
    f"{name}.{method}"
    for name, protocol in PROTOCOLS.items()
    for method, _ in inspect.getmembers(protocol, inspect.isfunction)
    if not method.startswith("_")
}


def mixins_of(aggregate: type) -> list[type]:
    """Return the contracts of a kit that have tests, without the kit itself."""
    contracts = [cls for cls in aggregate.__mro__[1:] if ".contracts." in cls.__module__]
    return [cls for cls in contracts if any(name.startswith("test_") for name in vars(cls))]


MIXINS = mixins_of(SchedulerContract)


def test_every_method_of_every_repository_and_service_is_called_for_a_foreign_tenant() -> None:
    assert {
        call.name for call in (*SchedulerContract.tenant_calls(), *SchedulerContract.system_calls())
    } == METHODS


def signature_of(name: str) -> inspect.Signature:
    repository, _, method = name.partition(".")
    return inspect.signature(getattr(PROTOCOLS[repository], method))


def test_every_list_with_a_token_is_paged_through() -> None:
    paged = {
        name
        for name in METHODS
        if "Page[" in str((signature := signature_of(name)).return_annotation)
        # What is asked for at an instant has one page.
        and {"page_token", "options"} & set(signature.parameters)
    }
    # The services pass the lists of their repositories on.
    assert {
        item.name.split()[0] for item in (*SchedulerContract.listings(), *SchedulerContract.system_listings())
    } == paged - {"run_summary_service.list", "policy_run_service.list"}


def test_every_entity_has_an_example_with_the_protocol_of_its_repository() -> None:
    assert {item.repository: item.protocol for item in SCHEDULER_EXAMPLES.examples} == {
        name: protocol for name, protocol in PROTOCOLS.items() if not name.endswith(("_service", "_store"))
    }


@pytest.mark.parametrize("aggregate", [SchedulerContract, AccessDefaultsContract, CopyStateContract])
def test_no_contract_hides_a_test_of_another(aggregate: type) -> None:
    mixins = mixins_of(aggregate)
    # What a module has no case for is None.
    names = Counter(
        name for cls in mixins for name, test in vars(cls).items() if name[:5] == "test_" and test
    )
    assert [name for name, number in names.items() if number > 1] == []


def test_the_aggregates_hold_every_contract() -> None:
    exported = {name for name in twinstore.testing.__all__ if name.endswith("Contract")}
    wholes = {
        "Contract",
        "DriverContract",
        "ModuleContract",
        "DataContract",
        "CopyStateContract",
        "AccessContract",
        "AccessDefaultsContract",
    }
    generic = {cls.__name__ for cls in mixins_of(ModuleContract)}
    copies = {cls.__name__ for cls in mixins_of(CopyStateContract)}
    assert generic | copies == exported - wholes
    assert {cls.__name__ for cls in mixins_of(DataContract)} < generic
    assert generic.isdisjoint(copies)
    special = {name for name in scheduler.__all__ if name.endswith("Contract")} - {"SchedulerContract"}
    assert {cls.__name__ for cls in MIXINS} == generic | special


def test_a_module_is_asked_what_it_has() -> None:
    given = {name for name in dir(LibraryContract) if name.startswith("test_")}
    dropped = {name for name in given if getattr(LibraryContract, name) is None}
    # It has no list, no purge, no instant by which rows expire, and no rows without a tenant.
    assert {
        "test_all_pages_make_the_whole_list_in_order",
        "test_a_purge_in_batches_below_one_removes_nothing",
        "test_expired_rows_are_removed_by_the_store_exactly_when_declared",
        "test_rows_without_a_tenant_are_the_same_for_every_tenant",
    } <= dropped
    kept = {"test_rows_of_another_tenant_do_not_exist", "test_an_error_of_the_store_makes_the_unit_unusable"}
    assert kept <= given - dropped
    assert [call.name for call in LibraryContract.tenant_calls()] == ["books.get", "books.put"]


def test_a_module_must_give_an_example_of_each_entity() -> None:
    with pytest.raises(LookupError, match="no example of books"):
        ModuleExamples(LIBRARY_EXAMPLES.module, ())


@pytest.mark.parametrize("entity", [TRIGGERS, WORKERS], ids=lambda entity: entity.name)
def test_what_needs_a_parent_or_all_tenants_cannot_stand_for_all(entity: Entity) -> None:
    with pytest.raises(LookupError, match=f"{entity.name} cannot stand for all; choose one of: schedules, "):
        ModuleExamples(MODULE, SCHEDULER_EXAMPLES.examples, chosen=entity)


def test_a_contract_without_module_says_what_to_do() -> None:
    class Orphan(KeyedRepositoryContract):
        """Names no examples."""

    with pytest.raises(pytest.UsageError, match="Orphan is the contract of no module"):
        Orphan().pytest_generate_tests(cast("pytest.Metafunc", None))


@pytest.mark.parametrize("cls", [*MIXINS, *mixins_of(AccessDefaultsContract)], ids=lambda cls: cls.__name__)
def test_a_contract_is_inherited_and_not_collected_by_itself(cls: type) -> None:
    assert not cls.__name__.startswith("Test")


def test_the_contract_of_drivers_has_the_kit_of_every_installed_module() -> None:
    class Tests(DriverContract):
        """What a driver's author writes."""

    kits = {name for name in dir(Tests) if name.startswith("Test")}
    assert kits == {"TestAccess", "TestDefaults", "TestCopies"} | {
        f"Test{module_spec(name).title}" for name in built_modules()
    }
    assert vars(Tests)["TestScheduler"].__mro__[1] is SchedulerContract
    assert vars(Tests)["TestCopies"].__mro__[1] is CopyStateContract


def test_an_outsiders_module_brings_its_kit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install_distribution(monkeypatch, tmp_path, "acme-library", LIBRARY)
    kits = DriverContract.kits()
    assert list(kits) == ["TestScheduler", "TestTracking", "TestTaskRunner", "TestLibrary", "TestCopies"]
    assert issubclass(kits["TestLibrary"], LibraryContract)


# Whether there is one is asked, not which is the smallest.
found = partial(find, settings=settings(max_examples=2000, database=None, phases=[Phase.generate]))
EXAMPLES = SCHEDULER_EXAMPLES.examples
# A trigger is written with its schedule, which says nothing about what has fired so far.
RICH: list[Callable[[], CanonicalModel]] = [
    partial(item.rich, "t", "name") for item in EXAMPLES if item.entity is not TRIGGERS
]
# What a model with the others cannot have: a job that has failed is neither leased nor cancelled.
EXCLUSIVE: dict[type[CanonicalModel], set[str]] = {
    PolicyRunJob: {"lease_owner", "lease_expires_at", "cancelled_at"}
}
EVERY_MODEL: dict[str, st.SearchStrategy[CanonicalModel]] = {
    **{item.name: item.drawn("tenant", "key") for item in EXAMPLES if item.drawn is not None},
    "any run": strategies.runs(),
    "derived id": strategies.impact_sets(),
    "selector": strategies.selectors("tenant"),
}


@pytest.mark.parametrize("build", RICH)
def test_a_rich_model_has_a_value_in_every_field(build: Callable[[], CanonicalModel]) -> None:
    model = build()
    empty = {name for name in type(model).model_fields if getattr(model, name) in (None, (), {})}
    assert empty == EXCLUSIVE.get(type(model), set())


@pytest.mark.parametrize("build", RICH)
def test_a_builder_gives_the_same_bytes_every_time(build: Callable[[], CanonicalModel]) -> None:
    assert CanonicalJsonSerializer.serialize(build()) == CanonicalJsonSerializer.serialize(build())


@pytest.mark.parametrize("state", RunState)
@pytest.mark.parametrize("following", RunState)
def test_a_moved_run_is_valid_in_every_state(state: RunState, following: RunState) -> None:
    run = builders.make_run("t", "r", state=state)
    assert builders.moved(run, following).state is following


@pytest.mark.parametrize("name", EVERY_MODEL)
def test_a_generated_model_survives_its_canonical_form(name: str, *, long_form: bool) -> None:
    @settings(max_examples=15 if long_form else 5)
    @given(EVERY_MODEL[name])
    def survives(model: CanonicalModel) -> None:
        text = CanonicalJsonSerializer.serialize(model)
        again = CanonicalJsonSerializer.deserialize(type(model), text)
        assert again == model
        assert CanonicalJsonSerializer.serialize(again) == text

    survives()


def test_the_edge_texts_are_in_code_point_order_and_in_no_other() -> None:
    edges = list(scalars.EDGE_TEXTS)
    assert edges == sorted(edges)
    assert edges != sorted(edges, key=lambda text: text.encode("utf-16-be"))
    assert edges != sorted(edges, key=str.casefold)


def test_the_strategies_reach_the_limits() -> None:
    assert found(scalars.ids(), lambda text: len(text) == 256)
    assert found(scalars.tenant_ids(), lambda text: len(text) == 128)
    assert found(scalars.names(), lambda text: len(text) == 200 and ord(text[0]) > 0xFFFF)
    assert found(scalars.counts(), lambda number: number == 2**63 - 1)
    assert found(scalars.instants(), lambda instant: instant.year == 1).year == 1
    assert found(scalars.instants(), lambda instant: instant.year == 9999).year == 9999
    assert len(found(strategies.run_summaries(), lambda summary: len(summary.recent) == 20).recent) == 20
