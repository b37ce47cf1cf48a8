"""Results go to stdout, as text for people or as JSON for programs."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table

from twinstore_backfill.cli.params import Format
from twinstore_backfill.files import json_text
from twinstore_backfill.report.texts import visible

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from typing import Any

    from rich.console import RenderableType

__all__ = ["emit", "emit_text", "left_out_texts", "table"]

# Into a file or a pipe rich would assume 80 columns and fold keys, which nobody could search for then.
WIDE = 200


def emit(output: Format, document: object, *texts: RenderableType) -> None:
    """Print the result: the document as JSON, or the texts."""
    if output is Format.JSON:
        emit_text(json_text(document).decode())
        return
    console = Console(
        file=sys.stdout,
        width=None if sys.stdout.isatty() else WIDE,
        highlight=False,
        markup=False,
        emoji=False,  # the key "a:b:c" is not to be shown with a picture
    )
    for text in texts:
        console.print(visible_lines(text) if isinstance(text, str) else text)


def visible_lines(text: str) -> str:
    """Return text whose keys and names cannot steer the terminal; its own line ends stay."""
    return "\n".join(map(visible, text.split("\n")))


def emit_text(text: str) -> None:
    """Print ready text."""
    sys.stdout.write(text)
    sys.stdout.flush()


def table(columns: Sequence[str], rows: Iterable[Sequence[object]], title: str = "") -> Table:
    """Return a table; numbers are right-aligned and grouped by thousands."""
    shown = [list(row) for row in rows]
    made = Table(title=title or None, title_justify="left", box=None, pad_edge=False)
    for index, column in enumerate(columns):
        numeric = bool(shown) and all(isinstance(row[index], int) for row in shown)
        made.add_column(column, justify="right" if numeric else "left", overflow="fold")
    for row in shown:
        made.add_row(*(f"{value:,}" if isinstance(value, int) else visible(str(value)) for value in row))
    return made


def left_out_texts(left_out: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    """Say of each entity that no copy brings over how many rows it has."""
    for item in left_out:
        source, target = (sum(item[side].values()) for side in ("source", "target"))
        yield f"{item['entity']}: left out; {source:,} rows in source, {target:,} in target."
