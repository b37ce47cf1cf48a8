"""Running the pieces of a verification, in this process or in several.

    tasks, made lazily -> workers that have room, else this process -> results in the order of the tasks

Tasks are made one by one, because later ones depend on earlier results: ``None`` among them waits for all.
"""

from __future__ import annotations

import multiprocessing
from collections import deque
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import ExitStack
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Final, TypeAlias, TypeVar

from twinstore.errors import TwinstoreError
from twinstore_backfill.ignored import IgnoredPath
from twinstore_backfill.process.children import begin_child, block_signals
from twinstore_backfill.process.memory import tuned_gc
from twinstore_backfill.process.messages import Messages, message_settings
from twinstore_backfill.process.stopping import StopSwitch
from twinstore_backfill.rules.model import JobRules
from twinstore_backfill.subset import Subset
from twinstore_backfill.verify.context import VerifyContext
from twinstore_backfill.verify.memory_lock import lock_file, use_lock_file
from twinstore_backfill.verify.ranges import ServerTtls

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from twinstore_backfill.stores import StoreSpec
    from twinstore_backfill.verify.context import Task

R = TypeVar("R")
# One task that runs and one that waits for each process: none is idle, and few results pile up.
TASKS_PER_WORKER: Final = 2

# The open resources of a worker process, and the context of its tasks; both are set once when it starts.
_open = ExitStack()
_context: list[VerifyContext] = []
# Why this worker process could not open its stores; its first task says so to the parent.
_failures: list[TwinstoreError] = []


def run_tasks(
    tasks: Iterable[Task[R] | None], context: VerifyContext, jobs: int, stop: StopSwitch
) -> Iterator[R]:
    """Yield the result of each task in the order of the tasks. This process is one of the ``jobs``.

    At ``None`` every result so far is yielded before the next task is requested.

    Raises:
        StopRequestedError: a stop was requested.
        TwinstoreError: the failure of a task, or a worker process that was lost.
    """
    source, target = context.source.spec, context.target.spec
    if jobs == 1 or source is None or target is None:
        yield from _run_serially(tasks, context, stop)
        return
    with lock_file() as turns:
        # "spawn": a forked child would share the connections of this process.
        pool = ProcessPoolExecutor(
            jobs - 1,
            mp_context=multiprocessing.get_context("spawn"),
            initializer=partial(_start, source, target, message_settings(), _shared(context), turns),
        )
        with use_lock_file(turns):
            yield from _with_workers(pool, tasks, context, jobs, stop)


def _with_workers(
    pool: ProcessPoolExecutor,
    tasks: Iterable[Task[R] | None],
    context: VerifyContext,
    jobs: int,
    stop: StopSwitch,
) -> Iterator[R]:
    with pool:
        try:
            yield from _run_parallel(pool, tasks, context, (jobs - 1) * TASKS_PER_WORKER, stop)
        except BrokenProcessPool:
            # A signal to the whole group may have ended the workers first.
            stop.check()
            raise TwinstoreError(
                "A worker process of the verification was killed or ran out of memory; nothing was written. "
                "Run the same command again, with a smaller --jobs if memory is short."
            ) from None
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def _run_serially(tasks: Iterable[Task[R] | None], context: VerifyContext, stop: StopSwitch) -> Iterator[R]:
    for task in tasks:
        stop.check()
        if task is not None:
            yield task.run(context)


def _run_parallel(
    pool: ProcessPoolExecutor,
    tasks: Iterable[Task[R] | None],
    context: VerifyContext,
    max_pending: int,
    stop: StopSwitch,
) -> Iterator[R]:
    """Keep every worker busy; run the next task here while they are."""
    waiting: deque[Future[R]] = deque()
    for task in tasks:
        stop.check()
        if task is None:
            yield from _drain(waiting, stop)
            continue
        busy = sum(not future.done() for future in waiting)
        # Results leave in the order of the tasks, so that the ranges of an entity are merged in key order.
        elsewhere = busy < max_pending and not task.is_local
        waiting.append(_submit(pool, task) if elsewhere else _completed(task.run(context)))
        while waiting and waiting[0].done():
            yield waiting.popleft().result()
    yield from _drain(waiting, stop)


def _submit(pool: ProcessPoolExecutor, task: Task[R]) -> Future[R]:
    """Give a task to a worker process, which may be started for it."""
    with block_signals():
        return pool.submit(_run, task)


def _drain(waiting: deque[Future[R]], stop: StopSwitch) -> Iterator[R]:
    while waiting:
        stop.check()
        yield waiting.popleft().result()


def _completed(result: R) -> Future[R]:
    future: Future[R] = Future()
    future.set_result(result)
    return future


Shared: TypeAlias = tuple[
    datetime,
    int,
    frozenset[str],
    ServerTtls,
    datetime | None,
    tuple[IgnoredPath, ...],
    Subset,
    JobRules,
    frozenset[str],
]


def _shared(context: VerifyContext) -> Shared:
    """Return the part of a context that can be sent to another process."""
    return (
        context.as_of,
        context.batch_size,
        context.absent,
        context.server_ttls,
        context.since,
        context.ignored_fields,
        context.subset,
        context.rules,
        context.slow,
    )


def _start(
    source: StoreSpec, target: StoreSpec, messages: Messages, shared: Shared, turns: Path | None
) -> None:
    """Open the stores of this worker process; they stay open until it ends."""
    begin_child(messages)
    _open.enter_context(use_lock_file(turns))
    _open.enter_context(tuned_gc())
    try:
        left, right = _open.enter_context(source.open()), _open.enter_context(target.open())
    except TwinstoreError as error:
        # An initialiser that fails would break the pool and leave its traceback on stderr.
        _failures.append(error)
    else:
        _context.append(VerifyContext(left, right, *shared))


def _run(task: Task[R]) -> R:
    if _failures:
        raise _failures[0]
    return task.run(_context[0])
