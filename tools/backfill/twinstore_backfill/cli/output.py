"""Results go to stdout, as text for people or as JSON for programs."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from io import StringIO
from itertools import groupby
from typing import TYPE_CHECKING, Final

from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from twinstore_backfill.cli.options import Format
from twinstore_backfill.cli.streams import OutputError, emit_json, emit_text
from twinstore_backfill.process.messages import message_settings, warn
from twinstore_backfill.report.texts import between, folded_warnings, key_text, number_of, visible

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    from rich.console import ConsoleOptions, RenderableType

    from twinstore_backfill.report.model import CauseReport, LeftOut

# Into a file or a pipe rich would assume 80 columns and fold keys, which would break a search for them.
NO_WRAP_WIDTH = 100_000


def emit(output: Format, document: object, *texts: RenderableType, saved: Path | None = None) -> None:
    """Print the result: the document as JSON, or the texts.

    A reader of stdout may close it early; that does not change the result of the command.

    Args:
        output: text or JSON.
        document: the result for programs, or a function that returns it as JSON piece by piece.
        texts: the result for people.
        saved: the directory that holds the result as well.

    Raises:
        OutputError: stdout cannot be written to, for example to a full disk, and nothing is kept.
    """
    try:
        if output is Format.JSON:
            emit_json(document)
        else:
            emit_text(_rendered(texts))
    except OutputError as error:
        if saved is None:
            raise
        warn(f"{error.message} It is in {saved}.")


def emit_lines(lines: Iterable[str]) -> None:
    """Print lines now."""
    emit_text("".join(f"{visible_lines(line)}\n" for line in lines))


def _rendered(texts: Iterable[RenderableType]) -> str:
    # Not straight to stdout: rich ends the process when a pipe is closed.
    rendered, terminal = StringIO(), sys.stdout.isatty()
    console = Console(
        file=rendered,
        force_terminal=terminal or bool(os.environ.get("FORCE_COLOR")),
        width=None if terminal else NO_WRAP_WIDTH,
        highlight=False,
        markup=False,
        emoji=False,  # the key "a:b:c" is not to be shown with a picture
    )
    for text in texts:
        shown = visible_lines(text) if isinstance(text, str) else text
        console.print(shown, soft_wrap=isinstance(shown, str) and _has_long_word(shown, console.width))
    return rendered.getvalue()


def _has_long_word(text: str, width: int) -> bool:
    """Return whether a key or a path is wider than the terminal, which wraps it so that it copies whole."""
    return any(len(word) > width for word in text.split())


def warning_texts(warnings: Sequence[str], speed_only: int) -> Iterator[str]:
    """Return what is shown of warnings, nothing with --quiet; reports have them in full."""
    return iter(()) if message_settings().quiet else folded_warnings(warnings, speed_only)


JSON_REPORT: Final = "parity-report.json"


def cause_texts(
    causes: Sequence[CauseReport], file: str, bounds: Sequence[tuple[int, int]] = ()
) -> Iterator[RenderableType]:
    """Yield why documents are not copied or not proved, with what solves it.

    Args:
        causes: the causes.
        file: what lists all of them.
        bounds: of causes in a sample, between how many of all documents have each.
    """
    if not causes:
        return
    counts: Sequence[object] = [between(*item) for item in bounds] or [item.documents for item in causes]
    rows = [
        (item.entity, count, item.kind, item.reason, key_text(item.example), Block(item.remedy))
        for item, count in zip(causes[:MOST_CAUSES], counts, strict=False)
    ]
    yield table(("entity", "documents", "kind", "reason", "example", "solved by"), rows)
    if len(causes) > MOST_CAUSES:
        yield f"… and {number_of(len(causes) - MOST_CAUSES, 'cause')} more: see {file}."


def left_out_texts(left_out: Iterable[LeftOut]) -> Iterator[str]:
    """Say of each entity that no copy brings over how many rows it has."""
    for item in left_out:
        source, target = sum(item.source.values()), sum(item.target.values())
        yield f"{item.entity}: skipped; {number_of(source, 'row')} in source, {target:,} in target."


TONES: Final[Mapping[str, str]] = {
    "pass": "bold green",
    "start-clean": "bold green",
    "fail": "bold red",
    "inconclusive": "bold yellow",
    "partial": "bold yellow",
    "skipped": "dim",
}
# Between columns: usual, and where that is too wide.
COLUMN_GAPS: Final = (2, 1)
# The last column may break a word in one row of this many; with more, it is not readable as a table.
ROWS_PER_BROKEN_ROW: Final = 4
MIN_COLUMN_WIDTH: Final = 20
# As many as fit on a screen.
MOST_CAUSES: Final = 20


class Block(str):
    """A text of this program in several lines, to be copied as it is."""

    __slots__ = ()


class Rows:
    """A table; if its words do not fit next to each other, each row is shown as lines."""

    def __init__(self, columns: Sequence[str], rows: Iterable[Sequence[object]], title: str = "") -> None:
        """Take the names of the columns and the rows, the first of which says what a row is about."""
        self.columns = list(columns)
        self.rows = [list(row) for row in rows]
        self._title = title
        self._cells = [list(map(_shown, row)) for row in self.rows]
        self._numeric = [
            bool(self.rows) and all(_is_number(row[at]) for row in self.rows) for at in range(len(columns))
        ]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[RenderableType]:
        for gap in COLUMN_GAPS:
            available_width = options.max_width - gap * (len(self.columns) - 1)
            widths = column_widths([self.columns, *self._cells], available_width)
            if widths is not None:
                yield self._table(widths, gap)
                return
        if self._title:
            yield Text(self._title, style="italic")
        yield from self._lines()

    def _table(self, widths: Sequence[int], gap: int) -> Table:
        made = Table(
            title=self._title or None, title_justify="left", box=None, pad_edge=False, padding=(0, gap, 0, 0)
        )
        for column, width, numeric in zip(self.columns, widths, self._numeric, strict=True):
            made.add_column(column, justify="right" if numeric else "left", overflow="fold", width=width)
        for row in self._cells:
            made.add_row(*map(_cell, self.columns, row))
        return made

    def _lines(self) -> Iterator[RenderableType]:
        """Yield each row on its own: what it is about, and below it the rest."""
        for row, texts in zip(self.rows, self._cells, strict=True):
            yield Text(texts[0], style="bold", overflow="fold")
            rest = list(zip(self.columns, row, texts, strict=True))[1:]
            for numeric, parts in groupby(rest, lambda part: _is_number(part[1])):
                if numeric:
                    yield _indented(Text(", ".join(f"{column} {text}" for column, _, text in parts)))
                    continue
                for column, _, text in parts:
                    yield _indented(Text.assemble(f"{column}: ", _cell(column, text), overflow="fold"))


def column_widths(cells: Sequence[Sequence[str]], available_width: int) -> list[int] | None:
    """Return the widths of columns whose words stay whole, or nothing where too many would break."""
    natural = [max(map(_width, column)) for column in zip(*cells, strict=True)]
    least = [max(map(_longest_word, column)) for column in zip(*cells, strict=True)]
    least[0] = natural[0]
    if sum(least) > available_width:
        least[-1] = available_width - sum(least[:-1])
        broken = sum(_longest_word(row[-1]) > least[-1] for row in cells)
        if least[-1] < MIN_COLUMN_WIDTH or broken * ROWS_PER_BROKEN_ROW > len(cells):
            return None
    widths = natural
    while sum(widths) > available_width:
        # The widest column shrinks first, as far as its words allow.
        at = max(range(len(widths)), key=lambda index: (widths[index] > least[index], widths[index]))
        widths[at] -= 1
    return widths


def _indented(text: Text) -> Padding:
    return Padding(text, (0, 0, 0, 2))


def _longest_word(text: str) -> int:
    if isinstance(text, Block):
        return _width(text)
    return max(map(_width, text.split()), default=0)


def _width(text: str) -> int:
    """Return how many columns of a terminal a text takes."""
    return max((Text(line).cell_len for line in text.split("\n")), default=0)


def _is_number(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _shown(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, Block):
        return Block(visible_lines(value))
    return f"{value:,}" if isinstance(value, int) else visible(str(value))


def _cell(column: str, text: str) -> str | Text:
    return toned(text, text) if column == "result" else text


def table(columns: Sequence[str], rows: Iterable[Sequence[object]], title: str = "") -> Rows:
    """Return a table; numbers are right-aligned and grouped by thousands."""
    return Rows(columns, rows, title)


def toned(text: str, result: str) -> Text:
    """Return text in the colour of a result or verdict; without colours it is plain."""
    return Text(visible_lines(text), style=TONES.get(result.casefold().split(" ")[0], ""))


def visible_lines(text: str) -> str:
    """Return text whose keys and names cannot steer the terminal; its own line ends stay."""
    return "\n".join(map(visible, text.split("\n")))
