"""How long each step took."""

from __future__ import annotations

from time import monotonic
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Watch"]

T = TypeVar("T")


class Watch:
    """Times steps."""

    def __init__(self) -> None:
        """Start with no step."""
        self.seconds: dict[str, float] = {}

    def timed(self, name: str, step: Callable[[], T]) -> T:
        """Return what a step returns, and remember how long it took."""
        started = monotonic()
        result = step()
        self.seconds[name] = round(monotonic() - started, 3)
        return result
