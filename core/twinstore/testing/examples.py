"""The examples of a module: how the kit makes and stores rows of each entity, and nothing that it can derive.

A module has one :class:`ModuleExamples`. From it and the description follow the cases of look-ups, lists,
broken rows, values, sessions and units, so that a new entity is in all of them with its one example.

All rows of one tenant and one name belong together: the child of that name is a child of the parent of that
name, and code that stores a child may rely on its parent.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, Literal, Protocol, TypeVar, cast

from twinstore.catalog.keys import KeyType
from twinstore.catalog.row import Row
from twinstore.catalog.tenancy import ALL_TENANTS, Tenant
from twinstore.models.canonical import CanonicalModel
from twinstore.models.shapes import Kind
from twinstore.testing.drawing import number_of, object_id_named, rows, uuid_named
from twinstore.testing.instants import at
from twinstore.testing.scalars import EDGE_TEXTS
from twinstore.testing.signatures import (
    LIMIT,
    TENANT,
    count_of,
    fields_of,
    lists_of,
    lookups_of,
    named,
    purges_of,
)

if TYPE_CHECKING:
    from hypothesis.strategies import SearchStrategy

    from twinstore.catalog.entity import Entity
    from twinstore.catalog.keys import Key
    from twinstore.catalog.tenancy import Tenants
    from twinstore.models.shapes import FieldShape
    from twinstore.plugins.module_spec import ModuleSpec
    from twinstore.storage.data import DataSession
    from twinstore.testing.probe import StoredRow
    from twinstore.testing.signatures import ListMethod, Lookup, Method, Purge, Value
    from twinstore.testing.workspace import Workspace

__all__ = [
    "NAME",
    "TIES",
    "Example",
    "ModuleExamples",
    "OneOfEach",
    "absent_key",
    "data_example",
    "example",
    "number_of",
    "numbered_key",
    "object_id_named",
    "uuid_named",
]

# The rows of a number, of which the lists of the kit are made, and keys that no row has.

M = TypeVar("M", bound=CanonicalModel)

# This many rows of a list share an instant, so that the id decides; the next are a millisecond later.
TIES: Final = 3
ABSENT: Final[Mapping[KeyType, str | int]] = {
    KeyType.TEXT: "absent",
    KeyType.INT64: -(2**63),
    KeyType.UUID: "00000000-0000-4000-8000-000000000000",
    KeyType.HEX: "00000000000040008000000000000000",
    KeyType.OBJECT_ID: "000000000000000000000000",
    KeyType.BINARY_UUID: "00000000-0000-4000-8000-000000000000",
}


def absent_key(entity: Entity) -> Key:
    """Return a key that no row of the kit has."""
    return tuple(ABSENT[part.type] for part in entity.key_parts)


def numbered_key(tenant: str, number: int) -> str:
    """Return the id of the row of a number; its first characters try the order of text."""
    return f"{EDGE_TEXTS[number % len(EDGE_TEXTS)]}{number:03}@{tenant}"


def varied(
    entity: Entity[M], small: Callable[[str, str], M], orders: Mapping[str, str]
) -> Callable[[str, str, int], M]:
    """Return what builds the models of the lists: small ones that differ where lists sort."""
    names = {name.removeprefix("-") for order in orders.values() for name in order.split()}
    shapes = [entity.shapes[name] for name in names - set(entity.key) if name in entity.shapes]

    def vary(tenant: str, key: str, number: int) -> M:
        changes = {shape.name: value_of_number(shape, number) for shape in shapes}
        return small(tenant, key).evolve(**changes)

    return vary


def value_of_number(shape: FieldShape, number: int) -> object:
    """Return a value for a field by which a list sorts; texts are all different, other values tie."""
    match shape.value.kind:
        case Kind.INSTANT:
            return at(number // TIES / 1000)
        case Kind.INTEGER | Kind.NUMBER | Kind.DECIMAL:
            return number // TIES
        case Kind.OBJECT_ID | Kind.UUID:
            return object_id_of(number) if shape.value.kind is Kind.OBJECT_ID else uuid_of(number)
        case Kind.NUMBERED | Kind.NAMED:
            members = shape.value.members
            return members[number // TIES % len(members)]
        case _:
            return f"{EDGE_TEXTS[-(number % len(EDGE_TEXTS)) - 1]}{number}"


def object_id_of(number: int) -> str:
    """Return an ObjectId; a higher number has a higher one."""
    return f"{number:024x}"


def uuid_of(number: int) -> str:
    """Return a UUID; a higher number has a higher one."""
    return f"00000000-0000-4000-8000-{number:012x}"


S = TypeVar("S")
Build = Callable[[str, str], M]
Vary = Callable[[str, str, int], M]
Store = Callable[[S, str, M], M]
Draw = Callable[[str, str], "SearchStrategy[M]"]
Markers = Callable[[str, M], Mapping[str, object]]
Remove = Callable[[S, str, M], object]
Find = Callable[[S, str, M], M | None]
ParameterValues = Mapping[str, Callable[[M], object]]

NO_ORDERS: Final[Mapping[str, str]] = MappingProxyType({})
NO_PARAMETER_VALUES: Final[Mapping[str, Callable[..., object]]] = MappingProxyType({})
# The rows that :meth:`ModuleExamples.store_each` stores for the kit have this name.
NAME: Final = "living"


@dataclass(frozen=True, slots=True, kw_only=True)
class Example:
    """One entity in the kit; made by :func:`example`, which checks the types.

    Attributes:
        entity: its description.
        protocol: the Protocol of its repository.
        repository: the attribute of a session that is the repository.
        small: builds a model with few values from tenant and name. What no tenant owns takes care of its key:
            other tests store rows of the same entity.
        rich: builds a model with a value in every field, under the same key.
        store: stores a model of a tenant through a session; returns what is stored then.
        writer: the method behind ``store``, where it is one that takes the model.
        orders: the order of each list with a page token, by method, such as ``-createdAt id``.
        vary: builds the model of a key and a number for the lists; every :data:`TIES` numbers tie.
        remove: makes a stored row disappear from the lists, where the module can do that.
        remover: the method behind ``remove``, where it is one that takes the key.
        markers: the storage markers of a model of a tenant.
        drawn: a strategy of models of a tenant and a key, ``None`` where another entity's covers it.
        find: finds the stored row of a model of a tenant through a session, where no method of the repository
            does that by its key.
        unbound: methods that take part in no session and no unit of work.
        parameter_values: what parameters mean that are neither a field of a row nor its key, by their name.
        moves: methods that take a key and return a model as look-ups do, and change the row.
    """

    entity: Entity
    protocol: type
    repository: str
    small: Build[CanonicalModel]
    rich: Build[CanonicalModel]
    store: Store[object, CanonicalModel]
    writer: str | None
    orders: Mapping[str, str]
    vary: Vary[CanonicalModel]
    remove: Remove[object, CanonicalModel] | None
    remover: Method | None
    markers: Markers[CanonicalModel]
    drawn: Draw[CanonicalModel] | None
    find: Find[object, CanonicalModel] | None
    unbound: frozenset[str] = frozenset()
    parameter_values: ParameterValues[CanonicalModel] = field(default_factory=lambda: NO_PARAMETER_VALUES)
    moves: frozenset[str] = frozenset()

    @property
    def name(self) -> str:
        """The name of the entity."""
        return self.entity.name

    @property
    def lookups(self) -> tuple[Lookup, ...]:
        """The methods that find one row."""
        found = lookups_of(self.entity, self.protocol)
        return tuple(
            replace(item, fields=self._fields(item.method, item.fields))
            for item in found
            if item.method.name not in self.moves
        )

    @property
    def lists(self) -> tuple[ListMethod, ...]:
        """The methods that return pages."""
        found = lists_of(self.entity, self.protocol)
        return tuple(replace(item, fields=self._fields(item.method, item.fields)) for item in found)

    def _fields(self, method: Method, fields: tuple[str, ...]) -> tuple[str, ...]:
        """Return the fields that parameters mean; where only the example knows, the parameters."""
        parameters = [name for name in method.positional if name not in {TENANT, LIMIT}]
        return tuple(
            name if name in self.parameter_values else field
            for name, field in zip(parameters, fields, strict=True)
        )

    @property
    def counts(self) -> Method | None:
        """The method that counts the rows of its list, ``None`` if there is none."""
        return count_of(self.entity, self.protocol)

    def count(self, session: object, tenant: str) -> object:
        """Return what :attr:`counts` answers of a tenant."""
        assert self.counts is not None, f"{self.name} has no count"
        keywords = {TENANT: tenant} if TENANT in self.counts.optional else {}
        return self.counts.call(getattr(session, self.repository), tenant, (), **keywords)

    @property
    def purges(self) -> tuple[Purge, ...]:
        """The methods that remove rows by their age."""
        return purges_of(self.protocol)

    @property
    def system_only(self) -> bool:
        """Whether the repository is reached in system scope only, and not in a session of one tenant."""
        tenant_named = [lookup.method.names_tenant for lookup in self.lookups]
        return self.is_owned and bool(tenant_named) and not any(tenant_named)

    @property
    def is_owned(self) -> bool:
        """Whether rows belong to tenants, by themselves or through a parent; others have no tenant."""
        return self.entity.is_owned

    @property
    def shares_keys(self) -> bool:
        """Whether a key that one tenant has taken is taken for all others."""
        return self.is_owned and self.entity.tenant_field not in self.entity.key

    def row(self, tenant: str, model: CanonicalModel) -> Row:
        """Return a model with its markers."""
        return Row(model, self.markers(tenant, model))

    def key(self, tenant: str, model: CanonicalModel) -> Key:
        """Return the key of a model."""
        row = self.row(tenant, model)
        return self.entity.key_of(row.model, row.storage)

    def value(self, tenant: str, model: CanonicalModel) -> Value:
        """Return what answers for the fields of a model, markers included."""
        row = self.row(tenant, model)

        def answer(name: str) -> object:
            value_of = self.parameter_values.get(name)
            return self.entity.value(row.model, row.storage, name) if value_of is None else value_of(model)

        return answer

    def found(
        self, session: object, tenant: str, model: CanonicalModel, lookup: Lookup | None = None
    ) -> object:
        """Return what a look-up of a model answers to a tenant; default: the first one."""
        if lookup is None and self.find is not None:
            return self.find(session, tenant, model)
        chosen = lookup or self.lookups[0]
        return chosen(getattr(session, self.repository), tenant, self.value(tenant, model))

    def numbered(self, tenant: str, numbers: Sequence[int]) -> dict[int, CanonicalModel]:
        """Return models for a list by number; the same numbers give the same models on every storage."""
        return {number: self.vary(tenant, numbered_key(tenant, number), number) for number in numbers}


def example(
    *,
    entity: Entity[M],
    protocol: type,
    small: Build[M],
    rich: Build[M],
    store: Store[S, M] | str,
    repository: str | None = None,
    orders: Mapping[str, str] = NO_ORDERS,
    vary: Vary[M] | None = None,
    remove: Remove[S, M] | str | None = None,
    markers: Markers[M] | None = None,
    drawn: Draw[M] | Literal["derived"] | None = "derived",
    find: Find[S, M] | None = None,
    unbound: Iterable[str] = (),
    parameter_values: ParameterValues[M] = NO_PARAMETER_VALUES,
    moves: Iterable[str] = (),
) -> Example:
    """Return the example of an entity; see :class:`Example`. Omitted arguments are derived.

    ``store`` may be the name of the method that takes a model, and ``remove`` of one that takes its key.
    """
    attribute = repository or entity.name
    writer = store if isinstance(store, str) else None
    if isinstance(store, str):
        store = stored_by(attribute, named(protocol, store))
    remover = named(protocol, remove) if isinstance(remove, str) else None
    if remover is not None:
        remove = removed_by(entity, attribute, remover, markers or no_markers, parameter_values)
    return Example(
        entity=entity,
        protocol=protocol,
        repository=attribute,
        small=small,
        rich=rich,
        store=cast("Store[object, CanonicalModel]", store),
        writer=writer,
        orders=orders,
        vary=vary or varied(entity, small, orders),
        remove=cast("Remove[object, CanonicalModel] | None", remove),
        remover=remover,
        markers=cast("Markers[CanonicalModel]", markers or no_markers),
        drawn=cast("Draw[CanonicalModel] | None", partial(rows, entity) if drawn == "derived" else drawn),
        find=cast("Find[object, CanonicalModel] | None", find),
        unbound=frozenset(unbound),
        parameter_values=cast("ParameterValues[CanonicalModel]", parameter_values),
        moves=frozenset(moves),
    )


class NoRepository(Protocol):
    """What a module of data alone has for an entity: no method."""


def data_example(
    *,
    entity: Entity[M],
    small: Build[M],
    rich: Build[M],
    markers: Markers[M] | None = None,
    drawn: Draw[M] | Literal["derived"] | None = "derived",
) -> Example:
    """Return the example of an entity of a module of data alone, whose rows the access stores and finds.

    Arguments as for :func:`example`. A child is drawn only by a strategy that is given, since it needs a
    stored parent.
    """
    row_of = markers or no_markers

    def store(session: DataSession, tenant: str, model: M) -> M:
        write = session.access.insert if entity.append_only else session.access.put
        return write(entity, scope_of(entity, tenant), Row(model, row_of(tenant, model))).model

    def find(session: DataSession, tenant: str, model: M) -> M | None:
        key = entity.key_of(model, row_of(tenant, model))
        (found,) = session.access.find(entity, scope_of(entity, tenant), [key])
        return None if found is None else found.model

    return example(
        entity=entity,
        protocol=NoRepository,
        repository="access",
        small=small,
        rich=rich,
        store=store,
        find=find,
        markers=markers,
        drawn=None if drawn == "derived" and entity.parent is not None else drawn,
    )


def scope_of(entity: Entity, tenant: str) -> Tenants:
    """Return the scope in which a row of a tenant, or one without tenant, is written and found."""
    return Tenant(tenant) if entity.is_owned else ALL_TENANTS


def stored_by(attribute: str, method: Method) -> Store[S, M]:
    """Return what stores a model by a method that takes it and returns what is stored then."""

    def store(session: S, tenant: str, model: M) -> M:
        return cast("M", method.call(getattr(session, attribute), tenant, [model]))

    return store


def removed_by(
    entity: Entity[M],
    attribute: str,
    method: Method,
    markers: Markers[M],
    parameter_values: ParameterValues[M],
) -> Remove[S, M]:
    """Return what removes the row of a model by a method that takes its key."""
    parameters = [name for name in method.positional if name != TENANT]
    names = dict(zip(parameters, fields_of(entity, method), strict=True))

    def remove(session: S, tenant: str, model: M) -> object:
        key = [
            parameter_values[parameter](model)
            if parameter in parameter_values
            else entity.value(model, markers(tenant, model), names[parameter])
            for parameter in parameters
        ]
        return method.call(getattr(session, attribute), tenant, key)

    return remove


def no_markers(tenant: str, model: CanonicalModel) -> Mapping[str, object]:
    """Return no marker."""
    del tenant, model
    return {}


@dataclass(frozen=True, slots=True)
class OneOfEach:
    """One stored row of each entity, owned by one tenant."""

    module: ModuleExamples
    tenant: str
    rows: Mapping[Entity, CanonicalModel]
    keys: tuple[tuple[Entity, Key], ...]

    def __getitem__(self, entity: Entity[M]) -> M:
        """Return the row of an entity."""
        return cast("M", self.rows[entity])

    def key(self, entity: Entity) -> Key:
        """Return where the row of an entity is stored."""
        return next(key for owner, key in self.keys if owner == entity)

    def value(self, entity: Entity) -> Value:
        """Return what answers for the fields of the row of an entity."""
        return self.module.of(entity).value(self.tenant, self.rows[entity])

    def stored(self, workspace: Workspace) -> list[StoredRow | None]:
        """Return what is really stored."""
        return [workspace.probe.read(entity, key) for entity, key in self.keys]


@dataclass(frozen=True, slots=True)
class ModuleExamples:
    """The examples of a module, one for each entity, in the order of the catalog.

    Attributes:
        module: the module.
        examples: one for each entity, in any order.
        chosen: the entity whose rows represent all in cases that are about one; default: the first one that a
            session of one tenant reaches.
    """

    module: ModuleSpec[object]
    examples: tuple[Example, ...]
    chosen: Entity | None = None
    _by_entity: dict[Entity, Example] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        """Sort the examples as the catalog sorts the entities.

        Raises:
            LookupError: an entity has no example, or the chosen one is not of tenants or needs a parent.
        """
        given = {item.entity: item for item in self.examples}
        missing = [entity.name for entity in self.entities if entity not in given]
        if missing:
            raise LookupError(f"the kit has no example of {', '.join(missing)}")  # met by programmers only
        object.__setattr__(self, "_by_entity", {entity: given[entity] for entity in self.entities})
        object.__setattr__(self, "examples", tuple(self._by_entity.values()))
        candidates = [item.entity for item in self.of_tenants if item.entity.parent is None]
        if self.chosen is not None and self.chosen not in candidates:
            names = ", ".join(entity.name for entity in candidates) or "none"
            raise LookupError(f"{self.chosen.name} cannot stand for all; choose one of: {names}")

    @property
    def entities(self) -> tuple[Entity, ...]:
        """The entities of the module, parents first."""
        return self.module.catalog.entities

    def of(self, entity: Entity) -> Example:
        """Return the example of an entity."""
        return self._by_entity[entity]

    @property
    def typical(self) -> Example:
        """The example whose rows represent all in cases that are about one.

        Raises:
            LookupError: a session of one tenant reaches no entity.
        """
        if self.chosen is not None:
            return self.of(self.chosen)
        for item in self.of_tenants:
            return item
        raise LookupError(f"{self.module.name} has no rows of tenants")  # met by programmers only

    def store_small(self, session: object, tenant: str, name: str, entity: Entity[M]) -> M:
        """Store the small model of an entity, after those of its parents; return it."""
        if entity.parent is not None:
            self.store_small(session, tenant, name, entity.parent.entity)
        chosen = self.of(entity)
        return cast("M", chosen.store(session, tenant, chosen.small(tenant, name)))

    @property
    def of_tenants(self) -> tuple[Example, ...]:
        """The examples of the entities that a session of one tenant reaches."""
        return tuple(item for item in self.examples if item.is_owned and not item.system_only)

    @property
    def of_the_system(self) -> tuple[Example, ...]:
        """The examples of the entities that only system scope reaches."""
        return tuple(item for item in self.examples if item.system_only)

    @property
    def without_tenant(self) -> tuple[Example, ...]:
        """The examples of the entities whose rows belong to no tenant."""
        return tuple(item for item in self.examples if not item.is_owned)

    def store_each(
        self,
        session: object,
        tenant: str,
        name: str,
        but: Mapping[Entity, CanonicalModel] | None = None,
        *,
        bound: bool = False,
    ) -> OneOfEach:
        """Store one row of each entity for a tenant, or of each that a session ``bound`` to it reaches.

        Those in ``but`` are stored already.
        """
        rows = dict(but or {})
        for item in self.of_tenants if bound else self.examples:
            if item.entity not in rows:
                rows[item.entity] = item.store(session, tenant, item.small(tenant, name))
        stored = [entity for entity in self.entities if entity in rows]
        keys = tuple((entity, self.of(entity).key(tenant, rows[entity])) for entity in stored)
        return OneOfEach(self, tenant, rows, keys)
