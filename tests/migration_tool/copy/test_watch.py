"""`status --watch` shows one job of the ledger until it ends, is stopped, or has no process any more."""

from __future__ import annotations

from io import StringIO
from itertools import count, repeat
from typing import TYPE_CHECKING, Final

import pytest
from rich.console import Console
from typing_extensions import override

from tests.support.copies import MemoryPair, invoke
from twinstore.ledger import Lease, Ledger, QuarantineLine, RangeState, RangeTally
from twinstore.scheduler.catalog import RUNS
from twinstore.testing.copying import ranges_at, started, taken
from twinstore_backfill.cli import watching
from twinstore_backfill.copy.rates import Rates
from twinstore_backfill.copy.status import quarantine_reasons, status_document
from twinstore_backfill.outcome import Exit, UnknownJobError
from twinstore_backfill.process.stopping import StopSwitch

if TYPE_CHECKING:
    from collections.abc import Callable

READ: Final = 30
REASON: Final = "Run state: Input should be 'planning'"


class Steps(StopSwitch):
    """Does something each time the command waits."""

    def __init__(self, *steps: Callable[[], object]) -> None:
        super().__init__()
        self._steps = list(steps)

    @override
    def wait(self, seconds: float) -> None:
        """Do the next step."""
        assert seconds >= watching.INTERVAL
        self._steps.pop(0)()


@pytest.fixture
def lease(pair: MemoryPair, monkeypatch: pytest.MonkeyPatch) -> Lease:
    """Return the lease of a job of three ranges; a look takes a second."""
    monkeypatch.setattr(watching, "monotonic", map(float, count()).__next__)
    monkeypatch.setattr(watching, "LOG_INTERVAL", 0)
    assert pair.copy(entities=["audit"]).complete
    return started(pair.target.ledger, RUNS, ranges_at("gm"))


def finish(pair: MemoryPair, lease: Lease) -> None:
    """Finish the next range, with one document in quarantine."""
    ledger = pair.target.ledger
    claim = taken(ledger, lease.job_id, RUNS.name)
    values = {"job_id": claim.job_id, "number": claim.number, "line": 1, "part": 0, "entity": RUNS.name}
    line = QuarantineLine.model_validate({**values, "tenant": "acme", "reason": REASON})
    tally = RangeTally(read={"acme": READ}, written={"acme": READ - 1}, quarantined={"acme": 1})
    with pair.target.bulk.writer(RUNS) as writer:
        ledger.store_lines(writer.access, claim, [line], ())
        ledger.finish(writer.access, claim, tally)
        writer.commit()


@pytest.mark.parametrize("most", [3, 2])
def test_a_log_gets_a_line_of_each_entity_with_rate_and_time_left(
    most: int,
    pair: MemoryPair,
    lease: Lease,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr("twinstore_backfill.copy.status.MOST_TALLIES", most)
    ledger = pair.target.ledger
    steps = [lambda: finish(pair, lease)] * 3
    watching.watch(pair.target, lease.job_id, Steps(*steps, lambda: ledger.complete(lease)))
    # Two readings of the clock for each look.
    first, *others, last = capsys.readouterr().out.splitlines()
    assert first == f"{lease.job_id}: running"
    # With more ranges than are read, their rows are not known.
    rows = ("30 rows, 15/s, ", "60 rows, 15/s, ", "90 rows, 15/s, ", "90 rows, 11/s, ")
    ends = (
        "less than a minute, 1 quarantined",
        "less than a minute, 2 quarantined",
        "no estimate, 3 quarantined",
        "no estimate, 3 quarantined",
    )
    lines = zip((1, 2, 3, 3), rows if most == 3 else repeat(""), ends, strict=False)
    assert others[::2] == [f"runs: {live} of 3 ranges, {shown}{end}" for live, shown, end in lines]
    assert last == f"{lease.job_id}: complete"


@pytest.mark.parametrize(
    ("ends", "said"),
    [
        (Ledger.complete, "complete"),
        (Ledger.release, "no process works on it; run the copy again"),
        (lambda ledger, lease: ledger.stop(lease, "more than 0 conflicts"), "stopped: more than 0 conflicts"),
    ],
)
def test_it_ends_with_the_job(
    ends: Callable[[Ledger, Lease], object],
    said: str,
    pair: MemoryPair,
    lease: Lease,
    capsys: pytest.CaptureFixture[str],
) -> None:
    watching.watch(pair.target, lease.job_id, Steps(lambda: ends(pair.target.ledger, lease)))
    assert capsys.readouterr().out.splitlines()[-1] == f"{lease.job_id}: {said}"


def test_of_more_ranges_than_are_read_their_states_are_counted(
    pair: MemoryPair, lease: Lease, monkeypatch: pytest.MonkeyPatch
) -> None:
    finish(pair, lease)
    claim = taken(pair.target.ledger, lease.job_id, RUNS.name)
    while pair.target.ledger.give_back(claim) is not RangeState.FAILED:
        claim = taken(pair.target.ledger, lease.job_id, RUNS.name)
    (whole,) = status_document(pair.target, lease.job_id)["jobs"]
    monkeypatch.setattr("twinstore_backfill.copy.status.MOST_TALLIES", 2)
    (counted,) = status_document(pair.target, lease.job_id)["jobs"]
    (runs,) = whole.pop("entities")
    kept = {name: runs[name] for name in ("entity", "ranges", "quarantined")}
    assert counted.pop("entities") == [{**kept, "read": None, "written": None}]
    assert counted == {**whole, "totals": None}
    assert whole["failed_ranges"]["count"] == 1


def test_it_ends_with_a_signal_and_leaves_the_job(pair: MemoryPair, lease: Lease) -> None:
    stop = Steps(lambda: stop.request(2))
    watching.watch(pair.target, lease.job_id, stop)
    assert pair.target.ledger.lease(lease.job_id) is not None


def test_a_terminal_shows_entities_and_causes(pair: MemoryPair, lease: Lease) -> None:
    finish(pair, lease)
    (job,) = status_document(pair.target, lease.job_id)["jobs"]
    rates = Rates()
    rates.add(job, 0)
    shown = StringIO()
    causes = quarantine_reasons(pair.target, lease.job_id)
    Console(file=shown, width=120).print(*watching.watch_texts(job, rates, causes))
    assert [line.split() for line in shown.getvalue().splitlines()][2] == ["runs", "1", "3", "30", "0", "1"]
    assert REASON in shown.getvalue()


def test_a_job_that_is_not_there_is_a_mistake_and_so_is_another_form(
    pair: MemoryPair, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(UnknownJobError):
        watching.watch(pair.target, None, StopSwitch())
    side = [word for word in pair.sides if word not in {"--from", "--source-config"}]
    for more in (("--format", "json"), ("--out", pair.directory)):
        answer = invoke(capsys, "backfill", "status", *side[:2], "--to", "memory", "--watch", *more)
        assert answer.code == Exit.USAGE
