"""The contract kit of engines: what each must do, as tests that the test module of an engine inherits.

    class TestMyEngine(EngineContract):
        restarts = True

        @pytest.fixture(scope="class")
        @classmethod
        def lender(cls) -> Iterator[Lender]: ...    # what lends two processes on this host

A case that an engine does not declare is no test of its class.
"""

from __future__ import annotations

import os
import signal
import socket
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, wait
from contextlib import ExitStack, suppress
from functools import partial
from typing import Any, ClassVar, Final, NamedTuple, Protocol, Self

import pytest

from twinstore.errors import ConfigurationError, NotFoundError
from twinstore_backfill.engines import Engine, open_engine
from twinstore_backfill.process.children import stop_with_parent
from twinstore_backfill.process.stopping import StopSwitch

__all__ = ["Desk", "EngineContract", "Lender", "where"]

HOST: Final = "127.0.0.1"
POLL_SECONDS: Final = 0.05
APPLIES: Final = "twinstore_applies"
Case = Callable[..., None]


class Lender(Protocol):
    """What lends the processes of an engine, such as a cluster on this host."""

    url: str

    def kill(self) -> None:
        """Kill it with SIGKILL, and everything that runs in it."""
        ...

    def start(self) -> None:
        """Start it again under the same URL."""
        ...

    def resize(self, slots: int) -> None:
        """Let it lend another number of slots."""
        ...


def report(port: int, name: str) -> str:
    """Report to the desk of a test that this process runs, and return the answer; engines run this."""
    stop = stop_with_parent(StopSwitch())
    with socket.create_connection((HOST, port)) as link:
        link.sendall(f"{name} {os.getpid()}".encode())
        link.settimeout(POLL_SECONDS)
        while not stop.requested:
            with suppress(TimeoutError):
                return link.recv(100).decode()
    return ""


def echo(*arguments: object) -> tuple[object, ...]:
    """Return the arguments; engines run this."""
    return arguments


def fail(text: str) -> None:
    """Raise an error; engines run this."""
    raise NotFoundError(text)


class Running(NamedTuple):
    """A function that runs in an engine until it is answered."""

    name: str
    pid: int
    link: socket.socket

    def answer(self, text: str) -> None:
        """Let it return a text."""
        self.link.sendall(text.encode())
        self.link.close()

    def kill(self) -> None:
        """Kill the process that it runs in."""
        os.kill(self.pid, signal.SIGKILL)


class Desk:
    """Where functions report that they run."""

    def __init__(self, seconds: float) -> None:
        self._stack = ExitStack()
        self._server = self._stack.enter_context(socket.create_server((HOST, 0)))
        self._server.settimeout(seconds)
        self.port: int = self._server.getsockname()[1]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        # Functions that still wait end by it.
        self._stack.close()

    def next(self) -> Running:
        """Wait for the next function that reports."""
        link = self._stack.enter_context(self._server.accept()[0])
        name, pid = link.recv(100).decode().split()
        return Running(name, int(pid), link)

    def all(self, number: int) -> dict[str, Running]:
        """Wait until a number of functions run at the same time; by name."""
        return {running.name: running for running in (self.next() for _ in range(number))}


def where(applies: Callable[[type[EngineContract]], object]) -> Callable[[Case], Case]:
    """Ask a case only of engines that declare what it is about."""

    def decorate(case: Case) -> Case:
        setattr(case, APPLIES, applies)
        return case

    return decorate


class Ticket(NamedTuple):
    """A tuple that some engines would rebuild as another."""

    name: str
    parts: tuple[object, ...]


