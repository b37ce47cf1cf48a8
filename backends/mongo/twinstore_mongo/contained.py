"""Calls in a context of their own: what the client notes about the time that is left ends with the call.

The client keeps the deadline of an operation in context variables, which it sets and puts back step by step.
The handler of a signal may raise between two such steps, and a deadline that nobody puts back would be that
of every later call in the thread.
"""

from __future__ import annotations

from contextvars import copy_context
from functools import wraps
from typing import TYPE_CHECKING, ParamSpec, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["contained"]

P = ParamSpec("P")
T = TypeVar("T")


def contained(call: Callable[P, T]) -> Callable[P, T]:
    """Return a call that changes no context variable of its caller."""

    @wraps(call)
    def inside(*args: P.args, **kwargs: P.kwargs) -> T:
        return copy_context().run(call, *args, **kwargs)

    return inside
