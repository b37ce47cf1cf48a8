"""Paths of rules as texts: names with dots between them, quoted as keys of TOML are."""

from __future__ import annotations

import re
import tomllib
from typing import Final

from twinstore_backfill.rules.model import ANY

__all__ = ["PathError", "parse_path"]

# A name without quotes may have blanks inside, as those of other programs do.
NAME: Final = r"""\s*(?:"(?:\\.|[^"\\])*"|'[^']*'|[^."'\s](?:[^."']*[^."'\s])?)\s*"""
PATH: Final = re.compile(rf"{NAME}(?:\.{NAME})*")


class PathError(ValueError):
    """A text is no path."""


def parse_path(text: str) -> tuple[str, ...]:
    """Return the names of a path such as ``runs.stats."a.b"``.

    Raises:
        PathError: a name is missing, or is not quoted as TOML quotes one.
    """
    if PATH.fullmatch(text) is None:
        raise PathError(f"{text!r} is not a path; join names by dots and quote a name that contains a dot")
    return tuple(_name(part.strip()) for part in re.findall(NAME, text))


def _name(text: str) -> str:
    if text[0] not in "\"'":
        return text
    try:
        name: str = tomllib.loads(f"name = {text}")["name"]
    except tomllib.TOMLDecodeError:
        raise PathError(f"{text} is not quoted as TOML quotes a name") from None
    if name == ANY:
        # Otherwise it would stand for every name.
        raise PathError(f"{text}: a rule cannot name a property that is called {ANY}")
    return name
