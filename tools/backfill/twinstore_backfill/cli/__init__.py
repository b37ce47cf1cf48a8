"""The command ``twinstore``."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["main"]

USAGE = 2


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; say what is missing where its libraries are not installed."""
    try:
        from twinstore_backfill.cli import running  # noqa: PLC0415  # its libraries belong to an extra
    except ModuleNotFoundError as error:
        if error.name not in {"rich", "typer"}:
            raise
        sys.stderr.write(
            f"error: The command line needs {error.name!r}. Run: pip install 'twinstore[backfill]'\n"
        )
        return USAGE
    return running.main(arguments)
