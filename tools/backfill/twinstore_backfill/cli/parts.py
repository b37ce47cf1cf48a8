"""The option by which only a part of the fields is compared."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from twinstore_backfill.cli.params import common

if TYPE_CHECKING:
    from twinstore_backfill.ignoring import IgnoredPath

__all__ = ["IgnoreField", "ignored_fields_option"]

IgnoreField = Annotated[
    list[str] | None,
    typer.Option(
        "--ignore-field",
        metavar="ENTITY.PATH",
        help="Do not compare this field, such as runs.stats.queued; repeatable. PARTIAL at best.",
    ),
]


def ignored_fields_option(context: typer.Context, texts: Sequence[str] | None) -> tuple[IgnoredPath, ...]:
    """Return the fields that are not compared: those of the option and those of the job file."""
    from twinstore_backfill.ignoring_fields import ignored_fields  # noqa: PLC0415  # help needs no models

    return ignored_fields(texts or (), common(context).field_reasons)
