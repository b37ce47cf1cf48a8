"""What a command of ours leaves in a process that it takes for its own."""

from __future__ import annotations

import logging
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from twinstore_backfill.process import messages

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["log_as_before"]

# The root first.
LOGGERS: Final = (None, "pymongo", "psycopg", "psycopg.pool")


@contextmanager
def log_as_before() -> Iterator[None]:
    """Let what a command does to the log of its process end with the block.

    Its handler has the stderr that a test captures, which is closed by the next one: that would find every
    line of a log in its own stderr, as an error.
    """
    root, chosen = logging.getLogger(), messages.chosen()
    handlers = root.handlers[:]
    levels = [logging.getLogger(name).level for name in LOGGERS]
    try:
        yield
    finally:
        root.handlers[:] = handlers
        for name, level in zip(LOGGERS, levels, strict=True):
            logging.getLogger(name).setLevel(level)
        messages._chosen = chosen  # noqa: SLF001  # to choose it anew would change the log