class EngineContract:
    """What an engine promises.

    Attributes:
        slots: how many functions the lender runs at the same time; 0: it lends nothing.
        repeats: a function whose process was lost runs again, where others fail.
        restarts: the lender can be killed and started again.
        resizes: the lender can lend another number of slots.
        seconds: how long a case waits for anything.
    """

    slots: ClassVar[int] = 2
    repeats: ClassVar[bool] = False
    restarts: ClassVar[bool] = False
    resizes: ClassVar[bool] = False
    seconds: ClassVar[float] = 60

    def __init_subclass__(cls) -> None:
        """Drop the cases that the engine does not declare."""
        super().__init_subclass__()
        for name in dir(cls):
            applies = getattr(getattr(cls, name), APPLIES, None)
            if applies is not None and not applies(cls):
                setattr(cls, name, None)  # which pytest does not collect

    @pytest.fixture(scope="class")
    @classmethod
    def lender(cls) -> Iterator[Lender]:
        """Start what lends the processes; each engine has its own."""
        raise NotImplementedError

    @pytest.fixture
    def engine(self, lender: Lender) -> Iterator[Engine]:
        """Open the engine when all processes are there."""
        engine = self.opened(lender)
        yield engine
        engine.close()

    @pytest.fixture
    def desk(self) -> Iterator[Desk]:
        """Return where functions report."""
        with Desk(self.seconds) as desk:
            yield desk

    def opened(self, lender: Lender) -> Engine:
        """Open the engine, and wait until it lends what it should."""
        opened = list[Engine]()

        def opens() -> bool:
            # It cannot be opened while the lender still starts.
            with suppress(ConfigurationError):
                opened.append(open_engine(lender.url))
            return bool(opened)

        self.until(opens)
        self.until(partial(self.lends, opened[0], self.slots))
        return opened[0]

    def lends(self, engine: Engine, slots: int) -> bool:
        """Whether an engine lends a number of slots now."""
        return engine.slots() == slots

    def failed(self, future: Future[Any]) -> bool:
        """Wait for the end of a future, and return whether there is no result."""
        assert not wait([future], self.seconds).not_done
        return future.cancelled() or future.exception() is not None

    def until(self, condition: Callable[[], bool]) -> None:
        """Wait until something holds."""
        end = time.monotonic() + self.seconds
        while not condition():
            assert time.monotonic() < end, "this never came true"
            time.sleep(POLL_SECONDS)

    @where(lambda kit: not kit.slots)
    def test_without_slots_a_function_fails_at_once(self, engine: Engine) -> None:
        assert engine.slots() == 0
        assert self.failed(engine.submit(echo))

    @where(lambda kit: kit.slots)
    def test_a_function_runs_in_another_process_and_its_result_comes_back(
        self, engine: Engine, desk: Desk
    ) -> None:
        future = engine.submit(report, desk.port, "a")
        running = desk.next()
        assert running.pid != os.getpid()
        running.answer("done")
        assert future.result(self.seconds) == "done"

    @where(lambda kit: kit.slots)
    def test_arguments_and_results_arrive_as_they_are(self, engine: Engine) -> None:
        sent: tuple[Any, ...] = (
            Ticket("a", ((str, 1), [], frozenset())),
            {"b": [None, b"\x00", ("c",)]},
            "report",
            (len, "d"),
        )
        found = engine.submit(echo, *sent).result(self.seconds)
        assert found == sent
        assert [type(item) for item in found] == [type(item) for item in sent]

    @where(lambda kit: kit.slots)
    def test_the_exception_of_a_function_comes_back_as_it_was_raised(self, engine: Engine) -> None:
        error = engine.submit(fail, "no such job").exception(self.seconds)
        assert (type(error), str(error)) == (NotFoundError, "no such job")

    @where(lambda kit: kit.slots)
    def test_as_many_functions_run_at_the_same_time_as_there_are_slots(
        self, engine: Engine, desk: Desk
    ) -> None:
        futures = [engine.submit(report, desk.port, str(number)) for number in range(self.slots)]
        for name, running in desk.all(self.slots).items():
            running.answer(name)
        assert [future.result(self.seconds) for future in futures] == list(map(str, range(self.slots)))

    @where(lambda kit: kit.slots > 1)
    def test_a_killed_process_loses_its_function_alone_and_the_engine_goes_on(
        self, engine: Engine, desk: Desk
    ) -> None:
        lost, kept = (engine.submit(report, desk.port, name) for name in ("lost", "kept"))
        running = desk.all(2)
        running["lost"].kill()
        if self.repeats:
            desk.next().answer("again")
            assert lost.result(self.seconds) == "again"
        else:
            assert self.failed(lost)
        running["kept"].answer("done")
        assert kept.result(self.seconds) == "done"
        self.until(partial(self.lends, engine, self.slots))
        assert engine.submit(echo, 1).result(self.seconds) == (1,)

    @where(lambda kit: kit.slots)
    def test_close_ends_soon_and_leaves_no_future_pending(
        self, engine: Engine, desk: Desk, lender: Lender
    ) -> None:
        futures = [engine.submit(report, desk.port, "a") for _ in range(self.slots + 1)]
        desk.all(self.slots)
        began = time.monotonic()
        engine.close()
        assert not wait(futures, self.seconds).not_done
        assert time.monotonic() - began < self.seconds
        self.opened(lender).close()

    def test_close_may_be_repeated(self, engine: Engine) -> None:
        engine.close()
        engine.close()

    @where(lambda kit: kit.restarts)
    def test_a_lost_engine_fails_and_can_be_opened_again(
        self, engine: Engine, desk: Desk, lender: Lender
    ) -> None:
        lost = engine.submit(report, desk.port, "lost")
        desk.next()
        lender.kill()
        assert self.failed(lost)
        engine.close()
        lender.start()
        again = self.opened(lender)
        try:
            assert again.submit(echo, 1).result(self.seconds) == (1,)
        finally:
            again.close()

    @where(lambda kit: kit.resizes)
    def test_slots_follow_the_processes_that_there_are(self, engine: Engine, lender: Lender) -> None:
        for slots in (self.slots + 1, 1, self.slots):
            lender.resize(slots)
            self.until(partial(self.lends, engine, slots))
            assert engine.submit(echo, slots).result(self.seconds) == (slots,)
