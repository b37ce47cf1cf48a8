"""Runs the service: ``python -m scheduler_service --port 8000``."""

from __future__ import annotations

import argparse
import socket

import uvicorn

from scheduler_service.app import create_app
from twinstore import ConfigurationError
from twinstore.config import load_settings


def main() -> None:
    """Serve until SIGTERM or Ctrl-C; requests that are being answered are ended first."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=8000)
    parser.add_argument("--config", help="settings file; the environment is read in any case")
    options = parser.parse_args()
    try:
        load_settings(options.config)  # said in a line here, and not in the middle of a server that starts
    except ConfigurationError as error:
        parser.error(str(error))
    config = uvicorn.Config(create_app(options.config), timeout_graceful_shutdown=30)
    with listening(options.host, options.port) as listener:
        host, port = listener.getsockname()[:2]
        print(f"http://{host}:{port}", flush=True)
        uvicorn.Server(config).run(sockets=[listener])


def listening(host: str, port: int) -> socket.socket:
    """Return the socket to listen on; port 0 takes any that is free."""
    # With the protocol that the address names: without it asyncio sends small packets late, and each answer
    # takes 40 ms more.
    family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    listener = socket.socket(family, kind, protocol)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind(address)
    listener.listen()
    return listener


if __name__ == "__main__":
    main()
