"""The contract of the access must be able to fail: a way that is wrong in one point is caught by a case."""

# faults are planted inside, where types do not help

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest

from tests.kit import wrong_access as wrongs
from twinstore.testing.contracts.access_base import AccessWorkspace
from twinstore.testing.contracts.driver import AccessContract
from twinstore.testing.datasets import COUNTER, LINE, NOTE, OWNER_CASES, OwnerCase
from twinstore.testing.entities import MODULE
from twinstore_memory.testing import memory_deployments

if TYPE_CHECKING:
    from twinstore.plugins.module_spec import ModuleSpec
    from twinstore.testing.entities import DefaultsOnly

Case = Callable[[AccessWorkspace], object]
CASES: Any = AccessContract()


def owner_case(name: str) -> OwnerCase:
    return next(item for item in OWNER_CASES if str(item) == name)


NOTES, DEVICES = owner_case("notes of a tenant"), owner_case("devices of nobody")
PARTS, LINES = owner_case("parts of nobody"), owner_case("lines of a tenant")

# A wrong way through the driver, and the case that must catch it.
WRONG_WAYS: list[tuple[type[DefaultsOnly], Case]] = [
    (
        wrongs.FindsForeignRows,
        lambda b: CASES.test_a_foreign_row_is_as_absent_as_one_that_does_not_exist(b, DEVICES),
    ),
    (wrongs.ForgetsMarkers, lambda b: CASES.test_every_value_comes_back_as_it_was_stored(b, NOTES)),
    (wrongs.TreatsNoTenantAsAllTenants, lambda b: CASES.test_a_list_shows_the_rows_of_its_scope(b, NOTES)),
    (
        wrongs.ListsBackwards,
        lambda b: CASES.test_all_pages_make_the_whole_list_in_the_order_of_the_key(b, NOTES, 4),
    ),
    (wrongs.CountsOnePage, lambda b: CASES.test_limit_and_order_do_not_matter_and_conditions_do(b, NOTES)),
    (wrongs.ReplacesAtInsert, lambda b: CASES.test_a_key_is_inserted_once(b, DEVICES)),
    (wrongs.ReplacesWhatNeverChanges, lambda b: CASES.test_a_row_that_never_changes_is_not_replaced(b, LINE)),
    (wrongs.ReturnsRowsBackwards, CASES.test_rows_of_several_entities_change_together),
    (wrongs.ForgetsTheLastRow, CASES.test_a_parent_and_its_child_are_inserted_together),
    (wrongs.RepeatsRules, CASES.test_a_lost_race_that_the_rule_finds_is_not_repeated),
    (
        wrongs.ReturnsTheTimeOfALateClient,
        CASES.test_the_time_is_an_instant_in_utc_with_whole_milliseconds,
    ),
    (
        wrongs.MarksOneMore,
        lambda b: CASES.test_the_first_rows_of_a_list_are_marked_and_returned_in_its_order(
            b, NOTE, "dataset"
        ),
    ),
    (
        wrongs.AppendsOneByOne,
        lambda b: CASES.test_other_content_under_a_stored_key_is_refused_with_the_whole_call(b, LINES),
    ),
    (
        wrongs.AppendsBackwards,
        lambda b: CASES.test_entries_are_numbered_from_one_in_the_order_given(b, LINES),
    ),
    (wrongs.RemovesOneMore, lambda b: CASES.test_the_first_rows_of_a_list_are_removed(b, COUNTER)),
    (wrongs.RemovesForeignRows, lambda b: CASES.test_a_foreign_row_is_not_removed(b, PARTS)),
    (wrongs.CommitsEveryCall, lambda b: CASES.test_everything_is_committed_together(workspace=b)),
]


@contextmanager
def opened(module: ModuleSpec[Any]) -> Iterator[AccessWorkspace]:
    with memory_deployments(module) as deployment, deployment.open_module(module) as backend:
        yield AccessWorkspace(deployment, module, backend)


@pytest.mark.parametrize(("wrong", "case"), WRONG_WAYS)
def test_the_case_distinguishes_a_wrong_way_from_a_right_one(wrong: type[DefaultsOnly], case: Case) -> None:
    with opened(MODULE) as workspace:
        case(workspace)
    with (
        opened(wrongs.wrong_module(wrong)) as workspace,
        pytest.raises((Exception, pytest.fail.Exception)),
    ):
        case(workspace)
