"""``twinstore backfill pause``, ``resume`` and ``rate``: a copy is told by its row in the ledger."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Final

import typer

from twinstore.errors import ValidationError
from twinstore.ledger import CopyJob, Ledger
from twinstore_backfill.cli.groups import TargetSide, spread
from twinstore_backfill.cli.output import emit
from twinstore_backfill.cli.params import (
    Format,
    OutputFormat,
)
from twinstore_backfill.copy.control import HIGHEST_RATE, chosen_job

__all__ = ["pause", "rate", "resume"]

Job = Annotated[
    str | None, typer.Option("--job", help="The job. Default: the only one that is not complete.")
]
NONE: Final = "none"
LONGEST: Final = len(str(HIGHEST_RATE))


@spread
def pause(
    side: TargetSide,
    job: Job = None,
    output: OutputFormat = Format.TEXT,
) -> None:
    """Let a running copy take no more ranges until it is resumed; the ranges at work are finished."""
    changed = _changed(side, job, lambda ledger, found: ledger.pause(found))
    _show(output, changed)


@spread
def resume(
    side: TargetSide,
    job: Job = None,
    output: OutputFormat = Format.TEXT,
) -> None:
    """Let a copy that was paused go on."""
    changed = _changed(side, job, lambda ledger, found: ledger.go_on(found))
    _show(output, changed)


@spread
def rate(
    limit: Annotated[str, typer.Argument(help="Most documents per second, or none for no limit.")],
    side: TargetSide,
    job: Job = None,
    output: OutputFormat = Format.TEXT,
) -> None:
    """Give a running copy another rate; each of its threads obeys with its next range."""
    number = rate_argument(limit)
    changed = _changed(side, job, lambda ledger, found: ledger.set_rate(found, number))
    _show(output, changed)


def rate_argument(text: str) -> int | None:
    """Return the number of a rate, ``None`` for no limit.

    Raises:
        ValidationError: it is neither a whole number from 1 on nor the word.
    """
    if text.lower() == NONE:
        return None
    # Bounded in length first: turning very many digits into a number takes long.
    number = int(text) if text.isascii() and text.isdecimal() and len(text) <= LONGEST else 0
    if not 1 <= number <= HIGHEST_RATE:
        raise ValidationError(
            f"The rate should be a whole number from 1 to {HIGHEST_RATE}, or {NONE}, not {text!r}."
        )
    return number


def _changed(
    side: TargetSide,
    job: str | None,
    change: Callable[[Ledger, str], CopyJob],
) -> CopyJob:
    with side.opened() as store:
        return change(store.ledger, chosen_job(store, job).id)


def _show(output: Format, job: CopyJob) -> None:
    limit = "no limit" if job.max_rate is None else f"at most {job.max_rate:,} documents per second"
    emit(
        output,
        {"job": job.id, "paused": job.paused, "max_rate": job.max_rate},
        f"{job.id}: {'paused' if job.paused else 'running'}, {limit}.",
    )
