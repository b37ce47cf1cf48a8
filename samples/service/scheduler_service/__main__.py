"""Runs the service: ``python -m scheduler_service --port 8000``."""

from __future__ import annotations

import argparse
import socket
import sys
from pathlib import Path
from typing import Any, Final

import uvicorn

from scheduler_service.app import create_app
from scheduler_service.tokens import from_file
from twinstore import ConfigurationError
from twinstore.config import load_settings
from twinstore.fastapi import refuse

# What uvicorn bounds: connections and requests at work, the headers of a request, the pause between two.
# It waits for slow headers as long as they take: that is for the proxy, see samples/deploy/nginx.conf.
LIMITS: Final[dict[str, Any]] = {
    "limit_concurrency": 1000,
    "h11_max_incomplete_event_size": 16 * 1024,
    "timeout_keep_alive": 5,
}

SEND_BUFFER: Final = 128 * 1024
# Five times as often as by default: the event loop must not wait long for threads that compute.
SWITCH_SECONDS: Final = 0.001


def main() -> None:
    """Serve until SIGTERM or Ctrl-C; requests that are being answered are ended first."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=8000)
    parser.add_argument("--config", help="settings file; the environment is read in any case")
    parser.add_argument("--tokens", type=Path, help="see tokens.py; without it every token is refused")
    parser.add_argument("--docs", action="store_true", help="serve /docs and /openapi.json")
    parser.add_argument("--metrics", action="store_true", help="serve /metrics")
    options = parser.parse_args()
    try:
        load_settings(options.config)  # said in a line here, and not in the middle of a server that starts
        authenticate = from_file(options.tokens) if options.tokens else refuse
    except ConfigurationError as error:
        parser.error(str(error))
    except (OSError, ValueError, LookupError, TypeError, AttributeError) as error:
        parser.error(f"{options.tokens} is not a file of tokens ({type(error).__name__}); see tokens.py")
    app = create_app(
        options.config,
        authenticate=authenticate,
        docs=options.docs,
        metrics=options.metrics,
    )
    config = uvicorn.Config(app, timeout_graceful_shutdown=30, **LIMITS)
    sys.setswitchinterval(SWITCH_SECONDS)
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
    # Of all accepted connections: a client that reads nothing is sent little more than this. By default the
    # system buffers megabytes, and pipelined requests keep the process busy for no one.
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER)
    listener.bind(address)
    listener.listen()
    return listener


if __name__ == "__main__":
    main()
