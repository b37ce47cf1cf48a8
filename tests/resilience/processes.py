"""A program that has its storages open before it makes processes in every way that Python has.

    TWINSTORE_PRELOADED=settings.json-text python -m tests.resilience.processes SCENARIO

Every scenario prints one JSON object. ``test_processes`` reads it.
"""

from __future__ import annotations

import asyncio
import atexit
import json
import multiprocessing
import os
import signal
import socket
import sys
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import suppress
from datetime import timedelta
from functools import partial
from threading import Event, Thread
from typing import TYPE_CHECKING, Any, Final

from tests.resilience import preloaded
from tests.resilience.forking import PATIENCE, Children, outcome, work
from tests.resilience.preloaded import ASYNC, STORAGE, TENANTS, served
from twinstore.testing.scheduler.builders import make_run

if TYPE_CHECKING:
    from collections.abc import Callable

    Report = dict[str, Any]

WORKERS: Final = 3
REQUESTS: Final = 120
CLIENTS: Final = 6
CLEAN: Final = {"foreign": 0, "errors": []}


def by(method: str) -> Report:
    """Run processes of ``multiprocessing`` and a pool of them, while the parent works."""
    context = multiprocessing.get_context(method)
    if method == "forkserver":
        context.set_forkserver_preload([preloaded.__name__])
    # Each process that spawn starts imports everything again.
    size = 1 if method == "spawn" else 2
    with context.Pool(size, prepared_for, (TENANTS[1],)) as pool:
        answers = [pool.apply_async(served, (tenant,)) for tenant in TENANTS]
        parent = work(STORAGE, TENANTS[0], 20)
        pooled = [answer.get(PATIENCE) for answer in answers]
    with ProcessPoolExecutor(size, context, prepared_for, (TENANTS[1],)) as executor:
        futures = [executor.submit(served, tenant) for tenant in TENANTS]
        parent_again = served(TENANTS[0])
        executed = [future.result(PATIENCE) for future in futures]
        run = make_run(TENANTS[0], f"sent by {method}")
        is_same = executor.submit(preloaded.returned, run).result(PATIENCE) == run
        refused = outcome_of(lambda: executor.submit(partial(used, STORAGE)).result(PATIENCE))
    return {
        "children": pooled + executed,
        "parent": [parent, parent_again],
        "model": is_same,
        "storage": refused,
    }


def prepared_for(tenant: str) -> None:
    """Do what an application does when a worker begins."""
    signal.alarm(PATIENCE)
    preloaded.prepared(tenant)


def used(storage: object) -> None:
    """Use what cannot be passed."""


def outcome_of(action: Callable[[], object]) -> str:
    try:
        return repr(action())
    except Exception as error:  # noqa: BLE001  # whatever a pool makes of it is the answer
        return f"{type(error).__name__}: {error}"


def inside_a_loop() -> Report:
    """Fork inside a running event loop whose tasks are at work; the child runs a separate loop."""
    children = Children()

    async def main() -> Report:
        tasks = asyncio.create_task(preloaded.served_by_tasks(TENANTS[0], 20))
        async with ASYNC.scheduler.transaction(TENANTS[0]) as unit:
            await unit.runs.create(make_run(TENANTS[0], "in a unit"))
            held = await ASYNC.scheduler.locks.acquire("name", timedelta(seconds=1), tenant_id=TENANTS[0])
            children.fork(partial(in_a_loop_of_its_own, unit, held))
            report = await asyncio.to_thread(children.reports)
            is_held = await held.is_held() and await held.release()
            await unit.runs.create(make_run(TENANTS[0], "in a unit after the fork"))
        stored = await ASYNC.scheduler.runs.get(TENANTS[0], "in a unit after the fork")
        return {"children": report, "parent": await tasks, "held": is_held, "stored": stored is not None}

    return asyncio.run(main())


def in_a_loop_of_its_own(unit: Any, held: Any) -> Report:  # noqa: ANN401  # of the facade
    """Be refused what the parent has open, and work."""
    refused = outcome(lambda: asyncio.run(unit.runs.list(TENANTS[0])))
    is_held = asyncio.run(held.is_held())
    return {**served(TENANTS[1], 10), "unit": refused, "held": is_held}


def at_the_end() -> Report:
    """Children end in the ways that run what the parent has registered, inside its unit and outside."""
    children = Children()
    # As applications do; in a child it closes the storage of the child.
    atexit.register(STORAGE.close)
    with STORAGE.transaction(TENANTS[0]) as unit:
        unit.runs.create(make_run(TENANTS[0], "kept"))
        for raising in (False, True):
            children.fork(dict, raising=raising)
        children.fork(lambda: {"forked": forked_at_the_end()}, raising=True)
        reports = children.reports()
        unit.runs.create(make_run(TENANTS[0], "kept too"))
    stored = [key for key in ("kept", "kept too") if STORAGE.runs.get(TENANTS[0], key)]
    return {"children": reports, "stored": stored, "parent": work(STORAGE, TENANTS[0], 5)}


def forked_at_the_end() -> bool:
    """Let a child fork again when it ends."""

    def fork() -> None:
        pid = os.fork()
        if not pid:
            report = work(STORAGE, TENANTS[1], 2)
            os._exit(0 if not report["foreign"] and not report["errors"] else 1)
        os._exit(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))

    atexit.unregister(STORAGE.close)
    atexit.register(fork)
    return True


