"""Handles for asyncio: what a call hands out lives on in threads of its own.

A handle may be waited for as long as somebody else has what is wanted. In the threads that all calls share,
those who wait would keep out the one who gives it up.
"""

from __future__ import annotations

import asyncio
from contextlib import AbstractContextManager, asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from twinstore.aio.threads import CallThreads

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable

__all__ = ["entered", "handed_out"]

A = TypeVar("A")
H = TypeVar("H", bound=AbstractContextManager[object])
T = TypeVar("T")


async def handed_out(call: Callable[[], H | None], facade: Callable[[H, CallThreads], A]) -> A | None:
    """Return what a call hands out, in its class for asyncio; ``None`` where it hands out nothing.

    A task that is cancelled meanwhile gets nothing, and what the call hands out later is given up at once.
    """
    # Two: whoever asks a handle something must not wait for its renewal.
    threads = CallThreads(2, "twinstore-handle")
    asked = asyncio.ensure_future(threads.run(call))
    try:
        found = await asyncio.shield(asked)
    except asyncio.CancelledError:
        asked.add_done_callback(partial(_give_up, threads))
        raise
    return None if found is None else facade(found, threads)


def _give_up(threads: CallThreads, asked: asyncio.Future[H | None]) -> None:
    if asked.cancelled() or asked.exception() is not None:
        return
    found = asked.result()
    if found is not None:
        threads.begin(partial(found.__exit__, None, None, None))


@asynccontextmanager
async def entered(block: AbstractContextManager[T], threads: CallThreads) -> AsyncGenerator[T]:
    """Enter and leave a block in the threads; a cancelled task leaves it, too."""
    value = await threads.run(block.__enter__)
    try:
        yield value
    finally:
        # Shielded: a task that is cancelled once more must not leave before the block does.
        await asyncio.shield(threads.run(block.__exit__, None, None, None))
