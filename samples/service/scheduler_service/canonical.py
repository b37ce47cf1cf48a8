"""JSON as the library reads and writes it: bodies are parsed strictly, answers are the canonical bytes."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Coroutine
from typing import TYPE_CHECKING, Any, TypeVar

from fastapi import HTTPException, Request, Response
from fastapi.routing import APIRoute
from typing_extensions import override

from scheduler_service.bodies import Listing
from twinstore import CanonicalJsonSerializer
from twinstore.fastapi import CanonicalResponse as CompactResponse
from twinstore.models.canonical import CanonicalModel
from twinstore.models.json_text import JsonValue, parse_json

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Receive, Scope, Send

    from twinstore import Page

__all__ = ["CanonicalResponse", "CanonicalRoute", "RawPaths", "listing"]

M = TypeVar("M", bound=CanonicalModel)


class CanonicalResponse(CompactResponse):
    """Answers with the indented form of a model, which is that of the samples."""

    @override
    def render(self, content: CanonicalModel) -> bytes:
        """Return the canonical bytes."""
        return CanonicalJsonSerializer.serialize_pretty(content)


def listing(kind: type[Listing[M]], page: Page[M]) -> CanonicalResponse:
    """Answer with a page."""
    return CanonicalResponse(kind(items=page.items, next_page_token=page.next_page_token))


class CanonicalRequest(Request):
    """A request whose body is read as strictly as the library reads JSON."""

    @override
    async def stream(self) -> AsyncGenerator[bytes, None]:
        """Yield the body of a request that is JSON by its headers."""
        async for chunk in super().stream():
            if chunk and not self._is_json():
                raise HTTPException(415, "Send the body as it is, with Content-Type: application/json.")
            yield chunk

    def _is_json(self) -> bool:
        """Return whether the headers say so; FastAPI would call another body "no valid dictionary"."""
        kind = self.headers.get("content-type", "").partition(";")[0].strip().lower()
        plain = self.headers.get("content-encoding", "identity").lower() == "identity"
        return plain and (kind == "application/json" or kind.endswith("+json"))

    @override
    async def json(self) -> JsonValue:
        """Return the value of the body; refuse a key that stands twice, NaN, and other encodings."""
        try:
            return parse_json(await self.body())
        except (ValueError, RecursionError) as error:
            # Not the text of every error: that of a wrong encoding quotes the body.
            why = "nested too deeply" if isinstance(error, RecursionError) else "not acceptable"
            problem = "not UTF-8" if isinstance(error, UnicodeError) else f"{why}: {error}"
            raise HTTPException(400, f"The body is not JSON: {problem}.") from error


class CanonicalRoute(APIRoute):
    """A route whose handler gets such a request."""

    @override
    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """Return the handler of FastAPI behind that request."""
        handle = super().get_route_handler()

        async def handle_canonical(request: Request) -> Response:
            return await handle(CanonicalRequest(request.scope, request.receive))

        return handle_canonical


class RawPaths:
    """Routes by the path as it was sent: an id may hold a slash, which is then sent as ``%2F``.

    In a decoded path it looks like the slashes between the parts. ``calls.Id`` decodes each part.
    """

    def __init__(self, app: ASGIApp) -> None:
        """Take what answers."""
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Hand on the request with its raw path."""
        if scope["type"] == "http" and scope.get("raw_path"):
            scope = {**scope, "path": scope["raw_path"].decode("latin-1")}
        await self._app(scope, receive, send)
