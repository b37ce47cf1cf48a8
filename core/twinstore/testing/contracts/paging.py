"""What every list with a page token must do, and every purge.

Rows are removed by their age: the oldest first, in batches no larger than asked.
"""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass, field, replace
from itertools import cycle
from typing import TYPE_CHECKING, Final, cast

import pytest
from typing_extensions import override

from twinstore.access.guard import GuardedAccess
from twinstore.errors import ValidationError
from twinstore.testing.base import Contract, each
from twinstore.testing.calls import Listing
from twinstore.testing.examples import numbered_key
from twinstore.testing.instants import at
from twinstore.testing.workspace import Workspace, all_pages

if TYPE_CHECKING:
    from twinstore.access.protocol import Access
    from twinstore.access.query import Query
    from twinstore.catalog.entity import Entity
    from twinstore.models.canonical import CanonicalModel
    from twinstore.testing.examples import Example
    from twinstore.testing.probe import Deployment
    from twinstore.testing.workspace import AnyStorage

__all__ = ["PagingContract", "RetentionContract"]

# A fixed disorder: neither the order of the keys nor its reverse.
DISORDER: Final = [7, 2, 11, 0, 9, 4, 13, 6, 1, 12, 3, 10, 5, 8]
each_listing = each("listing", lambda kit: kit.listings())
each_portable_listing = each(
    "listing", lambda kit: tuple(listing for listing in kit.listings() if listing.is_portable)
)


def through(listing: Listing, workspace: Workspace, limit: int, *others: AnyStorage) -> list[str]:
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
    """Return altered forms of a token that a client may send."""
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
        {"k": [*keys[:-1], 7 if isinstance(keys[-1], str) else "7"]},
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
    """Workspaces with the rows of one list each, made once for all tests of a class and never changed."""

    def __init__(self, deployment: Deployment, storage: AnyStorage) -> None:
        """Fill nothing yet."""
        self._deployment = deployment
        self._storage = storage
        self._workspaces: dict[str, Workspace] = {}

    def of(self, listing: Listing) -> Workspace:
        """Return the workspace of a list; another tenant has rows, too."""
        if listing.name not in self._workspaces:
            workspace = Workspace(self._deployment, self._storage)
            listing.fill(workspace, DISORDER)
            listing.fill(workspace.elsewhere, DISORDER[:5])
            self._workspaces[listing.name] = workspace
        return self._workspaces[listing.name]


class PagingContract(Contract):
    """All pages make the whole list, whatever happens between them."""

    @pytest.fixture(scope="class")
    @classmethod
    def lists(cls, deployment: Deployment, storage: AnyStorage) -> FilledLists:
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

    @each_portable_listing
    def test_tokens_continue_on_another_storage_and_on_another_driver(
        self, workspace: Workspace, listing: Listing
    ) -> None:
        with self.in_memory() as memory, workspace.storages(1) as others:
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

    @each("listing", lambda kit: [item for item in kit.listings() if item.example.remove and not item.store])
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
        for limit, shown in ((1, 1), (3, 3), (4, 4), (5, 4)):
            page = listing.page(workspace.storage, workspace.tenant, limit, None)
            assert (len(page), page.next_page_token is None) == (shown, limit >= 4)

    @each("example", lambda kit: [item for item in kit.module.examples if item.counts is not None])
    def test_the_rows_of_all_pages_are_counted(self, workspace: Workspace, example: Example) -> None:
        def count(place: Workspace) -> int:
            return cast("int", example.count(place.storage.unbound, place.tenant))

        before = count(workspace)
        for place, number in ((workspace, 5), (workspace.elsewhere, 3)):
            for key in range(number):
                model = example.vary(place.tenant, numbered_key(place.tenant, key), key)
                example.store(place.storage.unbound, place.tenant, model)
        # What has no tenant is counted together.
        assert count(workspace) - before == (5 if example.is_owned else 8)

    @each("listing", lambda kit: [*kit.listings(), *kit.system_listings()])
    def test_a_page_of_less_than_one_or_of_too_many_is_refused(
        self, workspace: Workspace, listing: Listing
    ) -> None:
        for limit in (0, -1, 10**9, 2**64, True, False, 1.5, "1", None):
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
        for other in self.listings():
            if other.name != listing.name:
                with pytest.raises(ValidationError, match="token"):
                    other.page(workspace.storage, workspace.tenant, 2, token)

    @each("listing", lambda kit: kit.system_listings())
    def test_pages_over_all_tenants_make_the_whole_list(
        self, isolated_workspace: Workspace, listing: Listing
    ) -> None:
        other = isolated_workspace.elsewhere
        listing.fill(isolated_workspace, DISORDER)
        listing.fill(other, DISORDER)
        rows = [
            *listing.with_sort_keys(isolated_workspace, DISORDER),
            *listing.with_sort_keys(other, DISORDER),
        ]
        expected = [label for _, label, _ in sorted(rows)]
        for limit in (1, 5, 28, 29):
            assert through(listing, isolated_workspace, limit) == expected
        with self.in_memory() as memory:
            listing.fill(isolated_workspace.on(memory), DISORDER)
            listing.fill(other.on(memory), DISORDER)
            assert through(listing, isolated_workspace, 3, memory) == expected


