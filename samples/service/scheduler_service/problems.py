"""Errors as clients see them: one body for all, and the status that the library gives each error."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Final

import pydantic
from fastapi import HTTPException
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException as StarletteHTTPException

from scheduler_service.bodies import Problem, WrongField
from scheduler_service.canonical import CanonicalResponse
from twinstore import ConfigurationError, TwinstoreError, UnavailableError
from twinstore.models.fields import explain

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fastapi import FastAPI, Request

__all__ = ["PROBLEMS", "add_handlers", "answer", "problems"]

log = logging.getLogger("scheduler_service")

RETRY_AFTER: Final = "1"
NAMED_FIELDS: Final = 10
SERVER_ERROR: Final = 500
CODES: Final = {404: "not_found", 405: "method_not_allowed", 413: "too_large", 415: "not_json"}


def problems(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """Return the answers of an operation that are errors, for its page."""
    descriptions = {
        400: "An argument or the body is not acceptable",
        403: "The body belongs to another tenant",
        404: "It does not exist for this tenant",
        409: "What is stored is not as expected",
        413: "The body is too large",
        415: "The body is not sent as JSON",
        500: "The service is set up wrongly, or a stored document cannot be read",
        503: "The store cannot be reached; try again",
        504: "The store did not answer in time; try again",
    }
    known: dict[int | str, str] = {status: descriptions[status] for status in statuses}
    known["default"] = "Any other error"
    return {status: {"model": Problem, "description": text} for status, text in known.items()}


# "default" in place of FastAPI's own 422, which is not what a refused request is answered here.
PROBLEMS: Final = problems(400, 403, 404, 409, 413, 415, 500, 503, 504)


def answer(error: TwinstoreError, status: int | None = None) -> CanonicalResponse:
    """Return what a client gets for an error of the library."""
    if error.http_status >= SERVER_ERROR:
        log.warning("%s: %s", error.code, error, exc_info=isinstance(error, ConfigurationError))
    problem = Problem(
        code=error.code,
        message=error.public_message,
        retryable=error.retryable,
        outcome=error.outcome if isinstance(error, UnavailableError) else None,
    )
    headers = {"Retry-After": RETRY_AFTER} if error.retryable else None
    return CanonicalResponse(problem, status or error.http_status, headers)


def add_handlers(app: FastAPI) -> None:
    """Let every error leave as a :class:`Problem`."""

    @app.exception_handler(TwinstoreError)
    async def of_library(_: Request, error: TwinstoreError) -> CanonicalResponse:
        return answer(error)

    @app.exception_handler(RequestValidationError)
    async def of_request(_: Request, error: RequestValidationError) -> CanonicalResponse:
        return CanonicalResponse(_refused(error.errors()), 400)

    @app.exception_handler(pydantic.ValidationError)
    async def of_model(_: Request, error: pydantic.ValidationError) -> CanonicalResponse:
        # A handler made a model of what the client sent, and the parts do not fit together.
        return CanonicalResponse(_refused(error.errors(include_input=False)), 400)

    @app.exception_handler(StarletteHTTPException)
    async def of_http(_: Request, error: HTTPException) -> CanonicalResponse:
        code = CODES.get(error.status_code, "validation_error")
        return CanonicalResponse(
            Problem(code=code, message=str(error.detail)), error.status_code, error.headers
        )

    @app.exception_handler(Exception)
    async def of_anything(_: Request, error: Exception) -> CanonicalResponse:
        log.error("a request ended with %s", type(error).__name__, exc_info=error)
        return CanonicalResponse(Problem(code="internal_error", message="The service failed."), 500)


def _refused(errors: Sequence[Any]) -> Problem:
    """Name each wrong part by its path and its rule, without its value, which logs should not hold."""
    fields = tuple(
        WrongField(path=".".join(map(str, problem["loc"])), message=explain(problem))
        for problem in errors[:NAMED_FIELDS]
    )
    first = f"{fields[0].path}: {fields[0].message}" if fields else "It is not acceptable"
    more = f"; and {len(errors) - 1} more" if len(errors) > 1 else ""
    return Problem(code="validation_error", message=f"{first}{more}", fields=fields)
