from __future__ import annotations

import inspect
from collections import Counter
from importlib import import_module
from typing import Any

import pytest

import twinstore.testing
from twinstore.generate_aio import facades
from twinstore.modules import built_modules, module_spec
from twinstore.scheduler.module import MODULE
from twinstore.testing import AccessDefaultsContract, DriverContract
from twinstore.testing.scheduler import SCHEDULER_EXAMPLES, SchedulerContract

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
    return [cls for cls in aggregate.__mro__ if cls.__module__.startswith("twinstore.testing.contracts")]


MIXINS = mixins_of(SchedulerContract)


def test_every_method_of_every_repository_and_service_is_called_for_a_foreign_tenant() -> None:
    assert {
        call.name for call in (*SchedulerContract.tenant_calls(), *SchedulerContract.system_calls())
    } == METHODS


def test_every_list_with_a_token_is_paged_through() -> None:
    paged = {
        name
        for name in METHODS
        if "Page["
        in str(
            inspect.signature(
                getattr(PROTOCOLS[name.partition(".")[0]], name.partition(".")[2])
            ).return_annotation
        )
    }
    # The service passes the list of the repository on.
    assert {
        item.name.split()[0] for item in (*SchedulerContract.listings(), *SchedulerContract.system_listings())
    } == paged - {"run_summary_service.list"}


def test_every_entity_has_an_example_with_the_protocol_of_its_repository() -> None:
    assert {item.repository: item.protocol for item in SCHEDULER_EXAMPLES.examples} == {
        name: protocol for name, protocol in PROTOCOLS.items() if not name.endswith("_service")
    }


@pytest.mark.parametrize("aggregate", [SchedulerContract, AccessDefaultsContract])
def test_no_contract_hides_a_test_of_another(aggregate: type) -> None:
    mixins = mixins_of(aggregate)
    names = Counter(name for cls in mixins for name in vars(cls) if name.startswith("test_"))
    assert [name for name, number in names.items() if number > 1] == []


def test_the_aggregate_holds_every_contract() -> None:
    exported = {name for name in twinstore.testing.__all__ if name.endswith("Contract")}
    of_the_access = {"AccessContract", "AccessDefaultsContract"}
    assert {cls.__name__ for cls in MIXINS} == exported - {"Contract", "DriverContract"} - of_the_access


@pytest.mark.parametrize("cls", [*MIXINS, *mixins_of(AccessDefaultsContract)], ids=lambda cls: cls.__name__)
def test_a_contract_is_inherited_and_not_collected_by_itself(cls: type) -> None:
    assert not cls.__name__.startswith("Test")


def test_the_contract_of_drivers_has_the_kit_of_every_installed_module() -> None:
    class Tests(DriverContract):
        """What a driver's author writes."""

    kits = {name for name in dir(Tests) if name.startswith("Test")}
    assert kits == {"TestAccess", "TestDefaults"} | {
        f"Test{module_spec(name).title}" for name in built_modules()
    }
    assert vars(Tests)["TestScheduler"].__mro__[1] is SchedulerContract
