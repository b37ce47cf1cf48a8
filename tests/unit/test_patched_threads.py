"""What happens in a process whose threads gevent or eventlet has replaced; each case is a process."""

from __future__ import annotations

import subprocess
import sys

import pytest

GEVENT = "from gevent import monkey\nmonkey.patch_all({})\n"
EVENTLET = "import eventlet\neventlet.monkey_patch({})\n"
MEMORY = '{"persistence": {"scheduler": "Memory"}}'
OPEN_ALL = f"""
from twinstore import open_storage
with open_storage({MEMORY}) as storage:
    print(storage.scheduler.schedules.list("acme").items)
"""
OPEN_BEFORE = f"""
from twinstore import open_storage
storage = open_storage({MEMORY})
PATCH
storage.scheduler
"""


def run(program: str) -> subprocess.CompletedProcess[str]:
    # Both libraries warn of late patches, and eventlet also that it is deprecated.
    command = [sys.executable, "-W", "ignore", "-c", program]
    return subprocess.run(command, check=False, capture_output=True, text=True, timeout=60)


@pytest.mark.parametrize(("library", "patch"), [("gevent", GEVENT), ("eventlet", EVENTLET)])
def test_a_storage_is_not_opened_where_threads_are_greenlets(library: str, patch: str) -> None:
    done = run(patch.format("") + OPEN_ALL)
    assert done.returncode
    assert done.stderr.splitlines()[-1] == (
        f"twinstore.errors.ConfigurationError: {library} has patched threading in this process, and "
        f"twinstore needs threads of the operating system: start it without the patches of {library}."
    )


@pytest.mark.parametrize(("library", "patch"), [("gevent", GEVENT), ("eventlet", EVENTLET)])
def test_a_module_is_not_opened_after_threads_were_patched(library: str, patch: str) -> None:
    done = run(OPEN_BEFORE.replace("PATCH", patch.format("")))
    assert f"ConfigurationError: {library} has patched threading" in done.stderr


@pytest.mark.parametrize(
    "patch",
    [
        "import gevent.monkey\n",
        "import eventlet\n",
        GEVENT.format("thread=False"),
        EVENTLET.format("socket=True"),
    ],
    ids=["gevent imported", "eventlet imported", "gevent without threads", "eventlet without threads"],
)
def test_a_storage_is_opened_where_threads_are_threads(patch: str) -> None:
    done = run(patch + OPEN_ALL)
    assert (done.returncode, done.stdout) == (0, "()\n"), done.stderr
