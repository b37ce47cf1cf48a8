"""What a failure takes along besides its message: the local variables of every function it has left.

Error trackers, ``rich`` and ``cgitb`` record them. Around connection strings they hold passwords, also in the
frames of client libraries, which know nothing of :class:`pydantic.SecretStr`. So a function that handles them
clears the frames it has called when it fails. Files, lines and names of functions stay in the traceback; the
values in it are gone, which is the price.
"""

from __future__ import annotations

import sys
from functools import wraps
from traceback import clear_frames
from typing import TYPE_CHECKING, ParamSpec, TypeVar, cast

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["forget_locals", "without_locals"]

P = ParamSpec("P")
T = TypeVar("T")


def without_locals(function: Callable[P, T]) -> Callable[P, T]:
    """Return a function whose failures show neither its arguments nor any local variable below it."""

    @wraps(function)
    def called(*args: P.args, **kwargs: P.kwargs) -> T:
        # What the caller is handling already is the context of whatever fails here; its frames are his.
        before = sys.exception()
        try:
            return function(*args, **kwargs)
        except Exception as error:
            forget_locals(error, but=before)
            raise
        finally:
            # This frame stands in the traceback, too, and is still running.
            del args, kwargs

    return called


def forget_locals(error: BaseException, *, but: BaseException | None = None) -> None:
    """Clear the local variables of all frames that an error, and those that led to it, have left.

    Args:
        error: what was raised.
        but: an error that was there before, which is left alone with everything that led to it.
    """
    seen: set[int] = set() if but is None else {id(but)}
    waiting: list[BaseException | None] = [error]
    while waiting:
        one = waiting.pop()
        if one is None or id(one) in seen:
            continue
        seen.add(id(one))
        # Frames that still run, such as those of the caller, are left alone.
        clear_frames(one.__traceback__)
        waiting += (one.__cause__, one.__context__)
        if isinstance(one, BaseExceptionGroup):
            waiting += cast("BaseExceptionGroup[BaseException]", one).exceptions
