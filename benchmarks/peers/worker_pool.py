"""Worker processes that begin together and are counted together.

Processes and not threads: sixteen threads of Python would share one interpreter, and measure that. All ways
of doing the work run in the same processes, one after the other, and keep their connections between slices.
"""

from __future__ import annotations

import multiprocessing
import time
import traceback
from contextlib import suppress
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Final, Self, cast

from benchmarks.peers.contender import AsyncContender, Contender, Endpoints, Tally, Watch, Work

if TYPE_CHECKING:
    from collections.abc import Callable
    from multiprocessing.connection import Connection
    from multiprocessing.process import BaseProcess
    from multiprocessing.sharedctypes import Synchronized

__all__ = ["CONTENDERS", "Order", "WorkerPool"]

# Until all have their order; a worker that gets it later than this begins late and counts from the start.
HEAD_START: Final = 0.02
# Imported once, by the process that all workers are forked from.
CONTENDERS: Final = {
    "bare PostgreSQL": "benchmarks.peers.bare_postgres:BarePostgres",
    "bare MongoDB": "benchmarks.peers.bare_mongo:BareMongo",
    "Postgres": "benchmarks.peers.library:on_postgres",
    "Mongo": "benchmarks.peers.library:on_mongo",
    "procrastinate": "benchmarks.peers.procrastinate_peer:Procrastinate",
    "apscheduler": "benchmarks.peers.apscheduler_peer:Apscheduler",
}


@dataclass(frozen=True, slots=True)
class Order:
    """The order for a worker: what to do, and for how many seconds at most."""

    work: Work
    seconds: float


def opened(name: str, endpoints: Endpoints, worker: str) -> Contender | AsyncContender:
    """Open a way to do the work in this process."""
    module, _, maker = CONTENDERS[name].partition(":")
    make = cast(
        "Callable[[Endpoints, str], Contender | AsyncContender]", getattr(import_module(module), maker)
    )
    return make(endpoints, worker)


class Worker:
    """One process; it keeps what it has opened until it ends."""

    def __init__(self, pipe: Connection, left: Synchronized[int], endpoints: Endpoints, name: str) -> None:
        self._pipe, self._left = pipe, left
        self._endpoints, self._name = endpoints, name
        self._opened: dict[str, Contender | AsyncContender] = {}

    def serve(self) -> None:
        """Carry out orders until none is left, and close everything."""
        while (order := self._pipe.recv()) is not None:
            self._pipe.send(self._carried_out(order))
        for contender in self._opened.values():
            contender.close()

    def _carried_out(self, order: Order) -> Tally | str:
        try:
            contender = self._opened.get(order.work.contender)
            if contender is None:
                contender = opened(order.work.contender, self._endpoints, self._name)
                self._opened[order.work.contender] = contender
            drive = contender.made(order.work)
            watch = self._begun(order)
            drive(watch)
            return watch.closed()
        except Exception:  # noqa: BLE001  # whatever it is, the parent reports it
            return traceback.format_exc()

    def _begun(self, order: Order) -> Watch:
        """Wait for the others."""
        self._pipe.send(None)
        start: float = self._pipe.recv()
        time.sleep(max(0.0, start - time.perf_counter()))
        return Watch(start, order.seconds, self._left)


def work(pipe: Connection, left: Synchronized[int], endpoints: Endpoints, name: str) -> None:
    """Be a worker process."""
    Worker(pipe, left, endpoints, name).serve()


class WorkerPool:
    """Worker processes, started when the first slice needs them."""

    def __init__(self, endpoints: Endpoints) -> None:
        self._endpoints = endpoints
        # Forked from a process that has imported everything and opened nothing.
        self._context = multiprocessing.get_context("forkserver")
        self._context.set_forkserver_preload([name.partition(":")[0] for name in CONTENDERS.values()])
        self._left: Synchronized[int] = self._context.Value("q", 0)
        self._pipes: list[Connection] = []
        self._processes: list[BaseProcess] = []

    def run(
        self, order: Order, workers: int, amount: int, *, before: Callable[[], object] = lambda: None
    ) -> list[Tally]:
        """Have this number of workers carry out an order together on the prepared work; return their tallies.

        Args:
            order: the order for each of them.
            workers: how many of them.
            amount: how many jobs or firings were prepared.
            before: called when all are ready to begin.

        Raises:
            RuntimeError: one of them failed.
        """
        while len(self._pipes) < workers:
            self._start()
        pipes = self._pipes[:workers]
        self._left.value = amount
        for pipe in pipes:
            pipe.send(order)
        for pipe in pipes:
            receive(pipe, order)
        before()
        start = time.perf_counter() + HEAD_START
        for pipe in pipes:
            pipe.send(start)
        return [tally for pipe in pipes if (tally := receive(pipe, order)) is not None]

    def _start(self) -> None:
        ours, theirs = self._context.Pipe()
        name = f"bench-{len(self._processes)}"
        process = self._context.Process(target=work, args=(theirs, self._left, self._endpoints, name))
        process.start()
        theirs.close()
        self._pipes.append(ours)
        self._processes.append(process)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for pipe in self._pipes:
            with suppress(OSError):  # it has ended already, and its error is on its way
                pipe.send(None)
        for process in self._processes:
            process.join()


def receive(pipe: Connection, order: Order) -> Tally | None:
    """Return what a worker says.

    Raises:
        RuntimeError: it failed.
    """
    message = pipe.recv()
    if isinstance(message, str):
        raise RuntimeError(f"{order.work} failed in a worker:\n{message}")  # noqa: TRY004  # not its type matters
    return cast("Tally | None", message)
