"""Run Python programs as forks of a server that has imported the product: 0.05 s instead of 0.7 s each.

:func:`run` and :class:`Popen` replace those of :mod:`subprocess`. They accept what follows the interpreter:
``-c code``, ``-m module`` or a file, and the arguments of the program. Output is text.

A program starts with its own arguments, environment, folder, standard streams and signal handlers, with no
other open file, and ends as any interpreter does. It differs from a new process in this: modules are imported
already, the seed of hashes and the umask are those of the server, its parent is the server, and ``/proc``
shows the command line of the server.

``REAL_STARTS`` names the tests whose subject is the start of our command; they use :mod:`subprocess`.
"""

from __future__ import annotations

import ctypes
import gc
import json
import logging
import os
import pkgutil
import random
import re
import runpy
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from importlib import import_module
from io import TextIOWrapper
from pathlib import Path
from types import ModuleType
from typing import IO, TYPE_CHECKING, Any, Final, NoReturn, Self

from tests.support import executed
from twinstore_backfill.process import messages

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

# By file: why it starts our command as a new process.
REAL_STARTS: Final = {
    "migration_tool/cli/endings.py": "a shell closes its streams or limits the size of its files",
    "support/copies.py": "the memory of a process that has imported nothing else",
    "migration_tool/cli/test_exit_codes.py": "interrupted while it imports, and in a pipeline of a shell",
    "migration_tool/copy/test_memory_bound.py": "the memory of a process that has imported nothing else",
    "embedded/test_interrupted_up.py": "it is interrupted while it starts servers, which outlive it",
    "packaging/test_wheel_commands.py": "the wheel, without the checkout",
    "migration_tool/verify/test_digests_of_many.py": "the memory of a process that has imported nothing else",
    "migration_tool/cli/test_commands.py": "a library of the command line is missing",
    "migration_tool/cli/test_options.py": "what --version and --help import, and completion in a shell",
    "packaging/test_extras.py": "an extra is missing",
    "migration_tool/copy/test_workers.py": "it is stopped by a signal while it copies",
}
ROOT: Final = Path(__file__).parents[2]
PATIENCE: Final = 240
STREAMS: Final = ("stdin", "stdout", "stderr")
LARGEST: Final = 200_000
# The interpreter and the C library read these before our code runs.
READ_AT_START: Final = ("PYTHON", "LD_", "LC_", "MALLOC_")
PRODUCT: Final = (
    "twinstore",
    "twinstore_backfill",
    "twinstore_filesystem",
    "twinstore_memory",
    "twinstore_mongo",
    "twinstore_postgres",
)
# Few programs need them, or they are programs.
NOT_IMPORTED: Final = re.compile(
    r"__main__|aio|demo|fastapi|generate|metrics|otel|prometheus|selftest|testing"
)


