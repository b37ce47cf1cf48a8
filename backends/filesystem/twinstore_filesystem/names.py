"""Ids as names of files: no two ids share a name, and no id leaves its folder.

    every character outside A-Z a-z 0-9 . _ -   %XX for each byte of its UTF-8
    . and ..                                    %2E and %2E%2E
    what is longer than 200 characters then     its beginning, %sha256-, and 64 digits of the digest of the id

A percent sign is followed by two upper-case hexadecimal digits in the first two forms and by ``s`` in the
third, so the forms do not meet. A file system takes 255 bytes; the rest is for what follows the name.
"""

from __future__ import annotations

from hashlib import sha256
from typing import Final
from urllib.parse import quote, unquote

LONGEST: Final = 200
SHORTENED: Final = "%sha256-"
DIGITS: Final = 64
TEMPORARY: Final = "~"
"""How the name of a file ends while it is written; no encoded name contains it."""


def encoded(run: str) -> str:
    """Return the name that represents an id."""
    # Lone surrogates too: an id that no store admits is looked for and not found, like any other.
    data = run.encode("utf-8", "surrogatepass")
    text = quote(data, safe="").replace("~", "%7E")
    if text in {".", "..", ""}:
        text = text.replace(".", "%2E") or "%"
    if len(text) <= LONGEST:
        return text
    return f"{text[: LONGEST - len(SHORTENED) - DIGITS]}{SHORTENED}{sha256(data).hexdigest()}"


def is_shortened(name: str) -> bool:
    """Whether a name has the form of a long id; the id itself is only in the file."""
    head, mark, digits = name.rpartition(SHORTENED)
    return bool(mark and head) and len(digits) == DIGITS and len(name) == LONGEST


def decoded(name: str) -> str | None:
    """Return the id that a name represents; ``None`` if it is shortened, or not the name of an id."""
    try:
        run = unquote(name, errors="strict")
    except UnicodeDecodeError:
        return None
    # Whatever else spells the same id would be a second file for it.
    return run if run and encoded(run) == name else None
