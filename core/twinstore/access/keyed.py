"""Rows of an entity by their key: the repository of a module that needs no more than four methods."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar, Generic, TypeVar, cast

from twinstore.access.paging import Page, SortKey
from twinstore.access.query import build_query
from twinstore.access.repository import Repository
from twinstore.access.scope import field_argument
from twinstore.catalog.conditions import Equals
from twinstore.catalog.entity import is_present
from twinstore.catalog.row import Row
from twinstore.catalog.tenancy import ALL_TENANTS, NO_TENANT, TenancyKind, Tenant
from twinstore.models.canonical import CanonicalModel
from twinstore.models.shapes import Kind

if TYPE_CHECKING:
    from collections.abc import Iterator

    from twinstore.access.query import Query
    from twinstore.catalog.entity import Entity
    from twinstore.catalog.keys import Key
    from twinstore.catalog.tenancy import Tenants

__all__ = ["KeyedRepository"]

M = TypeVar("M", bound=CanonicalModel)


class KeyedRepository(Repository, Generic[M]):
    """Put, get, list and delete the rows of one entity.

    A subclass names the entity, and a Protocol that declares the parameters, all positional only::

        class BookRepository(Protocol):
            def put(self, book: Book, /) -> Book: ...
            def get(self, tenant_id: str, book_id: str, /) -> Book | None: ...
            def list(
                self, tenant_id: str, /, *, limit: int = 50, page_token: str | None = None
            ) -> Page[Book]: ...
            def delete(self, tenant_id: str, book_id: str, /) -> bool: ...


        class Books(KeyedRepository[Book], BookRepository):
            entity = BOOKS

    If tenants own the rows, ``tenant_id`` comes first; ``put`` takes it only if the model does not name it
    but a parent does. Rows that belong to no tenant are read in every scope and written in system scope.

    Each argument is checked by the annotation of its field; a ``field_validator`` of the model does not run.
    Messages name it like the field, but ``book_id`` for the field ``id`` of a book.

    Attributes:
        entity: whose rows.
        within: the fields whose values each list names; default: that of the parent, if there is one.
        order: the fields by which a list is sorted, ``-`` for descending; the rest of the key follows.
        longest_page: the highest limit of a list.
    """

    entity: Entity[M]
    within: ClassVar[tuple[str, ...] | None] = None
    order: ClassVar[tuple[str, ...]] = ()
    longest_page: ClassVar[int] = 200
    _within: ClassVar[tuple[str, ...]]
    _order: ClassVar[tuple[SortKey, ...]]
    _order_of_all: ClassVar[tuple[SortKey, ...]]

    def __init_subclass__(cls) -> None:
        """Refuse an entity whose rows are more than models under keys.

        Raises:
            ValueError: the entity is such a one; the message says why.
        """
        super().__init_subclass__()
        entity = cls.entity
        parent = () if entity.parent is None else (entity.parent.field,)
        cls._within = parent if cls.within is None else cls.within
        for problem in problems(entity, cls._within):
            raise ValueError(f"{entity.name} {problem}; write a Repository")  # met by programmers only
        fixed = {*cls._within, *(name.removeprefix("-") for name in cls.order), entity.tenant_field}
        rest = (name for name in entity.key if name not in fixed)
        cls._order = tuple(sort_key(entity, name) for name in (*cls.order, *rest))
        others = (name for name in entity.key if name not in {key.field for key in cls._order})
        cls._order_of_all = (*cls._order, *(sort_key(entity, name) for name in others))

    def put(self, *given: object) -> M:
        """Insert a row, or replace the one of its key; return it. Repeated call: the same. Atomic.

        Raises:
            DuplicateError: the key is that of another tenant's row, or a unique value is taken.
            NotFoundError: the parent is absent or foreign.
            TenantScopeError: a row that belongs to no tenant, in a session of one tenant.
        """
        entity, name = self.entity, self.entity.singular.replace(" ", "_")
        of_child = entity.is_owned and entity.tenant_field is None
        check_count(given, ("tenant_id", name) if of_child else (name,))
        model = self._model(given[-1], entity.model, name)
        scope = self._scope(given[0] if of_child else entity.tenant_of(model, {}), writes=True)
        return self._access.put(entity, scope, Row(model)).model

    def get(self, *given: object) -> M | None:
        """Return one row. Absent: ``None``."""
        scope, key = self._arguments(self.entity.key, given)
        return self._get(self.entity, scope, key)

    def list(self, *given: object, limit: int = 50, page_token: str | None = None) -> Page[M]:
        """Return a page of the rows with the values of ``within``. Order: ``order``, then key."""
        scope, values = self._arguments(self._within, given)
        return self._page(self.entity, self.query(scope, *values, limit=limit, page_token=page_token))

    def delete(self, *given: object) -> bool:
        """Remove one row and its children; return whether it was there. Atomic.

        Raises:
            TenantScopeError: a row that belongs to no tenant, in a session of one tenant.
        """
        scope, key = self._arguments(self.entity.key, given, writes=True)
        return self._remove(self.entity, scope, key)

    @classmethod
    def query(
        cls, scope: Tenants, *values: str | int, limit: int = 50, page_token: str | None = None
    ) -> Query:
        """Return the query of :meth:`list`, for the lists that a verification compares."""
        found = build_query(
            cls.entity.name,
            scope=scope,
            where=[Equals(name, value) for name, value in zip(cls._within, values, strict=True)],
            order=cls._order if scope is not ALL_TENANTS else cls._order_of_all,
            limit=limit,
            maximum=cls.longest_page,
            page_token=page_token,
        )
        # All tenants share a list that belongs to none: one broken row must not stop it.
        return found if cls.entity.is_owned else replace(found, skips_undecodable=True)

    def _scope(self, tenant: object, *, writes: bool) -> Tenants:
        """Return the scope of a call; only rows that belong to no tenant are not those of one."""
        if self.entity.is_owned:
            return self._admit(cast("str", tenant))
        return self._admit_system(self.entity.name) if writes else NO_TENANT

    def _arguments(
        self, fields: Sequence[str], given: tuple[object, ...], *, writes: bool = False
    ) -> tuple[Tenants, Key]:
        """Return the scope of a call, and the values that it gives for some fields."""
        entity = self.entity
        names = {wire: argument_name(entity, wire) for wire in fields if wire != entity.tenant_field}
        check_count(given, ("tenant_id", *names.values()) if entity.is_owned else (*names.values(),))
        tenant, values = (given[0], given[1:]) if entity.is_owned else (None, given)
        scope = self._scope(tenant, writes=writes)
        found = {
            wire: field_argument(entity.model, entity.shapes[wire].name, value, name)
            for (wire, name), value in zip(names.items(), values, strict=True)
        }
        if isinstance(scope, Tenant) and entity.tenant_field is not None:
            found[entity.tenant_field] = scope.id
        # Safe, because the fields of a key are texts and integers.
        return scope, cast("Key", tuple(found[wire] for wire in fields))


def argument_name(entity: Entity, wire: str) -> str:
    """Return how messages name the argument for a field."""
    name = entity.shapes[wire].name
    return f"{entity.singular.replace(' ', '_')}_id" if name == "id" else name


def check_count(given: tuple[object, ...], names: tuple[str, ...]) -> None:
    """Refuse too few or too many arguments, as Python does where it knows the names."""
    if len(given) != len(names):
        raise TypeError(f"the arguments are {', '.join(names)}; {len(given)} were given")


def sort_key(entity: Entity, field: str) -> SortKey:
    """Return how a list sorts by a field, in descending order if ``-`` precedes it."""
    name = field.removeprefix("-")
    kind = entity.known[name]
    return SortKey(
        name,
        descending=name != field,
        time=kind is Kind.INSTANT,
        number=kind is Kind.INTEGER,
        decimal=kind is Kind.DECIMAL,
        nullable=name not in entity.key and not is_present(entity, name),
    )


def problems(entity: Entity, within: tuple[str, ...]) -> Iterator[str]:
    """Yield why four methods cannot serve an entity, as the end of a sentence about it."""
    root = entity
    while root.tenancy.kind is TenancyKind.PARENT and root.parent is not None:
        root = root.parent.entity
    if root.tenancy.kind is TenancyKind.OPTIONAL:
        yield "may have rows with and without a tenant"
    if entity.append_only:
        yield "is append-only, so that no row may be replaced or removed"
    if entity.storage or entity.sequence is not None:
        yield "has values that are not in the model: markers, or numbers of a log"
    if not entity.shapes.keys() >= {*entity.key}:
        yield "has a key that is not in the model"
    if entity.tenancy.kind is TenancyKind.PARENT and entity.parent and entity.parent.field not in within:
        yield f"has lists that do not name the {entity.parent.field}, which decides who sees a row"
    if not all(name in entity.shapes and is_present(entity, name) for name in within):
        yield f"has rows without {' or '.join(within)}"
