"""What every list with a page token must do."""

from __future__ import annotations

import base64
import json
from itertools import cycle
from typing import TYPE_CHECKING, Final

import pytest

from twinstore import add_scheduler_memory_storage
from twinstore.errors import ValidationError
from twinstore.scheduler.enums import RunState
from twinstore.scheduler.runs import RunQueryOptions
from twinstore.testing.base import Contract
from twinstore.testing.builders import at
from twinstore.testing.listings import LISTINGS, SYSTEM_LISTINGS, Listing
from twinstore.testing.workspace import Workspace, all_pages

if TYPE_CHECKING:
    from collections.abc import Sequence

    from twinstore.scheduler.storage import SchedulerStorage
    from twinstore.testing.probe import Deployment

__all__ = ["PagingContract"]

# A fixed disorder: neither the order of the keys nor its reverse.
DISORDER: Final = [7, 2, 11, 0, 9, 4, 13, 6, 1, 12, 3, 10, 5, 8]
each_listing = pytest.mark.parametrize("listing", LISTINGS, ids=lambda listing: listing.name)


def through(listing: Listing, workspace: Workspace, limit: int, *others: SchedulerStorage) -> list[str]:
    """Return the labels of all pages, asking the storages in turn."""
    storages = cycle([workspace.storage, *others])
    return all_pages(lambda token: listing.page(next(storages), workspace.tenant, limit, token))


def first_token(listing: Listing, workspace: Workspace, limit: int = 2) -> str:
    """Return the token behind the first page."""
    token = listing.page(workspace.storage, workspace.tenant, limit, None).next_page_token
    assert token is not None
    return token


def encoded(content: object) -> str:
    """Return a token with any content."""
    return base64.urlsafe_b64encode(json.dumps(content).encode()).rstrip(b"=").decode()


def forged(token: str) -> list[str]:
    """Return what somebody may make of a token."""
    content = json.loads(base64.urlsafe_b64decode(token + "=" * (-len(token) % 4)))
    keys = content["k"]
    changed: list[dict[str, object]] = [
        {"e": "locks"},
        {"f": "0" * 16},
        {"v": 2},
        {"v": "1"},
        {"k": []},
        {"k": [*keys, "x"]},
        {"k": keys[:-1]},
        {"k": [*keys[:-1], 7]},
        {"k": [*keys[:-1], None]},
        {"k": [*keys[:-1], "a\x00b"]},
        {"k": [*keys[:-1], "\ud800"]},
        {"k": {"0": keys}},
    ]
    return [
        "",
        " ",
        "%%%",
        "\N{SNOWMAN}",
        token[:-1],
        token[1:],
        token + "AAAA",
        token.swapcase(),
        encoded([content]),
        encoded("text"),
        *(encoded({**content, **change}) for change in changed),
    ]


class FilledLists:
    """Benches with the rows of one list each, made once for all tests of a class and never changed."""

    def __init__(self, deployment: Deployment, storage: SchedulerStorage) -> None:
        """Fill nothing yet."""
        self._deployment = deployment
        self._storage = storage
        self._benches: dict[str, Workspace] = {}

    def of(self, listing: Listing) -> Workspace:
        """Return the workspace of a list; another tenant has rows, too."""
        if listing.name not in self._benches:
            workspace = Workspace(self._deployment, self._storage)
            listing.fill(workspace, DISORDER)
            listing.fill(workspace.elsewhere, DISORDER[:5])
            self._benches[listing.name] = workspace
        return self._benches[listing.name]


