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
from twinstore.testing.bench import Bench, all_pages
from twinstore.testing.builders import at
from twinstore.testing.listings import LISTINGS, SYSTEM_LISTINGS, Listing

if TYPE_CHECKING:
    from collections.abc import Sequence

    from twinstore.scheduler.storage import SchedulerStorage
    from twinstore.testing.probe import Deployment

__all__ = ["PagingContract"]

# A fixed disorder: neither the order of the keys nor its reverse.
DISORDER: Final = [7, 2, 11, 0, 9, 4, 13, 6, 1, 12, 3, 10, 5, 8]
each_listing = pytest.mark.parametrize("listing", LISTINGS, ids=lambda listing: listing.name)


def through(listing: Listing, bench: Bench, limit: int, *others: SchedulerStorage) -> list[str]:
    """Return the labels of all pages, asking the storages in turn."""
    storages = cycle([bench.storage, *others])
    return all_pages(lambda token: listing.page(next(storages), bench.tenant, limit, token))


def first_token(listing: Listing, bench: Bench, limit: int = 2) -> str:
    """Return the token behind the first page."""
    token = listing.page(bench.storage, bench.tenant, limit, None).next_page_token
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
        self._benches: dict[str, Bench] = {}

    def of(self, listing: Listing) -> Bench:
        """Return the bench of a list; another tenant has rows, too."""
        if listing.name not in self._benches:
            bench = Bench(self._deployment, self._storage)
            listing.fill(bench, DISORDER)
            listing.fill(bench.elsewhere, DISORDER[:5])
            self._benches[listing.name] = bench
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
        bench = lists.of(listing)
        assert through(listing, bench, limit) == listing.expected(bench, DISORDER)

    @each_listing
    def test_nothing_makes_one_empty_page(self, bench: Bench, listing: Listing) -> None:
        page = listing.page(bench.storage, bench.tenant, 1, None)
        assert (page.items, page.next_page_token) == ((), None)

    @each_listing
    def test_tokens_continue_on_another_storage_and_on_another_driver(
        self, bench: Bench, listing: Listing
    ) -> None:
        with add_scheduler_memory_storage({}) as memory, bench.storages(1) as others:
            for storage in (bench.storage, memory):
                listing.fill(bench.on(storage), DISORDER)
            assert through(listing, bench, 2, memory, *others) == listing.expected(bench, DISORDER)
            assert first_token(listing, bench) == first_token(listing, bench.on(memory))

    @each_listing
    def test_rows_inserted_between_pages_repeat_and_hide_nothing(
        self, bench: Bench, listing: Listing
    ) -> None:
        present, late = DISORDER[::2], DISORDER[1::2]
        listing.fill(bench, present)
        waiting = iter(late)
        seen: list[str] = []
        token: str | None = None
        while True:
            page = listing.page(bench.storage, bench.tenant, 2, token)
            seen += page
            token = page.next_page_token
            if token is None:
                break
            listing.fill(bench, [number for number, _ in zip(waiting, range(2), strict=False)])
        order = listing.expected(bench, DISORDER)
        assert seen == sorted(seen, key=order.index)
        assert len(set(seen)) == len(seen)
        assert set(listing.expected(bench, present)) <= set(seen)

    @pytest.mark.parametrize(
        "listing",
        [item for item in LISTINGS if item.example.remove and item.store is None],
        ids=lambda listing: listing.name,
    )
    def test_rows_removed_between_pages_repeat_and_hide_nothing(self, bench: Bench, listing: Listing) -> None:
        listing.fill(bench, DISORDER)
        order = listing.sorted(bench, DISORDER)
        token = first_token(listing, bench, 5)
        for number in (order[2], order[4], order[5], order[9]):
            listing.remove(bench, number)
        rest = all_pages(lambda next_: listing.page(bench.storage, bench.tenant, 3, next_ or token))
        assert rest == listing.expected(bench, [number for number in order[6:] if number != order[9]])

    @each_listing
    def test_a_page_shows_no_more_than_its_limit(self, bench: Bench, listing: Listing) -> None:
        listing.fill(bench, DISORDER[:4])
        for limit, shown in ((1, 1), (3, 3), (4, 4), (5, 4), (10**9, 4)):
            page = listing.page(bench.storage, bench.tenant, limit, None)
            assert (len(page), page.next_page_token is None) == (shown, limit >= 4)

    @pytest.mark.parametrize("listing", [*LISTINGS, *SYSTEM_LISTINGS], ids=lambda listing: listing.name)
    def test_a_page_of_less_than_one_is_refused(self, bench: Bench, listing: Listing) -> None:
        for limit in (0, -1, True, False, 1.5, "1", None):
            with pytest.raises(ValidationError, match="limit"):
                listing.page(bench.storage, bench.tenant, limit, None)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]  # the point of the test

    @each_listing
    def test_a_forged_token_is_refused(self, lists: FilledLists, listing: Listing) -> None:
        bench = lists.of(listing)
        for token in forged(first_token(listing, bench)):
            with pytest.raises(ValidationError, match="token"):
                listing.page(bench.storage, bench.tenant, 2, token)

    @each_listing
    def test_a_token_of_another_tenant_or_list_is_refused(self, lists: FilledLists, listing: Listing) -> None:
        bench = lists.of(listing)
        token = first_token(listing, bench)
        with pytest.raises(ValidationError, match="token"):
            listing.page(bench.storage, bench.foreign, 2, token)
        for other in LISTINGS:
            if other is not listing:
                with pytest.raises(ValidationError, match="token"):
                    other.page(bench.storage, bench.tenant, 2, token)

    def test_a_token_is_bound_to_filter_and_direction_but_not_to_the_limit(self, bench: Bench) -> None:
        for number in range(5):
            bench.storage.runs.create(bench.run(str(number), created_at=at(number)))
        both = [RunState.PLANNING, RunState.QUEUED]
        first = bench.storage.runs.list(bench.tenant, RunQueryOptions(states=both, limit=2))
        token = first.next_page_token
        same = RunQueryOptions(states=frozenset(both[::-1]), limit=3, page_token=token)
        assert [run.created_at for run in bench.storage.runs.list(bench.tenant, same)] == [
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
                bench.storage.runs.list(bench.tenant, options)

    def test_a_page_is_cut_at_the_maximum_and_by_default(self, bench: Bench) -> None:
        for number in range(201):
            bench.storage.run_summaries.upsert(bench.summary(f"{number:03}"))
        assert len(bench.storage.run_summaries.list(bench.tenant)) == 50
        page = bench.storage.run_summaries.list(bench.tenant, limit=1000)
        assert len(page) == 200
        rest = bench.storage.run_summaries.list(bench.tenant, page_token=page.next_page_token)
        assert [summary.schedule_id for summary in rest] == [bench.id("200")]

    @pytest.mark.parametrize("listing", SYSTEM_LISTINGS, ids=lambda listing: listing.name)
    def test_pages_over_all_tenants_make_the_whole_list(self, lone_bench: Bench, listing: Listing) -> None:
        other = lone_bench.elsewhere
        listing.fill(lone_bench, DISORDER)
        listing.fill(other, DISORDER)
        rows = [*listing.ranked(lone_bench, DISORDER), *listing.ranked(other, DISORDER)]
        expected = [label for _, label, _ in sorted(rows)]
        for limit in (1, 5, 28, 29):
            assert through(listing, lone_bench, limit) == expected
        with add_scheduler_memory_storage({}) as memory:
            listing.fill(lone_bench.on(memory), DISORDER)
            listing.fill(other.on(memory), DISORDER)
            assert through(listing, lone_bench, 3, memory) == expected
