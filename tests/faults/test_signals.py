"""What the handler of a signal raises comes out of a call, and the storage goes on as if nothing was.

The calls are interrupted in a program of its own, ``tests.faults.signalling``.
"""

from __future__ import annotations

import json
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, Final

import pytest

from tests import forked
from tests.faults.signalling import CONNECTIONS, KINDS
from tests.server_supervisor import ROOT
from tests.stores import DRIVERS, fresh_settings

if TYPE_CHECKING:
    from tests.servers import Settings

BOUNDED: Final = 250
FULL: Final = 1500
LIMIT: Final = 150
# Of pydantic, which makes this of whatever is raised while it calls a serialiser in Python.
WRITING: Final = "pydantic_core._pydantic_core.PydanticSerializationError"


def interrupted(settings: Settings, kind: str, calls: int) -> dict[str, Any]:
    """Run the program and return its report."""
    words = ["-m", "tests.faults.signalling", kind, str(calls)]
    done = forked.run(words, given=json.dumps(settings), cwd=ROOT, timeout=LIMIT)
    # A handler may also raise in a finaliser, which Python prints and goes on.
    assert done.returncode == 0, done.stderr[-2000:]
    report: dict[str, Any] = json.loads(done.stdout)
    return report


def with_small_pool(settings: Settings) -> Settings:
    persistence: Any = settings["Persistence"]
    postgres = {**persistence["Postgres"], "PoolMax": CONNECTIONS}
    return {"Persistence": {**persistence, "Postgres": postgres}}


@pytest.mark.parametrize("driver", [driver for driver in DRIVERS if driver != "mongo"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_handler_that_raises_loses_no_connection_and_leaves_no_lock(
    driver: str, kind: str, request: pytest.FixtureRequest, *, long_form: bool
) -> None:
    calls = FULL if long_form else BOUNDED
    with ExitStack() as stack:
        settings = stack.enter_context(fresh_settings(driver, request))
        if driver == "postgres":
            settings = with_small_pool(settings)
        report = interrupted(settings, kind, calls)
    came = {what.partition(":")[0]: number for what, number in report["came"].items()}
    came.pop(WRITING, None)
    assert set(came) == {"handler"}, report["came"]
    assert came["handler"] >= 0.9 * calls
    assert report["after"]["errors"] == []