def with_a_session_in_use() -> Report:
    """Fork while another thread is in a call of a session, which the child must not wait for."""
    begun, go_on = Event(), Event()
    children = Children()

    def change(stored: Any) -> Any:  # noqa: ANN401  # a summary or none
        begun.set()
        go_on.wait(PATIENCE)
        return stored

    with STORAGE.sessions.open(TENANTS[0]) as session:
        thread = Thread(target=session.run_summaries.modify, args=(TENANTS[0], "summary", change))
        thread.start()
        begun.wait(PATIENCE)
        children.fork(lambda: {"session": outcome(lambda: session.runs.list(TENANTS[0]))}, raising=True)
        children.fork(lambda: served(TENANTS[1], 5))
        reports = children.reports()
        go_on.set()
        thread.join(PATIENCE)
        found = outcome(lambda: session.runs.get(TENANTS[0], "none"))
    return {"children": reports, "parent": found}


# --- a process server that preloads -----------------------------------------------------------------------


def prefork_server(*, asynchronous: bool) -> Report:
    """Serve requests of two tenants from forked workers, some of which are killed and restarted."""
    listener = socket.create_server(("127.0.0.1", 0), backlog=256)
    serve = partial(serve_tasks if asynchronous else serve_requests, listener)
    workers = [begin(serve) for _ in range(WORKERS)]
    try:
        with ThreadPoolExecutor(CLIENTS) as clients:
            asked = [
                clients.submit(ask, listener.getsockname()[1], TENANTS[number % 2], number)
                for number in range(REQUESTS)
            ]
            parent = [work(STORAGE, TENANTS[0], 10)]
            # As a server does with a worker that hangs, or that has served its number of requests.
            for number, how in enumerate((signal.SIGKILL, signal.SIGTERM)):
                end(workers[number], how)
                workers[number] = begin(serve)
                parent.append(work(STORAGE, TENANTS[1], 10))
            answers = [future.result(PATIENCE) for future in asked]
    finally:
        for worker in workers:
            end(worker, signal.SIGTERM)
        listener.close()
    wrong = [answer for answer in answers if answer != "right"]
    return {"answers": len(answers), "wrong": wrong[:3], "parent": parent}


def begin(serve: Callable[[], None]) -> int:
    """Fork a worker."""
    pid = os.fork()
    if not pid:
        signal.alarm(PATIENCE)
        # At once: what an event loop says of requests that it gives up belongs to no test.
        signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
        try:
            serve()
        finally:
            os._exit(0)
    return pid


def end(worker: int, how: signal.Signals) -> None:
    with suppress(ProcessLookupError):
        os.kill(worker, how)
    os.waitpid(worker, 0)


def serve_requests(listener: socket.socket) -> None:
    """Answer one request after the other with what the storage says."""
    while True:
        connection, _ = listener.accept()
        with connection, connection.makefile("rw") as stream:
            tenant, number = stream.readline().split()
            report = work(STORAGE, tenant, 1)
            stream.write(answer_to(tenant, number, report))


def serve_tasks(listener: socket.socket) -> None:
    """Do the same in an event loop, many requests at a time."""

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        tenant, number = (await reader.readline()).decode().split()
        report = await preloaded.served_by_tasks(tenant, 0)
        key = f"{tenant}-{number}-{os.getpid()}"
        await ASYNC.scheduler.runs.create(make_run(tenant, key))
        found = await ASYNC.scheduler.runs.list(tenant)
        report["foreign"] += sum(run.tenant_id != tenant for run in found)
        writer.write(answer_to(tenant, number, report).encode())
        await writer.drain()
        writer.close()

    async def main() -> None:
        listener.setblocking(False)  # noqa: FBT003  # of the standard library
        server = await asyncio.start_server(handle, sock=listener)
        async with server:
            await server.serve_forever()

    asyncio.run(main())


def answer_to(tenant: str, number: str, report: Report) -> str:
    is_right = not report["foreign"] and not report["errors"]
    return f"{tenant} {number} {'right' if is_right else json.dumps(report)}\n"


def ask(port: int, tenant: str, number: int) -> str:
    """Return ``right``, or what was wrong; if a worker was killed, ask again, as a load balancer does."""
    for _ in range(20):
        with suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=PATIENCE) as connection:
            connection.sendall(f"{tenant} {number}\n".encode())
            answer = connection.makefile().readline()
            if answer:
                return answer.strip().removeprefix(f"{tenant} {number} ")
    return "nobody answered"


SCENARIOS: Final[dict[str, Callable[[], Report]]] = {
    "fork": partial(by, "fork"),
    "spawn": partial(by, "spawn"),
    "forkserver": partial(by, "forkserver"),
    "server": partial(prefork_server, asynchronous=False),
    "asyncio server": partial(prefork_server, asynchronous=True),
    "inside a loop": inside_a_loop,
    "with a session in use": with_a_session_in_use,
    "at the end": at_the_end,
}

if __name__ == "__main__":
    print(json.dumps(SCENARIOS[sys.argv[1]]()))  # noqa: T201  # the answer to the test
