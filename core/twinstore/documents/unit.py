"""One unit of work on a store of documents: what such a driver writes itself."""

from __future__ import annotations

from abc import ABC, abstractmethod
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, ClassVar

from twinstore.backend import UnitState
from twinstore.query import Equals, Query, key_order, query_of_key
from twinstore.tenancy import ALL_TENANTS

if TYPE_CHECKING:
    from collections.abc import Iterator
    from datetime import datetime

    from twinstore.access import UniqueKey
    from twinstore.bulk import KeyRange
    from twinstore.catalog import Entity, Key
    from twinstore.documents.rows import DocumentRow
    from twinstore.tenancy import Tenants

__all__ = ["DocumentUnit"]


class DocumentUnit(ABC):
    """Stored rows of any entity in one unit of work. Used by one thread at a time.

    Reads see what the unit has written. In an isolated unit they see one state of the store beside that, the
    one of its first call; otherwise what is committed at the moment.

    Attributes:
        driver: the name of the driver, for messages.
        state: whether the unit can still be used.
        read_only: nobody will write in it.
    """

    driver: ClassVar[str]

    def __init__(self, *, read_only: bool = False) -> None:
        """Start usable."""
        self.state = UnitState()
        self.read_only = read_only

    @abstractmethod
    def now(self) -> datetime:
        """Return the time that judges leases, whole milliseconds in UTC: that of the server if it has one."""

    @abstractmethod
    def select(self, entity: Entity, query: Query) -> list[DocumentRow]:
        """Return the first ``limit + 1`` rows of a list, in its order; broken rows like any other."""

    @abstractmethod
    def scan(self, entity: Entity, within: KeyRange, scope: Tenants) -> Iterator[DocumentRow]:
        """Yield the rows of a range in the order of the key, by a statement of its own.

        It is what a comparison reads, so it shares no paging with :meth:`select`. Memory is bounded.
        """

    @abstractmethod
    def hold(self, entity: Entity, key: Key) -> None:
        """Let nobody else change, insert or remove this row until the unit ends.

        A store without locks notes what is there, and compares when it commits.

        Raises:
            ConcurrencyError: another unit has changed it first, or holds it for too long.
        """

    def hold_value(self, entity: Entity, unique: UniqueKey) -> None:
        """Let nobody else take unique values until the unit ends, where a store can lock what no row has."""
        del entity, unique

    @abstractmethod
    def write(self, row: DocumentRow) -> None:
        """Store a row in place of the one of its key. It is held, and its unique values are free."""

    @abstractmethod
    def delete(self, entity: Entity, key: Key) -> None:
        """Remove a row that is held."""

    @abstractmethod
    def commit(self) -> None:
        """Make everything visible at once and end the unit; call :meth:`UnitState.check_commit` first.

        Raises:
            ConcurrencyError: a row that was held has changed after all, or a unique value was taken.
        """

    @abstractmethod
    def rollback(self) -> None:
        """End the unit without a trace; nothing after the end."""

    def keys(self, entity: Entity, query: Query) -> list[Key]:
        """Return the keys of the first ``limit`` rows of a list, in its order.

        A store that can tell them without the rows does so: the rows may be large.
        """
        return [row.key for row in self.select(entity, query)[: query.limit]]

    def part(self) -> AbstractContextManager[object]:
        """Bound a step whose writes vanish when it fails, in a transaction that somebody else will commit."""
        return nullcontext()

    def get(self, entity: Entity, key: Key, scope: Tenants = ALL_TENANTS) -> DocumentRow | None:
        """Return the row of a key, when it is seen in a scope."""
        found = self.select(entity, query_of_key(entity, scope, key))
        return found[0] if found else None

    def holder(self, entity: Entity, unique: UniqueKey) -> Key | None:
        """Return the key of the row that has some unique values, whoever owns it."""
        equal = (Equals(name, value) for name, value in zip(unique.index.names, unique.values, strict=True))
        query = Query(
            entity=entity.name,
            scope=ALL_TENANTS,
            where=(*equal, *unique.index.where),
            order=key_order(entity),
            limit=1,
        )
        found = self.select(entity, query)
        return found[0].key if found else None
