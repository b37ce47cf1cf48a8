"""After a fork parent and child never see each other's rows, and the child harms nothing of the parent's.

The forks happen in a program of their own, ``tests.faults.forking``.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

import pytest

import twinstore
from tests import forked
from tests.server_supervisor import ROOT

if TYPE_CHECKING:
    from tests.databases import MongoDatabase, PostgresDatabase
    from tests.servers import Settings

BELONGS_TO_THE_PARENT: Final = "TransactionAbortedError: {} was opened before this process was forked"
DRIVERS: Final = ("mongo", "postgres")
ALL: Final = ("memory", *DRIVERS)


@pytest.fixture
def settings(request: pytest.FixtureRequest) -> Settings:
    """Return the settings of a fresh, migrated store of the driver that the test names."""
    if request.param == "memory":
        return {"Persistence": {"Scheduler": "Memory"}}
    database: MongoDatabase | PostgresDatabase = request.getfixturevalue(f"{request.param}_database")
    if request.param == "mongo":
        with twinstore.open_storage(database.config) as storage:
            storage.scheduler.initializer.ensure_migrations()
    return database.config


def report_of(scenario: str, settings: Settings) -> dict[str, Any]:
    """Run a scenario and return its report; whatever it writes to stderr is a failure."""
    done = forked.run(["-m", "tests.faults.forking", scenario], given=json.dumps(settings), cwd=ROOT)
    assert (done.returncode, done.stderr) == (0, "")
    report: dict[str, Any] = json.loads(done.stdout)
    return report


def refused(what: str) -> str:
    return BELONGS_TO_THE_PARENT.format(what)


@pytest.mark.parametrize("settings", DRIVERS, indirect=True)
@pytest.mark.parametrize("scenario", ["at_work", "by_multiprocessing"])
def test_parent_and_child_work_at_the_same_time_and_see_their_own_rows(
    settings: Settings, scenario: str
) -> None:
    clean = {"rounds": 100, "foreign": 0, "errors": []}
    assert report_of(scenario, settings) == {"parent": clean, "children": [clean]}


@pytest.mark.parametrize("settings", ALL, indirect=True)
def test_a_fork_in_the_middle_of_the_work_of_other_threads_leaves_no_lock_behind(settings: Settings) -> None:
    clean = {"rounds": 20, "foreign": 0, "errors": []}
    assert report_of("while_threads_work", settings) == {
        "parent": {"foreign": 0, "errors": []},
        "children": [clean] * 4,
    }


@pytest.mark.parametrize("settings", DRIVERS, indirect=True)
def test_what_was_open_before_the_fork_is_refused_in_the_child_and_goes_on_in_the_parent(
    settings: Settings,
) -> None:
    report = report_of("with_open_work", settings)
    *users, last = report["children"]
    for child in users:
        for name, what in (("unit", "session"), ("read", "session"), ("session", "session")):
            assert child[name].startswith(refused(f"This {what} or unit of work"))
        assert child["stream"].startswith(refused("This view"))
        assert child["writer"].startswith(refused("This writer"))
    assert len(users) == 2
    assert last == {"own": "'own'"}
    assert report["stored"] == ["first", "second", "written"]
    assert (report["listed"], report["streamed"]) == (50, 50)


@pytest.mark.parametrize("settings", ALL, indirect=True)
def test_a_child_that_leaves_a_unit_of_its_parent_neither_commits_nor_ends_it(settings: Settings) -> None:
    report = report_of("leaving_a_unit", settings)
    (child,) = report["children"]
    assert child["left"].startswith(refused("This session or unit of work"))
    assert child["seen"] == "None"
    assert (report["parent"], report["stored"]) == ("None", ["kept", "kept too"])


@pytest.mark.parametrize("settings", ALL, indirect=True)
def test_the_facade_for_asyncio_starts_threads_of_its_own_in_a_child(settings: Settings) -> None:
    assert report_of("through_asyncio", settings) == {
        "children": [{"called": "run of child"}],
        "parent": ["run of parent", "run of parent-again"],
    }


@pytest.mark.parametrize("settings", ["postgres"], indirect=True)
def test_a_pool_of_the_host_is_refused_in_a_child_and_works_on_in_the_parent(settings: Settings) -> None:
    report = report_of("with_a_pool_of_the_host", settings)
    (child,) = report["children"]
    assert child["call"].startswith("ConfigurationError: The pool of this storage was opened before")
    assert child["unit"].startswith(refused("This session or unit of work"))
    assert report["stored"] == ["before", "inside"]


@pytest.mark.parametrize("settings", ["mongo"], indirect=True)
def test_a_client_of_the_host_works_on_in_both(settings: Settings) -> None:
    clean = {"rounds": 20, "foreign": 0, "errors": []}
    assert report_of("with_a_client_of_the_host", settings) == {"parent": clean, "children": [clean]}


@pytest.mark.parametrize("settings", DRIVERS, indirect=True)
def test_what_six_processes_read_and_write_back_through_transact_is_all_confirmed_and_kept(
    settings: Settings,
) -> None:
    assert report_of("counting", settings) == {
        "children": [{"confirmed": 10, "errors": [], "in time": True}] * 6,
        "counter": 60,
    }


@pytest.mark.parametrize("settings", ["postgres"], indirect=True)
def test_a_killed_parent_gives_its_locks_back_although_a_child_lives_on(settings: Settings) -> None:
    assert report_of("after_the_parent_died", settings) == {"children": [{"moved": "True"}]}


@pytest.mark.parametrize("settings", ["postgres"], indirect=True)
def test_a_child_ends_no_connection_of_its_parent(settings: Settings) -> None:
    assert report_of("with_idle_connections", settings) == {
        "children": [{}, {"own": "'own'"}],
        "at rest": 5,
        "ended": 0,
        "parent": {"rounds": 5, "foreign": 0, "errors": []},
    }
