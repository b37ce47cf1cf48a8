"""The lists of a verification with more tenants than can be asked for one by one."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.backfill.toolkit import MemoryPair, memory_pair
from twinstore.testing.scheduler.builders import make_run
from twinstore_backfill.verify import lists, sampling
from twinstore_backfill.verify.lists import ListTask
from twinstore_backfill.verify.sampling import LARGEST, LIST_TENANTS, ChosenTenants, tenants_for_lists

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from twinstore_backfill.verify.context import VerifyContext
    from twinstore_backfill.verify.lists import ListResult

TENANTS = [f"tenant-{number:02}" for number in range(12)]


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[MemoryPair]:
    with memory_pair(tmp_path) as pair:
        for number, tenant in enumerate(TENANTS):
            for run in range(1 + number // 10):
                pair.source.storage.runs.create(make_run(tenant, f"{tenant}-{run}"))
        pair.copy()
        yield pair


def test_few_tenants_are_all_chosen_and_of_many_the_largest_with_a_seeded_choice() -> None:
    rows = {f"t-{number:04}": 5 for number in range(LIST_TENANTS)}
    assert tenants_for_lists(rows, 1) == ChosenTenants(tuple(sorted(rows)))
    large = {f"large-{number:02}": 1000 + number for number in range(LARGEST)}
    many = {f"t-{number:04}": 5 for number in range(3000)} | large
    chosen = tenants_for_lists(many, 1)
    assert len(chosen.tenants) == LIST_TENANTS
    assert set(large) <= set(chosen.tenants)
    assert chosen == tenants_for_lists(dict(reversed(many.items())), 1)
    assert chosen != tenants_for_lists(many, 2)


def test_the_report_says_of_which_tenants_the_lists_were(
    pair: MemoryPair, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str | None] = []
    honest = ListTask.run

    def run(self: ListTask, context: VerifyContext) -> ListResult:
        asked.append(self.tenant)
        return honest(self, context)

    monkeypatch.setattr(lists.ListTask, "run", run)
    full = pair.verify()
    assert [*TENANTS, None] == asked
    assert not any("tenants (seed" in check.summary for check in full.checks)
    asked.clear()
    monkeypatch.setattr(sampling, "LIST_TENANTS", 5)
    monkeypatch.setattr(sampling, "LARGEST", 2)
    report = pair.verify(seed=7)
    assert len(asked) == 6
    assert {*TENANTS[-2:], None} <= set(asked)
    summaries = {check.id: check.summary for check in report.checks}
    assert all(summaries[name].endswith(", of 5 of 12 tenants (seed 7)") for name in ("C4", "C5"))
    # Every document was compared all the same.
    assert (report.verdict, report.cutover_ready, report.documents_equal) == ("PASS", True, 14)
