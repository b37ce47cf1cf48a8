"""Tables for people, which break no name, key or number, however narrow the terminal is."""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING, Final

from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from twinstore_backfill.report.texts import visible

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from rich.console import Console, ConsoleOptions, RenderableType

__all__ = ["TONES", "Rows", "table", "toned", "visible_lines"]

TONES: Final[Mapping[str, str]] = {
    "pass": "bold green",
    "start-clean": "bold green",
    "fail": "bold red",
    "inconclusive": "bold yellow",
    "partial": "bold yellow",
    "skipped": "dim",
}
# Between columns: usual, and where that is too wide.
GAPS: Final = (2, 1)
# The last column may break a word in one row of so many; beyond that, a table is no table any more.
ONE_IN: Final = 4
NARROWEST: Final = 20


class Rows:
    """A table; where its words do not fit beside each other, each row is shown as lines."""

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
        """Yield the table as rich draws it."""
        for gap in GAPS:
            room = options.max_width - gap * (len(self.columns) - 1)
            widths = fitting([self.columns, *self._cells], room)
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


def fitting(cells: Sequence[Sequence[str]], room: int) -> list[int] | None:
    """Return the widths of columns whose words stay whole, or nothing where too many would break."""
    natural = [max(map(_width, column)) for column in zip(*cells, strict=True)]
    least = [max(map(_longest_word, column)) for column in zip(*cells, strict=True)]
    least[0] = natural[0]
    if sum(least) > room:
        least[-1] = room - sum(least[:-1])
        broken = sum(_longest_word(row[-1]) > least[-1] for row in cells)
        if least[-1] < NARROWEST or broken * ONE_IN > len(cells):
            return None
    widths = natural
    while sum(widths) > room:
        # The widest gives way first, as far as its words allow.
        at = max(range(len(widths)), key=lambda index: (widths[index] > least[index], widths[index]))
        widths[at] -= 1
    return widths


def _indented(text: Text) -> Padding:
    return Padding(text, (0, 0, 0, 2))


def _longest_word(text: str) -> int:
    return max(map(_width, text.split()), default=0)


def _width(text: str) -> int:
    """Return how many columns of a terminal a text takes."""
    return Text(text).cell_len


def _is_number(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _shown(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:,}" if isinstance(value, int) else visible(str(value))


def _cell(column: str, text: str) -> str | Text:
    return toned(text, text) if column == "result" else text


def table(columns: Sequence[str], rows: Iterable[Sequence[object]], title: str = "") -> Rows:
    """Return a table; numbers are right-aligned and grouped by thousands."""
    return Rows(columns, rows, title)


def toned(text: str, result: str) -> Text:
    """Return text in the colour of a result or verdict; where there are no colours it is plain."""
    return Text(visible_lines(text), style=TONES.get(result.casefold().split(" ")[0], ""))


def visible_lines(text: str) -> str:
    """Return text whose keys and names cannot steer the terminal; its own line ends stay."""
    return "\n".join(map(visible, text.split("\n")))
