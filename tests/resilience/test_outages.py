"""Servers that go away in the middle of calls: each call ends in time, and its answer is true.

PostgreSQL is shut down in each way and killed; of a replica set of three the primary steps down and is
killed, and then all members are. Every kind of call continues meanwhile, on a separate thread. Calls may
only return answers and raise errors of this library. Afterwards the store holds what the calls were answered.
"""

from __future__ import annotations

import time
from threading import Event
from typing import TYPE_CHECKING, Final

import pytest

import twinstore
from tests.resilience.callers import Callers
from tests.resilience.test_forks import Ledger
from tests.resilience.tokens import Tokens
from tests.support.outages import outages_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.support.outages import Outages

# From the moment at which the server serves again until every kind of call has succeeded: sooner than the
# limit of a call, which is half a minute, ends one that hangs.
HEALED_SECONDS: Final = 25.0
# How long to wait for a call that the outage refuses; the client of MongoDB outlasts a short one.
MET_SECONDS: Final = 1.5
LONG_ROUNDS: Final = 10
# The fifth attempt with doubled pauses comes after half a minute.
LONG_OUTAGE_SECONDS: Final = 20.0
# Without doubt sooner than the outage was long, also where the machine is busy.
SOON_SECONDS: Final = 4.0


@pytest.fixture(params=["mongo", "postgres"])
def outages(request: pytest.FixtureRequest) -> Iterator[Outages]:
    with outages_of(request.param) as found:
        yield found


def test_calls_outlive_their_server_and_report_the_true_outcome(outages: Outages, *, long_form: bool) -> None:
    ledger = Ledger()
    with twinstore.open_storage(outages.settings) as opened:
        callers = Callers(opened.scheduler, outages.settings, ledger)
        callers.prepare()
        with callers.calling():
            assert ledger.await_answers(callers.kinds, 0, HEALED_SECONDS) == []
            for name in rounds(outages, long_form=long_form):
                go_through(outages.kinds[name], callers)
        assert ledger.foreign() == []
        assert ledger.slow() == []
        tokens = Tokens(opened.scheduler, callers.leased)
        assert ledger.contradictions(tokens.counters) == []
        assert tokens.twice_leased() == []
        assert not tokens.torn_log()
    assert ledger.refused()


def rounds(outages: Outages, *, long_form: bool) -> list[str]:
    """Return what happens, in order; a whole set that is killed takes long to come back."""
    kinds = list(outages.kinds)
    return kinds * LONG_ROUNDS if long_form else [kind for kind in kinds if kind != "all killed"]


def go_through(happens: Callable[[Callable[[], object]], None], callers: Callers) -> None:
    """Let one thing happen to the server; then each kind of call must succeed again soon."""
    ledger = callers.ledger
    met = len(ledger.refused())
    callers.over(lambda: happens(lambda: ledger.await_refusals(met + 1, MET_SECONDS)))
    assert ledger.await_answers(callers.kinds, time.monotonic(), HEALED_SECONDS) == []


@pytest.mark.long
def test_calls_go_on_soon_after_an_outage_of_many_seconds(outages: Outages) -> None:
    """A pool that tried to connect again with growing pauses would need about as long as the outage was."""
    ledger = Ledger()
    with twinstore.open_storage(outages.settings) as opened:
        callers = Callers(opened.scheduler, outages.settings, ledger)
        callers.prepare()
        with callers.calling():
            assert ledger.await_answers(callers.kinds, 0, HEALED_SECONDS) == []
            whole = "fast" if "fast" in outages.kinds else "all killed"
            # It is never set: the server stays away for that long.
            outages.kinds[whole](lambda: Event().wait(LONG_OUTAGE_SECONDS))
            back = time.monotonic()
            assert ledger.await_answers({"read", "insert", "unit"}, back, SOON_SECONDS) == []
        assert ledger.foreign() == []
        assert ledger.contradictions(Tokens(opened.scheduler, callers.leased).counters) == []