class Popen:
    """A program, started as a fork; see :class:`subprocess.Popen`."""

    def __init__(
        self,
        words: Sequence[str | Path],
        *,
        stdin: int | None = None,
        stdout: int | None = None,
        stderr: int | None = None,
        cwd: Path | str | None = None,
        env: Mapping[str, str] | None = None,
        start_new_session: bool = False,
    ) -> None:
        """Start it."""
        environment = dict(os.environ if env is None else env)
        server = _server()
        server.check(environment)
        self.args = [str(word) for word in words]
        self.returncode: int | None = None
        self.stdin: IO[str] | None = None
        self.stdout: IO[str] | None = None
        self.stderr: IO[str] | None = None
        request = {
            "words": self.args,
            "environment": environment,
            "folder": str(Path(cwd or Path.cwd()).absolute()),
            "session": start_new_session,
        }
        self._reply, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with ExitStack() as stack:
            stack.callback(theirs.close)
            handles = [theirs.fileno()]
            for number, given in enumerate((stdin, stdout, stderr)):
                handles.append(handles[2] if given == subprocess.STDOUT else self._end(number, given, stack))
            server.send(request, handles)
        pid, (self._process, *_), *_ = socket.recv_fds(self._reply, LARGEST, 1, socket.MSG_CMSG_CLOEXEC)
        self.pid = int(pid)

    def _end(self, number: int, given: int | None, stack: ExitStack) -> int:
        """Return the end of a stream that the program gets; keep the other end of a pipe."""
        if given == subprocess.PIPE:
            reading, writing = os.pipe()
            theirs, mine = (writing, reading) if number else (reading, writing)
            setattr(self, STREAMS[number], os.fdopen(mine, "r" if number else "w"))
        elif given == subprocess.DEVNULL:
            theirs = os.open(os.devnull, os.O_RDWR)
        else:
            return number if given is None else given
        stack.callback(os.close, theirs)
        return theirs

    def poll(self) -> int | None:
        """Return the exit code, ``None`` while it runs."""
        with suppress(subprocess.TimeoutExpired):
            self.wait(0)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Wait for its end and return the exit code, negative if a signal ended it."""
        if self.returncode is None:
            self._reply.settimeout(timeout)
            try:
                answer = self._reply.recv(LARGEST)
            except (TimeoutError, BlockingIOError):
                raise subprocess.TimeoutExpired(self.args, timeout or 0) from None
            if not answer:
                raise RuntimeError("The fork server has ended; its stderr says why.")
            self.returncode = int(answer)
            self._reply.close()
            os.close(self._process)
        return self.returncode

    def communicate(self, given: str | None = None, timeout: float | None = None) -> tuple[str, str]:
        """Write its input, read its output to the end and wait for the program."""
        begun, pool = time.monotonic(), ThreadPoolExecutor(len(STREAMS))
        read = [pool.submit(each.read) if each else None for each in (self.stdout, self.stderr)]
        pool.submit(self._write, given)
        pool.shutdown(wait=False)
        self.wait(timeout)
        left = None if timeout is None else max(timeout - (time.monotonic() - begun), 1)
        out, err = (each.result(left) if each else "" for each in read)
        self._close()
        return out, err

    def _write(self, given: str | None) -> None:
        if self.stdin is not None:
            with suppress(BrokenPipeError), self.stdin:
                self.stdin.write(given or "")

    def send_signal(self, number: int) -> None:
        """Send a signal, unless it has ended."""
        if self.poll() is None:
            with suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._process, number)

    def terminate(self) -> None:
        """Send SIGTERM."""
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """Send SIGKILL."""
        self.send_signal(signal.SIGKILL)

    def _close(self) -> None:
        for stream in filter(None, (self.stdin, self.stdout, self.stderr)):
            with suppress(BrokenPipeError):
                stream.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._close()
        self.wait()


def run(
    words: Sequence[str | Path],
    *,
    given: str | None = None,
    check: bool = False,
    timeout: float = PATIENCE,
    stdout: int | None = subprocess.PIPE,
    stderr: int | None = subprocess.PIPE,
    cwd: Path | str | None = None,
    env: Mapping[str, str] | None = None,
) -> subprocess.CompletedProcess[str]:
    """Run a program to its end and return its output; see :func:`subprocess.run`.

    Raises:
        subprocess.CalledProcessError: with ``check``, it failed.
        subprocess.TimeoutExpired: it took too long and was killed.
    """
    stdin = None if given is None else subprocess.PIPE
    with Popen(words, stdin=stdin, stdout=stdout, stderr=stderr, cwd=cwd, env=env) as program:
        try:
            out, err = program.communicate(given, timeout)
        finally:
            program.kill()
    done = subprocess.CompletedProcess(program.args, program.wait(), out, err)
    if check:
        done.check_returncode()
    return done


class Server:
    """The process that is forked."""

    def __init__(self) -> None:
        """Start it."""
        self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._environment = dict(os.environ)
        # Each fork is started by its own environment.
        untraced = {name: value for name, value in os.environ.items() if name != executed.SETTINGS}
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-W", "ignore::DeprecationWarning", "-m", __name__, str(theirs.fileno())],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                cwd=ROOT,
                env=untraced,
                pass_fds=[theirs.fileno()],
                process_group=0,
            )

    def check(self, environment: Mapping[str, str]) -> None:
        """Refuse an environment that changes what a process does before our code runs.

        Raises:
            ValueError: it does.
        """
        for name, value in environment.items():
            if name.startswith(READ_AT_START) and value != self._environment.get(name):
                raise ValueError(f"A fork ignores {name}; use subprocess to start a new process with it.")

    def send(self, request: Mapping[str, Any], handles: Sequence[int]) -> None:
        """Request a fork."""
        socket.send_fds(self._control, [json.dumps(request).encode()], handles)

    def end(self) -> None:
        """End it, and what it has forked."""
        self._control.shutdown(socket.SHUT_RDWR)
        self._control.close()
        self._process.wait(PATIENCE)


_servers: Final[list[Server]] = []
_starting: Final = threading.Lock()


def _server() -> Server:
    """Return the server, which the first call starts."""
    with _starting:
        if not _servers:
            _servers.append(Server())
        return _servers[0]


def end() -> None:
    """End the server, if it was started."""
    while _servers:
        _servers.pop().end()


# ------------------------------------------------------------------------------------------ in the server
def import_product() -> None:
    """Import what programs use.

    Raises:
        RuntimeError: a module has started a thread, which a fork would not have.
    """
    for name in PRODUCT:
        for module in pkgutil.walk_packages(import_module(name).__path__, f"{name}."):
            if not NOT_IMPORTED.search(module.name):
                import_module(module.name)
    if threading.active_count() > 1:
        raise RuntimeError(f"An import started a thread: {threading.enumerate()}.")
    # Never freed, or each fork would take most of its time to remove what it has imported when it ends.
    kept = [dict(vars(module)) for module in sys.modules.values()]
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(kept))
    # Or the collector of each fork would copy the pages of all modules.
    gc.collect()
    gc.freeze()


def serve(control: socket.socket) -> dict[str, Any]:
    """Fork for each request; return the request in a fork. The server exits when its client does."""
    running: dict[int, tuple[int, socket.socket]] = {}
    poller = select.poll()
    poller.register(control, select.POLLIN)
    while True:
        for ready, _ in poller.poll():
            if ready in running:
                poller.unregister(ready)
                reap(ready, *running.pop(ready))
                continue
            text, handles, *_ = socket.recv_fds(control, LARGEST, 1 + len(STREAMS))
            if not text:
                leave([pid for pid, _ in running.values()])
            pid = os.fork()
            if pid == 0:
                # Or these would close what the program opens under their numbers.
                for each in (control, *(reply for _, reply in running.values())):
                    each.detach()
                return {**json.loads(text), "handles": handles[1:]}
            process = os.pidfd_open(pid)
            running[process] = pid, announced(pid, process, handles)
            poller.register(process, select.POLLIN)


def announced(pid: int, process: int, handles: Sequence[int]) -> socket.socket:
    """Send the client what it needs to signal a program; return the socket that it waits at."""
    reply = socket.socket(fileno=handles[0])
    socket.send_fds(reply, [str(pid).encode()], [process])
    for stream in handles[1:]:
        os.close(stream)
    return reply


def reap(process: int, pid: int, reply: socket.socket) -> None:
    """Send the exit code of a program that has ended."""
    _, status = os.waitpid(pid, 0)
    with suppress(ConnectionError), reply:
        reply.send(str(os.waitstatus_to_exitcode(status)).encode())
    os.close(process)


def leave(running: Sequence[int]) -> NoReturn:
    """End with all programs, because the client is gone."""
    for pid in running:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
    sys.exit()


def become(request: Mapping[str, Any]) -> None:
    """Make a fork what a new process would be."""
    if request["session"]:
        os.setsid()
    for number, handle in enumerate(request["handles"]):
        os.dup2(handle, number)
    os.closerange(len(STREAMS), 1 << 20)
    for number, name in enumerate(STREAMS):
        setattr(sys, name, opened(number, getattr(sys, name)))
        setattr(sys, f"__{name}__", getattr(sys, name))
    os.chdir(request["folder"])
    os.environ.clear()
    os.environ.update(request["environment"])
    time.tzset()
    tempfile.tempdir = None
    random.seed()
    executed.start_in_fork()


def opened(number: int, before: TextIOWrapper) -> TextIOWrapper:
    """Return a standard stream as Python opens it: what it is depends on the file, and how on the server."""
    unbuffered = before.write_through
    file = open(number, "wb" if number else "rb", 0 if unbuffered and number else -1, closefd=False)  # noqa: SIM115  # it stays open
    lines = not unbuffered and (number == STREAMS.index("stderr") or file.isatty())
    return TextIOWrapper(file, before.encoding, before.errors, line_buffering=lines, write_through=unbuffered)


def execute(words: list[str]) -> None:
    """Run a program as the interpreter does."""
    option, *rest = words
    if option == "-m":
        sys.path[0], sys.argv = str(Path.cwd()), rest
        runpy.run_module(rest[0], run_name="__main__", alter_sys=True)
    elif option == "-c":
        sys.path[0], sys.argv = "", ["-c", *rest[1:]]
        main = sys.modules["__main__"] = ModuleType("__main__")
        exec(compile(rest[0], "<string>", "exec"), vars(main))  # noqa: S102  # the text of a test
    else:
        sys.path[0], sys.argv = str(Path(option).parent.absolute()), words
        runpy.run_path(option, run_name="__main__")


# The root first.
LOGGERS: Final = (None, "pymongo", "psycopg", "psycopg.pool")


@contextmanager
def log_as_before() -> Iterator[None]:
    """Let what a command does to the log of its process end with the block.

    Its handler has the stderr that a test captures, which is closed by the next one: that would find every
    line of a log in its own stderr, as an error.
    """
    root, message_settings = logging.getLogger(), messages.message_settings()
    handlers = root.handlers[:]
    levels = [logging.getLogger(name).level for name in LOGGERS]
    try:
        yield
    finally:
        root.handlers[:] = handlers
        for name, level in zip(LOGGERS, levels, strict=True):
            logging.getLogger(name).setLevel(level)
        messages._message_settings = message_settings  # noqa: SLF001  # choosing it again would change the log


if __name__ == "__main__":
    import_product()
    wanted = serve(socket.socket(fileno=int(sys.argv[1])))
    become(wanted)
    execute(wanted["words"])
