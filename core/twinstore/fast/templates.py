"""Patterns that admit texts of one form only: literal characters and hexadecimal digits at their places."""

from __future__ import annotations

import re
from typing import Final

from twinstore.fast.nodes import HEX_DIGIT

__all__ = ["template_of"]

HEX_CLASS: Final = "[0-9a-f]"
# What such a pattern consists of: a class or a literal character or a group of them, each repeated or not.
PART: Final = re.compile(
    r"(?:(?P<digit>\[0-9a-f\])|(?P<literal>[A-Za-z0-9_:-])|\((?P<group>[^()|?*+]+)\))(?:\{(?P<times>\d{1,3})\})?"
)
LONGEST: Final = 256


def template_of(pattern: str) -> str | None:
    """Return the only form of text that a pattern admits, ``None`` where it may admit another one.

    In the template :data:`~twinstore.fast.nodes.HEX_DIGIT` stands for a hexadecimal digit.
    """
    if not (pattern.startswith("^") and pattern.endswith("$")):
        return None
    found = _expanded(pattern[1:-1])
    return found if found and len(found) <= LONGEST else None


def _expanded(text: str) -> str | None:
    parts: list[str] = []
    at = 0
    while at < len(text):
        part = PART.match(text, at)
        if part is None:
            return None
        group = part["group"]
        one = _expanded(group) if group else part["literal"] or HEX_DIGIT
        if one is None:
            return None
        parts.append(one * int(part["times"] or 1))
        at = part.end()
    return "".join(parts)
