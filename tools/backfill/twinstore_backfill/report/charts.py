"""Charts as inline SVG: readable without colour, without a script, and on paper."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["bars", "stacked"]

WIDTH: Final = 720
LABEL: Final = 150
NUMBER: Final = 90
NAMES: Final = 260
ROW: Final = 30
BAR: Final = 18
SMALLEST: Final = 2.0
Parts = list[tuple[str, int]]


def bars(title: str, rows: Sequence[tuple[str, int]]) -> str:
    """Return one horizontal bar per row with its number written beside it."""
    return _chart(title, [(label, [("equal", value)], f"{value:,}") for label, value in rows], NUMBER)


def stacked(title: str, rows: Sequence[tuple[str, Parts]]) -> str:
    """Return one bar per row made of named parts, with their numbers and names written beside it."""
    return _chart(title, [(label, parts, _spoken(parts)) for label, parts in rows], NAMES)


def _chart(title: str, rows: Sequence[tuple[str, Parts, str]], beside: int) -> str:
    height = ROW * max(len(rows), 1) + 6
    most = max((sum(value for _, value in parts) for _, parts, _ in rows), default=0) or 1
    scale = (WIDTH - LABEL - beside) / most
    lines = [
        _row(index * ROW + 6, label, parts, text, scale) for index, (label, parts, text) in enumerate(rows)
    ]
    spoken = "; ".join(f"{label}: {text}" for label, _, text in rows)
    name = escape(f"{title}. {spoken}", quote=True)
    return f'<svg viewBox="0 0 {WIDTH} {height}" role="img" aria-label="{name}">{"".join(lines)}</svg>'


def _row(top: int, label: str, parts: Parts, text: str, scale: float) -> str:
    x = float(LABEL)
    pieces = [f'<text x="{LABEL - 10}" y="{top + 14}" class="label">{escape(label)}</text>']
    for name, value in parts:
        if not value:
            continue
        width = max(scale * value, SMALLEST)
        pieces.append(
            f'<rect x="{x:.1f}" y="{top}" width="{width:.1f}" height="{BAR}" class="{escape(name)}">'
            f"<title>{escape(f'{label}: {value:,} {name}')}</title></rect>"
        )
        x += width
    pieces.append(f'<text x="{x + 8:.1f}" y="{top + 14}" class="value">{escape(text)}</text>')
    return "".join(pieces)


def _spoken(parts: Parts) -> str:
    return ", ".join(f"{value:,} {name}" for name, value in parts if value) or "none"
