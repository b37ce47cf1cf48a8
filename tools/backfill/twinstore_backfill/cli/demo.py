"""``twinstore demo``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from twinstore.errors import ConfigurationError


def demo(
    directory: Annotated[
        Path, typer.Option("--data-dir", help="Directory of the servers and the reports.")
    ] = Path(".demo"),
) -> None:
    """Move a live service from MongoDB to PostgreSQL, and prove both equal."""
    try:
        from twinstore_backfill.demo.run import run_demo

        run_demo(directory)
    except ModuleNotFoundError as error:
        raise ConfigurationError(f"The demo needs {error.name!r}: pip install 'twinstore[all]'.") from error
