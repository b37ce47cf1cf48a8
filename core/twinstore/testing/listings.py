"""Every list that has a page token, in one shape, so that the cases of paging are written once.

The lists of each repository are derived from its example. Written out are only those that are asked through
filters, or whose rows no example makes.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final, cast

from twinstore.access.paging import Page
from twinstore.testing.examples import numbered_key

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from twinstore.models.canonical import CanonicalModel
    from twinstore.testing.examples import Example, ModuleExamples, Store, Vary
    from twinstore.testing.signatures import ListMethod
    from twinstore.testing.workspace import AnyStorage, Workspace

__all__ = ["Listing", "listings_of", "system_listings_of"]

TextPage = Page[str]
EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
MILLISECOND: Final = timedelta(milliseconds=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Listing:
    """One list. Rows are known by number; the same number gives the same row on every storage.

    Attributes:
        name: repository and method, and what is special about the call.
        example: the entity.
        order: the fields by which it is sorted; a leading ``-`` means descending.
        ask: asks for one page.
        store: stores a row, where that is not as the example does it.
        vary: builds the row of a number, where that is not as the example does it.
    """

    name: str
    example: Example
    order: str
    ask: Callable[[AnyStorage, str, int, str | None], Page[object]]
    store: Store[object, CanonicalModel] | None = None
    vary: Vary[CanonicalModel] | None = None

    @property
    def is_portable(self) -> bool:
        """Whether its order is the same on stores that are filled apart, each with numbers of its own."""
        return self.example.entity.assigned not in self.order.replace("-", "").split()

    def model(self, workspace: Workspace, number: int) -> CanonicalModel:
        """Return the row of a number."""
        return (self.vary or self.example.vary)(
            workspace.tenant, numbered_key(workspace.tenant, number), number
        )

    def fill(self, workspace: Workspace, numbers: Iterable[int]) -> None:
        """Store the rows of some numbers."""
        store = self.store or self.example.store
        for number in numbers:
            store(workspace.storage.unbound, workspace.tenant, self.model(workspace, number))

    def remove(self, workspace: Workspace, number: int) -> None:
        """Make the row of a number disappear from the list."""
        assert self.example.remove is not None, f"{self.name} has no way to remove a row"
        self.example.remove(workspace.storage.unbound, workspace.tenant, self.model(workspace, number))

    def page(self, storage: AnyStorage, tenant: str, limit: int, token: str | None) -> TextPage:
        """Ask for one page and return the labels on it."""
        page = self.ask(storage, tenant, limit, token)
        labels = tuple(self.label_of(tenant, cast("CanonicalModel", item)) for item in page)
        return Page(labels, page.next_page_token)

    def label_of(self, tenant: str, model: CanonicalModel) -> str:
        """Return what identifies a row on a page: the values by which it is looked up."""
        value = self.example.value(tenant, model)
        return ":".join(str(value(name)) for name in self.example.lookups[0].fields)

    def rank_of(self, tenant: str, model: CanonicalModel) -> tuple[object, ...]:
        """Return the place of a row in the order of the list."""
        value = self.example.value(tenant, model)
        return tuple(
            place(value(name.removeprefix("-")), descending=name.startswith("-"))
            for name in self.order.split()
        )

    def ranked(
        self, workspace: Workspace, numbers: Iterable[int]
    ) -> list[tuple[tuple[object, ...], str, int]]:
        """Return place, label and number of some rows, in the order of the list."""
        models = {number: self.model(workspace, number) for number in numbers}
        return sorted(
            (self.rank_of(workspace.tenant, model), self.label_of(workspace.tenant, model), number)
            for number, model in models.items()
        )

    def sorted(self, workspace: Workspace, numbers: Iterable[int]) -> list[int]:
        """Return some numbers in the order of the list."""
        return [number for _, _, number in self.ranked(workspace, numbers)]

    def expected(self, workspace: Workspace, numbers: Iterable[int]) -> list[str]:
        """Return the labels of some numbers in the order of the list."""
        return [label for _, label, _ in self.ranked(workspace, numbers)]


def place(value: object, *, descending: bool) -> tuple[bool, str | int]:
    """Return what sorts a value as the contracts say: absent ones first, text by code point.

    Raises:
        TypeError: texts are never sorted in descending order.
    """
    if value is None:
        return (descending, 0)
    if isinstance(value, datetime):
        value = (value - EPOCH) // MILLISECOND
    if isinstance(value, int):
        return (not descending, -value if descending else value)
    if descending:
        raise TypeError(f"{type(value).__name__} is not sorted in descending order")
    return (True, str(value))


def listings_of(module: ModuleExamples) -> Iterator[Listing]:
    """Yield the lists that show the rows of one tenant, or of nobody under a name, without any filter."""
    for item in module.examples:
        for listed in item.lists:
            if not sees_everything(item, listed):
                yield listing_of(item, listed)


def system_listings_of(module: ModuleExamples) -> Iterator[Listing]:
    """Yield the lists that show the rows of all tenants, or all rows of nobody."""
    for item in module.examples:
        for listed in item.lists:
            if sees_everything(item, listed):
                yield listing_of(item, listed)


def sees_everything(item: Example, listed: ListMethod) -> bool:
    """Whether nothing that a list is told keeps the rows of another test from it."""
    return not listed.sees_one_tenant and (item.is_owned or not listed.fields)


def listing_of(item: Example, listed: ListMethod) -> Listing:
    """Return a list of a repository; what it must be told, the row of number 0 says."""

    def ask(storage: AnyStorage, tenant: str, limit: int, token: str | None) -> Page[object]:
        told = item.value(tenant, item.vary(tenant, numbered_key(tenant, 0), 0))
        paging = {"limit": limit} if token is None else {"limit": limit, "page_token": token}
        return listed(getattr(storage.unbound, item.repository), tenant, told, **paging)

    name = listed.method.name
    return Listing(name=f"{item.repository}.{name}", example=item, order=item.orders[name], ask=ask)
