"""What a reader program knows of a model, from its annotations, constraints and rules.

Whatever is not recognised has no program: its rows go the exact way.
"""

from __future__ import annotations

__all__ = ["UnrecognisedError"]


class UnrecognisedError(Exception):
    """Something that no program can express; the message says what, for a user to read."""
