"""A module that opens its storages when it is imported, as applications do that a process server preloads."""

from __future__ import annotations

import asyncio
import json
import os
from typing import TYPE_CHECKING, Any, Final
from uuid import uuid4

import twinstore
from tests.resilience.forking import work
from twinstore import aio
from twinstore.errors import TwinstoreError
from twinstore.testing.scheduler.builders import make_run

if TYPE_CHECKING:
    from twinstore.scheduler.runs import Run

SETTINGS: Final[dict[str, Any]] = json.loads(os.environ["TWINSTORE_PRELOADED"])
STORAGE: Final = twinstore.add_scheduler_storage(SETTINGS)
ASYNC: Final = aio.open_storage(SETTINGS)
# Both have a connection that a forked child inherits.
STORAGE.runs.list("preloading")
asyncio.run(ASYNC.scheduler.check_ready())
OPENED_BY: Final = os.getpid()

TENANTS: Final = ("red", "blue")


def served(tenant: str, rounds: int = 20) -> dict[str, Any]:
    """Work with the storages of this module, however this process came to have them."""
    report = work(STORAGE, tenant, rounds)
    again = asyncio.run(served_by_tasks(tenant, rounds))
    return {
        "foreign": report["foreign"] + again["foreign"],
        "errors": report["errors"] + again["errors"],
        "inherited": os.getpid() != OPENED_BY,
    }


async def served_by_tasks(tenant: str, rounds: int) -> dict[str, Any]:
    """Do the same through asyncio, several calls at a time."""
    foreign, errors = 0, list[str]()

    async def once(number: int) -> None:
        nonlocal foreign
        key = f"{tenant}-{number}-{uuid4().hex}"
        try:
            await ASYNC.scheduler.runs.create(make_run(tenant, key))
            found = await ASYNC.scheduler.runs.get_required(tenant, key)
            async with ASYNC.scheduler.transaction(tenant) as unit:
                listed = await unit.runs.list(tenant)
        except TwinstoreError as error:
            errors.append(f"{type(error).__name__}: {error.message}")
        else:
            foreign += found.id != key or any(run.tenant_id != tenant for run in listed)

    await asyncio.gather(*(once(number) for number in range(rounds)))
    return {"foreign": foreign, "errors": errors[:3]}


def prepared(tenant: str) -> None:
    """Work in the initializer of a pool of processes."""
    served(tenant, 2)


def returned(run: Run) -> Run:
    """Store a run that came from another process; the stored one goes back."""
    return STORAGE.runs.create(run)
