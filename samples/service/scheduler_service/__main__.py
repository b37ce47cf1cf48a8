"""Runs the service: ``python -m scheduler_service --port 8000``."""

from __future__ import annotations

import argparse

import uvicorn

from scheduler_service.app import create_app


def main() -> None:
    """Serve until SIGTERM or Ctrl-C; requests that are being answered are ended first."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=8000)
    parser.add_argument("--config", help="settings file; the environment is read in any case")
    options = parser.parse_args()
    uvicorn.run(
        create_app(options.config), host=options.host, port=options.port, timeout_graceful_shutdown=30
    )


if __name__ == "__main__":
    main()
