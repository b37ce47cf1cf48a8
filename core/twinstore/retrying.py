"""Repeating an action that lost against another writer."""

from __future__ import annotations

import random
import time
from typing import TYPE_CHECKING, Final, TypeVar

from twinstore.cancelling import given_up
from twinstore.contention import TURNS
from twinstore.errors import ConcurrencyError, ValidationError
from twinstore.servicelog import note_lost_race
from twinstore.telling import shown

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__ = ["CONTENTION_SECONDS", "note_lost_race", "pauses", "repeat"]

T = TypeVar("T")

# Short, because most races are over as soon as the winner has committed.
FIRST_PAUSE: Final = 0.005
# At least forty attempts in the time there is; longer pauses would leave a row unused that is free again.
LONGEST_PAUSE: Final = 0.25
# By time and not by number: how often an action loses depends on how many writers compete, and how long a
# caller may wait does not.
CONTENTION_SECONDS: Final = 10.0


def pauses(
    attempts: int | None = None,
    *,
    seconds: float = CONTENTION_SECONDS,
    clock: Callable[[], float] = time.monotonic,
) -> Iterator[float]:
    """Return the pauses between attempts, in seconds: they double from 5 ms to 250 ms.

    With jitter, so that competing writers do not retry together. After the last pause follows the last
    attempt.

    Args:
        attempts: at most so many attempts, at least 1; ``None`` for any number.
        seconds: no pause begins later than this after the first attempt.
        clock: tells the seconds.

    Raises:
        ValidationError: fewer than one attempt.
    """
    if attempts is not None and (type(attempts) is not int or attempts < 1):
        raise ValidationError(
            f"Argument attempts should be a whole number of at least 1, not {shown(attempts)}."
        )
    # Counted from the first attempt, because a generator begins when it is first asked.
    end = clock() + seconds
    pause, number = FIRST_PAUSE, 1
    while (attempts is None or number < attempts) and clock() < end:
        yield pause * random.uniform(0.5, 1.0)  # noqa: S311  # jitter, not a secret
        pause, number = min(pause * 2, LONGEST_PAUSE), number + 1


def repeat(
    action: Callable[[], T],
    *,
    attempts: int | None = None,
    seconds: float = CONTENTION_SECONDS,
    sleep: Callable[[float], None] = time.sleep,
    clock: Callable[[], float] = time.monotonic,
) -> T:
    """Return the result of ``action``, repeating it after ``ConcurrencyError`` as :func:`pauses` allows.

    Threads of this process that lost against one row repeat one after the other; see
    :mod:`twinstore.contention`.
    """
    end = clock() + seconds
    with TURNS.repetition():
        for pause in pauses(attempts, seconds=seconds, clock=clock):
            try:
                return action()
            except ConcurrencyError as error:
                if given_up():  # nobody waits for the winner any more
                    raise
                note_lost_race(error, pause)
                row = (error.driver, error.module, error.entity, error.key)
                # Whoever was first is done then, which no pause could tell better.
                if error.entity is None or not TURNS.wait(row, end - clock()):
                    sleep(pause)
        return action()
