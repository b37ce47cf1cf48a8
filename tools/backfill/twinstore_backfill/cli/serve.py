"""``twinstore backfill serve``."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from twinstore_backfill.cli.options import HIGHEST_PORT, TargetSide
from twinstore_backfill.cli.output import emit_lines
from twinstore_backfill.process.stopping import stop_on_signals


def serve(
    *,
    side: TargetSide,
    reports: Annotated[
        list[Path] | None,
        typer.Option("--reports", metavar="DIR", help="Show the parity reports of this directory."),
    ] = None,
    host: Annotated[
        str, typer.Option("--host", help="Address to listen on; one that others reach needs a token.")
    ] = "127.0.0.1",
    port: Annotated[
        int, typer.Option("--port", min=0, max=HIGHEST_PORT, help="Port to listen on; 0 takes a free one.")
    ] = 8080,
    token_file: Annotated[
        Path | None,
        typer.Option("--token-file", help="File with the token of the page. Default: TWINSTORE_SERVE_TOKEN."),
    ] = None,
) -> None:
    """Show the jobs of a ledger in browsers, until Ctrl-C. Reads only."""
    from twinstore_backfill.serve.app import Board, serving, token_of

    token = token_of(token_file, os.environ)
    with side.opened(read_only=True) as store, stop_on_signals() as stop:
        board = Board(store, reports or ())
        with serving(board, host, port, token) as address:
            emit_lines([f"Serving {address} until Ctrl-C."])
            while not stop.requested:
                stop.wait(board.look())
