"""What can be done to a row as a whole: it goes, it comes again under another key, it changes hands."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final, cast

from twinstore.planting import Role
from twinstore_backfill.selftest.herd import BEYOND, fresh_part, fresh_text
from twinstore_backfill.selftest.kinds import Kind
from twinstore_backfill.selftest.mutations import ADDED, Mutation
from twinstore_backfill.selftest.spots import shown_place

if TYPE_CHECKING:
    from twinstore.catalog import Entity
    from twinstore.keys import Key, KeyPart
    from twinstore.planting import RawRow, StoredPlace

__all__ = ["row_mutations"]

Values = Mapping[str, object]
WHOLE: Final = "(row)"
IDENTITIES: Final = frozenset({Role.IDENTITY, Role.GENERATED})
# Fresh keys of this run do not meet those of made rows, whose numbers are smaller.
COPY: Final = 90_000


def row_mutations(
    entity: Entity,
    row: RawRow,
    places: Sequence[StoredPlace],
    tenants: Sequence[str],
    spare: Sequence[Key],
    *,
    tabular: bool,
) -> Iterator[Mutation]:
    """Yield the corruptions of a whole row.

    Args:
        entity: whose row it is.
        row: the row.
        places: the places of its rows.
        tenants: all tenants.
        spare: parents without a child of this entity, for those that may have only one.
        tabular: whether a name cannot be added to a row.
    """
    named = {place.field: place for place in places}
    one, two = (spare[number] if number < len(spare) else None for number in range(2))
    yield _whole(Kind.ROW_MISSING, dict)
    yield _whole(Kind.ROW_UNDER_OTHER_KEY, lambda values: doubled(entity, named, values, one))
    tenant = None if entity.tenant_field is None else named.get(entity.tenant_field)
    if tenant is not None:
        other = next((name for name in tenants if name != row.values.get(tenant.name)), "another-tenant")
        yield _whole(
            Kind.ROW_UNDER_OTHER_TENANT,
            lambda values: {**doubled(entity, named, values, two), tenant.name: other},
        )
        yield Mutation(
            kind=Kind.TENANT,
            pattern=shown_place(tenant),
            role=tenant.role,
            paths=(shown_place(tenant),),
            build=lambda values: {**values, tenant.name: other},
        )
    if not tabular:
        for name in (ADDED, f"_{ADDED}"):
            yield Mutation(
                kind=Kind.KEY_ADDED,
                form="underscore" if name.startswith("_") else "",
                pattern="doc",
                role=Role.FIELD,
                paths=(f"doc.{name}",),
                build=adding(name),
            )


def _whole(kind: Kind, build: Callable[[Values], dict[str, object]]) -> Mutation:
    return Mutation(kind=kind, pattern=WHOLE, role=Role.KEY, paths=(), build=build)


def adding(name: str) -> Callable[[Values], dict[str, object]]:
    """Return what adds a name at the top of a document."""
    return lambda values: {**values, name: "x"}


def under_key(
    entity: Entity, places: Mapping[str, StoredPlace], values: Values, part: KeyPart
) -> dict[str, object]:
    """Return what changes in a row whose part of the key is another one."""
    if part.field not in places:
        # It stands in the payload alone.
        name = next(place.name for place in places.values() if place.role is Role.PAYLOAD)
        payload = cast("dict[str, object]", values[name])
        return {name: {**payload, part.field: fresh_part(part, payload.get(part.field), COPY)}}
    name = places[part.field].name
    changed: dict[str, object] = {name: fresh_part(part, values[name], COPY)}
    if entity.own_id is not None and entity.own_id in places:
        # No second row may stand under one id either, and it holds the key.
        own = places[entity.own_id].name
        changed[own] = str(values[own]).replace(str(values[name]), str(changed[name]))
    return changed


def doubled(
    entity: Entity, places: Mapping[str, StoredPlace], values: Values, parent_key: Key | None
) -> dict[str, object]:
    """Return the same row under another key, and with other values where none may stand twice."""
    parent = None if entity.parent is None else entity.parent.field
    changed = dict(values)
    for index in entity.uniques:
        last = index.names[-1]
        if last not in {*entity.key, entity.tenant_field, parent}:
            name = places[last].name
            value = values.get(name)
            if value is not None:  # an absent one is nobody's
                changed[name] = value + BEYOND if isinstance(value, int) else fresh_text(str(value), COPY)
    if parent is not None and parent_key is not None:
        changed[places[parent].name] = parent_key[0]
    for part in entity.key_parts:
        if part.field != entity.tenant_field or len(entity.key_parts) == 1:
            changed |= under_key(entity, places, values, part)
    # It follows from the key, or the server makes another.
    return {
        name: value
        for name, value in changed.items()
        if not any(place.name == name and place.role in IDENTITIES for place in places.values())
    }
