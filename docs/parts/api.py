"""The reference of the Python API: which names are on which page, and the pages.

The exported names come from the imported modules, so that no name can be forgotten.
"""

from __future__ import annotations

import inspect
from dataclasses import is_dataclass
from enum import Enum
from functools import cache, partial
from importlib import import_module
from typing import TYPE_CHECKING, Final, NamedTuple

from pydantic import BaseModel

from docs.parts.api_text import INSTALLED, OURS, described, explained, is_class, methods, written
from docs.parts.interface import DRIVER_PARTS, MODULE_PARTS
from docs.parts.tables import code
from twinstore.codegen.stubs import shipped_modules
from twinstore.plugins.modules import module_spec

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

__all__ = ["EXTENDING", "Entry", "entries", "exported_names", "headings", "page", "pages", "parts"]

FACADES: Final = ("twinstore", "twinstore.aio")
"""What exports names of modules of ours, too."""

EXTENDING: Final = "api-extending"

HOST_PARTS: Final = (
    "twinstore",
    "twinstore.storage.module",
    "twinstore.config",
    "twinstore.migrations.migration",
    "twinstore.observing",
    "twinstore.observing.prometheus",
    "twinstore.observing.otel",
    "twinstore.aio",
    "twinstore.errors",
    "twinstore.fastapi",
    "twinstore.migration",
)


class Entry(NamedTuple):
    """One exported name.

    Attributes:
        name: as it is exported.
        home: where it is defined; the exporting module if it is neither a class nor a function.
        thing: the object.
    """

    name: str
    home: str
    thing: object


@cache
def pages() -> Mapping[str, tuple[str, ...]]:
    """Return the modules of each page, by the name of its generated part."""
    others = sorted({*DRIVER_PARTS, *MODULE_PARTS} - {*HOST_PARTS})
    return {
        "api": HOST_PARTS,
        **{name: (package, f"{package}.aio") for name, package in own().items()},
        EXTENDING: tuple(others),
    }


@cache
def own() -> Mapping[str, str]:
    """Return the package of each module of ours, by the name of its page."""
    return {f"api-{name}": module_spec(name).package for name in shipped_modules()}


def parts() -> dict[str, Callable[[], str]]:
    """Return what makes each page that the repository holds; the one for authors of drivers is the site's."""
    return {name: partial(page, name) for name in pages() if name != EXTENDING}


def exported_names(module: str) -> Iterator[Entry]:
    """Yield what a module exports."""
    package = import_module(module)
    for name in sorted(package.__all__):
        thing: object = getattr(package, name)
        yield Entry(name, home_of(thing) or f"{module}.{name}", thing)


def home_of(thing: object) -> str:
    """Return where a class or function of ours is defined, empty for anything else."""
    home = ""
    if isinstance(thing, type) or inspect.isfunction(thing):
        home = f"{thing.__module__}.{thing.__qualname__}"
    return home if home.startswith(OURS) else ""


@cache
def entries() -> Mapping[str, Mapping[str, Mapping[str, Entry]]]:
    """Return the entries by page, module and heading; each thing occurs once."""
    found: dict[str, dict[str, dict[str, Entry]]] = {}
    seen: set[str] = set()
    for name, modules in pages().items():
        taken: set[str] = set()
        found[name] = {}
        # What the library itself exports is explained in the part that it belongs to.
        for module in sorted(modules, key=FACADES.__contains__):
            new = sorted((item for item in candidates(name, module) if item.home not in seen), key=order)
            seen |= {entry.home for entry in new}
            headed = {head(entry, module, taken): entry for entry in new}
            taken |= headed.keys()
            found[name][module] = headed
    return found


def candidates(name: str, module: str) -> Iterator[Entry]:
    """Yield what may be explained in a section; what belongs to a module of ours only on the page of that."""
    for entry in exported_names(module):
        belongs = [page for page, package in own().items() if entry.home.startswith(f"{package}.")]
        if belongs == ([name] if name in own() else []):
            yield entry


def order(entry: Entry) -> tuple[int, str]:
    """Return the order of a name: functions, classes with methods, models, enumerations, the rest."""
    if entry.home.startswith(INSTALLED):
        return 5, entry.name
    if not is_class(entry.thing):
        return 0 if inspect.isfunction(entry.thing) else 4, entry.name
    kinds = (issubclass(entry.thing, Enum), is_dataclass(entry.thing) or issubclass(entry.thing, BaseModel))
    return (3 if kinds[0] else 2 if kinds[1] else 1), entry.name


def head(entry: Entry, module: str, taken: set[str]) -> str:
    """Return the heading of a name, which no other one of the page has."""
    return f"{module.rpartition('.')[2]}.{entry.name}" if entry.name in taken else entry.name


@cache
def places() -> Mapping[str, str]:
    """Return the page and the anchor of everything that is explained, by its home."""
    return {
        entry.home: f"{name}.md#{title.lower().replace('.', '')}"
        for name, modules in entries().items()
        for headed in modules.values()
        for title, entry in headed.items()
    }


def headings(name: str) -> Iterator[str]:
    """Yield the names that have a heading on a page."""
    for headed in entries()[name].values():
        for title, entry in headed.items():
            yield title
            yield from (f"{title}.{method}" for method in methods(entry.thing, places()))


def page(name: str) -> str:
    """Return the sections of a page."""
    return "\n\n".join(part for module in pages()[name] for part in section(module, entries()[name][module]))


def section(module: str, headed: Mapping[str, Entry]) -> Iterator[str]:
    """Yield the section of a module."""
    yield f"## {code(module)}"
    yield described(written(module))
    elsewhere = [entry for entry in exported_names(module) if entry not in headed.values()]
    if elsewhere:
        yield f"Also exported: {', '.join(f'[{code(e.name)}]({places()[e.home]})' for e in elsewhere)}."
    for title, entry in headed.items():
        yield from filter(None, explained(title, entry.name, entry.home, entry.thing, places()))
