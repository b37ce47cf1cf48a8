"""Limits of one request. Those of connections and headers are uvicorn's; see ``__main__``."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from fastapi import HTTPException

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

__all__ = ["Limits"]

# The largest document of the library has 16 MB. A body is parsed on the event loop, where others wait for it.
MAX_BODY: Final = 4 * 1024 * 1024
BODY_SECONDS: Final = 10.0


class Limits:
    """Bounds size and time of a body; uvicorn answers the requests of one connection one after the other."""

    def __init__(self, app: ASGIApp, *, max_body: int = MAX_BODY, body_seconds: float = BODY_SECONDS) -> None:
        """Take what answers, and the limits."""
        self._app = app
        self._max_body = max_body
        self._body_seconds = body_seconds

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Hand on a request whose body ends in time."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        end = asyncio.get_running_loop().time() + self._body_seconds
        size, complete = 0, False

        async def bounded() -> Message:
            nonlocal size, complete
            if complete:  # what comes now is the end of the connection, for which there is no limit
                return await receive()
            try:
                async with asyncio.timeout_at(end):
                    message = await receive()
            except TimeoutError as error:
                problem = f"The body did not arrive within {self._body_seconds:g} s; send it faster."
                raise HTTPException(408, problem, {"Connection": "close"}) from error
            # Counted: a header may name another length, or none.
            size += len(message.get("body", b""))
            complete = not message.get("more_body", False)
            if size > self._max_body:
                problem = f"The body has more than {self._max_body:,} bytes; send less at once."
                raise HTTPException(413, problem, {"Connection": "close"})
            return message

        await self._app(scope, bounded, send)
