"""Results go to stdout, as text for people or as JSON for programs."""

from __future__ import annotations

import sys
from io import StringIO
from typing import TYPE_CHECKING, Final

from rich.console import Console
from rich.table import Table
from rich.text import Text

from twinstore_backfill.cli.params import Format
from twinstore_backfill.cli.streams import OutputError, emit_json, emit_text
from twinstore_backfill.messages import warn
from twinstore_backfill.report.texts import number_of, visible

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from pathlib import Path
    from typing import Any

    from rich.console import RenderableType

__all__ = ["OutputError", "emit", "emit_json", "emit_text", "left_out_texts", "table", "toned"]

# Into a file or a pipe rich would assume 80 columns and fold keys, which nobody could search for then.
WIDE = 200
TONES: Final[Mapping[str, str]] = {
    "pass": "bold green",
    "start-clean": "bold green",
    "fail": "bold red",
    "inconclusive": "bold yellow",
    "partial": "bold yellow",
    "skipped": "dim",
}


def emit(output: Format, document: object, *texts: RenderableType, kept: Path | None = None) -> None:
    """Print the result: the document as JSON, or the texts.

    Whoever reads stdout may close it early; what the command found stays what it is.

    Args:
        output: text or JSON.
        document: the result for programs.
        texts: the result for people.
        kept: the directory that holds the result as well.

    Raises:
        OutputError: stdout cannot be written to, for example to a full disk, and nothing is kept.
    """
    try:
        if output is Format.JSON:
            emit_json(document)
        else:
            emit_text(_rendered(texts))
    except OutputError as error:
        if kept is None:
            raise
        warn(f"{error.message} It stands in {kept}.")


def _rendered(texts: Iterable[RenderableType]) -> str:
    # Not straight to stdout: rich ends the process when a pipe is closed.
    rendered, terminal = StringIO(), sys.stdout.isatty()
    console = Console(
        file=rendered,
        force_terminal=terminal,
        width=None if terminal else WIDE,
        highlight=False,
        markup=False,
        emoji=False,  # the key "a:b:c" is not to be shown with a picture
    )
    for text in texts:
        console.print(visible_lines(text) if isinstance(text, str) else text)
    return rendered.getvalue()


def visible_lines(text: str) -> str:
    """Return text whose keys and names cannot steer the terminal; its own line ends stay."""
    return "\n".join(map(visible, text.split("\n")))


def table(columns: Sequence[str], rows: Iterable[Sequence[object]], title: str = "") -> Table:
    """Return a table; numbers are right-aligned and grouped by thousands."""
    shown = [list(row) for row in rows]
    made = Table(title=title or None, title_justify="left", box=None, pad_edge=False)
    for index, column in enumerate(columns):
        numeric = bool(shown) and all(isinstance(row[index], int) for row in shown)
        # What a row is about stays in one piece; on a narrow terminal the other columns give way.
        made.add_column(column, justify="right" if numeric else "left", overflow="fold", no_wrap=index == 0)
    for row in shown:
        made.add_row(*map(_cell, columns, row))
    return made


def _cell(column: str, value: object) -> str | Text:
    if isinstance(value, int):
        return f"{value:,}"
    text = visible(str(value))
    return toned(text, text) if column == "result" else text


def toned(text: str, result: str) -> Text:
    """Return text in the colour of a result or verdict; where there are no colours it is plain."""
    return Text(visible_lines(text), style=TONES.get(result.casefold().split(" ")[0], ""))


def left_out_texts(left_out: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    """Say of each entity that no copy brings over how many rows it has."""
    for item in left_out:
        source, target = (sum(item[side].values()) for side in ("source", "target"))
        yield f"{item['entity']}: left out; {number_of(source, 'row')} in source, {target:,} in target."
