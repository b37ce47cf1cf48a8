"""Modules come through an entry point: each failure has its message, and an outsider is as good as we are."""

from __future__ import annotations

import logging
import re
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import cast
from uuid import uuid4

import pytest

import twinstore
import twinstore_memory
from tests.support.distributions import LIBRARY, install_distribution
from tests.support.films import VISITS, Visit
from tests.support.library.books import Book
from tests.support.library.module import MODULE as LIBRARY_MODULE
from tests.support.library.module import LibraryStorage
from tests.support.library.plugin import LibraryOptions
from twinstore import aio, load_settings, open_storage
from twinstore.catalog.row import Row
from twinstore.catalog.tenancy import ALL_TENANTS
from twinstore.errors import ConfigurationError, ValidationError
from twinstore.observing import Counters
from twinstore.plugins.drivers import list_backends
from twinstore.plugins.modules import (
    broken_modules,
    built_modules,
    module_plugin,
    module_plugins,
    module_spec,
)
from twinstore.scheduler import storage as scheduler_storage
from twinstore.scheduler.module import MODULE
from twinstore.storage.data import DataSession, DataStorage
from twinstore.storage.open import open_module, storage_class
from twinstore.testing.instants import at

Install = Callable[..., None]

PLUGIN = """
from twinstore.plugins.modules import ModulePlugin
from twinstore.plugins.options import ModuleSettings

def spec():
    {spec}

PLUGIN = ModulePlugin(name="{name}", title="Shop", settings=ModuleSettings(section="{section}"), spec=spec)
"""


def plugin(
    name: str = "shop", section: str = "Shop", spec: str = "raise RuntimeError('nobody asked')"
) -> str:
    return PLUGIN.format(name=name, section=section, spec=spec)


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Install]:
    """Install a module whose plug-in is this source."""
    written: list[str] = []

    def add(distribution: str, source: str, *, entry: str = "shop", value: str = "PLUGIN") -> None:
        name = distribution.replace("-", "_") + "_plugin"
        points = {"twinstore.modules": {entry: f"{name}:{value}"}}
        site = install_distribution(monkeypatch, tmp_path, distribution, points)
        (site / f"{name}.py").write_text(source)
        written.append(name)

    yield add
    for name in written:
        sys.modules.pop(name, None)


