"""Charts as inline SVG: readable without colour, without a script, and on paper."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["bars", "stacked"]

WIDTH: Final = 720
LABEL: Final = 150
VALUE: Final = 90
ROW: Final = 30
BAR: Final = 18
SMALLEST: Final = 2.0


def bars(title: str, rows: Sequence[tuple[str, int]]) -> str:
    """Return one horizontal bar per row with its number written beside it."""
    return stacked(title, [(label, [("equal", value)]) for label, value in rows])


def stacked(title: str, rows: Sequence[tuple[str, Sequence[tuple[str, int]]]]) -> str:
    """Return one bar per row made of named parts; the parts are told apart by class, label and tooltip."""
    height = ROW * max(len(rows), 1) + 6
    most = max((sum(value for _, value in parts) for _, parts in rows), default=0) or 1
    lines = [_row(index, label, parts, most) for index, (label, parts) in enumerate(rows)]
    spoken = "; ".join(f"{label}: {_spoken(parts)}" for label, parts in rows)
    name = escape(f"{title}. {spoken}", quote=True)
    return f'<svg viewBox="0 0 {WIDTH} {height}" role="img" aria-label="{name}">{"".join(lines)}</svg>'


def _row(index: int, label: str, parts: Sequence[tuple[str, int]], most: int) -> str:
    top = index * ROW + 6
    room = WIDTH - LABEL - VALUE
    x = float(LABEL)
    pieces = [f'<text x="{LABEL - 10}" y="{top + 14}" class="label">{escape(label)}</text>']
    for name, value in parts:
        if not value:
            continue
        width = max(room * value / most, SMALLEST)
        pieces.append(
            f'<rect x="{x:.1f}" y="{top}" width="{width:.1f}" height="{BAR}" class="{escape(name)}">'
            f"<title>{escape(f'{label}: {value:,} {name}')}</title></rect>"
        )
        x += width
    total = sum(value for _, value in parts)
    pieces.append(f'<text x="{x + 8:.1f}" y="{top + 14}" class="value">{total:,}</text>')
    return "".join(pieces)


def _spoken(parts: Sequence[tuple[str, int]]) -> str:
    return ", ".join(f"{value:,} {name}" for name, value in parts if value) or "none"
