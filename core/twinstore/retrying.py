"""Repeating an action that lost against another writer."""

from __future__ import annotations

import random
import time
from typing import TYPE_CHECKING, Final, TypeVar

from twinstore.errors import ConcurrencyError, ValidationError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__ = ["pauses", "repeat"]

T = TypeVar("T")

FIRST_PAUSE: Final = 0.005
LONGEST_PAUSE: Final = 0.25


def pauses(count: int) -> Iterator[float]:
    """Return ``count`` pauses in seconds that double from 5 ms to 250 ms, with jitter so that rivals part."""
    pause = FIRST_PAUSE
    for _ in range(count):
        yield pause * random.uniform(0.5, 1.0)  # noqa: S311  # jitter, not a secret
        pause = min(pause * 2, LONGEST_PAUSE)


def repeat(action: Callable[[], T], *, attempts: int, sleep: Callable[[float], None] = time.sleep) -> T:
    """Return the result of ``action``, repeating it after ``ConcurrencyError`` up to ``attempts`` times."""
    if attempts < 1:
        raise ValidationError(f"Argument attempts should be at least 1, not {attempts!r}.")
    for pause in pauses(attempts - 1):
        try:
            return action()
        except ConcurrencyError:
            sleep(pause)
    return action()
