"""What the author of a driver needs: the hooks, the description of a driver, and the contract kit."""

from __future__ import annotations

import inspect
from dataclasses import MISSING, fields
from typing import TYPE_CHECKING

from docs.parts.tables import attributes, code, plain, table
from twinstore import testing
from twinstore.access.defaults import AccessDefaults
from twinstore.access.protocol import Access
from twinstore.errors import first_line
from twinstore.plugins.backend import BackendSpec
from twinstore.plugins.drivers import BackendHooks
from twinstore.testing.scheduler import SchedulerContract

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = [
    "contract_table",
    "contracts",
    "hook_table",
    "hooks",
    "operation_table",
    "scheduler_contract_table",
    "scheduler_contracts",
    "spec_table",
]


def hooks() -> dict[str, str]:
    """Return the hooks that a driver may implement, with their first line."""
    members = inspect.getmembers(BackendHooks, inspect.isfunction)
    return {name: first_line(hook.__doc__) for name, hook in members if not name.startswith("_")}


def hook_table() -> str:
    """Return the hooks."""
    return table(("Hook", "Must"), ((code(name), plain(text)) for name, text in hooks().items()))


def spec_table() -> str:
    """Return the fields of the description of a driver."""
    meanings = attributes(BackendSpec)
    rows = (
        (
            code(field.name),
            "required" if field.default is MISSING else code(field.default),
            meanings[field.name],
        )
        for field in fields(BackendSpec)
    )
    return table(("Field", "Default", "Means"), rows)


def operation_table() -> str:
    """Return the operations on rows, and which of them a driver must write."""
    # A statement of a driver's own is an extra, not an operation.
    operations = {
        name: item
        for name, item in vars(Access).items()
        if inspect.isfunction(item) and not name.startswith("_") and name != "special"
    }
    rows = (
        (
            code(f"{name}({', '.join(list(inspect.signature(item).parameters)[1:])})"),
            plain(first_line(item.__doc__)),
            "no" if name in AccessDefaults.__abstractmethods__ else "yes",
        )
        for name, item in operations.items()
    )
    return table(("Operation", "Does", "Default"), rows)


def contracts() -> tuple[type[testing.Contract], ...]:
    """Return the contracts that hold for every module, in the order of the whole one, and those of copies."""
    return (*_parts(testing.ModuleContract), *_parts(testing.CopyStateContract))


def scheduler_contracts() -> tuple[type[testing.Contract], ...]:
    """Return what the kit of the scheduler adds to them."""
    return tuple(item for item in _parts(SchedulerContract) if item not in contracts())


def contract_table() -> str:
    """Return the contracts that hold for every module."""
    return _contract_table(contracts())


def scheduler_contract_table() -> str:
    """Return what the kit of the scheduler adds to them."""
    return _contract_table(scheduler_contracts())


def _parts(whole: type[testing.Contract]) -> tuple[type[testing.Contract], ...]:
    inherited = whole.__mro__[1:]
    return tuple(item for item in inherited if issubclass(item, testing.Contract) and _own_tests(item))


def _contract_table(items: Iterable[type[testing.Contract]]) -> str:
    return table(("Contract", "Proves"), ((code(item.__name__), _meaning(item)) for item in items))


def _meaning(contract: type) -> str:
    return plain(first_line(contract.__doc__))


def _own_tests(contract: type) -> bool:
    return any(name.startswith("test_") for name in vars(contract))
