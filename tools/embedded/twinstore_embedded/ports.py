"""Free TCP ports on 127.0.0.1."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING

from twinstore.errors import Outcome, UnavailableError
from twinstore_embedded.state import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable

HOST = "127.0.0.1"
# Each attempt takes a port that was free a moment ago; to lose eight races in a row means something else.
ATTEMPTS = 8
RELEASE_SECONDS = 1.0
# A client that reconnects to a stopped server may get the server's port as its local port, and frees it soon.
FIXED_PORT_SECONDS = 20.0


def on_free_port(preferred: int | None, launch: Callable[[int], bool]) -> int:
    """Launch a server on the preferred port, or on another one if other processes take it first.

    Args:
        preferred: the port of the last run; ``None`` on the first.
        launch: starts the server on a port and answers ``False`` when the port was taken meanwhile.

    Raises:
        UnavailableError: no attempt obtained a port.
    """
    for attempt in range(ATTEMPTS):
        # The port of the last run first, so that connection strings in settings files stay right.
        port = preferred if attempt == 0 and preferred and _becomes_free(preferred) else _bind(0)
        if launch(port):
            return port
    message = (
        f"No free port on {HOST} after {ATTEMPTS} attempts; close programs that hold ports and try again."
    )
    raise UnavailableError(message, outcome=Outcome.NOT_APPLIED)


def on_port(port: int, launch: Callable[[int], bool]) -> int:
    """Launch a server on the one port where others look for it.

    Args:
        port: the port.
        launch: starts the server there and answers ``False`` when the port was taken.

    Raises:
        UnavailableError: another program keeps the port.
    """
    if not wait_until(lambda: _is_free(port) and launch(port), FIXED_PORT_SECONDS):
        raise UnavailableError(
            f"Another program keeps port {port} of {HOST}; end it and try again.", outcome=Outcome.NOT_APPLIED
        )
    return port


def _becomes_free(port: int) -> bool:
    # The kernel takes a moment to close the sockets of a killed server.
    return wait_until(lambda: _is_free(port), RELEASE_SECONDS)


def _is_free(port: int) -> bool:
    try:
        return _bind(port) == port
    except OSError:  # another program listens there
        return False


def _bind(port: int) -> int:
    with socket.socket() as probe:
        # The servers set it too: a connection of the last run in TIME_WAIT must not cost the port.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        probe.bind((HOST, port))
        return int(probe.getsockname()[1])
