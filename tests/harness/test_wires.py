"""The wire between a client and a server leaves nothing behind."""

from __future__ import annotations

import socket
import threading
from contextlib import closing

from tests.faults.held_rows import eventually
from tests.wires import CountingWire

PATIENCE = 10.0


def test_a_server_hears_at_once_that_its_client_has_gone() -> None:
    before = set(threading.enumerate())
    with closing(socket.create_server(("127.0.0.1", 0))) as server:
        with CountingWire(socket.AF_INET, server.getsockname()) as wire:
            client = socket.create_connection(("127.0.0.1", wire.port))
            there, _ = server.accept()
            there.settimeout(PATIENCE)
            client.sendall(b"a")
            assert there.recv(1) == b"a"
            client.close()
            with there:
                assert there.recv(1) == b""
        # One of them may not have begun yet.
        assert eventually(
            lambda: not any("_pass" in thread.name for thread in set(threading.enumerate()) - before),
            PATIENCE,
        )
