"""A server that belongs to a process ends with it, also when that process is killed."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

from twinstore_embedded.processes import is_alive
from twinstore_embedded.state import ServerState, load_state, save_state

if TYPE_CHECKING:
    from pathlib import Path

# The watcher holds the other end of a pipe, which the kernel closes when this process ends.
_watchers: dict[Path, subprocess.Popen[bytes]] = {}


def decide_owner(home: Path, *, owned: bool, launched: bool) -> bool:
    """Decide who owns a running server; the caller holds its lock.

    A process that wants it to stay (``owned=False``) takes it from its owner. A process that wants to own it
    gets it if it was just launched or if its owner has died.

    Returns:
        whether the server belongs to this process.
    """
    state = load_state(home) or ServerState()
    if not owned:
        if state.owner is not None:
            save_state(home, state.model_copy(update={"owner": None}))
        return False
    orphaned = state.owner is not None and not is_alive(state.owner)
    if not (launched or orphaned):
        return False
    save_state(home, state.model_copy(update={"owner": os.getpid()}))
    return True


def is_mine(home: Path, pid: int) -> bool:
    """Return whether the server still belongs to a process."""
    state = load_state(home)
    return state is not None and state.owner == pid


def disown(home: Path) -> None:
    """Forget the owner of a stopped server."""
    state = load_state(home)
    if state is not None and state.owner is not None:
        save_state(home, state.model_copy(update={"owner": None}))


def watch(home: Path) -> None:
    """Start the process that stops the server when this one ends without doing so."""
    unwatch(home)
    _watchers[home] = subprocess.Popen(  # noqa: S603  # our own argument list, no shell
        [sys.executable, "-m", "twinstore_embedded.watcher", str(home), str(os.getpid())],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        # A signal from the terminal goes to the whole group and would end the watcher before its owner.
        start_new_session=True,
    )


def unwatch(home: Path) -> None:
    """End the watcher of a server, if this process has one."""
    watcher = _watchers.pop(home, None)
    if watcher is None:
        return
    # Killed before its pipe is closed, because the end of the pipe is its sign to stop the server.
    watcher.kill()
    if watcher.stdin is not None:
        watcher.stdin.close()
    watcher.wait()
