"""How long each step took, and how far one is."""

from __future__ import annotations

from time import monotonic
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from twinstore_backfill.progress import Progress

__all__ = ["Watch", "told"]

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


def told(progress: Progress, name: str, items: Sequence[T]) -> Iterator[T]:
    """Yield the items, and say how many are done."""
    progress.start(name, len(items))
    for item in items:
        yield item
        progress.advance(name, 1)
    progress.finish(name)
