"""Every pair of drivers that store a module: copied, proved, copied again, changed, and brought back.

The bounded form has the source or target in memory where only one server decides; the way there and
back has both. The full form has every pair.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack, contextmanager
from itertools import product
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any, Final, cast
from uuid import uuid4

import psycopg
import pytest

from tests.support import copies
from tests.support.copies import DOCUMENTS_PER_TENANT, Pair, contents_of, open_store, rows_of
from twinstore.catalog.entity import CopyPolicy
from twinstore.config import load_settings
from twinstore.plugins.modules import complete_modules, module_spec
from twinstore.scheduler.catalog import AUDIT, SCHEDULES
from twinstore.testing.taskrunner.builders import make_artifact, make_log_entry, make_pack_run
from twinstore_backfill.outcome import Exit
from twinstore_memory.store import drop_store

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.support.databases import MongoServer, PostgresServer
    from twinstore.bulk.port import BulkPort
    from twinstore.config import Settings
    from twinstore.storage.module import ModuleStorage
    from twinstore.taskrunner.storage import TaskRunnerStorage
    from twinstore.testing.examples import ModuleExamples

# A driver, and the settings of an empty store of it.
Place = tuple[str, "Settings"]
Places = Callable[[str], Place]
DRIVERS: Final = ("memory", "mongo", "postgres")
# The filesystem driver stores one module and is copied from only.
SOURCES: Final = {"taskrunner": (*DRIVERS, "filesystem")}
TENANTS: Final = ("acme", "umbrella")
# The rows of these tests are old; the TTL indexes of MongoDB would remove them some time.
FOR_EVER: Final[dict[str, Any]] = {
    "Scheduler": {"Storage": {"RunRetentionDays": 0}},
    "Tracking": {"Storage": {"RetentionDays": 0}},
}
MODULES: Final = [module.name for module in complete_modules() if module.kit is not None]
BOUNDED: Final = {
    ("tracking", "memory", "mongo"),
    ("scheduler", "postgres", "memory"),
    ("taskrunner", "filesystem", "postgres"),
}
PAIRS: Final = [
    pytest.param(*pair, marks=[] if pair in BOUNDED else [pytest.mark.long])
    for module in MODULES
    for source in SOURCES.get(module, DRIVERS)
    for target in DRIVERS
    if source != target
    for pair in [(module, source, target)]
]


@pytest.fixture
def places(mongo_server: MongoServer, postgres_server: PostgresServer, tmp_path: Path) -> Iterator[Places]:
    """Return what makes an empty store of a driver."""
    with ExitStack() as stack:

        def made(driver: str) -> Place:
            if driver == "mongo":
                found = stack.enter_context(mongo_server.migrated_database()).config
            elif driver == "postgres":
                found = stack.enter_context(postgres_server.migrated_database()).config
            else:
                name = uuid4().hex
                stack.callback(drop_store, name)
                found = {"Persistence": {"Memory": {"Store": name}}}
            files = {"Storage": {"Filesystem": {"Root": str(tmp_path / "files")}}}
            return driver, load_settings({**found, "TaskRunner": files, **FOR_EVER}, environ={})

        yield made


@contextmanager
def opened(module: str, source: Place, target: Place, out: Path) -> Iterator[Pair]:
    """Open two sides; the source is migrated, as the application that wrote it has done."""
    with open_store(module, *source) as left, open_store(module, *target) as right:
        left.storage.initializer.ensure_migrations()
        yield Pair(left, right, out)


def examples_of(module: str) -> ModuleExamples:
    """Return the examples of the kit of a module."""
    kit = module_spec(module).kit
    assert kit is not None
    examples: ModuleExamples = resolve_name(kit).module
    return examples


def fill_module(module: str, storage: ModuleStorage[object, object]) -> None:
    """Write of each entity a row with few values and one with a value in every field, for each tenant."""
    for item in examples_of(module).examples:
        for tenant in TENANTS:
            name = f"{tenant} {item.entity.name}"
            item.store(storage.unbound, tenant, item.small(tenant, f"{name} small"))
            item.store(storage.unbound, tenant, item.rich(tenant, f"{name} rich/größer"))
    if module == "taskrunner":
        # Without a tenant: the examples all have one.
        cast("TaskRunnerStorage", storage).pack_runs.create(make_pack_run(None, "of nobody"))


def all_content(port: BulkPort) -> dict[str, list[bytes]]:
    """Return what each row of a side holds that a copy brings over as it is, as the verifier reads it."""
    copied = (entity for entity in port.entities() if entity.copy_policy is CopyPolicy.COPIED)
    return {entity.name: contents_of(port, entity) for entity in copied}


def assert_copied_and_proved(pair: Pair) -> None:
    first = pair.copy(jobs=4)
    assert (first.exit, first.complete) == (Exit.OK, True)
    report = pair.verify()
    assert (report.verdict, report.reasons, report.equivalences) == ("PASS", (), ())
    written = first.totals.all()["written"]
    assert report.documents_equal == written == first.totals.all()["read"] > 0
    assert all_content(pair.target.bulk) == all_content(pair.source.bulk)
    again = pair.copy(jobs=4).totals.all()
    assert (again["written"], again["unchanged"]) == (0, written)


@pytest.mark.parametrize(("module", "source", "target"), PAIRS)
def test_a_module_is_copied_proved_and_copied_again_without_a_write(
    module: str, source: str, target: str, places: Places, tmp_path: Path
) -> None:
    with opened(module, places(source), places(target), tmp_path / "out") as pair:
        fill_module(module, cast("Any", pair.source.storage))
        assert_copied_and_proved(pair)


@pytest.mark.parametrize("module", MODULES)
def test_a_module_comes_back_as_it_was(module: str, places: Places, tmp_path: Path) -> None:
    mongo, postgres = places("mongo"), places("postgres")
    with opened(module, mongo, postgres, tmp_path / "there") as pair:
        fill_module(module, cast("Any", pair.source.storage))
        before, rows = all_content(pair.source.bulk), rows_of(pair.source.bulk)
        assert_copied_and_proved(pair)
    with opened(module, postgres, mongo, tmp_path / "back") as back:
        assert back.copy().totals.all()["written"] == 0
        assert (all_content(back.target.bulk), rows_of(back.target.bulk)) == (before, rows)


@pytest.mark.parametrize(
    ("source", "target"),
    [
        pytest.param(*pair, marks=[] if pair == ("postgres", "postgres") else [pytest.mark.long])
        for pair in product(DRIVERS, DRIVERS)
    ],
)
def test_one_tenant_then_the_rest_and_what_differs_is_overwritten_on_request(
    source: str, target: str, places: Places, tmp_path: Path
) -> None:
    rows = 2 * DOCUMENTS_PER_TENANT
    with opened("scheduler", places(source), places(target), tmp_path) as pair:
        copies.fill(pair.source.storage)
        assert pair.copy(execute=False).totals.all()["written"] == rows
        assert set(rows_of(pair.target.bulk).values()) == {0}
        assert pair.copy(tenants=("acme",)).totals.all()["written"] == DOCUMENTS_PER_TENANT
        assert pair.target.bulk.counts(SCHEDULES) == {"acme": 3}
        assert pair.verify(tenants=("acme",)).verdict == "PARTIAL"
        assert pair.verify().verdict == "FAIL"
        rest = pair.copy().totals.all()
        assert (rest["written"], rest["unchanged"]) == (DOCUMENTS_PER_TENANT, DOCUMENTS_PER_TENANT)
        assert all_content(pair.target.bulk) == all_content(pair.source.bulk)
        assert pair.verify().verdict == "PASS"
        schedule = pair.target.storage.schedules.get_required("acme", "acme-schedule-0")
        pair.target.storage.schedules.upsert(schedule.evolve(name="other"))
        assert pair.verify().verdict == "FAIL"
        kept = pair.copy(max_conflicts=1)
        assert (kept.exit, kept.totals.all()["conflicts"]) == (Exit.DIFFERENT, 1)
        assert kept.totals.all()["unchanged"] == rows - 1
        assert pair.copy(on_conflict="overwrite").totals.all()["written"] == 1
        assert pair.verify().verdict == "PASS"


def test_a_refused_row_is_quarantined_with_its_reason(
    postgres_server: PostgresServer, tmp_path: Path
) -> None:
    with postgres_server.migrated_database() as source, postgres_server.migrated_database() as target:
        left, right = (("postgres", load_settings(each.config, environ={})) for each in (source, target))
        with opened("scheduler", left, right, tmp_path) as pair:
            copies.fill(pair.source.storage)
            with psycopg.connect(target.superuser_url) as admin:
                admin.execute("ALTER TABLE scheduler.audit ADD CHECK (id <> 'acme-audit-1')")
            with psycopg.connect(source.superuser_url) as admin:
                bad: list[Any] = ["acme-audit-2"]
                admin.execute("UPDATE scheduler.audit SET actor = '{\"a\": 1}' WHERE id = %s", bad)
            result = pair.copy(entities=(AUDIT.name,)).totals.all()
            job = next(pair.target.ledger.jobs())
            lines = {line.key: line for line in pair.target.ledger.quarantined(job.id)}
    assert (result["quarantined"], result["written"]) == (2, 6)
    assert set(lines) == {'["acme-audit-1"]', '["acme-audit-2"]'}
    assert "23514" in lines['["acme-audit-1"]'].reason
    assert '"a"' in (lines['["acme-audit-2"]'].raw or "")


def test_one_entity_is_proved_before_its_siblings_are_copied(places: Places, tmp_path: Path) -> None:
    with opened("taskrunner", places("memory"), places("postgres"), tmp_path / "out") as pair:
        fill_module("taskrunner", cast("Any", pair.source.storage))
        runner = cast("TaskRunnerStorage", pair.source.storage)
        runner.pack_artifacts.upload(make_artifact("of nobody", "report"))
        runner.pack_run_logs.append([make_log_entry("of nobody")])
        for entity in ("pack_runs", "pack_run_logs"):
            pair.copy(entities=(entity,))
            report = pair.verify(entities=(entity,))
            assert (report.verdict, report.reasons) == ("PARTIAL", ())
