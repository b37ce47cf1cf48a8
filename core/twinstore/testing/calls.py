"""Methods as calls for any tenant, so that no method is forgotten, and lists with a page token in one shape.

Look-ups and lists are derived from the Protocols and the examples; what else a repository does its module
writes out, as it does for lists that are asked through filters, or whose rows no example makes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from functools import partial
from typing import TYPE_CHECKING, Final, TypeAlias, cast

from twinstore.access.paging import Page
from twinstore.errors import DocumentDecodeError, DuplicateError, NotFoundError, ValidationError
from twinstore.testing.examples import NAME, OneOfEach, numbered_key
from twinstore.testing.instants import at
from twinstore.testing.signatures import fields_of, methods_of
from twinstore.testing.workspace import Workspace

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from twinstore.catalog.entity import Entity
    from twinstore.errors import TwinstoreError
    from twinstore.models.canonical import CanonicalModel
    from twinstore.testing.examples import Example, ModuleExamples, Store, Vary
    from twinstore.testing.signatures import ListMethod, Lookup, Method
    from twinstore.testing.workspace import AnyStorage

__all__ = [
    "Listing",
    "Step",
    "TenantCall",
    "Touch",
    "fatal_steps_of",
    "harmless_steps_of",
    "listings_of",
    "system_calls_of",
    "system_listings_of",
    "tenant_calls_of",
    "touches_of",
    "write_calls_of",
]

Step: TypeAlias = Callable[[object, Workspace, OneOfEach], object]
"""Does something in a session, with the workspace of its tenant and what is stored of that."""


@dataclass(frozen=True, slots=True)
class TenantCall:
    """One method called by a tenant about the rows of another.

    Attributes:
        name: repository and method.
        invoke: gets repositories, the calling tenant and the rows of the other one.
        answer: what the caller gets, or the error, when the rows belong to another tenant.
        bound: whether it may be called in a session and in a unit of work.
    """

    name: str
    invoke: Callable[[object, str, OneOfEach], object]
    answer: object
    bound: bool = True


@dataclass(frozen=True, slots=True)
class Touch:
    """A call that must meet the broken row of an entity.

    Attributes:
        method: the method.
        entity: whose row is broken.
        call: gets repositories, a tenant and its rows.
        repeatable: while no row is broken it succeeds as often as it is called.
        all_tenants: it is a list in system scope, which passes over the row and names it.
    """

    method: str
    entity: Entity
    call: Callable[[object, str, OneOfEach], object]
    repeatable: bool = False
    all_tenants: bool = False

    @property
    def name(self) -> str:
        """The entity and the method."""
        return f"{self.entity.name}-{self.method}"


def tenant_calls_of(module: ModuleExamples) -> Iterator[TenantCall]:
    """Yield the look-ups and lists that are about one tenant."""
    for item in module.examples:
        yield from reads_of(item, of_one_tenant=True)


def write_calls_of(module: ModuleExamples) -> Iterator[TenantCall]:
    """Yield the methods that take a model of a tenant or a key, about the rows of another one."""
    for item in module.of_tenants:
        if item.remover is not None and item.remover.returns == "bool":
            yield TenantCall(
                f"{item.repository}.{item.remover.name}", partial(remove_stored, item), answer=False
            )
        if item.writer is not None and item.shares_keys and names_owner(item.entity):
            yield TenantCall(
                f"{item.repository}.{item.writer}", partial(store_under_existing_key, item), DuplicateError
            )


def names_owner(entity: Entity) -> bool:
    """Whether a model says to whom its row belongs."""
    return entity.tenant_field in entity.identity


def remove_stored(item: Example, session: object, tenant: str, one_of_each: OneOfEach) -> object:
    """Remove the row of the other tenant."""
    assert item.remove is not None
    return item.remove(session, tenant, one_of_each.rows[item.entity])


def store_under_existing_key(item: Example, session: object, tenant: str, one_of_each: OneOfEach) -> object:
    """Store a row of a tenant under the key of the other tenant's."""
    assert item.entity.tenant_field is not None
    owner = item.entity.identity[item.entity.tenant_field]
    return item.store(session, tenant, one_of_each.rows[item.entity].evolve(**{owner: tenant}))


def system_calls_of(module: ModuleExamples) -> Iterator[TenantCall]:
    """Yield the look-ups and lists that see all tenants, and what else only system scope reaches."""
    for item in module.examples:
        if item.is_owned:
            yield from reads_of(item, of_one_tenant=False)
    for item in module.of_the_system:
        yield from calls_of_the_system(item)


