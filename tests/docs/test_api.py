"""The reference of the Python API has every name that an application or the author of a driver may use."""

from __future__ import annotations

import asyncio
import re
from importlib import import_module
from typing import TYPE_CHECKING, Final

import pytest

import twinstore
from docs.parts import api
from docs.parts.aio import ADDED, CHANGED, NOT_FOR_HOSTS, added, changed, surfaces
from tests.docs.pages import DOCS, prose
from twinstore import aio
from twinstore.codegen.aio import facades
from twinstore.plugins.module_spec import ModuleSpec
from twinstore.plugins.modules import built_modules, module_spec
from twinstore.testing.matrix import method_names

if TYPE_CHECKING:
    from collections.abc import Iterator

    from docs.parts.aio import Surface

HEADING: Final = re.compile(r"^###+ `(?P<name>[\w.]+)`$", re.MULTILINE)
MODULES: Final = {module for modules in api.pages().values() for module in modules}


def headings(page: str) -> list[str]:
    """Return the names that have a section on a page, as it is or as the site shows it."""
    text = api.page(page) if page == api.EXTENDING else prose(DOCS / f"{page}.md")
    return HEADING.findall(text)


def protocols(spec: ModuleSpec[object]) -> dict[str, str]:
    """Return the class of each repository and service of a session, and of the handles they hand out."""
    parts = {facade.attribute: facade.protocol for facade in facades(spec)}
    handles = {
        f"{facade.attribute}.{handle.name}": handle.name
        for facade in facades(spec)
        for handle in facade.handles
    }
    return {**parts, **handles}


@pytest.mark.parametrize("name", built_modules())
def test_every_public_method_of_repositories_and_services_has_a_section(name: str) -> None:
    spec = module_spec(name)
    classes, found = protocols(spec), headings(f"api-{name}")
    wanted = [method.removeprefix(f"{name}.").rpartition(".") for method in method_names(spec)]
    assert len(wanted) >= 10
    assert [(part, method) for part, _, method in wanted if f"{classes[part]}.{method}" not in found] == []


@pytest.mark.parametrize("method", ["bind", "check_ready", "transact", "transaction", "close"])
def test_what_a_host_calls_on_a_storage_has_a_section(method: str) -> None:
    assert f"ModuleStorage.{method}" in headings("api")


@pytest.mark.parametrize("page", api.pages())
def test_a_section_for_each_name_and_none_twice(page: str) -> None:
    found = headings(page)
    assert len(found) == len(set(found))
    assert set(found) == set(api.headings(page))


@pytest.mark.parametrize("module", sorted(MODULES))
def test_every_exported_name_is_explained_once(module: str) -> None:
    parts = [part for page in api.entries().values() for part in page.values()]
    homes = [entry.home for part in parts for entry in part.values()]
    exported = {entry.name: entry.home for entry in api.exported_names(module)}
    assert exported.keys() == set(import_module(module).__all__)
    assert {name: homes.count(home) for name, home in exported.items()} == dict.fromkeys(exported, 1)


def test_every_name_can_be_imported_from_the_module_that_its_section_is_under() -> None:
    sections = {module: part for page in api.entries().values() for module, part in page.items()}
    names = {module: [entry.name for entry in part.values()] for module, part in sections.items()}
    assert "SchedulerStorage" in names["twinstore.scheduler"]
    assert all(hasattr(import_module(module), name) for module, found in names.items() for name in found)


def test_what_a_newcomer_asks_for_is_among_them() -> None:
    parts = {"aio", "config", "errors", "observing", "scheduler", "taskrunner", "testing", "tracking"}
    assert {"twinstore", *(f"twinstore.{part}" for part in parts)} <= MODULES


def test_every_name_has_a_docstring() -> None:
    silent = [
        entry.home
        for page in api.entries().values()
        for part in page.values()
        for entry in part.values()
        if isinstance(entry.thing, type) and not entry.thing.__doc__
    ]
    assert silent == []


@pytest.fixture
def found() -> Iterator[list[Surface]]:
    settings = {"Persistence": dict.fromkeys(built_modules(), "Memory")}
    opened = aio.open_storage(settings)
    with twinstore.open_storage(settings) as storage:
        yield list(surfaces(storage, opened))
    asyncio.run(opened.close())


def test_every_difference_is_documented_and_no_documented_one_is_gone(found: list[Surface]) -> None:
    told = {name for name in CHANGED if not name.startswith("add_")}
    assert {name for surface in found for name in changed(surface)} == told | NOT_FOR_HOSTS
    assert {name for surface in found for name in added(surface)} == {*ADDED}


def test_every_module_and_each_of_its_parts_was_compared(found: list[Surface]) -> None:
    compared = {path.partition(".")[0] for path, _, _ in found}
    assert compared == {"", "<module>", *built_modules()}
    parts = [path for path, _, _ in found if path.startswith("scheduler.")]
    assert {"scheduler.runs.", "scheduler.locks.", "scheduler.run_summary_service."} <= set(parts)


def test_the_page_has_the_table() -> None:
    text = prose(DOCS / "concurrency.md")
    assert all(f"| `{name}` | {where} |" in text for name, (where, _) in CHANGED.items())
    assert all(name in text and same in text for name, same in ADDED.items())
