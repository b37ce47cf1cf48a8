"""Changing stored rows without the driver: for the self-test of the verification, on scratch databases.

A corruption writer reads rows as the server has them and writes what no repository would. It validates
nothing, connects as the owner of the schema, and leaves triggers and constraints in place.

Values are plain: ``None``, flags, numbers, text, instants, lists and dictionaries. A driver may use
subclasses of these, and writes back unchanged what it read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, ClassVar, Final, Protocol

from twinstore.errors import TwinstoreError

if TYPE_CHECKING:
    from twinstore.catalog.entity import Entity

__all__ = [
    "STORED_NULL",
    "CorruptionRefusedError",
    "CorruptionWriter",
    "DuplicateMember",
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
    """The type of :data:`STORED_NULL`."""

    NULL = "null"


STORED_NULL: Final = StoredNull.NULL
"""The JSON null in a JSON column, where ``None`` is the null of SQL."""
EXTRA_ROLES: Final = frozenset({Role.DERIVED, Role.REPEATED, Role.IDENTITY, Role.GENERATED, Role.COUNTER})


@dataclass(frozen=True, slots=True)
class DuplicateMember:
    """A member of an object whose name is stored twice, both times with this value."""

    value: object


@dataclass(frozen=True, slots=True)
class StoredPlace:
    """One column of a table, or one name at the top of documents.

    Attributes:
        name: as the server has it.
        field: the wire name, marker or derived field it holds; the name itself if the entity describes none.
        role: what it is for.
        part: the part of a comparison that shows it: ``doc``, ``storage`` or ``beside``.
        nests: whether it holds JSON or BSON.
    """

    name: str
    field: str
    role: Role
    part: str
    nests: bool

    @classmethod
    def of(
        cls, entity: Entity, name: str, field: str, *, special: Role | None = None, nests: bool
    ) -> StoredPlace:
        """Return a place with the role and part that follow from the description of the entity.

        ``special`` is the role of a place that the description does not have, or that repeats a field.
        """
        derived = field in {item.name for item in entity.derived}
        role = special or (
            Role.MARKER if field in entity.markers else Role.DERIVED if derived else Role.FIELD
        )
        part = "storage" if field in entity.markers else "beside" if derived or role in EXTRA_ROLES else "doc"
        if special in {None, Role.REPEATED}:
            # A key may be a marker, a derived field or repeated, and is shown there.
            role = Role.KEY if field in entity.key else Role.TENANT if field == entity.tenant_field else role
        return cls(name, field, role, part, nests)


@dataclass(frozen=True, slots=True)
class RawRow:
    """One row as the server has it.

    Attributes:
        place: how the writer finds it again.
        values: by name; a document lacks what it does not hold, a table has ``None`` there.
    """

    place: object
    values: Mapping[str, object]


@dataclass(frozen=True, slots=True)
class SchemaPart:
    """A part of the schema that can be dropped.

    Attributes:
        name: as the server has it.
        kind: what it is, such as ``index`` or ``policy``.
        drop, make: drop it, and create it again.
    """

    name: str
    kind: str
    drop: Callable[[], object]
    make: Callable[[], object]


class CorruptionRefusedError(TwinstoreError):
    """The server does not store such a row.

    Attributes:
        constraint: what refuses it: the name of a constraint or index, or a type.
        unique: whether another row is in the way, so that the server may accept another value.
    """

    code: ClassVar[str] = "plant_refused"

    def __init__(self, constraint: str, *, unique: bool = False) -> None:
        super().__init__(f"The server refuses it: {constraint}.")
        self.constraint = constraint
        self.unique = unique


class CorruptionWriter(Protocol):
    """Reads and writes rows of one module without the driver. Not safe for several threads.

    Attributes:
        tabular: whether rows have columns: each row has all of them, and no name can be added to a row.
    """

    tabular: bool

    def places(self, entity: Entity) -> Sequence[StoredPlace]:
        """Return the places of the rows of an entity: columns from the catalog of the server, or names.

        Names are those in the documents, and behind them those of the description that no document has.
        """
        ...

    def rows(self, entity: Entity) -> Sequence[RawRow]:
        """Return all rows of an entity in no particular order. Empty: nothing."""
        ...

    def change(
        self, entity: Entity, row: RawRow | None, values: Mapping[str, object] | None
    ) -> RawRow | None:
        """Replace a row, commit, and return the row as the server now has it.

        Without ``row`` it is added, without ``values`` removed.

        Raises:
            CorruptionRefusedError: the server does not store such a row, or nothing would change.
        """
        ...

    def forms(self, place: StoredPlace, value: object) -> Iterator[tuple[str, object]]:
        """Yield the same value in the other types that the place can store, each with a name."""
        ...

    def typed_text(self, value: object) -> str | None:
        """Return the wire form of an ObjectId, UUID, decimal or bytes; ``None`` for what is none of them.

        By default a store has none of these types.
        """
        del value
        return None

    def typed_value(self, value: object, text: str) -> object:
        """Return what has a wire form, in the type of a value of which :meth:`typed_text` returns one."""
        del value
        return text

    def parts(self, entity: Entity) -> Iterator[SchemaPart]:
        """Yield the keys, indexes and policies that the server has for an entity."""
        ...

    def clear(self, entity: Entity) -> None:
        """Remove all rows of an entity."""
        ...
