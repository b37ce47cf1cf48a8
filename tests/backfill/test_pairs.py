"""Every pair of drivers that store a module: copied, proved, copied again, and brought back.

The bounded form has of each module the pairs in which every driver is the source once and the target once.
"""

from __future__ import annotations

from contextlib import ExitStack, contextmanager
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any, Final, cast
from uuid import uuid4

import pytest

from tests.backfill.toolkit import Pair, contents_of, open_store, rows_of
from twinstore.catalog import LifeInCopy
from twinstore.config import load_settings
from twinstore.modules import complete_modules, module_plugin, module_spec
from twinstore.testing.taskrunner.builders import make_artifact, make_log_entry, make_pack_run
from twinstore_backfill.outcome import Exit
from twinstore_memory.store import drop_store

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.databases import MongoDatabase, PostgresDatabase
    from twinstore.bulk import BulkPort
    from twinstore.module_storage import ModuleStorage
    from twinstore.taskrunner.storage import TaskRunnerStorage
    from twinstore.testing.examples import ModuleExamples

DRIVERS: Final = ("memory", "mongo", "postgres")
# The filesystem driver stores one module and is copied from only.
SOURCES: Final = {"taskrunner": (*DRIVERS, "filesystem")}
TENANTS: Final = ("acme", "umbrella")
# The rows of these tests are old; the TTL indexes of MongoDB would remove them some time.
FOR_EVER: Final[dict[str, Any]] = {
    "Scheduler": {"Storage": {"RunRetentionDays": 0}},
    "Tracking": {"Storage": {"RetentionDays": 0}},
}
BOUNDED: Final = {
    ("mongo", "postgres"),
    ("postgres", "memory"),
    ("memory", "mongo"),
    ("filesystem", "postgres"),
}
PAIRS: Final = [
    pytest.param(module.name, source, target, marks=[] if (source, target) in BOUNDED else [pytest.mark.long])
    for module in complete_modules()
    if module.kit is not None
    for source in SOURCES.get(module.name, DRIVERS)
    for target in DRIVERS
    if source != target
    # test_between_servers has more of this module between the two.
    and not (module.name == "scheduler" and "memory" not in {source, target})
]


@pytest.fixture
def settings(
    mongo_database: MongoDatabase, postgres_database: PostgresDatabase, tmp_path: Path
) -> Iterator[dict[str, Any]]:
    """Return one settings document for all drivers."""
    store = uuid4().hex
    persistence: dict[str, Any] = {"Memory": {"Store": store}}
    for database in (mongo_database, postgres_database):
        persistence |= cast("dict[str, Any]", database.config["Persistence"])
    files = {"Storage": {"Filesystem": {"Root": str(tmp_path / "files")}}}
    yield {"Persistence": persistence, "TaskRunner": files, **FOR_EVER}
    drop_store(store)


@contextmanager
def opened(module: str, source: str, target: str, settings: dict[str, Any], out: Path) -> Iterator[Pair]:
    """Open two sides; the source is migrated, as the host that wrote it has done."""
    section = module_plugin(module).settings.section
    sides = [
        load_settings(
            {**settings, "Persistence": {**settings["Persistence"], section: driver.title()}}, environ={}
        )
        for driver in (source, target)
    ]
    with ExitStack() as stack:
        left = stack.enter_context(open_store(module, source, sides[0]))
        right = stack.enter_context(open_store(module, target, sides[1]))
        left.storage.initializer.ensure_migrations()
        yield Pair(left, right, out)


def examples_of(module: str) -> ModuleExamples:
    """Return the examples of the kit of a module."""
    kit = module_spec(module).kit
    assert kit is not None
    examples: ModuleExamples = resolve_name(kit).module
    return examples


def fill(module: str, storage: ModuleStorage[object, object]) -> None:
    """Write of each entity a row with few values and one with a value in every field, for each tenant."""
    for item in examples_of(module).examples:
        for tenant in TENANTS:
            name = f"{tenant} {item.entity.name}"
            item.store(storage.unbound, tenant, item.small(tenant, f"{name} small"))
            item.store(storage.unbound, tenant, item.rich(tenant, f"{name} rich/größer"))
    if module == "taskrunner":
        # Of nobody: the examples all have a tenant.
        cast("TaskRunnerStorage", storage).pack_runs.create(make_pack_run(None, "of nobody"))


def all_content(port: BulkPort) -> dict[str, list[bytes]]:
    """Return what each row of a side holds that a copy brings over as it is, as the verifier reads it."""
    copied = (entity for entity in port.entities() if entity.life is LifeInCopy.COPIED)
    return {entity.name: contents_of(port, entity) for entity in copied}


@pytest.mark.parametrize(("module", "source", "target"), PAIRS)
def test_a_module_is_copied_proved_and_copied_again_without_a_write(
    module: str, source: str, target: str, settings: dict[str, Any], tmp_path: Path
) -> None:
    with opened(module, source, target, settings, tmp_path / "out") as pair:
        fill(module, cast("Any", pair.source.storage))
        first = pair.copy()
        assert (first.exit, first.complete) == (Exit.OK, True)
        report = pair.verify()
        assert (report.verdict, report.reasons, report.equivalences) == ("PASS", (), ())
        written = first.totals.all()["written"]
        assert report.documents_equal == written == first.totals.all()["read"] > 0
        assert all_content(pair.target.bulk) == all_content(pair.source.bulk)
        again = pair.copy().totals.all()
        assert (again["written"], again["unchanged"]) == (0, written)


@pytest.mark.parametrize("module", [module.name for module in complete_modules() if module.kit])
def test_a_module_comes_back_as_it_was(module: str, settings: dict[str, Any], tmp_path: Path) -> None:
    with opened(module, "mongo", "postgres", settings, tmp_path / "there") as pair:
        fill(module, cast("Any", pair.source.storage))
        before, rows = all_content(pair.source.bulk), rows_of(pair.source.bulk)
        pair.copy()
    with opened(module, "postgres", "mongo", settings, tmp_path / "back") as back:
        assert back.copy().totals.all()["written"] == 0
        assert (all_content(back.target.bulk), rows_of(back.target.bulk)) == (before, rows)


def test_one_entity_is_proved_before_those_beside_it_are_copied(
    settings: dict[str, Any], tmp_path: Path
) -> None:
    with opened("taskrunner", "memory", "postgres", settings, tmp_path / "out") as pair:
        fill("taskrunner", cast("Any", pair.source.storage))
        runner = cast("TaskRunnerStorage", pair.source.storage)
        runner.pack_artifacts.upload(make_artifact("of nobody", "report"))
        runner.pack_run_logs.append([make_log_entry("of nobody")])
        for entity in ("pack_runs", "pack_run_logs"):
            pair.copy(entities=(entity,))
            report = pair.verify(entities=(entity,))
            assert (report.verdict, report.reasons) == ("PARTIAL", ())
