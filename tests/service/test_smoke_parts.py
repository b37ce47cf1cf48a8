"""The parts of a smoke test: lists that lie, whose rows it takes for left over, what other modules get."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final, cast

import pytest

from tests.support.copies import fill, invoke, open_store, write_config
from tests.support.distributions import LIBRARY, install_distribution
from twinstore.access.paging import Page
from twinstore.catalog.row import Row
from twinstore.catalog.tenancy import Tenant
from twinstore.config import load_settings
from twinstore.errors import UnavailableError
from twinstore.scheduler.catalog import SCHEDULES, TRIGGERS
from twinstore.scheduler.checks import SchedulerLists
from twinstore.scheduler.schedules import ScheduleQueryOptions
from twinstore.testing.scheduler.builders import make_schedule, make_trigger
from twinstore.testing.taskrunner import TASKRUNNER_EXAMPLES
from twinstore_backfill.process.stopping import StopSwitch
from twinstore_backfill.smoke import engine
from twinstore_backfill.smoke.engine import SmokeOptions, SmokeTenant, round_trips, run_smoke
from twinstore_backfill.verify.stored_lists import StoredRows, check_list
from twinstore_memory.bulk import MemoryBulk

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from twinstore.catalog.entity import Entity
    from twinstore.plugins.checks import ListedRow, ListQuery, TrialStep
    from twinstore.scheduler.storage import SchedulerStorage
    from twinstore_backfill.smoke.engine import Finding
    from twinstore_backfill.stores import Store
    from twinstore_backfill.verify.lists import AnyStorage, ListFinding

NOW: Final = datetime(2026, 3, 1, 12, 0, 0, 250_000, tzinfo=UTC)
MINUTE: Final = timedelta(minutes=1)


@pytest.fixture
def store() -> Iterator[Store[SchedulerStorage]]:
    settings = load_settings({"Persistence": {"Memory": {"Store": os.urandom(8).hex()}}}, environ={})
    with open_store("scheduler", "memory", settings) as opened:
        fill(opened.storage)
        yield opened


def found_in(
    store: Store[SchedulerStorage], name: str, lie: Callable[[Page[ListedRow | None]], object]
) -> ListFinding:
    """Return what is found of a list whose pages are not what the repository answers."""
    (query,) = [item for item in SchedulerLists({}, 3).of_tenant("acme", store.storage) if item.name == name]

    def fetch(side: SchedulerStorage, token: str | None) -> Page[ListedRow | None]:
        page = query.fetch(side, token)
        changed = lie(page)
        assert isinstance(changed, Page)
        return changed

    counts = {entity.name: store.bulk.counts(entity) for entity in store.bulk.entities()}
    # A tool knows no module: the storage that it holds is the one that the list is asked of.
    lying = cast("ListQuery[AnyStorage]", replace(query, fetch=fetch))
    return check_list(lying, store, StoredRows(store, counts))


def schedules_of(store: Store[SchedulerStorage]) -> Page[ListedRow | None]:
    """Return the first schedules of a tenant as the list shows them."""
    found = store.storage.schedules.list("acme", ScheduleQueryOptions(limit=2))
    return Page(tuple((schedule.id,) for schedule in found))


def turned(page: Page[ListedRow | None]) -> object:
    return replace(page, items=page.items[::-1])


LIES: Final = {
    "in order": (lambda page: page, "pass", ""),
    "the other way round": (
        turned,
        "fail",
        "row 1: acme-run-4 is listed, but by the stored rows it should be",
    ),
    "a row is lost": (
        lambda page: replace(page, items=page.items[1:]),
        "fail",
        "row 1: acme-run-5 is listed, but by the stored rows it should be acme-run-6",
    ),
    "a row twice": (
        lambda page: replace(page, items=(*page.items, page.items[0])),
        "fail",
        "acme-run-6 is listed twice",
    ),
    "it ends too early": (
        lambda page: replace(page, next_page_token=None),
        "fail",
        "3 rows are listed, but 7 are stored",
    ),
}


@pytest.mark.parametrize("name", LIES)
@pytest.mark.parametrize("whole", [10_000, 0], ids=["read whole", "asked of the server"])
def test_a_list_is_compared_with_what_the_rows_make_of_it(
    store: Store[SchedulerStorage],
    name: str,
    whole: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    lie, result, problem = LIES[name]
    monkeypatch.setattr("twinstore_backfill.verify.stored_lists.WHOLE", whole)
    found = found_in(store, "runs of acme, newest first", lie)
    assert (found.result, found.problem[: len(problem)]) == (result, problem)


def test_the_next_fires_are_those_of_the_stored_triggers_and_none_is_missing(
    store: Store[SchedulerStorage],
) -> None:
    assert found_in(store, "next fires of acme", lambda page: page).result == "pass"
    short = found_in(store, "next fires of acme", lambda page: replace(page, items=page.items[:-1]))
    assert (short.result, short.problem) == ("fail", "1 rows are listed, but 2 are stored")


def test_a_row_that_comes_and_goes_while_it_is_compared_is_no_difference(
    store: Store[SchedulerStorage],
) -> None:
    """A run is queued for milliseconds; a list may see it and the rows before and after not have it."""
    passing: Iterator[ListedRow] = iter([("passing",)])
    found = found_in(
        store, "runs of acme, newest first", lambda page: replace(page, items=(*passing, *page.items))
    )
    assert (found.result, found.problem) == ("pass", "")


def test_a_list_that_is_wrong_in_another_way_each_time_is_a_difference(
    store: Store[SchedulerStorage],
) -> None:
    numbers = iter(range(100))
    found = found_in(
        store,
        "runs of acme, newest first",
        lambda page: replace(page, items=((f"made-up-{next(numbers)}",), *page.items)),
    )
    assert (found.result, "made-up-" in found.problem) == ("fail", True)


def test_what_changes_while_it_is_compared_stays_open(store: Store[SchedulerStorage]) -> None:
    schedules = store.storage.schedules
    names = iter(range(999, 0, -1))

    def write(page: Page[ListedRow | None]) -> object:
        del page
        schedule = schedules.get_required("acme", "acme-schedule-0")
        # The page was read before, and each new schedule sorts before all others.
        schedules.upsert(schedule.evolve(id=f"new-{next(names)}", name=f"a-{next(names)}"))
        return schedules_of(store)

    found = found_in(store, "schedules of acme", write)
    assert (found.result, found.problem) == ("inconclusive", "its rows changed in 5 of 5 attempts")


def test_a_tenant_is_left_over_when_its_process_is_gone_or_its_time_is_over() -> None:
    mine = SmokeTenant.new(NOW, MINUTE)
    assert SmokeTenant.of(mine.name) == mine
    assert mine.until == datetime(2026, 3, 1, 12, 2, tzinfo=UTC)
    assert not mine.is_left_over(mine.until)
    assert mine.is_left_over(mine.until + timedelta(milliseconds=1))
    with subprocess.Popen([sys.executable, "-c", ""]) as process:
        process.wait()
    gone = SmokeTenant.of(mine.name.replace(f"-{os.getpid()}-", f"-{process.pid}-"))
    assert gone is not None
    assert gone.is_left_over(NOW)
    elsewhere = SmokeTenant.of(gone.name.replace(engine.this_machine(), "0" * 12))
    assert elsewhere is not None
    assert not elsewhere.is_left_over(NOW)


@pytest.mark.parametrize(
    "name",
    ["acme", "twinstore-smoke", "twinstore-smoke-production", "twinstore-smoke-20261399T000000Z-0-1-2"],
)
def test_no_other_tenant_is_taken_for_one_of_a_smoke_test(name: str) -> None:
    assert SmokeTenant.of(name) is None


def test_a_test_that_may_still_run_elsewhere_is_left_alone(store: Store[SchedulerStorage]) -> None:
    other = SmokeTenant.new(store.bulk.now(), MINUTE).name.replace(engine.this_machine(), "0" * 12)
    fill(store.storage, (other,))
    report = run_smoke(store, SmokeOptions(), StopSwitch())
    assert report.passed
    (counted,) = [step for step in report.steps if step.name == "rows and rests"]
    assert f"{other} may belong to a test that runs" in counted.summary
    assert len(store.storage.runs.list(other)) == 7


def test_no_step_begins_after_the_time_is_over_and_nothing_is_left(store: Store[SchedulerStorage]) -> None:
    report = run_smoke(store, SmokeOptions(timeout=timedelta(0)), StopSwitch())
    assert not report.passed
    assert all("--timeout" in problem for step in report.steps for problem in step.problems)
    assert report.steps[0].result == "fail"


def test_a_module_that_describes_less_is_checked_as_far_as_it_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    install_distribution(monkeypatch, tmp_path, "acme-library", LIBRARY)
    settings = {"Persistence": {"Library": "Memory", "Memory": {"Store": os.urandom(8).hex()}}}
    config = write_config(tmp_path / "settings.json", settings)
    found = invoke(capsys, "--config", config, "smoke", "--format", "json")
    skipped = {step["step"]: step["summary"] for step in found.json["steps"] if step["result"] == "skipped"}
    assert found.code == 0
    assert skipped == {
        "C5 list order": "there is no list of this kind to compare",
        "C6 lock smoke test": "the module has no locks",
        "trial": "the module describes none",
    }


def test_people_read_the_verdict_first_then_the_steps_then_what_is_wrong(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = {"Persistence": {"Scheduler": "Memory", "Memory": {"Store": os.urandom(8).hex()}}}
    config = write_config(tmp_path / "settings.json", settings)
    lines = invoke(capsys, "--config", config, "smoke").out.splitlines()
    assert lines[0].startswith("SMOKE OK: scheduler on memory:")
    assert lines[1].split() == ["step", "result", "ms", "what"]
    # The trigger is expected where its schedule does not put it.
    monkeypatch.setattr("twinstore.scheduler.trial.MINUTE", timedelta(minutes=2))
    failed = invoke(capsys, "--config", config, "smoke")
    lines = failed.out.splitlines()
    assert (failed.code, lines[0].startswith("SMOKE FAILED: ")) == (1, True)
    assert any(
        line.startswith("schedule with its trigger: the next instant of the trigger is") for line in lines
    )


def test_a_store_that_goes_away_in_the_middle_is_reported_as_unreachable_with_what_is_left(
    store: Store[SchedulerStorage], monkeypatch: pytest.MonkeyPatch
) -> None:
    real = engine.run_trial_step

    def run_trial_step(step: TrialStep) -> Finding:
        if step.name == "worker":
            monkeypatch.setattr(MemoryBulk, "counts", away)
            away()
        return real(step)

    def away(*_given: object, **_options: object) -> dict[str, int]:
        raise UnavailableError("The server does not answer.")

    monkeypatch.setattr(engine, "run_trial_step", run_trial_step)
    report = run_smoke(store, SmokeOptions(), StopSwitch())
    failed = {step.name: " ".join(step.problems) for step in report.steps if step.result == "fail"}
    assert (report.passed, report.unreachable) == (False, True)
    assert failed["worker"] == "The server does not answer."
    assert "the next smoke test removes them" in failed["removed again"]


def test_rows_that_name_no_tenant_are_reported_and_do_not_stop_the_check_of_lists(
    store: Store[SchedulerStorage], monkeypatch: pytest.MonkeyPatch
) -> None:
    real = MemoryBulk.counts

    def counts(port: MemoryBulk, entity: Entity, *, tenant_id: str | None = None) -> dict[str, int]:
        found = real(port, entity, tenant_id=tenant_id)
        return {**found, "": 2} if entity.name == "runs" and tenant_id is None else found

    monkeypatch.setattr(MemoryBulk, "counts", counts)
    report = run_smoke(store, SmokeOptions(), StopSwitch())
    by_name = {step.name: step for step in report.steps}
    assert "2 rows of runs hold no tenant id" in by_name["rows and rests"].problems[0]
    assert by_name["C5 list order"].result == "pass"


def test_a_row_is_tried_below_the_rows_that_it_belongs_to(store: Store[SchedulerStorage]) -> None:
    tenant = "smoke-children"
    rows = [
        (SCHEDULES, Row(make_schedule(tenant, "smoke-schedule"))),
        (TRIGGERS, Row(make_trigger(tenant, "smoke-schedule"))),
    ]
    steps = [*round_trips(store, rows, tenant)]
    assert [step.name for step in steps] == ["row of schedules", "row of triggers"]
    for step in steps:
        assert [*step.run()] == [], step.name
    for entity, row in rows:
        (left,) = store.bulk.access().find(entity, Tenant(tenant), [entity.key_of(row.model, row.storage)])
        assert left is None


def test_a_row_without_a_tenant_of_its_own_is_tried_below_its_parent_and_rolled_back() -> None:
    settings = load_settings({"Persistence": {"Memory": {"Store": os.urandom(8).hex()}}}, environ={})
    with open_store("taskrunner", "memory", settings) as store:
        run, log = (
            item
            for item in TASKRUNNER_EXAMPLES.examples
            if item.entity.name in {"pack_runs", "pack_run_logs"}
        )
        rows = [(item.entity, item.row("acme", item.rich("acme", "smoke"))) for item in (run, log)]
        for step in round_trips(store, rows, "acme"):
            assert [*step.run()] == [], step.name
