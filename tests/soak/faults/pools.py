"""More callers than the pool of a storage has connections, each of which keeps one for a while."""

from __future__ import annotations

import time
from random import Random
from threading import Thread
from typing import TYPE_CHECKING, Final

from tests.soak.calls import unit_parts, write_unit
from tests.soak.notes import Notes
from tests.soak.plan import SERVED

if TYPE_CHECKING:
    from tests.soak.calls import Lane

__all__ = ["crowd"]

# Three times as many as there are connections; together far below the time for which callers wait.
CALLERS_EACH: Final = 3
HELD_SECONDS: Final = 0.2


def crowd(lane: Lane, pool: int, choice: int) -> None:
    """Open units all at once, and hold each for a while; nobody waits in vain."""
    lane.notes.journal.add("fault", kind="crowded")
    threads = [
        Thread(
            target=_hold,
            args=(lane, f"{lane.notes.token()}/crowd", Random(f"{choice}/{number}")),
            daemon=True,
        )
        for number in range(CALLERS_EACH * pool)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def _hold(lane: Lane, name: str, random: Random) -> None:
    notes, tenant = Notes(lane.notes.journal, name), random.choice(SERVED)
    token = notes.token()
    with notes.call("held unit", tenant, unit_parts(tenant, token)), lane.storage.transaction(tenant) as unit:
        write_unit(unit, tenant, token)
        time.sleep(random.uniform(0, HELD_SECONDS))
