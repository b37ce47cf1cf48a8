"""After a fork parent and child never see each other's rows, and the child does not disturb the parent.

The forks happen in a separate program, ``tests.resilience.forking``.
"""

from __future__ import annotations

import itertools
import json
import threading
import time
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import pytest

import twinstore
from tests.support import forked
from tests.support.server_supervisor import ROOT
from twinstore.errors import ConcurrencyError, LeaseLostError, LockTimeoutError, Outcome, UnavailableError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from tests.support.databases import MongoDatabase, PostgresDatabase
    from tests.support.servers import Settings

# What a call may be answered while its server comes and goes. All of them are mapped and, but for the lost
# lease, retryable: the lock is gone with its connection, which no repetition brings back.
EXPECTED: Final = (UnavailableError, ConcurrencyError, LockTimeoutError, LeaseLostError)
# The limit of a call, which none has a reason to reach; on a busy machine some come near.
LONGEST_SECONDS: Final = 30.0


@dataclass(frozen=True, slots=True)
class Call:
    """One call: when it ended, how long it took, its token, and the error it was answered with."""

    kind: str
    token: str
    ended: float
    seconds: float
    error: BaseException | None = None

    @property
    def outcome(self) -> Outcome | None:
        """What is known of the write; ``None`` when it was confirmed."""
        if self.error is None:
            return None
        return self.error.outcome if isinstance(self.error, UnavailableError) else Outcome.NOT_APPLIED

    def __str__(self) -> str:
        """Name the call and its error."""
        said = "" if self.error is None else f": {type(self.error).__name__}: {self.error}"
        return f"{self.kind} {self.token} ({self.seconds:.1f} s){said}"


@dataclass(slots=True)
class Ledger:
    """All calls in the order of their ends."""

    calls: list[Call] = field(default_factory=list[Call])
    _changed: threading.Condition = field(default_factory=threading.Condition)

    @contextmanager
    def noted(self, kind: str, token: str) -> Iterator[None]:
        """Note how the call in the block ends; whatever it raises is judged later."""
        begun = time.monotonic()
        error: BaseException | None = None
        try:
            yield
        except BaseException as raised:  # noqa: BLE001  # as said
            error = raised
        ended = time.monotonic()
        with self._changed:
            self.calls.append(Call(kind, token, ended, ended - begun, error))
            self._changed.notify_all()

    def await_answers(self, kinds: set[str], since: float, seconds: float) -> list[str]:
        """Wait until one call of each kind has succeeded since an instant; return the kinds without one."""

        def missing() -> set[str]:
            calls = itertools.takewhile(lambda call: call.ended >= since, reversed(self.calls))
            return kinds - {call.kind for call in calls if call.error is None}

        with self._changed:
            self._changed.wait_for(lambda: not missing(), seconds)
            last = {call.kind: call for call in self.calls}
            return [str(last.get(kind, kind)) for kind in sorted(missing())]

    def await_refusals(self, number: int, seconds: float) -> bool:
        """Wait until this many calls were refused; return whether they were."""
        with self._changed:
            return self._changed.wait_for(lambda: len(self.refused()) >= number, seconds)

    def confirmed(self, token: str) -> bool:
        """Whether a call with this token succeeded."""
        return any(call.token == token and call.error is None for call in reversed(self.calls))

    def foreign(self) -> list[str]:
        """Return the calls that ended in what is no error of this library, or in one of the wrong class."""
        return [
            str(call)
            for call in self.calls
            if call.error is not None and not isinstance(call.error, EXPECTED)
        ]

    def slow(self) -> list[str]:
        """Return the calls that took longer than their limit."""
        return [str(call) for call in self.calls if call.seconds > LONGEST_SECONDS]

    def contradictions(self, stored: Mapping[str, Callable[[str], int]]) -> list[str]:
        """Return the tokens whose stored state contradicts the answer of their call.

        Args:
            stored: by kind, a function that returns how often a token is stored: 0, 1, or another number if
                it is stored in part or more than once.
        """
        wanted = {None: {1}, Outcome.NOT_APPLIED: {0}, Outcome.UNKNOWN: {0, 1}}
        found: list[str] = []
        for call in self.calls:
            if call.kind in stored:
                times = stored[call.kind](call.token)
                if times not in wanted[call.outcome]:
                    found.append(f"{call} is stored {times} times")
        return found

    def refused(self) -> list[Call]:
        """Return the calls that could not use the server."""
        return [call for call in self.calls if isinstance(call.error, UnavailableError)]


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
    done = forked.run(["-m", "tests.resilience.forking", scenario], given=json.dumps(settings), cwd=ROOT)
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
        "children": [{}, {"lock": "2"}, {"own": "'own'"}],
        "at rest": 6,
        "ended": 0,
        "opened": 0,
        "parent": {"rounds": 5, "foreign": 0, "errors": [], "lock": "3"},
    }
