"""What the reports of a copy and of a verification say of the fast path."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, cast

import pytest

from tests.unit.test_report_rendering import report
from twinstore.fast.library import SWITCH
from twinstore_backfill.cli.copy import _texts as copy_texts
from twinstore_backfill.cli.verify import report_texts
from twinstore_backfill.copy.report import CopyResult, Totals, report_document
from twinstore_backfill.report.fast_path import FastPathReport, fast_path_report
from twinstore_backfill.report.writing import ReportFormat, render

if TYPE_CHECKING:
    from pathlib import Path

    from twinstore_backfill.report.model import ParityReport
    from twinstore_backfill.stores import Store

NATIVE = FastPathReport(state="native", rows=199_600, of=200_000)
SAID = "fast path: native, 99.8 % of 200,000 rows"


@pytest.mark.parametrize(
    ("rows", "of", "said"),
    [
        (0, 0, "native, no rows were read"),
        (1, 1, "native, 100 % of 1 row"),
        (0, 8, "native, 0 % of 8 rows"),
        (200_000, 200_000, "native, 100 % of 200,000 rows"),
        (199_999, 200_000, "native, 99.9 % of 200,000 rows"),
        (1, 200_000, "native, 0.1 % of 200,000 rows"),
    ],
)
def test_the_share_is_never_rounded_to_all_or_nothing(rows: int, of: int, said: str) -> None:
    assert str(FastPathReport(state="native", rows=rows, of=of)) == f"fast path: {said}"


def test_why_it_was_off_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(SWITCH, "off")
    found = fast_path_report(0, 5)
    assert (found.state, found.of) == ("off", 5)
    assert str(found) == f"fast path: off ({SWITCH}=off)"


def verified(found: FastPathReport | None) -> ParityReport:
    made = report(evil="x")
    return made.model_copy(update={"envelope": made.envelope.model_copy(update={"fast_path": found})})


@pytest.mark.parametrize("form", [ReportFormat.MARKDOWN, ReportFormat.HTML])
def test_a_verification_says_it_to_people(form: ReportFormat) -> None:
    assert f"; {SAID}." in render(verified(NATIVE), form).decode()
    assert "fast path" not in render(verified(None), form).decode()


def test_a_verification_says_it_on_the_terminal() -> None:
    assert SAID in map(str, report_texts(verified(NATIVE), None))


def test_two_reports_of_the_same_data_differ_by_it_in_the_envelope_only() -> None:
    one, other = (verified(found).model_dump(mode="json") for found in (NATIVE, None))
    assert one["envelope"]["fast_path"] == {"state": "native", "reason": "", "rows": 199_600, "of": 200_000}
    del one["envelope"], other["envelope"]
    assert one == other


class Described:
    """As much of a store as a report shows."""

    def described(self) -> dict[str, str]:
        return {}


def test_a_copy_says_it_in_its_report_and_on_the_terminal(tmp_path: Path) -> None:
    now, store = datetime.now(UTC), cast("Store", Described())
    plain = CopyResult(
        executed=True,
        complete=True,
        source=store,
        target=store,
        entities=(),
        totals=Totals(),
        as_of=now,
        started=now,
    )
    made = replace(plain, fast_path=NATIVE)
    assert envelope(made)["fast_path"] == NATIVE.model_dump()
    assert SAID in map(str, copy_texts(made, tmp_path))
    assert envelope(plain)["fast_path"] is None


def envelope(result: CopyResult) -> dict[str, object]:
    return cast("dict[str, object]", report_document(result)["envelope"])
