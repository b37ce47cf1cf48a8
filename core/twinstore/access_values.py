"""What :class:`~twinstore.access.Access` takes and returns: rows, where they are, and what is set in them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, Generic

from typing_extensions import TypeVar, override

from twinstore.canonical import CanonicalJsonSerializer, CanonicalModel
from twinstore.errors import DocumentDecodeError
from twinstore.tenancy import Tenants

if TYPE_CHECKING:
    from twinstore.backend import UnitState
    from twinstore.catalog import Entity, Index, Key
    from twinstore.scope import Scope

__all__ = [
    "NO_STORAGE",
    "UNSET",
    "Add",
    "Binding",
    "Moment",
    "Ref",
    "Row",
    "Rows",
    "Rule",
    "ServerTime",
    "Sets",
    "UniqueKey",
    "Unset",
    "Values",
    "WritingOperation",
]

R = TypeVar("R")
M_co = TypeVar("M_co", bound=CanonicalModel, covariant=True, default=CanonicalModel)

NO_STORAGE: Final[Mapping[str, object]] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Row(Generic[M_co]):
    """A model with its storage markers; absent markers are left out."""

    model: M_co
    storage: Mapping[str, object] = field(default_factory=lambda: NO_STORAGE)
    _content: bytes | None = field(default=None, init=False, repr=False, compare=False)

    @property
    def content(self) -> bytes:
        """The canonical JSON of the model; made once, because a write needs its length, its digest and it."""
        found = self._content
        if found is None:
            found = CanonicalJsonSerializer.serialize(self.model)
            object.__setattr__(self, "_content", found)
        return found


@dataclass(frozen=True, slots=True)
class UniqueKey:
    """The values of a declared unique index, which find one row as its key does."""

    index: Index
    values: tuple[str | int, ...]


@dataclass(frozen=True, slots=True)
class Ref(Generic[M_co]):
    """Where one row is, or would be.

    Attributes:
        entity: what it is.
        scope: whose rows are seen.
        key: finds it.
        below: the key of its parent, where the caller knows it. A store may look there only: a rule that gets
            ``None`` then inserts the row, or does not depend on it.
        replaces_unreadable: a stored row that forms no model counts as absent, and what the rule returns
            takes its place. Whose it is its stored values tell, so that a foreign one stays out of sight.
    """

    entity: Entity[M_co]
    scope: Tenants
    key: Key | UniqueKey
    below: Key = ()
    replaces_unreadable: bool = False

    def read(self, decode: Callable[[R], Row[M_co] | None], stored: R | None) -> Row[M_co] | None:
        """Return what a rule is given of what is stored here, as ``decode`` reads it.

        Raises:
            DocumentDecodeError: it forms no model and is not to be replaced.
        """
        if stored is None:
            return None
        try:
            return decode(stored)
        except DocumentDecodeError:
            if not self.replaces_unreadable:
                raise
            return None


Rows = tuple["Row | None", ...]
Moment = Callable[[], datetime]
"""Returns the time by the clock of the server, read after the rows were locked; whole milliseconds in UTC."""
Rule = Callable[[Rows, Moment], Rows]
"""Gets the rows of some refs (absent or foreign: ``None``), returns what to store (``None``: as it is).

It has no effect of its own, because it may be called again after a lost race.
"""


@dataclass(frozen=True, slots=True)
class Add:
    """Adds to a stored integer."""

    number: int


@dataclass(frozen=True, slots=True)
class ServerTime:
    """The time by the clock of the server, and so much more."""

    later: timedelta = timedelta(0)


class Unset:
    """Makes an optional field absent."""

    @override
    def __repr__(self) -> str:
        """Return the name under which the value is exported."""
        return "UNSET"


UNSET: Final = Unset()
Sets = Mapping[str, str | bool | int | datetime | Add | ServerTime | Unset]
"""What ``mark`` does to the fields of a row, by wire name."""
Values = Mapping[str, str | bool | int | datetime | Unset]
"""What ``amend`` sets the fields of a row to, by wire name; the text of an enumeration."""


class WritingOperation(str):
    """The name of a special operation that writes."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class Binding:
    """What a set of repositories is bound to.

    Attributes:
        driver: name of the driver, for messages.
        scope: the tenant or purpose of the session, or unbound.
        state: whether the set can still be used; a failed unit cannot.
        read_only: the unit was opened for reading.
        in_unit: whether somebody else ends the transaction that calls belong to.
    """

    driver: str
    scope: Scope
    state: UnitState
    read_only: bool = False
    in_unit: bool = False
