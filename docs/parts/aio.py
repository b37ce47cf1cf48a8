"""Where ``twinstore.aio`` differs from the synchronous names, found by comparing both."""

from __future__ import annotations

from importlib import import_module
from inspect import getattr_static, isasyncgenfunction, iscoroutinefunction, isfunction, signature, unwrap
from typing import TYPE_CHECKING, Final

from docs.parts.tables import code, table
from twinstore import aio
from twinstore.codegen.aio import facades
from twinstore.migrations.migration import Initializer
from twinstore.plugins.modules import built_modules, module_spec

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from types import FunctionType

    import twinstore

__all__ = ["ADDED", "CHANGED", "NOT_FOR_HOSTS", "Surface", "added", "changed", "difference_table", "surfaces"]

CHANGED: Final[Mapping[str, tuple[str, str]]] = {
    "add_<module>_storage()": (
        "`open_storage()`, then `.<module>`",
        "One storage has the threads of its modules.",
    ),
    "<module>.capabilities": ("`await <module>.capabilities()`", "The first use connects."),
    "<module>.bulk": ("\N{EN DASH}", "Bulk work is for tools, which use the synchronous storage."),
}
"""Names that applications find elsewhere, by the synchronous name: where, and why."""

ADDED: Final[Mapping[str, str]] = {
    "<module>.ensure_migrations()": "`<module>.initializer.ensure_migrations()`",
    "<module>.session()": "`<module>.sessions.open()`",
}
"""Second names that only ``twinstore.aio`` has, and what they are the same as."""

# For authors of modules, or for the classes among themselves.
NOT_FOR_HOSTS: Final = frozenset(
    {
        "<module>.admits_no_tenant",
        "<module>.open_units",
        "<module>.session_over",
        "<module>.sessions.notifier",
        "<module>.sessions.unobserved",
        "<module>.unobserved_transaction",
    }
)

# Connects nothing.
AT_ONCE: Final = frozenset({"module"})
Surface = tuple[str, object, object]
"""The path of an object as a host writes it, the object or its class, and the one for asyncio."""


def surfaces(sync: twinstore.Storage, awaited: aio.AsyncStorage) -> Iterator[Surface]:
    """Yield everything that a host reaches through a storage; what all modules have is under one path."""
    yield "", sync, awaited
    for name in built_modules():
        module, other = sync.module(name), awaited.module(name, aio.AsyncModuleStorage)
        yield "<module>.", module, other
        yield "<module>.sessions.", module.sessions, other.sessions
        yield "<module>.initializer.", Initializer, other.initializer
        for facade in facades(module_spec(name)):
            protocols = import_module(facade.module)
            generated = import_module(f"{module_spec(name).package}.aio.{facade.module.rpartition('.')[2]}")
            for kind in (facade.protocol, *(handle.name for handle in facade.handles)):
                yield (
                    f"{name}.{facade.attribute}.",
                    getattr(protocols, kind),
                    getattr(generated, f"Async{kind}"),
                )


def changed(surface: Surface) -> Iterator[str]:
    """Yield what a host cannot use under its synchronous name, with ``await`` before a call."""
    path, sync, awaited = surface
    yield from (f"{path}{name}" for name in names(sync) if not same_use(sync, awaited, name))


def added(surface: Surface) -> Iterator[str]:
    """Yield what only asyncio has."""
    path, sync, awaited = surface
    yield from (f"{path}{name}()" for name in names(awaited) - names(sync))


def names(thing: object) -> set[str]:
    """Return the public names of an object or a class."""
    return {name for name in dir(thing) if not name.startswith("_")}


def same_use(sync: object, awaited: object, name: str) -> bool:
    """Whether a name is there for asyncio, too, and is read or called in the same way."""
    method, other = (getattr_static(class_of(thing), name, None) for thing in (sync, awaited))
    if not isfunction(method):
        return name in names(awaited) and not isfunction(other)
    if not isfunction(other):
        return False
    waits = iscoroutinefunction(other) or "AsyncContextManager" in returned(other)
    return parameters(method) == parameters(other) and (waits or name in AT_ONCE)


def class_of(thing: object) -> type:
    """Return the class of an object, and a class as it is."""
    return thing if isinstance(thing, type) else type(thing)


def returned(function: FunctionType) -> str:
    """Return what a function returns, as it is written."""
    if isasyncgenfunction(unwrap(function)):
        return "AsyncContextManager"
    return str(function.__annotations__.get("return"))


def parameters(function: FunctionType) -> list[tuple[str, object]]:
    """Return names and kinds of the parameters of a method."""
    return [(item.name, item.kind) for item in signature(function).parameters.values()]


def difference_table() -> str:
    """Return the table of what a host finds elsewhere."""
    rows = [(code(name), where, why) for name, (where, why) in CHANGED.items()]
    return table(("Synchronous", "`twinstore.aio`", "Because"), rows)