@pytest.fixture
def library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Install the module of an outsider."""
    install_distribution(monkeypatch, tmp_path, "acme-library", LIBRARY)


WITHOUT_STORAGE = replace(LIBRARY_MODULE, storage=None, session=None)


def memory(**persistence: object) -> Mapping[str, object]:
    return {"Persistence": {**persistence, "Memory": {"Store": uuid4().hex}}}


def refusal(name: str) -> ConfigurationError:
    with pytest.raises(ConfigurationError) as caught:
        module_spec(name)
    assert caught.value.module is not None
    return caught.value


# ------------------------------------------------------------------------------------- the registry


@pytest.mark.parametrize("name", ["scheduler", "SCHEDULER"])
def test_a_module_is_loaded_by_name_without_regard_to_case(name: str) -> None:
    assert module_spec(name) is MODULE
    assert module_plugin(name).title == "Scheduler"


def test_a_module_of_data_alone_is_opened_with_the_access_to_its_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    points = {"twinstore.modules": {"films": "tests.support.films:PLUGIN"}}
    install_distribution(monkeypatch, tmp_path, "acme-films", points)
    visit, counters = Visit(id="first", page="/", seen_at=at()), Counters()
    with open_storage(memory(Films="Memory"), observers=[counters]) as storage:
        films = storage.module("films", DataStorage)
        films.access.insert(VISITS, ALL_TENANTS, Row(visit))
        with films.transaction(purpose="a look") as unit:
            (found,) = unit.access.find(VISITS, ALL_TENANTS, [("first",)])
        assert found == Row(visit)
        assert films.bulk.counts(VISITS) == {":none": 1}
    counted = {labels[:3] for labels in counters.snapshot().operations}
    assert {("films", "access", "insert"), ("films", "access", "find")} <= counted
    assert getattr(twinstore, "FilmsStorage") is DataStorage  # noqa: B009  # no stub knows it
    assert getattr(twinstore, "FilmsSession") is DataSession  # noqa: B009  # no stub knows it


def test_repositories_without_a_storage_are_refused(install: Install) -> None:
    install("one-shop", plugin(spec="from tests.unit.test_modules import WITHOUT_STORAGE as it; return it"))
    with pytest.raises(ConfigurationError, match="has repositories, but no storage class"):
        storage_class(WITHOUT_STORAGE)


def test_an_option_by_which_rows_expire_must_be_known(install: Install) -> None:
    source = plugin(spec="from tests.support.films import MODULE; return MODULE")
    install("one-shop", source.replace("Shop", "Films").replace('"shop"', '"films"'), entry="films")
    assert "lets rows expire by keep_visits, remove_showings, which is no option" in refusal("films").message


def test_a_description_that_is_refused_is_named_with_its_line(install: Install) -> None:
    install("one-shop", plugin(spec="import one_shop_plugin_catalog"))
    (site,) = [Path(path) for path in sys.path if path.endswith("one-shop")]
    catalog = "from twinstore.module import Module\n\nModule(name='A')\n"
    (site / "one_shop_plugin_catalog.py").write_text(catalog)
    place = r"\(ValueError: module A cannot be a name; .*; line 3 of .*catalog\.py\)"
    assert re.search(place, refusal("shop").message)


@pytest.mark.usefixtures("library")
def test_our_modules_are_listed_in_their_order_and_those_of_others_behind_them() -> None:
    assert tuple(module_plugins()) == ("scheduler", "tracking", "taskrunner", "library")
    assert built_modules() == ("scheduler", "tracking", "taskrunner", "library")


def test_an_unknown_name_gets_near_matches_and_the_list() -> None:
    assert refusal("schedular").message == (
        "Unknown module 'schedular'. Did you mean scheduler? Installed: scheduler, taskrunner, tracking. "
        "Correct the name or install the distribution that provides it."
    )


@pytest.mark.parametrize(
    ("source", "kind", "text"),
    [
        ("import nowhere_to_be_found", ModuleNotFoundError, "No module named 'nowhere_to_be_found'"),
        ("raise SystemExit(3)", SystemExit, "SystemExit: 3"),
        (
            plugin(section="Persistence"),
            ValueError,
            "an identifier other than Persistence",
        ),
        (plugin(spec="pass") + "del PLUGIN", AttributeError, "PLUGIN"),
    ],
)
def test_a_plug_in_that_cannot_be_imported_keeps_its_cause(
    install: Install, source: str, kind: type[BaseException], text: str
) -> None:
    install("one-shop", source)
    error = refusal("shop")
    assert isinstance(error.__cause__, kind)
    assert "The module shop (one-shop 1.2: one_shop_plugin:PLUGIN) cannot be imported" in error.message
    assert text in error.message


@pytest.mark.parametrize("spec", ["import nowhere_to_be_found", "raise SystemExit(3)"])
def test_contents_that_cannot_be_imported_keep_their_cause_and_do_no_harm_before(
    install: Install, spec: str
) -> None:
    install("one-shop", plugin(spec=spec))
    assert load_settings({"Persistence": {"Shop": "Memory"}}, environ={}).backend_name("shop") == "Memory"
    error = refusal("shop")
    assert "cannot be imported" in error.message
    assert error.__cause__ is not None


@pytest.mark.parametrize(
    ("source", "entry", "problem"),
    [
        ("PLUGIN = 3", "shop", "is of type int instead of a ModulePlugin"),
        (
            plugin(name="store"),
            "shop",
            "describes itself as 'store'; its entry point must have the same name",
        ),
        (plugin(name="Shop"), "Shop", "has a name that no module can have"),
        *(
            (plugin(name=name), name, "has a name that no module can have")
            for name in ("twinstore", "public", "pg_shop", "class", "information_schema", "a" * 41)
        ),
        (plugin(spec="return 3"), "shop", "returned int instead of a ModuleSpec"),
        (
            plugin(spec="from twinstore.scheduler.module import MODULE; return MODULE"),
            "shop",
            "stores 'scheduler' (Scheduler), but its plug-in says 'shop' (Shop)",
        ),
    ],
)
def test_a_plug_in_that_answers_wrongly_says_how(
    install: Install, source: str, entry: str, problem: str
) -> None:
    install("one-shop", source, entry=entry)
    assert problem in refusal(entry).message


def test_a_module_of_which_only_the_settings_are_known_says_so(install: Install) -> None:
    install("one-shop", plugin().replace(", spec=spec)", ")"))
    message = refusal("shop").message
    assert "is known by its settings only: this release cannot open, migrate or copy it." in message
    assert "Choose another module (scheduler, tracking, taskrunner)" in message


def test_a_broken_plug_in_is_excluded_from_the_settings_and_the_list_and_logged(
    install: Install, caplog: pytest.LogCaptureFixture
) -> None:
    install("one-shop", "raise RuntimeError('broken')")
    with caplog.at_level(logging.WARNING, "twinstore.modules"):
        load_settings({"Persistence": {"Scheduler": "Memory"}}, environ={})
    assert "one-shop" in caplog.text
    assert tuple(broken_modules()) == ("shop",)
    assert "shop" not in module_plugins()
    assert {info.state for info in list_backends()} == {"ready"}


@pytest.mark.parametrize("ask", [{"Persistence": {"Shop": "Memory"}}, None])
def test_requesting_a_broken_module_raises_the_reason(
    install: Install, ask: Mapping[str, object] | None
) -> None:
    install("one-shop", "raise RuntimeError('broken')")
    with pytest.raises(ConfigurationError, match=r"cannot be imported \(RuntimeError: broken\)"):
        load_settings(ask, environ={}).backend_name("shop")


def test_contents_that_cannot_be_imported_leave_the_names_of_others_alone(
    install: Install, caplog: pytest.LogCaptureFixture
) -> None:
    install("one-shop", plugin())
    with caplog.at_level(logging.WARNING, "twinstore.modules"):
        assert twinstore_memory.MemoryRunRepository.__name__ == "MemoryRunRepository"
    assert "A module is skipped: The module shop" in caplog.text
    assert twinstore.SchedulerStorage is scheduler_storage.SchedulerStorage
    with pytest.raises(ConfigurationError, match=r"cannot be imported \(RuntimeError"):
        _ = getattr(twinstore, "ShopStorage")  # noqa: B009  # no stub knows it


@pytest.mark.parametrize("section", ["Scheduler", "worker"])
def test_a_section_of_the_settings_belongs_to_one_module(install: Install, section: str) -> None:
    install("one-shop", plugin(section=section))
    assert f"uses the section {section} of the settings" in broken_modules()["shop"].message
    assert load_settings({"Persistence": {"Scheduler": "Memory"}}, environ={}).backend_name("scheduler")


LIGHT = """
import sys
from twinstore.plugins.modules import built_modules, module_plugins
module_plugins(), built_modules()
print(*sorted(name for name in sys.modules if name.startswith("twinstore.scheduler")))
"""


def test_the_plug_ins_are_read_without_importing_what_they_store() -> None:
    command = [sys.executable, "-W", "error", "-c", LIGHT]
    answer = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
    assert answer == ["twinstore.scheduler", "twinstore.scheduler.options", "twinstore.scheduler.plugin"]


# ------------------------------------------------------------------------------------- the names of hosts


NAMES = {
    "SchedulerMongoSessionFactory",
    "SchedulerSession",
    "SchedulerStorage",
    "SessionFactory",
    "add_scheduler_memory_storage",
    "add_scheduler_mongo_storage",
    "add_scheduler_postgres_storage",
    "add_scheduler_storage",
}


def test_the_names_of_modules_and_drivers_are_listed_and_can_be_imported() -> None:
    assert set(twinstore.__all__) >= NAMES
    assert set(dir(twinstore)) >= NAMES
    assert twinstore.__all__ == sorted(set(twinstore.__all__))
    for name in twinstore.__all__:
        assert getattr(twinstore, name) is not None
    names: dict[str, object] = {}
    exec("from twinstore import *", names)  # noqa: S102  # what a host may write
    assert set(twinstore.__all__) <= names.keys()
    assert twinstore.SchedulerStorage is scheduler_storage.SchedulerStorage


def test_the_names_for_asyncio_are_listed_and_can_be_imported() -> None:
    assert {"AsyncSchedulerSession", "AsyncSchedulerStorage", "AsyncStorage", "open_storage"} <= set(
        aio.__all__
    )
    assert set(aio.__all__) <= set(dir(aio))
    for name in aio.__all__:
        assert getattr(aio, name) is not None


@pytest.mark.parametrize(
    "name", ["add_shop_storage", "ShopStorage", "nothing", "add_scheduler_paper_storage"]
)
def test_a_name_that_no_plug_in_provides_is_an_attribute_error(name: str) -> None:
    with pytest.raises(AttributeError, match=f"module 'twinstore' has no attribute '{name}'"):
        getattr(twinstore, name)


def test_a_storage_without_such_a_module_names_those_that_there_are() -> None:
    with open_storage(memory(Scheduler="Memory")) as storage:
        with pytest.raises(AttributeError, match=r"no attribute 'schedular'\. .* Did you mean scheduler\?"):
            getattr(storage, "schedular")  # noqa: B009  # type checkers know that there is none
        assert not hasattr(storage, "shop")
        assert not hasattr(storage, "_opened_later")


def test_a_storage_is_opened_once_and_the_same_by_attribute_and_by_name() -> None:
    with open_storage(memory(Scheduler="Memory")) as storage:
        assert storage.scheduler is storage.scheduler is storage.module("Scheduler")
        assert storage.module("scheduler", twinstore.SchedulerStorage) is storage.scheduler
        with pytest.raises(ValidationError, match="is a SchedulerStorage, not a LibraryStorage"):
            storage.module("scheduler", LibraryStorage)


def test_a_module_that_fails_to_close_keeps_nothing_else_open(monkeypatch: pytest.MonkeyPatch) -> None:
    class CloseFailedError(OSError):
        pass

    def fail(_: object) -> None:
        raise CloseFailedError

    closed: list[str] = []
    storage = open_storage(memory(Scheduler="Memory"))
    backend = storage.scheduler._backend  # noqa: SLF001  # the part that fails
    storage._resources.share("pool", object, lambda _: closed.append("pool"))  # noqa: SLF001  # what it shares
    monkeypatch.setattr(type(backend), "close", fail)
    with pytest.raises(CloseFailedError):
        storage.close()
    assert closed == ["pool"]
    with pytest.raises(ConfigurationError, match="closed"):
        storage.scheduler.runs.get("t", "r")


# ------------------------------------------------------------------------------------- an outsider

BOOK = Book(id="first", tenant_id="acme", title="On stores")


@pytest.mark.usefixtures("library")
class TestOutsider:
    def test_its_storage_is_an_attribute_and_shares_the_driver_with_ours(self) -> None:
        with open_storage(memory(Scheduler="Memory", Library="Memory")) as storage:
            books = storage.module("library", LibraryStorage)
            with books.transaction("acme") as unit:
                unit.books.put(BOOK)
            assert getattr(storage, "library") is books  # noqa: B009  # no stub knows it
            assert books.books.get("acme", "first") == BOOK
            assert storage.scheduler.driver == "Memory"

    @pytest.mark.parametrize("name", ["add_library_storage", "add_library_memory_storage"])
    def test_its_functions_and_classes_are_names_of_twinstore(self, name: str) -> None:
        add = cast("Callable[..., LibraryStorage]", getattr(twinstore, name))
        assert (add.__name__, name in twinstore.__all__, name in dir(twinstore)) == (name, True, True)
        with add(memory(Library="Memory")) as storage:
            assert type(storage) is getattr(twinstore, "LibraryStorage")  # noqa: B009  # no stub knows it
            storage.books.put(BOOK)
            assert storage.books.get("acme", "first") == BOOK

    def test_its_options_are_keys_of_the_settings(self) -> None:
        given = {"Library": {"Storage": {"KeepDays": 3}, "Signature": {"Host": "h-1"}}}
        settings = load_settings(given, environ={"Library__Signature__zone": "eu"})
        expected = LibraryOptions(keep_days=3, signature={"Host": "h-1", "zone": "eu"})
        assert settings.options("library") == expected
        assert settings.describe()["Library:Signature:zone"]["value"] == "eu"

    @pytest.mark.parametrize(
        ("given", "message"),
        [
            ({"Library": {"Storage": {"Keep": 3}}}, r"Did you mean KeepDays\?"),
            ({"Library": {"Signature": {"a": {"b": "c"}}}}, "is a single value, but has settings below it"),
            ({"Library": {"Signature": "x"}}, "is a section, but has a value"),
            ({"Library": {"Signature": {"a": 3}}}, r"Library:Signature:a = 3 .* is not valid"),
        ],
    )
    def test_its_settings_are_checked_as_ours(self, given: Mapping[str, object], message: str) -> None:
        with pytest.raises(ConfigurationError, match=message):
            load_settings(given, environ={})

    def test_options_from_python_win_and_are_checked(self) -> None:
        given = {**memory(Library="Memory"), "Library": {"Signature": {"a": "1", "b": "2"}}}
        settings = load_settings(given, environ={}).with_options(
            {"library": {"keep_days": 7, "signature": {"b": "3"}}}
        )
        assert settings.options("library") == LibraryOptions(keep_days=7, signature={"a": "1", "b": "3"})
        with pytest.raises(ConfigurationError, match=r"has no option 'keep'\. Did you mean keep_days\?"):
            open_module("library", "Memory", given, options={"keep": 3})
        with pytest.raises(ConfigurationError, match=r"KeepDays = -1 \(the argument options\) is not valid"):
            open_storage(given, options={"library": {"keep_days": -1}})

    def test_without_classes_for_asyncio_the_command_that_writes_them_is_named(self) -> None:
        async_storage = aio.open_storage(memory(Library="Memory"))
        with pytest.raises(ConfigurationError, match="`twinstore dev aio library`"):
            async_storage.module("library")
