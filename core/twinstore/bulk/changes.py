"""Changes of stored documents before anything judges them: what a tool applies between store and model.

A driver decodes a document as its client does, gives it to the change of its entity, and goes on with what
comes back as if that had been stored. A copy and a comparison bring their own changes, which share no code.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Protocol
from uuid import UUID

from twinstore.errors import UnsupportedCapabilityError

if TYPE_CHECKING:
    from twinstore.catalog.entity import Entity
    from twinstore.catalog.keys import Key
    from twinstore.catalog.tenancy import StoredOwner

from twinstore.bulk.stored import StoredObjectId, StoredReference

__all__ = [
    "NAMING",
    "NO_CHANGES",
    "ChangeRefusedError",
    "ChangedDocument",
    "DocumentChange",
    "DocumentChanges",
    "FoundRow",
    "Lookup",
    "StoredObjectId",
    "StoredReference",
    "StoredValues",
]

Document = dict[str, object]


class ChangeRefusedError(ValueError):
    """A change meets a value that it cannot turn into another one, so the row goes to quarantine.

    The text names the place and the reason, and no value.

    Attributes:
        document: what the other changes made of it, by which the row has its key and owner; ``None`` if those
            are as they are stored.
    """

    def __init__(self, text: str, document: Document | None = None) -> None:
        super().__init__(text)
        self.document = document


@dataclass(frozen=True, slots=True, eq=False)
class Lookup:
    """How a change finds rows of an entity by a value of theirs.

    Attributes:
        entity: the entity.
        by: the field at the top of its documents that has the value, under its stored name.
        change: the change of these rows, which looks nothing up itself; ``None`` for none.
        keeps_tenant: whether each of them keeps the tenant that is stored, so that a server can select by it.
    """

    entity: Entity
    by: str
    change: DocumentChange | None
    keeps_tenant: bool


@dataclass(frozen=True, slots=True)
class FoundRow:
    """A row that has a value of :data:`NAMING`, with owner and key after the change of the row."""

    value: object
    owner: StoredOwner
    key: Key


NAMING: Final = frozenset({str, int, StoredObjectId, UUID})
"""The types of the values that name rows."""


class StoredValues(Protocol):
    """What the values of a store mean. Documents hold them as the client of the driver gives them."""

    def read(self, value: object) -> object:
        """Return one value as Python has it; what is in it stays as it is stored.

        That is ``str``, ``bool``, ``int``, ``float``, ``None``, a ``datetime`` in UTC, a ``Decimal``,
        ``bytes``, a ``UUID``, a :class:`StoredObjectId`, a :class:`StoredReference`, a ``dict`` or a ``list``
        of stored values, or anything else as it is.
        """
        ...

    def write(self, value: object) -> object:
        """Return what a store holds for such a value. A whole number is stored as the driver stores those."""
        ...

    def found(self, lookup: Lookup, owner: StoredOwner, values: Sequence[object]) -> Iterable[FoundRow]:
        """Return the rows of an owner that have one of some stored values, read in the view of the document.

        Of those with the same value at most two, with different keys. Rows that the change refuses, or that
        have no key after it, are not found.

        Raises:
            UnsupportedCapabilityError: the driver finds no rows. Default: always.
        """
        del owner, values
        raise UnsupportedCapabilityError(f"Rules cannot look up {lookup.entity.name} in this store.")


@dataclass(slots=True)
class ChangedDocument:
    """A document after a change.

    Attributes:
        document: what the model judges.
        rules: the numbers of the rules that changed something, rising, each once.
    """

    document: Document
    rules: Sequence[int] = ()


class DocumentChange(Protocol):
    """Changes the documents of one entity."""

    @property
    def reads_broken_text(self) -> bool:
        """Whether it takes texts that are not UTF-8: each wrong byte as a surrogate (``surrogateescape``)."""
        return False

    @property
    def dropped(self) -> frozenset[str] | None:
        """The names at the top of a document that it drops, if it does nothing else."""
        return None

    @property
    def lookups(self) -> Sequence[Lookup]:
        """How it finds other rows."""
        return ()

    def __call__(self, document: Document, values: StoredValues) -> ChangedDocument:
        """Return a document after the change; the given one may be changed in place.

        Raises:
            ChangeRefusedError: the row goes to quarantine.
        """
        ...


@dataclass(frozen=True, slots=True)
class DocumentChanges:
    """What is changed in a store, by name of entity.

    Attributes:
        documents: the change of each entity that has one.
        keys: the field that is the key of an entity instead of ``_id``, under its stored name; documents then
            have an ``_id`` of any kind, which no row keeps.
        ids: entities whose key is stored as an ObjectId: ``uuid`` or ``text``, what it becomes.
        written: for a target whose documents are those before the changes, by name of entity: the change
            that a writer makes of each document of the model, which ``documents`` undoes.
    """

    documents: Mapping[str, DocumentChange] = field(default_factory=dict[str, DocumentChange])
    keys: Mapping[str, str] = field(default_factory=dict[str, str])
    ids: Mapping[str, str] = field(default_factory=dict[str, str])
    written: Mapping[str, DocumentChange] = field(default_factory=dict[str, DocumentChange])

    def __bool__(self) -> bool:
        return bool(self.documents or self.keys or self.ids)

    @property
    def only_drop(self) -> bool:
        """Whether nothing but names at the top of documents is dropped."""
        dropping = (change.dropped is not None for change in self.documents.values())
        return not self.keys and not self.ids and not self.written and all(dropping)

    def lookups(self, entity: Entity) -> Sequence[Lookup]:
        """Return how rows of an entity are found by changes of others."""
        found = (lookup for change in self.documents.values() for lookup in change.lookups)
        return [lookup for lookup in found if lookup.entity == entity]


NO_CHANGES: Final = DocumentChanges()
