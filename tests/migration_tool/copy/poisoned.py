"""A program that repeats a copy while one row kills its process, by SIGKILL with the transaction open.

It prints how each process ended: the exit code, or the signal as a negative number.
"""

from __future__ import annotations

import os
import signal
import sys
from importlib import import_module
from typing import TYPE_CHECKING, Final

from twinstore.ledger.ledger import RangeLedger
from twinstore_backfill.cli import main

if TYPE_CHECKING:
    from twinstore.access.protocol import Access
    from twinstore.ledger import Claim, RangeTally

# More than a row may kill; a copy that never ends fails the test instead of running on.
MOST: Final = 20
POISON: Final = ("runs", ("run-07",))
# What a copy imports only when it is asked for; here it would be for each of the processes.
PRELOADED: Final = (
    "twinstore.scheduler.storage",
    "twinstore_backfill.cli.copying",
    "twinstore_mongo.backend",
    "twinstore_mongo.bulk.port",
    "twinstore_postgres.backend",
    "twinstore_postgres.bulk.port",
)


def copy_with_poison(arguments: list[str]) -> int:
    """Copy in this process, until it comes to the row."""
    honest = RangeLedger.finish

    def finish(self: RangeLedger, access: Access, claim: Claim, tally: RangeTally) -> None:
        (entity, key), within = POISON, claim.within
        is_around = (within.lower or key) <= key and (within.upper is None or key < within.upper)
        # One that is in quarantine unread kills nobody.
        if claim.entity == entity and is_around and not tally.quarantined:
            os.kill(os.getpid(), signal.SIGKILL)
        honest(self, access, claim, tally)

    RangeLedger.finish = finish  # type: ignore[method-assign]  # in a process for that purpose
    return main(arguments)


def repeat(arguments: list[str]) -> list[int]:
    """Copy until a process ends by itself; return how each ended."""
    for name in PRELOADED:
        import_module(name)
    codes: list[int] = []
    while len(codes) < MOST and (not codes or codes[-1] < 0):
        # Nothing is connected in this process, and it has one thread.
        child = os.fork()
        if child == 0:
            os._exit(copy_with_poison(arguments))
        codes.append(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    return codes


if __name__ == "__main__":
    sys.stderr.write(f"{repeat(sys.argv[1:])}\n")