# In an order that is neither that of their age nor its reverse.
AGES: Final = (3, 0, 4, 1, 2)
each_purged = each("example", lambda kit: [item for item in kit.module.examples if item.purges])


def aged(workspace: Workspace, example: Example, age: int) -> CanonicalModel:
    """Store a row whose age is judged by an instant that many milliseconds after the others."""
    retention = example.entity.retention
    assert retention is not None, f"{example.name} is removed by age and its description does not say so"
    instant = example.entity.shapes[retention.field].name
    model = example.small(workspace.tenant, workspace.id(f"age {age}"))
    return example.store(
        workspace.storage.unbound, workspace.tenant, model.evolve(**{instant: at(1000 + age / 1000)})
    )


@dataclass(frozen=True, slots=True)
class Batches(GuardedAccess):
    """Notes after each removal how many rows went, and which are left."""

    left: dict[str, CanonicalModel] = field(default_factory=dict[str, "CanonicalModel"])
    seen: list[tuple[int, list[str]]] = field(default_factory=list[tuple[int, list[str]]])
    workspace: Workspace | None = None
    example: Example | None = None

    @override
    def remove(self, entity: Entity, query: Query) -> int:
        assert self.workspace is not None
        assert self.example is not None
        # slots=True makes a new class, which super() without arguments does not know.
        removed = GuardedAccess.remove(self, entity, query)
        session, tenant = self.workspace.storage.unbound, self.workspace.tenant
        kept = [
            name
            for name, model in self.left.items()
            if self.example.found(session, tenant, model) is not None
        ]
        self.seen.append((removed, kept))
        return removed


class RetentionContract(Contract):
    """Every purge."""

    @each_purged
    @pytest.mark.parametrize("batch_size", [1, 2, 7])
    def test_a_purge_removes_the_oldest_first_in_batches_as_large_as_asked(
        self, workspace: Workspace, example: Example, batch_size: int
    ) -> None:
        rows = {str(age): aged(workspace, example, age) for age in AGES}
        watches: list[Batches] = []

        def watched(access: Access) -> object:
            assert isinstance(access, GuardedAccess)
            watches.append(Batches(access.inner, left=rows, workspace=workspace, example=example))
            return self.module.module.repositories(watches[-1])

        for purge in example.purges:
            module = replace(self.module.module, repositories=watched)
            with workspace.deployment.open_module(module) as backend:
                repository = getattr(backend.repositories, example.repository)
                assert purge(repository, at(1000.003), workspace.tenant, batch_size) == 4
            (watch,) = watches
            sizes = [removed for removed, _ in watch.seen]
            assert sum(sizes) == 4
            assert max(sizes) <= batch_size
            gone = 0
            for removed, left in watch.seen:
                gone += removed
                assert sorted(left) == [str(age) for age in range(gone, 5)]

    @each_purged
    def test_a_purge_in_batches_below_one_removes_nothing(
        self, workspace: Workspace, example: Example
    ) -> None:
        model = aged(workspace, example, 0)
        for purge in example.purges:
            for batch_size in (0, -1, True, 1.5):
                repository = getattr(workspace.storage.unbound, example.repository)
                with pytest.raises(ValidationError, match="batch_size"):
                    purge(repository, at(9999), workspace.tenant, batch_size)
        assert example.found(workspace.storage.unbound, workspace.tenant, model) == model
