"""Reads the pages: their fenced blocks, headings and links."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT: Final = Path(__file__).parents[2]
DOCS: Final = ROOT / "docs"
PAGES: Final = tuple(sorted([*ROOT.glob("*.md"), *DOCS.glob("*.md")]))
TUTORIALS: Final = tuple(sorted(DOCS.glob("tutorial-*.md")))
FENCE: Final = re.compile(r"^```(?P<info>[^\n]+)\n(?P<body>.*?)^```$", re.DOTALL | re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Block:
    """One fenced block.

    A block ``python`` runs, after those before it on its page; a block with ``file=NAME`` is written to a
    file instead, and ``python no-run`` is only compiled. ``text output`` is what was printed since the last
    one.
    """

    page: Path
    line: int
    language: str
    notes: tuple[str, ...]
    body: str

    @property
    def file(self) -> str | None:
        """The file that the block is the content of."""
        names = [note.removeprefix("file=") for note in self.notes if note.startswith("file=")]
        return names[0] if names else None

    @property
    def place(self) -> str:
        """Where the block is, for messages."""
        return f"{self.page.relative_to(ROOT)}:{self.line}"


def blocks(page: Path) -> Iterator[Block]:
    """Yield the fenced blocks of a page."""
    text = page.read_text("utf-8")
    for match in FENCE.finditer(text):
        language, *notes = match["info"].split()
        line = text.count("\n", 0, match.start()) + 2
        yield Block(page, line, language, tuple(notes), match["body"])


def all_blocks(*languages: str) -> list[Block]:
    """Return the blocks of all pages in some languages."""
    return [block for page in PAGES for block in blocks(page) if block.language in languages]


def prose(*pages: Path) -> str:
    """Return the text of some pages, of all when none is given."""
    return "\n".join(page.read_text("utf-8") for page in pages or PAGES)
