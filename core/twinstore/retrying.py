"""Repeating an action that lost against another writer."""

from __future__ import annotations

import random
import time
from typing import TYPE_CHECKING, Final, TypeVar

from twinstore.errors import ConcurrencyError, ValidationError

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["repeat"]

T = TypeVar("T")

FIRST_PAUSE: Final = 0.005
LONGEST_PAUSE: Final = 0.25


def repeat(action: Callable[[], T], *, attempts: int, sleep: Callable[[float], None] = time.sleep) -> T:
    """Return the result of ``action``, repeating it after ``ConcurrencyError`` up to ``attempts`` times.

    The pause doubles from 5 ms to 250 ms, with jitter so that rivals do not meet again.
    """
    if attempts < 1:
        raise ValidationError(f"Argument attempts should be at least 1, not {attempts!r}.")
    pause = FIRST_PAUSE
    for _ in range(attempts - 1):
        try:
            return action()
        except ConcurrencyError:
            sleep(pause * random.uniform(0.5, 1.0))  # noqa: S311  # jitter, not a secret
            pause = min(pause * 2, LONGEST_PAUSE)
    return action()
