"""What nobody catches, in a thread or while an object is removed: a line of the log, never a traceback."""

from __future__ import annotations

import logging
import sys
import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from threading import ExceptHookArgs

__all__ = ["log_uncaught"]

log = logging.getLogger(__name__)


def log_uncaught() -> None:
    """Send to the log what Python would print by itself; every process of a command calls this."""
    threading.excepthook = _of_thread
    sys.unraisablehook = _of_removal
    # A log that cannot be written, such as to a closed pipe, is no reason to print a traceback there.
    logging.raiseExceptions = False


def _of_thread(arguments: ExceptHookArgs) -> None:
    name = arguments.thread.name if arguments.thread else "a thread"
    log.warning("%s ended with an unexpected %s", name, arguments.exc_type.__name__)
    log.debug("%s ended", name, exc_info=arguments.exc_value)


def _of_removal(arguments: sys.UnraisableHookArgs) -> None:
    # The object is gone either way; drivers close connections here whose server may be away.
    log.debug(
        "unexpected %s while an object was removed", arguments.exc_type.__name__, exc_info=arguments.exc_value
    )
