"""The contract of engines must be able to fail: an engine that is wrong in one point is caught by a case."""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pytest
from typing_extensions import override

from twinstore_backfill.engines.processes import Processes
from twinstore_backfill.engines.testing import Desk, EngineContract

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from twinstore_backfill.engines import Engine


class Cases(EngineContract):
    restarts = resizes = True
    seconds = 3


class CasesWithoutSlots(EngineContract):
    slots = 0
    seconds = 3


class Threads:
    """Keeps most of the contract; it lends no processes."""

    url = "none://"
    number = 2

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(self.number)

    def slots(self) -> int:
        return 2

    def submit(self, function: Callable[..., Any], /, *arguments: Any) -> Future[Any]:  # noqa: ANN401
        return self._pool.submit(function, *arguments)

    def close(self) -> None:
        self._pool.shutdown(wait=False)

    def kill(self) -> None:
        """Kill nothing, and run on; as a lender."""

    start = kill

    def resize(self, slots: int) -> None:
        """Lend as many as before; as a lender."""


class OneAtATime(Threads):
    number = 1


class LosesErrors(Threads):
    @override
    def submit(self, function: Callable[..., Any], /, *arguments: Any) -> Future[Any]:
        def run() -> object:
            with suppress(Exception):
                return function(*arguments)
            return None

        return super().submit(run)


class FlattensTuples(Threads):
    @override
    def submit(self, function: Callable[..., Any], /, *arguments: Any) -> Future[Any]:
        return super().submit(
            function, *(tuple(item) if isinstance(item, tuple) else item for item in arguments)
        )


class ClosesOnce(Threads):
    closed = False

    @override
    def close(self) -> None:
        assert not self.closed
        self.closed = True


class NeverFails(Processes):
    """The future of a lost function stays pending."""

    def __init__(self) -> None:
        super().__init__("2")

    @override
    def submit(self, function: Callable[..., Any], /, *arguments: Any) -> Future[Any]:
        found = Future[Any]()

        def settle(done: Future[Any]) -> None:
            if done.exception() is None:
                found.set_result(done.result())

        super().submit(function, *arguments).add_done_callback(settle)
        return found


class LendsSecretly(Threads):
    @override
    def slots(self) -> int:
        return 0


CASES, EMPTY = Cases(), CasesWithoutSlots()
# An engine, and the case that must catch it.
WRONG: list[tuple[type[Engine], Callable[[Any, Desk], object]]] = [
    (Threads, CASES.test_a_function_runs_in_another_process_and_its_result_comes_back),
    (FlattensTuples, lambda engine, _: CASES.test_arguments_and_results_arrive_as_they_are(engine)),
    (
        LosesErrors,
        lambda engine, _: CASES.test_the_exception_of_a_function_comes_back_as_it_was_raised(engine),
    ),
    (OneAtATime, CASES.test_as_many_functions_run_at_the_same_time_as_there_are_slots),
    (NeverFails, CASES.test_a_killed_process_loses_its_function_alone_and_the_engine_goes_on),
    (
        Threads,
        lambda engine, desk: CASES.test_close_ends_soon_and_leaves_no_future_pending(engine, desk, engine),
    ),
    (ClosesOnce, lambda engine, _: CASES.test_close_may_be_repeated(engine)),
    (
        Threads,
        lambda engine, desk: CASES.test_a_lost_engine_fails_and_can_be_opened_again(engine, desk, engine),
    ),
    (Threads, lambda engine, _: CASES.test_slots_follow_the_processes_that_there_are(engine, engine)),
    (LendsSecretly, lambda engine, _: EMPTY.test_without_slots_a_function_fails_at_once(engine)),
]


@pytest.fixture
def desk() -> Iterator[Desk]:
    with Desk(Cases.seconds) as desk:
        yield desk


@pytest.mark.parametrize(
    ("wrong", "case"), WRONG, ids=[f"{number}-{wrong.__name__}" for number, (wrong, _) in enumerate(WRONG)]
)
def test_an_engine_that_is_wrong_in_one_point_is_caught(
    wrong: type[Engine], case: Callable[[Any, Desk], object], desk: Desk
) -> None:
    engine = wrong()
    with pytest.raises((AssertionError, TimeoutError)):
        case(engine, desk)
    with suppress(AssertionError):
        engine.close()


def test_what_an_engine_does_not_declare_is_no_test_of_its_kit() -> None:
    cases = {name for name in dir(EngineContract) if name.startswith("test_")}
    assert {name for name in cases if getattr(Cases, name) is None} == {
        "test_without_slots_a_function_fails_at_once"
    }
    assert {name for name in cases if getattr(CasesWithoutSlots, name)} == {
        "test_without_slots_a_function_fails_at_once",
        "test_close_may_be_repeated",
    }
