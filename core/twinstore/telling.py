"""How messages and logs repeat what is stored: in one line, and never megabytes of it."""

from __future__ import annotations

from typing import Final

__all__ = ["LONGEST_TOLD", "told"]

# Characters of a stored text.
LONGEST_TOLD: Final = 256


def told(text: str | None) -> str:
    """Return a stored key, tenant or name for a message."""
    if text is None or len(text) <= LONGEST_TOLD:
        return repr(text)
    return f"{text[:LONGEST_TOLD]!r} and {len(text) - LONGEST_TOLD} more characters"