def reads_of(item: Example, *, of_one_tenant: bool) -> Iterator[TenantCall]:
    """Yield the look-ups and lists of an entity."""
    for lookup in item.lookups:
        if lookup.method.names_tenant is of_one_tenant:
            yield lookup_call(item, lookup)
    for listed in item.lists:
        if listed.method.names_tenant is of_one_tenant:
            yield list_call(item, listed)
    if item.counts is not None and item.counts.names_tenant is of_one_tenant:
        yield TenantCall(
            f"{item.repository}.count", lambda session, tenant, _: item.count(session, tenant), 0
        )


def lookup_call(item: Example, lookup: Lookup) -> TenantCall:
    """Return a look-up of the row of the other tenant."""
    return TenantCall(
        f"{item.repository}.{lookup.method.name}",
        partial(call_for_stored_row, item, lookup),
        NotFoundError if lookup.required else None,
    )


def list_call(item: Example, listed: ListMethod) -> TenantCall:
    """Return a list that would show the row to its owner."""

    def invoke(session: object, tenant: str, one_of_each: OneOfEach) -> object:
        try:
            return tuple(listed(getattr(session, item.repository), tenant, one_of_each.value(item.entity)))
        except DocumentDecodeError:
            # A list over all tenants meets the rows that other tests have broken.
            return DocumentDecodeError

    return TenantCall(f"{item.repository}.{listed.method.name}", invoke, ())


def calls_of_the_system(item: Example) -> Iterator[TenantCall]:
    """Yield what else the repository of an entity does that only system scope reaches."""
    derived = {call.method.name for call in item.lookups} | {call.method.name for call in item.lists}
    for method in methods_of(item.protocol):
        if method.name not in derived:
            call = partial(call_for_absent_row, item, method)
            bound = method.name not in item.unbound
            yield TenantCall(f"{item.repository}.{method.name}", call, None, bound)


def call_for_absent_row(
    item: Example, method: Method, session: object, tenant: str, one_of_each: OneOfEach
) -> object:
    """Call a method about a row that is not stored, before every instant, without waiting."""
    del one_of_each
    model = item.small(tenant, f"aside@{tenant}")
    fixed: dict[str, object] = {type(model).__name__: model}
    fixed |= {"datetime": at().replace(year=2), "timedelta": timedelta(0)}
    value = item.value(tenant, model)
    names = dict(zip(method.positional, fields_of(item.entity, method), strict=True))
    arguments = [
        fixed[kind] if kind in fixed else value(names[name])
        for name, kind in zip(method.positional, method.kinds, strict=True)
    ]
    return method.call(getattr(session, item.repository), tenant, arguments)


def touches_of(module: ModuleExamples) -> Iterator[Touch]:
    """Yield the look-ups of every repository, and the lists that must show the row."""
    for item in module.examples:
        for lookup in item.lookups:
            yield Touch(
                lookup.method.name, item.entity, partial(call_for_stored_row, item, lookup), repeatable=True
            )
        for listed in item.lists:
            # A list of all rows without a tenant would meet the broken ones of other tests.
            plain = listed.method.name == "list" and item.is_owned
            is_visible = listed.sees_one_tenant or not item.is_owned
            if is_visible and (listed.fields or plain):
                call = partial(call_for_stored_row, item, listed)
                all_tenants = not listed.method.names_tenant
                yield Touch(listed.method.name, item.entity, call, repeatable=True, all_tenants=all_tenants)


def harmless_steps_of(module: ModuleExamples) -> Iterator[tuple[str, tuple[type[TwinstoreError], Step]]]:
    """Yield by name what look-ups refuse: a row that is absent, a text that is not a key."""
    for item in module.of_tenants:
        for lookup in item.lookups:
            if lookup.required:
                yield f"absent {item.entity.singular}", (NotFoundError, partial(look_up_absent, item, lookup))
            elif lookup.fields:
                yield (
                    f"argument {item.entity.singular}",
                    (ValidationError, partial(look_up_blank, item, lookup)),
                )


def look_up_absent(
    item: Example, lookup: Lookup, session: object, workspace: Workspace, one_of_each: OneOfEach
) -> object:
    """Look up a row that is not stored."""
    del one_of_each
    absent = item.small(workspace.tenant, workspace.id("absent"))
    return lookup(getattr(session, item.repository), workspace.tenant, item.value(workspace.tenant, absent))


def look_up_blank(
    item: Example, lookup: Lookup, session: object, workspace: Workspace, one_of_each: OneOfEach
) -> object:
    """Look for a row by values that are blank."""
    del one_of_each
    return lookup(getattr(session, item.repository), workspace.tenant, lambda _: " ")


def fatal_steps_of(module: ModuleExamples) -> Iterator[tuple[str, Step]]:
    """Yield by name the writes under keys that another tenant has."""
    for item in module.of_tenants:
        if item.shares_keys and item.entity.parent is None:
            yield f"foreign {item.entity.singular}", partial(store_foreign, item)


