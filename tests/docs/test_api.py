"""The reference of the Python API has every name that a host or the author of a driver may use."""

from __future__ import annotations

import re
from importlib import import_module
from typing import Final

import pytest

from docs.parts import api
from tests.docs.pages import DOCS, prose
from twinstore.codegen.aio import facades
from twinstore.plugins.module_spec import ModuleSpec
from twinstore.plugins.modules import built_modules, module_spec
from twinstore.testing.methods import method_names

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
