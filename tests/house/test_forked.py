"""Programs that are forks of one process find what a new process has, and end as it does."""

from __future__ import annotations

import json
import logging
import os
import re
import signal
import subprocess
import sys
from typing import TYPE_CHECKING, Final

import psutil
import pytest

from tests.support import forked
from tests.support.forked import LOGGERS, log_as_before
from tests.support.server_supervisor import ROOT
from twinstore_backfill.cli import main
from twinstore_backfill.process.messages import message_settings

if TYPE_CHECKING:
    from pathlib import Path

# It has no output but this, or the name of the module would be in its way.
SEEN: Final = """
import json, os, signal, sys, threading
streams = [sys.stdin, sys.stdout, sys.stderr]
print(json.dumps({
    "arguments": sys.argv,
    "environment": dict(os.environ),
    "folder": os.getcwd(),
    "input": sys.stdin.read(),
    "files": sorted(os.listdir("/proc/self/fd")),
    "handlers": {number: str(signal.getsignal(number)) for number in signal.valid_signals()},
    "blocked": list(signal.pthread_sigmask(signal.SIG_BLOCK, [])),
    "streams": [(each.encoding, each.errors, each.line_buffering, each.fileno()) for each in streams],
    "main": (__name__, sys.modules["__main__"].__dict__ is globals(), getattr(__spec__, "name", None)),
    "path": sys.path,
    "threads": threading.active_count(),
    "unread": sys.stdin is sys.__stdin__ and sys.stdout is sys.__stdout__ and sys.stderr is sys.__stderr__,
    "leader": os.getsid(0) == os.getpid(),
}))
"""
ENDS: Final = {
    "returns": "print('done')",
    "says a code": "import sys; sys.exit(3)",
    "says a text": "import sys; sys.exit('no')",
    "leaves": "import os; print('lost'); os._exit(4)",
    "fails": "raise KeyError('one')",
    "is interrupted": "raise KeyboardInterrupt",
    "is killed": "import os; os.kill(os.getpid(), 9)",
    "cleans up": "import atexit; atexit.register(print, 'clean'); print('done')",
    "waits for threads": "import threading, time\n"
    "threading.Thread(target=lambda: (time.sleep(0.1), print('late'))).start()",
    "drops objects": "class A:\n def __del__(self): print('gone')\nkept = A()",
}
TALK: Final = "for line in iter(input, 'end'): print(line * 2, flush=True)"
WAIT: Final = "import signal, time; print('begun', flush=True); time.sleep(600)"
ABANDONED: Final = f"""
import os, signal
from tests.support import forked
program = forked.Popen(["-c", {WAIT!r}], stdout=-1)
program.stdout.readline()
print(program.pid, forked._servers[0]._process.pid, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.parametrize(
    "words", [["-c", SEEN], ["-m", "seen"], ["seen.py"]], ids=["a text", "a module", "a file"]
)
def test_a_fork_finds_what_a_new_process_has(words: list[str], tmp_path: Path) -> None:
    (tmp_path / "seen.py").write_text(SEEN)
    words = [*words, "one", "ü two"]
    environment = {**os.environ, "MARK": "ä", "COLUMNS": "77"}
    new = subprocess.run(
        [sys.executable, *words],
        input="given",
        check=True,
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env=environment,
    )
    fork = forked.run(words, given="given", check=True, cwd=tmp_path, env=environment)
    assert (json.loads(fork.stdout), fork.stderr) == (json.loads(new.stdout), new.stderr)
    assert json.loads(new.stdout)["input"] == "given"


@pytest.mark.parametrize("code", ENDS.values(), ids=ENDS)
def test_a_fork_ends_as_a_new_process_does(code: str) -> None:
    new = subprocess.run([sys.executable, "-c", code], check=False, capture_output=True, text=True)
    fork = forked.run(["-c", code])
    assert (fork.returncode, fork.stdout) == (new.returncode, new.stdout)
    assert fork.stderr.splitlines()[-1:] == new.stderr.splitlines()[-1:]


def test_programs_that_run_at_the_same_time_talk_and_are_signalled_one_by_one() -> None:
    pipe = subprocess.PIPE
    with (
        forked.Popen(["-c", TALK], stdin=pipe, stdout=pipe) as talker,
        forked.Popen(["-c", WAIT], stdout=pipe, start_new_session=True) as waiting,
    ):
        assert waiting.stdout is not None
        assert waiting.stdout.readline() == "begun\n"
        assert (waiting.poll(), os.getsid(waiting.pid)) == (None, waiting.pid)
        waiting.terminate()
        assert waiting.wait() == -signal.SIGTERM
        waiting.kill()  # It is gone; its number may be that of another process.
        assert talker.poll() is None
        assert talker.communicate("ab\nend\n") == ("abab\n", "")
        assert talker.returncode == 0


def test_a_program_that_takes_too_long_is_killed() -> None:
    with pytest.raises(subprocess.TimeoutExpired):
        forked.run(["-c", WAIT], timeout=0.2)


def test_no_two_forks_draw_the_same_numbers() -> None:
    drawn = {forked.run(["-c", "import random; print(random.random())"]).stdout for _ in range(2)}
    assert len(drawn) == 2


def test_what_the_interpreter_reads_before_our_code_is_refused() -> None:
    with pytest.raises(ValueError, match="A fork ignores PYTHONOPTIMIZE; use subprocess"):
        forked.Popen(["-c", ""], env={**os.environ, "PYTHONOPTIMIZE": "1"})


# It starts a server that imports the product, for seconds.
@pytest.mark.long
def test_the_server_and_what_it_runs_end_with_a_client_that_is_killed() -> None:
    command = [sys.executable, "-c", ABANDONED]
    done = subprocess.run(command, check=False, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    assert done.returncode == -signal.SIGKILL
    left = [psutil.Process(int(pid)) for pid in done.stdout.split() if psutil.pid_exists(int(pid))]
    assert psutil.wait_procs(left, timeout=60)[1] == []


def test_the_files_that_start_our_command_as_a_new_process_are_the_listed_ones() -> None:
    command = re.compile(r"-m\W+twinstore_backfill|cli import main")
    found = set()
    for file in (ROOT / "tests").rglob("*.py"):
        text = file.read_text()
        if "sys.executable" in text and command.search(text):
            found.add(file.relative_to(ROOT / "tests").as_posix())

    assert found - {"house/test_forked.py"} == forked.REAL_STARTS.keys() - {
        "packaging/test_wheel_commands.py"
    }


def state() -> tuple[object, ...]:
    """Return what a command changes."""
    return (
        logging.getLogger().handlers[:],
        [logging.getLogger(name).level for name in LOGGERS],
        message_settings(),
    )


def test_logging_after_a_command_works_as_before(capsys: pytest.CaptureFixture[str]) -> None:
    before = state()
    with log_as_before():
        assert main(["--debug", "--log-format", "json", "backends"]) == 0
        assert all(was != now for was, now in zip(before, state(), strict=True))
    assert state() == before
    assert capsys.readouterr().err == ""
