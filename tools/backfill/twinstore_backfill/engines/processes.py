"""``processes://8``: child processes of this one."""

from __future__ import annotations

import multiprocessing
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from threading import Lock
from typing import TYPE_CHECKING, Any, Final, TypeVar

from twinstore.errors import ValidationError
from twinstore_backfill.process.children import begin_child, block_signals
from twinstore_backfill.process.messages import message_settings

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

T = TypeVar("T")
MOST: Final = 1024
# In messages, if no user named this engine.
CHILDREN: Final = "The pool of child processes"
LONGEST: Final = len(str(MOST))


class Processes:
    """An engine of child processes, each a pool of one: the others go on if it is killed."""

    def __init__(self, address: str, options: Mapping[str, str] | None = None) -> None:
        """Take the number of processes.

        Raises:
            ValidationError: it is not a number from 1 on, or there are options.
        """
        number = int(address) if address.isascii() and address.isdecimal() and len(address) <= LONGEST else 0
        if options or not 1 <= number <= MOST:
            raise ValidationError(
                f"--engine processes:// takes a number from 1 to {MOST}, as in processes://4."
            )
        self._children: list[Child | None] = [None] * number
        self._lock = Lock()

    def slots(self) -> int:
        """Return the number of processes; one that was killed is started again."""
        return len(self._children)

    def submit(self, function: Callable[..., T], /, *arguments: Any) -> Future[T]:  # noqa: ANN401  # see Engine
        """Run a function in the child that has the least to do, which may be started for it."""
        with self._lock:
            loads = [0 if child is None else child.load for child in self._children]
            number = loads.index(min(loads))
            child = self._children[number]
            if child is None:
                child = self._children[number] = Child()
            try:
                return child.submit(function, *arguments)
            except BrokenProcessPool:
                # It was killed while it had nothing to do.
                self._children[number] = child = Child()
                return child.submit(function, *arguments)

    def close(self) -> None:
        """Ask all children to end at the next safe point, and wait for them."""
        children = [child for child in self._children if child is not None]
        for child in children:
            child.stop()
        for child in children:
            child.join()


class Child:
    """One process; it hears of a stop, and of the end of its parent, by the end of a pipe."""

    def __init__(self) -> None:
        ours, theirs = multiprocessing.Pipe(duplex=False)
        self._theirs, self._ours = ours, theirs
        self._pool = ProcessPoolExecutor(
            1,
            # "spawn": a forked child would share the connections of this process.
            mp_context=multiprocessing.get_context("spawn"),
            initializer=begin_child,
            initargs=(message_settings(), self._theirs),
        )
        self._given: list[Future[Any]] = []

    @property
    def load(self) -> int:
        """How many functions it runs or has waiting."""
        self._given = [future for future in self._given if not future.done()]
        return len(self._given)

    def submit(self, function: Callable[..., T], /, *arguments: Any) -> Future[T]:  # noqa: ANN401  # see Engine
        """Run a function."""
        with block_signals():
            found = self._pool.submit(function, *arguments)
        self._given.append(found)
        return found

    def stop(self) -> None:
        """Ask for the end of what it runs."""
        self._ours.close()

    def join(self) -> None:
        """Wait for its end."""
        self._pool.shutdown(cancel_futures=True)
        self._theirs.close()
