"""What lists of the scheduler with filters must do."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from twinstore.errors import ValidationError
from twinstore.scheduler.enums import RunState
from twinstore.scheduler.runs import RunQueryOptions
from twinstore.testing.instants import at
from twinstore.testing.scheduler.cases import SchedulerCases

if TYPE_CHECKING:
    from collections.abc import Sequence

    from twinstore.testing.scheduler.workspace import SchedulerWorkspace

__all__ = ["FilteredListContract"]


class FilteredListContract(SchedulerCases):
    """Tokens are bound to filter and direction; a page has a maximum."""

    def test_a_token_is_bound_to_filter_and_direction_but_not_to_the_limit(
        self, workspace: SchedulerWorkspace
    ) -> None:
        for number in range(5):
            workspace.storage.runs.create(workspace.run(str(number), created_at=at(number)))
        both = [RunState.PLANNING, RunState.QUEUED]
        first = workspace.storage.runs.list(workspace.tenant, RunQueryOptions(states=both, limit=2))
        token = first.next_page_token
        same = RunQueryOptions(states=frozenset(both[::-1]), limit=3, page_token=token)
        assert [run.created_at for run in workspace.storage.runs.list(workspace.tenant, same)] == [
            at(2),
            at(1),
            at(0),
        ]
        others: Sequence[RunQueryOptions] = (
            RunQueryOptions(page_token=token),
            RunQueryOptions(states=both[:1], page_token=token),
            RunQueryOptions(states=(), page_token=token),
            RunQueryOptions(states=both, ascending=True, page_token=token),
            RunQueryOptions(states=both, created_after=at(0), page_token=token),
            RunQueryOptions(states=both, schedule_id="s", page_token=token),
        )
        for options in others:
            with pytest.raises(ValidationError, match="token"):
                workspace.storage.runs.list(workspace.tenant, options)

    def test_a_page_has_a_default_and_a_maximum_above_which_it_is_refused(
        self, workspace: SchedulerWorkspace
    ) -> None:
        for number in range(201):
            workspace.storage.run_summaries.upsert(workspace.summary(f"{number:03}"))
        assert len(workspace.storage.run_summaries.list(workspace.tenant)) == 50
        page = workspace.storage.run_summaries.list(workspace.tenant, limit=200)
        assert len(page) == 200
        rest = workspace.storage.run_summaries.list(workspace.tenant, page_token=page.next_page_token)
        assert [summary.schedule_id for summary in rest] == [workspace.id("200")]
        with pytest.raises(ValidationError, match="from 1 to 200"):
            workspace.storage.run_summaries.list(workspace.tenant, limit=201)
