"""The duration of the lists is measured on request; it affects a verdict only if a limit is given."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.copies import AS_OF, invoke, write_config
from twinstore.errors import ValidationError
from twinstore_backfill.report.model import QueryTimes
from twinstore_backfill.report.texts import headline
from twinstore_backfill.report.writing import ReportFormat, render
from twinstore_backfill.verify import benchmark
from twinstore_backfill.verify.benchmark import ROUNDS, largest_tenants, speed_check
from twinstore_backfill.verify.options import Approval, VerifyOptions

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.copies import MemoryPair


pytestmark = pytest.mark.usefixtures("copied")


class Clock:
    """Lets every second call of the target take ``slow`` seconds and all others one millisecond."""

    def __init__(self, slow: float) -> None:
        self._slow = slow
        self._calls = 0
        self._now = 0.0

    def __call__(self) -> float:
        # Read before and after each call; source and target are asked in turns.
        call, after = divmod(self._calls, 2)
        self._calls += 1
        if after:
            late = call % 2 == 1 and (call // 2) % 2 == 1
            self._now += self._slow if late else 0.001
        return self._now


def slowed(monkeypatch: pytest.MonkeyPatch, slow: float) -> None:
    monkeypatch.setattr(benchmark, "perf_counter", Clock(slow))


def test_median_and_95th_percentile_of_both_sides_stand_in_the_envelope(
    pair: MemoryPair, monkeypatch: pytest.MonkeyPatch
) -> None:
    slowed(monkeypatch, 0.009)
    report = pair.verify(benchmark=True)
    times = {item.query: item for item in report.envelope.benchmark}
    # Half of the calls of the target are slow, so its median lies in the middle.
    assert times["runs of acme, newest first"] == QueryTimes(
        query="runs of acme, newest first",
        source_median=1.0,
        source_p95=1.0,
        target_median=5.0,
        target_p95=9.0,
    )
    assert {"audit of umbrella", "due schedules, all tenants"} <= times.keys()
    # C4 is no list of C5.
    assert not [name for name in times if name.startswith("next fires")]
    assert (report.verdict, [check.id for check in report.checks][-1]) == ("PASS", "C8")


def test_without_the_option_nothing_is_measured_and_with_it_nothing_but_the_envelope_differs(
    pair: MemoryPair,
) -> None:
    plain, timed = (pair.verify(benchmark=chosen).model_dump(mode="json") for chosen in (False, True))
    assert plain["envelope"]["benchmark"] == []
    assert timed["envelope"]["benchmark"]
    del plain["envelope"], timed["envelope"]
    assert json.dumps(plain) == json.dumps(timed)


@pytest.mark.parametrize(("limit", "verdict"), [(5.1, "PASS"), (4.9, "FAIL")])
def test_a_ratio_that_is_exceeded_fails(
    limit: float, verdict: str, pair: MemoryPair, monkeypatch: pytest.MonkeyPatch
) -> None:
    slowed(monkeypatch, 0.009)
    report = pair.verify(benchmark=True, max_ratio=limit)
    check = report.checks[-1]
    assert (report.verdict, check.id) == (verdict, "B1")
    if verdict == "FAIL":
        assert "takes more than 4.9 times as long on the target" in check.findings[0]
        assert "hold the same, but the target is slow" in headline(report)
        assert "slow lists" in report.next_step
        assert not report.cutover_ready


def test_less_than_a_millisecond_is_fast_enough() -> None:
    fast = QueryTimes(query="x", source_median=0.01, source_p95=0.1, target_median=0.9, target_p95=5)
    assert speed_check([fast], 2).result == "pass"
    assert speed_check([fast.model_copy(update={"target_median": 1.1})], 2).result == "fail"


def test_the_largest_tenants_are_measured() -> None:
    counted = {"runs": {name: (rows, 0) for name, rows in (("a", 1), ("b", 9), ("c", 5), ("d", 5), ("e", 0))}}
    assert largest_tenants(counted, ["a", "b", "c", "d", "e"]) == ["b", "c", "d"]


def test_every_text_shows_the_times(
    pair: MemoryPair, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    report = pair.verify(benchmark=True)
    for output in (ReportFormat.MARKDOWN, ReportFormat.HTML):
        assert "Speed of lists" in render(report, output).decode()
    files = [
        write_config(tmp_path / f"{name}.json", {"Persistence": {"Memory": {"Store": name}}})
        for name in pair.names
    ]
    drivers = ("--module", "scheduler", "--from", "memory", "--to", "memory", "--as-of", AS_OF.isoformat())
    sides = ("--source-config", files[0], "--target-config", files[1])
    answer = invoke(capsys, "backfill", "verify", *drivers, *sides, "--benchmark", "--max-ratio", "1e9")
    assert answer.code == 0
    assert "Milliseconds for the first page of each list" in answer.out
    assert ROUNDS >= 20


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"max_ratio": 2.0}, "--max-ratio belongs to --benchmark"),
        ({"benchmark": True, "max_ratio": float("nan")}, "should be a number above 0, not nan"),
        ({"benchmark": True, "max_ratio": float("inf")}, "should be a number above 0, not inf"),
        ({"benchmark": True, "max_ratio": 0.0}, "should be a number above 0, not 0"),
        ({"benchmark": True, "approval": Approval("x", "y")}, "compares two sides"),
    ],
)
def test_what_does_not_belong_together_is_refused(options: dict[str, Any], problem: str) -> None:
    with pytest.raises(ValidationError, match=problem):
        VerifyOptions(**options)
