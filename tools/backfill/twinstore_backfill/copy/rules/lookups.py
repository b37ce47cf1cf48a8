"""References by another unique field than the key: which row of the same tenant has the value."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias, cast

from twinstore.bulk.changes import NAMING, ChangeRefusedError
from twinstore.catalog.tenancy import NO_TENANT, UNKNOWN_TENANT, StoredOwner, TenancyKind, Tenant
from twinstore_backfill.copy.rules.places import replace_each, slots
from twinstore_backfill.copy.rules.results import written

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from twinstore.bulk.changes import Lookup, StoredValues
    from twinstore.catalog.entity import Entity
    from twinstore.catalog.keys import Key
    from twinstore.models.shapes import ValueShape
    from twinstore_backfill.copy.rules.places import Members
    from twinstore_backfill.rules.model import LookupRule

Value: TypeAlias = tuple[type, object]


@dataclass(frozen=True, slots=True, eq=False)
class References:
    """The step of one rule.

    Attributes:
        rule: the rule.
        entity: whose documents it changes.
        lookup: how rows are found.
        shape: what the model has in the place of the key.
        later: what decides behind it to whom a document belongs.
    """

    rule: LookupRule
    entity: Entity
    lookup: Lookup
    shape: ValueShape | None
    later: Sequence[Callable[[Members, StoredValues], bool]]

    def __call__(self, document: Members, values: StoredValues) -> bool:
        """Replace the values by keys.

        Raises:
            ChangeRefusedError: a value finds no row, or several.
        """
        found = (
            cast("list[object]", holder)[cast("int", at)] for holder, at in slots(document, self.rule.path)
        )
        stored = [value for value in found if not isinstance(value, list | None)]
        if not stored:
            return False
        rows = self._rows(stored, self._owner(document, values), values)

        def new_value(value: object) -> object:
            read = values.read(value)
            keys = rows.get((type(read), read), ()) if type(read) in NAMING else ()
            return written(self._part(keys), self.shape, values)

        def convert(value: object) -> object:
            if isinstance(value, list | None):
                return value
            new = new_value(value)
            return value if type(new) is type(value) and new == value else new

        # Values are replaced from the end; the first one without a row is the reason.
        for value in stored:
            new_value(value)
        return replace_each(document, self.rule.path, convert)

    def _rows(
        self, stored: Sequence[object], owner: StoredOwner, values: StoredValues
    ) -> Mapping[Value, set[Key]]:
        """Return by value the keys of the rows that have it."""
        rows: dict[Value, set[Key]] = {}
        if owner is not UNKNOWN_TENANT:
            wanted = [value for value in stored if type(values.read(value)) in NAMING]
            for row in values.found(self.lookup, owner, wanted):
                if row.owner == owner:
                    rows.setdefault((type(row.value), row.value), set()).add(row.key)
        return rows

    def _part(self, keys: Collection[Key]) -> object:
        """Return the wanted part of the only key."""
        if len(keys) != 1:
            times, other = "more than one" if keys else "no", self.lookup.entity.singular
            raise ChangeRefusedError(
                f"{self.rule.text}: [[lookup]] finds {times} {other} of its tenant by {self.rule.by}"
            )
        (key,), names = keys, self.lookup.entity.key
        return key[names.index(self.rule.take or names[0])]

    def _owner(self, document: Members, values: StoredValues) -> StoredOwner:
        """Return whose rows are found: those of the tenant that a document has in the end."""
        name = self.entity.tenant_field
        if name is None or not self.lookup.entity.is_owned:
            return NO_TENANT
        if self.later:
            document = deepcopy(document)
            for step in self.later:
                step(document, values)
        tenant = document.get(f"_{name}" if f"_{name}" in self.entity.taken_names else name)
        if isinstance(tenant, str):
            return Tenant(tenant)
        is_optional = self.entity.tenancy.kind is TenancyKind.OPTIONAL
        return NO_TENANT if tenant is None and is_optional else UNKNOWN_TENANT
