"""Repeating an action that lost against another writer."""

from __future__ import annotations

import logging
import random
import time
from typing import TYPE_CHECKING, Final, TypeVar

from twinstore.cancelling import given_up
from twinstore.errors import ConcurrencyError, ValidationError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__ = ["CONTENTION_SECONDS", "note_lost_race", "pauses", "repeat"]

log = logging.getLogger("twinstore.retrying")

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
    if attempts is not None and attempts < 1:
        raise ValidationError(f"Argument attempts should be at least 1, not {attempts!r}.")
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
    """Return the result of ``action``, repeating it after ``ConcurrencyError`` as :func:`pauses` allows."""
    for pause in pauses(attempts, seconds=seconds, clock=clock):
        try:
            return action()
        except ConcurrencyError as error:
            if given_up():  # nobody waits for the winner any more
                raise
            note_lost_race(error, pause)
            sleep(pause)
    return action()


def note_lost_race(error: ConcurrencyError, pause: float) -> None:
    """Log that something lost against another writer and is repeated after a pause, in seconds."""
    # Expected under contention, so that a host sees it only when it looks for it; without the key, as in
    # every line of a log.
    log.debug("lost against another writer on %s; repeated in %.0f ms", error.driver, 1000 * pause)
