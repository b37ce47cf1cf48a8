"""Tasks that are cancelled, and calls that nobody waits for any longer."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Awaitable
    from random import Random

__all__ = ["given_up"]

# How many calls are given up, and how long they have until then: some end sooner, most of them do not.
SHARE: Final = 0.4
LONGEST_SECONDS: Final = 0.03


async def given_up(call: Awaitable[object], random: Random) -> None:
    """Wait for a call, or cancel it after a while by its task or by a deadline.

    Raises:
        TimeoutError: it was given up.
    """
    if random.random() >= SHARE:
        await call
        return
    seconds = random.uniform(0, LONGEST_SECONDS)
    if random.random() < 0.5:
        async with asyncio.timeout(seconds):
            await call
        return
    task = asyncio.ensure_future(call)
    await asyncio.wait({task}, timeout=seconds)
    task.cancel()
    await asyncio.wait({task})
    if task.cancelled():
        raise TimeoutError
    task.result()
