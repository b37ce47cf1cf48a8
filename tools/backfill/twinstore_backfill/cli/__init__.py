"""The command ``twinstore``."""

from __future__ import annotations

import sys

# First, because it takes signals in hand.
from twinstore_backfill.process import process

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["main"]

USAGE = 2


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; say what is missing where its libraries are not installed.

    Without arguments the process is ours: those of the process are taken, and signals end it in order.
    """
    if arguments is not None:
        return _run(arguments)
    process.begin()
    try:
        return _run(None)
    finally:
        process.end()


def _run(arguments: Sequence[str] | None) -> int:
    try:
        from twinstore_backfill.cli import running  # its libraries belong to an extra
    except ModuleNotFoundError as error:
        if error.name not in {"rich", "typer"}:
            raise
        sys.stderr.write(
            f"error: The command line needs {error.name!r}. Run: pip install 'twinstore[backfill]'\n"
        )
        return USAGE
    if arguments is None:
        running.prepare_process()
    return running.main(arguments)
