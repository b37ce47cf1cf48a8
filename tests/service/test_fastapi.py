"""What a service builds from ``twinstore.fastapi`` alone, with the storage for asyncio."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import httpx
import pytest
from fastapi import Depends, FastAPI

from twinstore import UnavailableError
from twinstore.aio import open_storage
from twinstore.errors import Outcome
from twinstore.fastapi import (
    Authenticate,
    Caller,
    Health,
    add_error_handlers,
    probes,
    refuse,
    tenant_dependency,
)


async def of_acme(token: str) -> Caller | None:
    return {
        "good": Caller("acme", "olga"),
        "wide": Caller(" acme ", "olga"),
        "odd": Caller("a:b", "olga"),
    }.get(token)


def application(authenticate: Authenticate) -> FastAPI:
    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncGenerator[None]:
        async with open_storage({"Persistence": {"Scheduler": "Memory"}}) as storage:
            app.state.scheduler = storage.scheduler
            yield

    app = FastAPI(lifespan=lifespan)
    add_error_handlers(app)
    app.include_router(probes(lambda request: request.app.state.scheduler))
    tenant = tenant_dependency(authenticate)

    # As a default: an annotation is read as text, in which a variable of this function has no meaning.
    async def who(caller: Caller = Depends(tenant)) -> dict[str, str]:  # noqa: B008
        return {"tenant": caller.tenant_id, "actor": caller.actor}

    async def unavailable() -> None:
        raise UnavailableError("db.internal:5432 is away", outcome=Outcome.UNKNOWN)

    async def odd_answer() -> object:
        return {"status": {"stored": "hidden"}}

    app.get("/tenants/{tenant_id}/who")(who)
    app.get("/of/{tenant}/who")(who)
    app.get("/odd", response_model=Health)(odd_answer)
    app.get("/unavailable")(unavailable)
    return app


def answers(authenticate: Authenticate, *requests: tuple[str, str]) -> list[httpx.Response]:
    async def ask() -> list[httpx.Response]:
        app = application(authenticate)
        transport = httpx.ASGITransport(app)
        async with (
            app.router.lifespan_context(app),
            httpx.AsyncClient(transport=transport, base_url="http://service") as client,
        ):
            return [
                await client.get(path, headers={"Authorization": f"Bearer {token}"})
                for path, token in requests
            ]

    return asyncio.run(ask())


def test_a_handler_gets_the_caller_of_the_token_of_its_tenant_and_no_other() -> None:
    mine, foreign, unknown = answers(
        of_acme, ("/tenants/acme/who", "good"), ("/tenants/globex/who", "good"), ("/tenants/acme/who", "bad")
    )
    assert mine.json() == {"tenant": "acme", "actor": "olga"}
    assert (foreign.status_code, foreign.json()["code"]) == (403, "tenant_scope")
    assert (unknown.status_code, unknown.json()["code"]) == (401, "unauthorized")


def test_the_tenant_of_a_token_has_one_spelling_and_no_other_place_than_the_path() -> None:
    wide, odd, query = answers(
        of_acme,
        ("/tenants/acme/who", "wide"),
        ("/tenants/acme/who", "odd"),
        ("/of/globex/who?tenant_id=acme", "good"),
    )
    assert wide.json()["tenant"] == "acme"
    assert odd.status_code == 401
    assert query.status_code == 400


def test_an_answer_that_does_not_fit_its_model_is_shown_to_no_one(caplog: pytest.LogCaptureFixture) -> None:
    (found,) = answers(of_acme, ("/odd", ""))
    assert (found.status_code, found.json()["code"]) == (500, "internal_error")
    assert "response_model" in caplog.text
    assert "hidden" not in caplog.text + found.text


def test_until_a_service_names_its_check_every_token_is_refused() -> None:
    (found,) = answers(refuse, ("/tenants/acme/who", "good"))
    assert found.status_code == 401


def test_a_storage_for_asyncio_is_asked_whether_it_is_ready() -> None:
    healthy, ready = answers(refuse, ("/healthz", ""), ("/readyz", ""))
    assert healthy.content == ready.content == b'{"status":"ok"}'


def test_an_error_of_the_database_leaves_with_its_status_and_without_its_host() -> None:
    (found,) = answers(refuse, ("/unavailable", ""))
    assert (found.status_code, found.headers["Retry-After"]) == (503, "1")
    assert (found.json()["outcome"], "db.internal" in found.text) == ("unknown", False)
