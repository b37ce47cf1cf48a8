"""Changing what a store holds past its driver: for the self-test of the verification, on scratch databases.

A planter reads rows as the server has them and writes what no repository would. It validates nothing, runs as
the owner of the schema, and leaves triggers and constraints as the server has them: what those refuse is a
:class:`PlantRefusedError` that names the constraint.

Values are plain: ``None``, flags, numbers, text, instants, lists and dictionaries; a driver may use classes
of its own below these, and writes back unchanged what it gave.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, ClassVar, Final, Protocol

from typing_extensions import override

from twinstore.errors import TwinstoreError

if TYPE_CHECKING:
    from twinstore.backend import BackendSettings
    from twinstore.catalog import Entity
    from twinstore.keys import Key

__all__ = [
    "STORED_NULL",
    "Doubled",
    "OpenPlanter",
    "PlantRefusedError",
    "Planter",
    "RawRow",
    "Role",
    "SchemaPart",
    "StoredPlace",
]


class Role(Enum):
    """What a place of a row is for."""

    FIELD = "field"
    KEY = "key"
    TENANT = "tenant"
    MARKER = "storage marker"
    DERIVED = "derived column"
    REPEATED = "index-only column"
    PAYLOAD = "payload"
    IDENTITY = "joined identity"
    GENERATED = "generated identity"
    COUNTER = "version counter"


class StoredNull(Enum):
    """A null that is a value of its own, beside an absent one."""

    NULL = "null"

    @override
    def __repr__(self) -> str:
        """Return the name under which it is exported."""
        return "STORED_NULL"


STORED_NULL: Final = StoredNull.NULL
"""The JSON null of a column; there ``None`` stands for a column without a value."""


class Doubled(dict[str, object]):
    """An object in which one name stands twice, with the same value."""

    def __init__(self, content: Mapping[str, object], name: str) -> None:
        """Take the content and the name that stands twice."""
        super().__init__(content)
        self.name = name


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredPlace:
    """One column of a table, or one name at the top of documents.

    Attributes:
        name: as the server has it.
        field: the wire name, marker or derived field it holds; the name itself where nothing is described.
        part: where a comparison shows it: ``doc``, ``storage`` or ``beside``.
        role: what it is for.
        type: its type, empty where any document may have another one.
        nests: whether it holds JSON or BSON, inside of which anything may stand.
    """

    name: str
    field: str
    part: str
    role: Role
    type: str = ""
    nests: bool = False


@dataclass(frozen=True, slots=True)
class RawRow:
    """One row as the server has it.

    Attributes:
        place: by what the planter finds it again.
        key: its key as a comparison names it, ``None`` where there is none.
        values: by name; a document lacks what it does not hold, a table has ``None`` there.
    """

    place: object
    key: Key | None
    values: Mapping[str, object]


@dataclass(frozen=True, slots=True)
class SchemaPart:
    """Something of the schema that can be dropped.

    Attributes:
        name: as the server has it.
        kind: what it is, such as ``index`` or ``policy``.
    """

    name: str
    kind: str


class PlantRefusedError(TwinstoreError):
    """The server holds no such row.

    Attributes:
        constraint: what refuses it: the name of a constraint or index, or a type.
        unique: whether another row is in the way, so that another value may be admitted.
    """

    code: ClassVar[str] = "plant_refused"

    def __init__(self, constraint: str, *, unique: bool = False) -> None:
        """Take what refuses it."""
        super().__init__(f"The server refuses it: {constraint}.")
        self.constraint = constraint
        self.unique = unique


class Planter(Protocol):
    """Reads and writes rows of one module past the driver. Not safe for several threads."""

    @property
    def tabular(self) -> bool:
        """Whether rows have columns: each of them has all, and a name cannot be added to a row."""
        ...

    def places(self, entity: Entity) -> tuple[StoredPlace, ...]:
        """Return the places of the rows of an entity, as the server tells them.

        Columns come from its catalog. Names of documents come from the documents, and those of the
        description that no document has follow.
        """
        ...

    def rows(self, entity: Entity) -> Sequence[RawRow]:
        """Return all rows of an entity in no particular order. Empty: nothing."""
        ...

    def change(
        self, entity: Entity, row: RawRow | None, values: Mapping[str, object] | None
    ) -> RawRow | None:
        """Put a row in place of another one and return it as the server now has it.

        Without ``row`` it is added, without ``values`` removed. One statement, which is committed.

        Raises:
            PlantRefusedError: the server holds no such row; it is as before.
        """
        ...

    def change_all(
        self,
        entity: Entity,
        changes: Sequence[tuple[RawRow | None, Mapping[str, object] | None]],
    ) -> Sequence[RawRow | PlantRefusedError | None]:
        """Make several changes of different rows of an entity and return what each came to, in their order.

        Each is what ``change`` makes of it; a refusal is returned and keeps no other one from being made. A
        driver may send several with one statement. Empty: nothing.
        """
        return [self._changed(entity, row, values) for row, values in changes]

    def _changed(
        self, entity: Entity, row: RawRow | None, values: Mapping[str, object] | None
    ) -> RawRow | PlantRefusedError | None:
        try:
            return self.change(entity, row, values)
        except PlantRefusedError as error:
            return error

    def forms(self, place: StoredPlace, value: object) -> Iterator[tuple[str, object]]:
        """Return the same value in the other types that the store can hold at a place, each with a name."""
        ...

    def parts(self, entity: Entity) -> Iterator[SchemaPart]:
        """Return what the server has for an entity beside its rows and columns: keys, indexes, policies."""
        ...

    def drop(self, entity: Entity, part: SchemaPart) -> Callable[[], None]:
        """Drop a part of the schema of an entity and return what makes it again.

        Raises:
            PlantRefusedError: the server cannot do without.
        """
        ...

    def clear(self, entity: Entity) -> None:
        """Remove all rows of an entity, and those of other entities that cannot stand without them."""
        ...


OpenPlanter = Callable[["BackendSettings", "Sequence[Entity]"], AbstractContextManager[Planter]]
"""Opens a planter for some entities of a module with the settings of a driver; connects at once."""
