"""Writing a result to stdout, for any reader."""

from __future__ import annotations

import os
import select
import sys
from collections.abc import Callable, Iterable
from contextlib import contextmanager
from io import TextIOWrapper
from typing import TYPE_CHECKING, ClassVar, cast

from twinstore.errors import TwinstoreError
from twinstore_backfill.process.files import json_text

if TYPE_CHECKING:
    from collections.abc import Iterator


class OutputError(TwinstoreError):
    """The result could not be written to stdout, and is not stored elsewhere."""

    code: ClassVar[str] = "output_failed"


def emit_json(document: object | Callable[[], Iterable[bytes]]) -> None:
    """Print JSON, which is UTF-8 whatever a terminal shows.

    Raises:
        OutputError: stdout cannot be written to.
    """
    made = cast("Callable[[], Iterable[bytes]]", document)
    pieces = made() if callable(document) else [json_text(document)]
    with _writing():
        if not isinstance(sys.stdout, TextIOWrapper):
            sys.stdout.write(b"".join(pieces).decode())
            return
        sys.stdout.flush()
        sys.stdout.buffer.writelines(pieces)


def emit_text(text: str) -> None:
    """Print ready text.

    Raises:
        OutputError: stdout cannot be written to.
    """
    with _writing():
        sys.stdout.write(text)


@contextmanager
def _writing() -> Iterator[None]:
    """Write to stdout now, so that a failure shows here and not when the process ends."""
    try:
        yield
        sys.stdout.flush()
    except BrokenPipeError:
        # The reader does not want more.
        discard()
    except OSError as error:
        discard()
        raise stdout_error(error) from error


def stdout_error(error: OSError) -> OutputError:
    """Return the error of a stdout that takes nothing."""
    return OutputError(f"The result could not be written to stdout: {error.strerror}.")


def is_stdout_closed() -> bool:
    """Return whether it was stdout that broke, and not a connection."""
    poller = select.poll()
    # No event is requested: poll always reports a closed reader.
    poller.register(sys.stdout.fileno(), 0)
    return any(events & (select.POLLERR | select.POLLHUP) for _, events in poller.poll(0))


def discard() -> None:
    """Send what is left of stdout to nowhere, or Python would fail to write it at its end."""
    devnull = os.open(os.devnull, os.O_WRONLY)
    os.dup2(devnull, sys.stdout.fileno())
    os.close(devnull)
