"""The options by which only a part of the rows, or of their fields, is copied or compared."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from twinstore_backfill.cli.params import common, instant_option

if TYPE_CHECKING:
    from twinstore_backfill.ignoring import IgnoredPath
    from twinstore_backfill.subset import Subset

__all__ = [
    "IgnoreField",
    "KeyFrom",
    "KeyTo",
    "Since",
    "Until",
    "ignored_fields_option",
    "subset_option",
]

IgnoreField = Annotated[
    list[str] | None,
    typer.Option(
        "--ignore-field",
        metavar="ENTITY.PATH",
        help="Do not compare this field, such as runs.stats.queued; repeatable. PARTIAL at best.",
    ),
]
KeyFrom = Annotated[
    list[str] | None,
    typer.Option(
        "--key-from",
        metavar="KEY",
        help="Only rows from this key on, of one --entity; for a key of several parts once for each, or for "
        "the first ones.",
    ),
]
KeyTo = Annotated[
    list[str] | None,
    typer.Option("--key-to", metavar="KEY", help="Only rows before this key; given as --key-from."),
]
Since = Annotated[
    str | None,
    typer.Option(
        "--since",
        metavar="INSTANT",
        help="Only rows last changed (or made, where no change is noted) at this instant or later.",
    ),
]
Until = Annotated[
    str | None, typer.Option("--until", metavar="INSTANT", help="Only rows dated before this instant.")
]


def ignored_fields_option(context: typer.Context, texts: Sequence[str] | None) -> tuple[IgnoredPath, ...]:
    """Return the fields that are not compared: those of the option and those of the job file."""
    from twinstore_backfill.ignoring_fields import ignored_fields  # noqa: PLC0415  # help needs no models

    return ignored_fields(texts or (), common(context).field_reasons)


def subset_option(
    key_from: Sequence[str] | None, key_to: Sequence[str] | None, since: str | None, until: str | None
) -> Subset:
    """Return the part of the rows that the options mean.

    Raises:
        ValidationError: an instant is none, or they leave none between them.
    """
    from twinstore_backfill.subset import Subset  # noqa: PLC0415  # help needs no models

    return Subset(
        key_from=tuple(key_from or ()),
        key_to=tuple(key_to or ()),
        since=instant_option(since, "--since"),
        until=instant_option(until, "--until"),
    )