class PagingContract(Contract):
    """All pages make the whole list, whatever happens between them."""

    @pytest.fixture(scope="class")
    @classmethod
    def lists(cls, deployment: Deployment, storage: SchedulerStorage) -> FilledLists:
        """Return lists that are filled once for all tests of the class."""
        return FilledLists(deployment, storage)

    @each_listing
    @pytest.mark.parametrize("limit", [1, 3, 13, 14, 15])
    def test_all_pages_make_the_whole_list_in_order(
        self, lists: FilledLists, listing: Listing, limit: int
    ) -> None:
        workspace = lists.of(listing)
        assert through(listing, workspace, limit) == listing.expected(workspace, DISORDER)

    @each_listing
    def test_nothing_makes_one_empty_page(self, workspace: Workspace, listing: Listing) -> None:
        page = listing.page(workspace.storage, workspace.tenant, 1, None)
        assert (page.items, page.next_page_token) == ((), None)

    @each_listing
    def test_tokens_continue_on_another_storage_and_on_another_driver(
        self, workspace: Workspace, listing: Listing
    ) -> None:
        with add_scheduler_memory_storage({}) as memory, workspace.storages(1) as others:
            for storage in (workspace.storage, memory):
                listing.fill(workspace.on(storage), DISORDER)
            assert through(listing, workspace, 2, memory, *others) == listing.expected(workspace, DISORDER)
            assert first_token(listing, workspace) == first_token(listing, workspace.on(memory))

    @each_listing
    def test_rows_inserted_between_pages_repeat_and_hide_nothing(
        self, workspace: Workspace, listing: Listing
    ) -> None:
        present, late = DISORDER[::2], DISORDER[1::2]
        listing.fill(workspace, present)
        waiting = iter(late)
        seen: list[str] = []
        token: str | None = None
        while True:
            page = listing.page(workspace.storage, workspace.tenant, 2, token)
            seen += page
            token = page.next_page_token
            if token is None:
                break
            listing.fill(workspace, [number for number, _ in zip(waiting, range(2), strict=False)])
        order = listing.expected(workspace, DISORDER)
        assert seen == sorted(seen, key=order.index)
        assert len(set(seen)) == len(seen)
        assert set(listing.expected(workspace, present)) <= set(seen)

    @pytest.mark.parametrize(
        "listing",
        [item for item in LISTINGS if item.example.remove and item.store is None],
        ids=lambda listing: listing.name,
    )
    def test_rows_removed_between_pages_repeat_and_hide_nothing(
        self, workspace: Workspace, listing: Listing
    ) -> None:
        listing.fill(workspace, DISORDER)
        order = listing.sorted(workspace, DISORDER)
        token = first_token(listing, workspace, 5)
        for number in (order[2], order[4], order[5], order[9]):
            listing.remove(workspace, number)
        rest = all_pages(lambda next_: listing.page(workspace.storage, workspace.tenant, 3, next_ or token))
        assert rest == listing.expected(workspace, [number for number in order[6:] if number != order[9]])

    @each_listing
    def test_a_page_shows_no_more_than_its_limit(self, workspace: Workspace, listing: Listing) -> None:
        listing.fill(workspace, DISORDER[:4])
        for limit, shown in ((1, 1), (3, 3), (4, 4), (5, 4), (10**9, 4)):
            page = listing.page(workspace.storage, workspace.tenant, limit, None)
            assert (len(page), page.next_page_token is None) == (shown, limit >= 4)

    @pytest.mark.parametrize("listing", [*LISTINGS, *SYSTEM_LISTINGS], ids=lambda listing: listing.name)
    def test_a_page_of_less_than_one_is_refused(self, workspace: Workspace, listing: Listing) -> None:
        for limit in (0, -1, True, False, 1.5, "1", None):
            with pytest.raises(ValidationError, match="limit"):
                listing.page(workspace.storage, workspace.tenant, limit, None)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]  # the point of the test

    @each_listing
    def test_a_forged_token_is_refused(self, lists: FilledLists, listing: Listing) -> None:
        workspace = lists.of(listing)
        for token in forged(first_token(listing, workspace)):
            with pytest.raises(ValidationError, match="token"):
                listing.page(workspace.storage, workspace.tenant, 2, token)

    @each_listing
    def test_a_token_of_another_tenant_or_list_is_refused(self, lists: FilledLists, listing: Listing) -> None:
        workspace = lists.of(listing)
        token = first_token(listing, workspace)
        with pytest.raises(ValidationError, match="token"):
            listing.page(workspace.storage, workspace.foreign, 2, token)
        for other in LISTINGS:
            if other is not listing:
                with pytest.raises(ValidationError, match="token"):
                    other.page(workspace.storage, workspace.tenant, 2, token)

    def test_a_token_is_bound_to_filter_and_direction_but_not_to_the_limit(
        self, workspace: Workspace
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

    def test_a_page_is_cut_at_the_maximum_and_by_default(self, workspace: Workspace) -> None:
        for number in range(201):
            workspace.storage.run_summaries.upsert(workspace.summary(f"{number:03}"))
        assert len(workspace.storage.run_summaries.list(workspace.tenant)) == 50
        page = workspace.storage.run_summaries.list(workspace.tenant, limit=1000)
        assert len(page) == 200
        rest = workspace.storage.run_summaries.list(workspace.tenant, page_token=page.next_page_token)
        assert [summary.schedule_id for summary in rest] == [workspace.id("200")]

    @pytest.mark.parametrize("listing", SYSTEM_LISTINGS, ids=lambda listing: listing.name)
    def test_pages_over_all_tenants_make_the_whole_list(
        self, isolated_workspace: Workspace, listing: Listing
    ) -> None:
        other = isolated_workspace.elsewhere
        listing.fill(isolated_workspace, DISORDER)
        listing.fill(other, DISORDER)
        rows = [*listing.ranked(isolated_workspace, DISORDER), *listing.ranked(other, DISORDER)]
        expected = [label for _, label, _ in sorted(rows)]
        for limit in (1, 5, 28, 29):
            assert through(listing, isolated_workspace, limit) == expected
        with add_scheduler_memory_storage({}) as memory:
            listing.fill(isolated_workspace.on(memory), DISORDER)
            listing.fill(other.on(memory), DISORDER)
            assert through(listing, isolated_workspace, 3, memory) == expected
