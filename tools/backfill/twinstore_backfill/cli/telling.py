"""How a running command tells how far it is: ``--progress`` and ``--metrics-port``."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, Final

import typer

from twinstore.errors import ValidationError
from twinstore_backfill.progress import Progress, SilentProgress, progress_on

__all__ = ["MetricsPort", "ProgressForm", "ProgressOption", "Telling"]

ADDRESS: Final = re.compile(r"(?:(?P<host>\[[0-9A-Fa-f:.]+\]|[^\s:\[\]]+):)?(?P<port>[0-9]{1,5})")
HIGHEST_PORT: Final = 65_535


class ProgressForm(StrEnum):
    """In which form progress is shown on stderr."""

    BAR = "bar"
    JSON = "json"
    NONE = "none"


ProgressOption = Annotated[
    ProgressForm,
    typer.Option(
        "--progress",
        help="Progress on stderr: a bar (plain lines where stderr is no terminal), lines of JSON, or none.",
    ),
]
MetricsPort = Annotated[
    str | None,
    typer.Option(
        "--metrics-port",
        metavar="[HOST:]PORT",
        help="While the command runs, answer GET /metrics with its progress for Prometheus. Host: 127.0.0.1.",
    ),
]


@dataclass(frozen=True, slots=True)
class Telling:
    """What is told by whom: the command by its name, in a form, and to whoever asks at an address."""

    command: str
    form: ProgressForm = ProgressForm.BAR
    address: str | None = None

    def __post_init__(self) -> None:
        """Refuse an address that is none, before any store is opened."""
        if self.address is not None:
            _host_and_port(self.address)

    @contextmanager
    def progress(self) -> Iterator[Progress]:
        """Yield what is told of the progress.

        Raises:
            ConfigurationError: nobody can listen at the address, or the library for it is missing.
        """
        # Most commands need neither; imported, they would cost each of them time.
        from twinstore_backfill.progress_record import (  # noqa: PLC0415
            JsonProgress,
            RecordedProgress,
            SharedProgress,
        )

        with ExitStack() as stack:
            shown: Progress = SilentProgress()
            if self.form is ProgressForm.JSON:
                shown = JsonProgress(sys.stderr, self.command)
            if self.address is not None:
                from twinstore_backfill.progress_metrics import (  # noqa: PLC0415
                    ProgressCollector,
                    metrics_served,
                )

                recorded = shown if isinstance(shown, RecordedProgress) else RecordedProgress()
                collector = ProgressCollector(self.command, recorded)
                stack.enter_context(metrics_served(*_host_and_port(self.address), collector))
                shown = recorded
            if self.form is ProgressForm.BAR:
                bar = stack.enter_context(progress_on())
                shown = bar if isinstance(shown, SilentProgress) else SharedProgress(bar, shown)
            yield shown


def _host_and_port(address: str) -> tuple[str, int]:
    """Return where to listen.

    Raises:
        ValidationError: it is no address.
    """
    found = ADDRESS.fullmatch(address)
    port = int(found["port"]) if found else 0
    if found is None or not 1 <= port <= HIGHEST_PORT:
        raise ValidationError(
            f"--metrics-port {address!r} should be a port from 1 to {HIGHEST_PORT}, or host and port such as "
            "0.0.0.0:9464."
        )
    return (found["host"] or "127.0.0.1").strip("[]"), port
