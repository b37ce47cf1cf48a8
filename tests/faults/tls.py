"""Certificates, good and bad, and a front before a server that speaks TLS with one of them."""

from __future__ import annotations

import shutil
import socket
import ssl
import subprocess
import threading
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

__all__ = ["Certificates", "front", "openssl"]

HOST: Final = "127.0.0.1"
# What libpq sends first, and what a server answers that speaks TLS.
SSL_REQUEST: Final = bytes.fromhex("0000000804d2162f")
KEY: Final = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes")


def openssl() -> str | None:
    """Return the program that makes certificates, where there is one."""
    return shutil.which("openssl")


class Certificates:
    """An authority, another one, and certificates of servers."""

    def __init__(self, directory: Path) -> None:
        """Make the authorities."""
        self.directory = directory
        self.authority, self.other = self._authority("ours"), self._authority("other")

    def of_server(self, name: str, *, address: str = f"IP:{HOST}", days: int = 2) -> Path:
        """Return certificate and key of a server in one file, signed by the first authority."""
        key, request, extension, signed, whole = (
            self.directory / f"{name}.{suffix}" for suffix in ("key", "csr", "ext", "crt", "pem")
        )
        extension.write_text(f"subjectAltName={address}\n")
        self._run("req", *KEY, "-keyout", key, "-out", request, "-subj", f"/CN={name}")
        self._run(
            *("x509", "-req", "-in", request, "-out", signed, "-days", str(days), "-extfile", extension),
            *("-CA", self.authority, "-CAkey", self.authority.with_suffix(".key")),
        )
        whole.write_bytes(signed.read_bytes() + key.read_bytes())
        return whole

    def _authority(self, name: str) -> Path:
        found, key = self.directory / f"{name}.pem", self.directory / f"{name}.key"
        self._run("req", "-x509", *KEY, "-keyout", key, "-out", found, "-subj", f"/CN={name}", "-days", "2")
        return found

    def _run(self, *arguments: object) -> None:
        subprocess.run(["openssl", *map(str, arguments)], check=True, capture_output=True)  # noqa: S607


@contextmanager
def front(server: tuple[str, int], certificate: Path, *, asked: bool) -> Iterator[int]:
    """Speak TLS before a server that does not; give the port.

    Args:
        server: its address.
        certificate: with its key.
        asked: the client asks for TLS first, as libpq does.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    with socket.create_server((HOST, 0)) as listener:
        threading.Thread(target=accept, args=(listener, server, context, asked), daemon=True).start()
        try:
            yield listener.getsockname()[1]
        finally:
            # Wakes the thread, which closing alone does not.
            with suppress(OSError):
                listener.shutdown(socket.SHUT_RDWR)


def accept(
    listener: socket.socket,
    server: tuple[str, int],
    context: ssl.SSLContext,
    asked: bool,  # noqa: FBT001
) -> None:
    """Serve each client in a thread until the listener is closed."""
    with suppress(OSError):
        while True:
            client, _ = listener.accept()
            threading.Thread(target=serve, args=(client, server, context, asked), daemon=True).start()


def serve(
    client: socket.socket,
    server: tuple[str, int],
    context: ssl.SSLContext,
    asked: bool,  # noqa: FBT001
) -> None:
    """Carry what both sides say, decrypted, until one of them ends."""
    with suppress(OSError), client:
        if asked:
            if client.recv(len(SSL_REQUEST)) != SSL_REQUEST:
                return
            client.sendall(b"S")
        with (
            context.wrap_socket(client, server_side=True) as inside,
            socket.create_connection(server) as behind,
        ):
            answers = threading.Thread(target=carry, args=(behind, inside), daemon=True)
            answers.start()
            carry(inside, behind)
            answers.join(10)


def carry(source: socket.socket, target: socket.socket) -> None:
    """Carry one direction."""
    with suppress(OSError):
        while data := source.recv(65_536):
            target.sendall(data)
    with suppress(OSError):
        target.shutdown(socket.SHUT_RDWR)