def store_foreign(item: Example, session: object, workspace: Workspace, one_of_each: OneOfEach) -> object:
    """Store a row under the key of the other tenant's."""
    del one_of_each
    return item.store(session, workspace.tenant, item.small(workspace.tenant, workspace.elsewhere.id(NAME)))


def call_for_stored_row(
    item: Example, read: Lookup | ListMethod, session: object, tenant: str, one_of_each: OneOfEach
) -> object:
    """Ask a repository for the stored row."""
    return read(getattr(session, item.repository), tenant, one_of_each.value(item.entity))


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
        fetch_page: asks for one page.
        store: stores a row, where that is not as the example does it.
        vary: builds the row of a number, where that is not as the example does it.
    """

    name: str
    example: Example
    order: str
    fetch_page: Callable[[AnyStorage, str, int, str | None], Page[object]]
    store: Store[object, CanonicalModel] | None = None
    vary: Vary[CanonicalModel] | None = None

    @property
    def is_portable(self) -> bool:
        """Whether its order is the same on stores that are filled separately, each with its own numbers."""
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
        page = self.fetch_page(storage, tenant, limit, token)
        labels = tuple(self.label_of(tenant, cast("CanonicalModel", item)) for item in page)
        return Page(labels, page.next_page_token)

    def label_of(self, tenant: str, model: CanonicalModel) -> str:
        """Return what identifies a row on a page: the values by which it is looked up."""
        value = self.example.value(tenant, model)
        return ":".join(str(value(name)) for name in self.example.lookups[0].fields)

    def sort_key_of(self, tenant: str, model: CanonicalModel) -> tuple[object, ...]:
        """Return the place of a row in the order of the list."""
        value = self.example.value(tenant, model)
        return tuple(
            sort_key(value(name.removeprefix("-")), descending=name.startswith("-"))
            for name in self.order.split()
        )

    def with_sort_keys(
        self, workspace: Workspace, numbers: Iterable[int]
    ) -> list[tuple[tuple[object, ...], str, int]]:
        """Return place, label and number of some rows, in the order of the list."""
        models = {number: self.model(workspace, number) for number in numbers}
        return sorted(
            (self.sort_key_of(workspace.tenant, model), self.label_of(workspace.tenant, model), number)
            for number, model in models.items()
        )

    def sorted(self, workspace: Workspace, numbers: Iterable[int]) -> list[int]:
        """Return some numbers in the order of the list."""
        return [number for _, _, number in self.with_sort_keys(workspace, numbers)]

    def expected(self, workspace: Workspace, numbers: Iterable[int]) -> list[str]:
        """Return the labels of some numbers in the order of the list."""
        return [label for _, label, _ in self.with_sort_keys(workspace, numbers)]


def sort_key(value: object, *, descending: bool) -> tuple[bool, str | int | Decimal]:
    """Return what sorts a value as the contracts say: absent ones first, text by code point.

    Raises:
        TypeError: texts are never sorted in descending order.
    """
    if value is None:
        return (descending, 0)
    if isinstance(value, datetime):
        value = (value - EPOCH) // MILLISECOND
    if isinstance(value, Decimal):
        # A minus sign would round it.
        return (not descending, value.copy_negate() if descending else value)
    if isinstance(value, int):
        return (not descending, -value if descending else value)
    if descending:
        raise TypeError(f"{type(value).__name__} is not sorted in descending order")
    return (True, str(value))


def listings_of(module: ModuleExamples) -> Iterator[Listing]:
    """Yield the lists that show the rows of one tenant, or those under a name, without any filter."""
    for item in module.examples:
        for listed in item.lists:
            if not sees_everything(item, listed):
                yield listing_of(item, listed)


def system_listings_of(module: ModuleExamples) -> Iterator[Listing]:
    """Yield the lists that show the rows of all tenants, or all rows without a tenant."""
    for item in module.examples:
        for listed in item.lists:
            if sees_everything(item, listed):
                yield listing_of(item, listed)


def sees_everything(item: Example, listed: ListMethod) -> bool:
    """Whether no argument of a list excludes the rows of another test."""
    return not listed.sees_one_tenant and (item.is_owned or not listed.fields)


def listing_of(item: Example, listed: ListMethod) -> Listing:
    """Return a list of a repository; its required arguments come from the row of number 0."""

    def fetch_page(storage: AnyStorage, tenant: str, limit: int, token: str | None) -> Page[object]:
        values = item.value(tenant, item.vary(tenant, numbered_key(tenant, 0), 0))
        paging = {"limit": limit} if token is None else {"limit": limit, "page_token": token}
        return listed(getattr(storage.unbound, item.repository), tenant, values, **paging)

    name = listed.method.name
    return Listing(
        name=f"{item.repository}.{name}", example=item, order=item.orders[name], fetch_page=fetch_page
    )
