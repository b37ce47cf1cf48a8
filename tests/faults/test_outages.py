"""Servers that go away in the middle of calls: each call ends in time, and what it was answered is true.

PostgreSQL is shut down in each way and killed; of a replica set of three the primary steps down and is
killed, and then all members are. Every kind of call goes on meanwhile, on a thread of its own. Nothing may
come out but answers and errors of this library, and afterwards the store holds what the calls were told.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

import pytest

import twinstore
from tests.faults.callers import Callers
from tests.faults.ledger import Ledger
from tests.faults.outages import outages_of
from tests.faults.tokens import Tokens

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.faults.outages import Outages

# From the moment at which the server serves again until every kind of call has succeeded.
HEALED_SECONDS: Final = 10.0
MET_SECONDS: Final = 5.0
ROUNDS: Final = {False: 1, True: 10}


@pytest.fixture(params=["mongo", "postgres"])
def outages(request: pytest.FixtureRequest) -> Iterator[Outages]:
    with outages_of(request.param) as found:
        yield found


def test_calls_outlive_their_server_and_are_told_the_truth(outages: Outages, *, long_form: bool) -> None:
    ledger = Ledger()
    with twinstore.open_storage(outages.settings) as opened:
        callers = Callers(opened.scheduler, outages.settings, ledger)
        callers.prepare()
        with callers.calling():
            assert ledger.await_answers(callers.kinds, 0, HEALED_SECONDS) == []
            for _ in range(ROUNDS[long_form]):
                for happens in outages.kinds.values():
                    met = len(ledger.refused())
                    happens(lambda met=met: ledger.await_refusals(met + 1, MET_SECONDS))
                    back = time.monotonic()
                    assert ledger.await_answers(callers.kinds, back, HEALED_SECONDS) == []
                    print("healed", time.monotonic() - back)
        tokens = Tokens(opened.scheduler, callers.leased)
        assert ledger.foreign() == []
        assert ledger.slow() == []
        assert ledger.contradictions(tokens.counters) == []
        assert tokens.twice_leased() == []
        assert not tokens.torn_log()
    from collections import Counter

    print(Counter((c.kind, type(c.error).__name__, str(c.outcome)) for c in ledger.calls if c.error))
    print(Counter(c.kind for c in ledger.calls))
    print(max(c.seconds for c in ledger.calls))
