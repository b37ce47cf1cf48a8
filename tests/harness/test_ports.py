"""A port that is kept is refused to everybody but the server that it is kept for."""

from __future__ import annotations

import socket
from contextlib import closing

import pytest

from tests.ports import kept_port


def test_a_kept_port_is_refused_until_its_server_listens_and_again_afterwards() -> None:
    with kept_port() as port:
        for _ in range(2):
            with pytest.raises(ConnectionRefusedError):
                socket.create_connection(("127.0.0.1", port))
            # As a client has a port, and most programs.
            with closing(socket.socket()) as other, pytest.raises(OSError, match="in use"):
                other.bind(("127.0.0.1", port))
            with (
                closing(socket.create_server(("127.0.0.1", port))) as server,
                closing(socket.create_connection(("127.0.0.1", port))),
            ):
                server.accept()[0].close()
