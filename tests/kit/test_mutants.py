"""The kit must be able to fail: a memory driver with one fault is caught by the contract that forbids it."""

from __future__ import annotations

import hypothesis
import pytest

from tests.kit import faults_of_copies, faults_of_rows, faults_of_stores, faults_of_units
from tests.kit.mutants import Mutant, workspace_in_memory
from twinstore.testing.scheduler import SchedulerContract

MUTANTS = [
    *faults_of_units.MUTANTS,
    *faults_of_rows.MUTANTS,
    *faults_of_stores.MUTANTS,
    *faults_of_copies.MUTANTS,
]
# Where hypothesis keeps what a test was decorated with.
SETTINGS = "_hypothesis_internal_use_settings"


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_the_case_accepts_the_driver_as_it_is_and_catches_the_fault(
    mutant: Mutant, monkeypatch: pytest.MonkeyPatch
) -> None:
    with workspace_in_memory() as workspace:
        mutant.case(workspace)
    with workspace_in_memory() as workspace:
        mutant.plant(monkeypatch)
        with pytest.raises((Exception, pytest.fail.Exception)):
            mutant.case(workspace)


def test_any_row_is_drawn_often_enough_to_miss_a_field(monkeypatch: pytest.MonkeyPatch) -> None:
    faults_of_rows.stored_with(faults_of_rows.without_one_field, monkeypatch)
    case = SchedulerContract.test_any_row_comes_back
    # That a row is found counts, and not that it is made small, which takes many times as long.
    given: hypothesis.settings = getattr(case, SETTINGS)
    found = hypothesis.settings(given, phases=[hypothesis.Phase.generate])
    monkeypatch.setattr(case, SETTINGS, found)
    with workspace_in_memory() as workspace, pytest.raises((Exception, pytest.fail.Exception)):
        SchedulerContract().test_any_row_comes_back(workspace=workspace, example=faults_of_rows.RUN)


def test_the_cases_of_migrations_accept_a_driver_that_has_one(monkeypatch: pytest.MonkeyPatch) -> None:
    with workspace_in_memory() as workspace:
        faults_of_stores.migrated(monkeypatch)
        faults_of_stores.tampered_with(workspace)
        faults_of_stores.looked_at(workspace)


def test_the_case_of_outages_accepts_a_driver_that_reports_them_well(monkeypatch: pytest.MonkeyPatch) -> None:
    with workspace_in_memory() as workspace:
        faults_of_stores.out_of_reach(faults_of_stores.unavailable("The store does not answer."), monkeypatch)
        faults_of_stores.unreachable(workspace)
