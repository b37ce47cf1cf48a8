"""What a repository offers, read from its Protocol: look-ups by key and lists with a page token.

The kit calls both for every entity, so that a new entity is asked what each other one is asked.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Final, cast

from pydantic.alias_generators import to_camel

if TYPE_CHECKING:
    from datetime import datetime

    from twinstore.access.paging import Page
    from twinstore.catalog.entity import Entity

__all__ = [
    "LIMIT",
    "TENANT",
    "ListMethod",
    "Lookup",
    "Method",
    "Purge",
    "annotation_text",
    "count_of",
    "fields_of",
    "lists_of",
    "lookups_of",
    "methods_of",
    "named",
    "purges_of",
]

TENANT: Final = "tenant_id"
BEFORE: Final = "before"
BATCH_SIZE: Final = "batch_size"
OPTIONS: Final = "options"
LIMIT: Final = "limit"
PAGED: Final = "page_token"
# In the annotation of a tenant that may be any, none, or all.
SCOPE: Final = "AllTenants"
# For a list with a required limit.
ENOUGH: Final = 10

Value = Callable[[str], object]
"""Returns what a row holds under a wire name or storage marker."""


@dataclass(frozen=True, slots=True)
class Method:
    """A method of a Protocol.

    Attributes:
        name: its name.
        positional: its parameters without default, in order and without ``self``.
        kinds: their annotations, as they are written, in the same order.
        optional: the names of all others.
        returns: its return annotation, as it is written.
        options: the class of the parameter ``options``, ``None`` where there is none.
        scoped: whether its optional tenant selects the owner; without it, rows without a tenant are meant.
    """

    name: str
    positional: tuple[str, ...]
    kinds: tuple[str, ...]
    optional: frozenset[str]
    returns: str
    options: Callable[..., object] | None
    scoped: bool = False

    @property
    def names_tenant(self) -> bool:
        """Whether every call is about one tenant."""
        return TENANT in self.positional or self.scoped

    def call(self, repository: object, tenant: str, row: Iterable[object], **keywords: object) -> object:
        """Call it about a tenant and the values of a row."""
        function = cast("Callable[..., object]", getattr(repository, self.name))
        first = [tenant] if TENANT in self.positional else []
        if self.scoped:
            keywords[TENANT] = tenant
        return function(*first, *row, **keywords)


@dataclass(frozen=True, slots=True)
class Lookup:
    """A method that finds one row by its key or by a unique value.

    Attributes:
        method: the method.
        fields: the wire name that each positional parameter but the tenant means.
        required: whether an absent row is an error.
    """

    method: Method
    fields: tuple[str, ...]
    required: bool

    def __call__(self, repository: object, tenant: str, value: Value) -> object:
        """Return what the method answers."""
        # A method that searches elsewhere by default gets the tenant.
        tenant_argument = {TENANT: tenant} if TENANT in self.method.optional else {}
        return self.method.call(repository, tenant, map(value, self.fields), **tenant_argument)


@dataclass(frozen=True, slots=True)
class ListMethod:
    """A method that returns pages.

    Attributes:
        method: the method.
        fields: the wire name that each positional parameter means, but for tenant and limit.
    """

    method: Method
    fields: tuple[str, ...]

    @property
    def sees_one_tenant(self) -> bool:
        """Whether the list can be narrowed to a tenant."""
        return self.method.names_tenant or TENANT in self.method.optional

    def __call__(self, repository: object, tenant: str, value: Value, **paging: object) -> Page[object]:
        """Return one page; ``paging`` are ``limit`` and ``page_token``, each only where it is given."""
        if self.method.options is not None and paging:
            paging = {OPTIONS: self.method.options(**paging)}
        if TENANT in self.method.optional:
            paging[TENANT] = tenant
        if LIMIT in self.method.positional:
            paging.setdefault(LIMIT, ENOUGH)
        page = self.method.call(repository, tenant, map(value, self.fields), **paging)
        return cast("Page[object]", page)


@dataclass(frozen=True, slots=True)
class Purge:
    """A method that removes rows up to an instant, in batches."""

    method: Method

    def __call__(
        self, repository: object, before: datetime, tenant: str | None, batch_size: object
    ) -> object:
        """Return how many rows went."""
        function = cast("Callable[..., object]", getattr(repository, self.method.name))
        return function(before, tenant_id=tenant, batch_size=batch_size)


def methods_of(protocol: type) -> tuple[Method, ...]:
    """Return the public methods of a Protocol."""
    members = inspect.getmembers(protocol, inspect.isfunction)
    return tuple(method_of(name, function) for name, function in members if not name.startswith("_"))


def method_of(name: str, function: Callable[..., object]) -> Method:
    """Return a method as its signature describes it."""
    signature = inspect.signature(function)
    parameters = list(signature.parameters.values())[1:]
    positional = [item for item in parameters if item.default is item.empty]
    return Method(
        name=name,
        positional=tuple(item.name for item in positional),
        kinds=tuple(annotation_text(item.annotation) for item in positional),
        optional=frozenset(item.name for item in parameters if item not in positional),
        returns=annotation_text(signature.return_annotation),
        options=options_class(function, signature),
        scoped=TENANT in signature.parameters
        and SCOPE in annotation_text(signature.parameters[TENANT].annotation),
    )


def annotation_text(annotation: object) -> str:
    """Return an annotation as it is written, whether it was evaluated or not."""
    return annotation if isinstance(annotation, str) else inspect.formatannotation(annotation)


def options_class(
    function: Callable[..., object], signature: inspect.Signature
) -> Callable[..., object] | None:
    """Return the class of the parameter ``options``, found where the function was defined."""
    if OPTIONS not in signature.parameters:
        return None
    name = annotation_text(signature.parameters[OPTIONS].annotation).partition(" ")[0]
    return cast("Callable[..., object]", inspect.unwrap(function).__globals__[name])


@cache
def lookups_of(entity: Entity, protocol: type) -> tuple[Lookup, ...]:
    """Return the methods that find a row of the entity by key or unique value; the required ones last."""
    model = entity.model.__name__
    found: list[Lookup] = []
    for method in methods_of(protocol):
        names = fields_of(entity, method)
        scalar = set(method.kinds) <= {"str", "int"}
        if scalar and method.returns in {model, f"{model} | None"} and identifies(entity, names):
            found.append(Lookup(method, names, required=method.returns == model))
    return tuple(sorted(found, key=lambda lookup: lookup.required))


@cache
def lists_of(entity: Entity, protocol: type) -> tuple[ListMethod, ...]:
    """Return the methods that return pages of the entity, each of which goes on where the last one ended."""
    wanted = f"Page[{entity.model.__name__}]"
    return tuple(
        ListMethod(method, fields_of(entity, method))
        for method in methods_of(protocol)
        # A query for one instant has one page: the caller acts on it and queries again.
        if method.returns == wanted and {PAGED, OPTIONS} & method.optional
    )


@cache
def count_of(entity: Entity, protocol: type) -> Method | None:
    """Return the method that counts the rows of the list without positional parameters, if there is one."""
    is_listed = any(not listed.fields for listed in lists_of(entity, protocol))
    counts = (method for method in methods_of(protocol) if method.name == "count" and method.returns == "int")
    return next((method for method in counts if is_listed and {TENANT} >= {*method.positional}), None)


def fields_of(entity: Entity, method: Method) -> tuple[str, ...]:
    """Return the wire names that the positional parameters mean, but for tenant and limit.

    A parameter that bears no name of a field, such as ``book_id`` of a book, means the part of the key that
    no other parameter means.
    """
    parameters = [name for name in method.positional if name not in {TENANT, LIMIT}]
    # A model may have its names in snake_case on the wire, too.
    known = {name: wire for name in parameters for wire in (to_camel(name), name) if wire in entity.known}
    rest = (name for name in entity.key if name != entity.tenant_field and name not in known.values())
    return tuple(known[name] if name in known else next(rest, name) for name in parameters)


def identifies(entity: Entity, names: tuple[str, ...]) -> bool:
    """Whether some fields are, with the tenant, the whole key or a unique value."""
    owner = {entity.tenant_field}
    wholes = [entity.key, *(index.names for index in entity.uniques if not index.where)]
    return any(set(names) == set(whole) - owner for whole in wholes)


def named(protocol: type, name: str) -> Method:
    """Return the method of a Protocol of that name."""
    return next(method for method in methods_of(protocol) if method.name == name)


@cache
def purges_of(protocol: type) -> tuple[Purge, ...]:
    """Return the methods that remove rows by their age."""
    return tuple(
        Purge(method)
        for method in methods_of(protocol)
        if method.positional == (BEFORE,) and {TENANT, BATCH_SIZE} <= method.optional
    )
