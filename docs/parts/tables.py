"""Markdown tables, and what docstrings say about classes and their attributes."""

from __future__ import annotations

import inspect
import re
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

__all__ = ["NONE", "attributes", "code", "codes", "plain", "prose", "table"]

NONE: Final = "\N{EN DASH}"

ATTRIBUTE: Final = re.compile(r"^    (\w+(?:, \w+)*): (.*)$")
CONTINUED: Final = re.compile(r"^ {8}(.*)$")
CROSS_REFERENCE: Final = re.compile(r":\w+:`~?\.?([\w.]+)`")
LITERAL: Final = re.compile(r"``(.+?)``")


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table; a vertical bar inside a cell is escaped."""
    lines = [head, ["---"] * len(head), *([cell.replace("|", "\\|") for cell in row] for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def code(text: object) -> str:
    """Return text as code."""
    return f"`{text}`"


def codes(texts: Iterable[object]) -> str:
    """Return several texts as code, with commas between."""
    return ", ".join(map(code, texts))


def plain(text: str) -> str:
    """Return a docstring's text with its reStructuredText marks as Markdown code."""
    return LITERAL.sub(r"`\1`", CROSS_REFERENCE.sub(r"`\1`", text))


def prose(cls: type) -> str:
    """Return the docstring of a class up to its section "Attributes"."""
    return plain(inspect.cleandoc(cls.__doc__ or "").partition("Attributes:\n")[0].rstrip())


def attributes(cls: type) -> dict[str, str]:
    """Return what the section "Attributes" of a class docstring says, by name."""
    section = (inspect.getdoc(cls) or "").partition("Attributes:\n")[2]
    found: dict[str, str] = {}
    names: list[str] = []
    for line in section.splitlines():
        if match := ATTRIBUTE.match(line):
            names = match[1].split(", ")
            found.update(dict.fromkeys(names, plain(match[2])))
        elif match := CONTINUED.match(line):
            found.update({name: f"{found[name]} {plain(match[1])}" for name in names})
        else:
            break
    return {name: text[:1].upper() + text[1:] for name, text in found.items()}
