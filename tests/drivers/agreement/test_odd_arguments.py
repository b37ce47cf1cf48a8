"""Whatever an argument is, a call ends with an error of ours or with an answer, the same on every store."""

from __future__ import annotations

from contextlib import ExitStack
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any

import pytest

import twinstore
from docs.parts.entities import MODULES
from tests.support.databases import for_every_module, migrate
from tools.differential.odd_arguments import calls_of_a_storage, ending, odd_calls, outcome
from twinstore.testing.workspace import unique

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from tests.support.databases import MongoDatabase, PostgresDatabase
    from twinstore.plugins.module_spec import ModuleSpec
    from twinstore.testing.examples import ModuleExamples

Storages = dict[str, twinstore.Storage]


@pytest.fixture(scope="module")
def storages(
    module_mongo_database: MongoDatabase,
    module_postgres_database: PostgresDatabase,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Storages]:
    settings: dict[str, dict[str, Any]] = {
        "Memory": {"Persistence": {"Memory": {"Store": unique("odd")}}},
        "Mongo": module_mongo_database.config,
        "Postgres": module_postgres_database.config,
        "Filesystem": {"Persistence": {"Filesystem": {"Root": str(tmp_path_factory.mktemp("tree"))}}},
    }
    with ExitStack() as stack:
        found: Storages = {}
        for driver, config in settings.items():
            chosen = for_every_module(config, driver)
            if driver == "Filesystem":
                chosen = {"Persistence": {**config["Persistence"], "TaskRunner": driver}}
            else:
                migrate(chosen)
            found[driver] = stack.enter_context(twinstore.open_storage(chosen))
        yield found


@pytest.mark.parametrize("module", MODULES, ids=lambda module: module.name)
def test_every_argument_of_every_method_is_judged_alike(
    storages: Storages, module: ModuleSpec[object]
) -> None:
    assert module.kit is not None
    place, _, name = module.kit.partition(":")
    examples: ModuleExamples = getattr(import_module(place), name).module
    calls = list(odd_calls(module, examples))
    assert len(calls) > 500
    judge(storages, module, [(call.name, partial(ending, call)) for call in calls])


@pytest.mark.parametrize("module", MODULES, ids=lambda module: module.name)
def test_every_argument_of_a_storage_is_judged_alike(storages: Storages, module: ModuleSpec[object]) -> None:
    judge(storages, module, [(name, partial(outcome, call)) for name, call in calls_of_a_storage()])


def judge(
    storages: Storages, module: ModuleSpec[object], calls: Sequence[tuple[str, Callable[[object], object]]]
) -> None:
    """Make calls on every store; fail with all that end otherwise on one of them, or with a foreign error."""
    drivers = [name for name in storages if name != "Filesystem" or module.name == "taskrunner"]
    wrong: list[str] = []
    for name, call in calls:
        endings: dict[str, str] = {}
        for driver in drivers:
            try:
                found = str(call(storages[driver].module(module.name)))
            except Exception as error:  # noqa: BLE001  # collected, so that one run names all of them
                found = f"FOREIGN {type(error).__name__}: {str(error)[:200]}"
            if driver == "Filesystem" and "UnsupportedCapabilityError" in found:
                continue  # it has neither sessions nor transactions
            # Messages of capabilities and handles contain the name of the driver.
            endings[driver] = found.replace(driver, "DRIVER")
            if name.startswith("bind"):  # a handle of another kind on each
                endings[driver] = endings[driver].partition(" joins ")[0]
        first = next(iter(endings.values()))
        if any(found != first or "FOREIGN" in found for found in endings.values()):
            wrong.append(f"{name}: {endings}")
    if wrong:
        pytest.fail(f"{len(wrong)} of {len(calls)}\n" + "\n".join(wrong), pytrace=False)
