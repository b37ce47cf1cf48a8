"""Appending to an ordered log over the six operations that every driver has."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Generic, TypeVar

from twinstore.access import Row
from twinstore.canonical import CanonicalModel
from twinstore.failures import no_number_left, not_found, sequence_taken
from twinstore.jsontext import INT64_MAX
from twinstore.paging import SortKey
from twinstore.query import Equals, Query

if TYPE_CHECKING:
    from twinstore.access import Access, AccessDefaults, Ref
    from twinstore.catalog import Entity, Key

__all__ = ["Log", "append_rows", "keys_of", "sequence_field", "sequence_of", "with_sequence"]

M = TypeVar("M", bound=CanonicalModel)


def append_rows(
    access: AccessDefaults, entity: Entity[M], parent: Ref, rows: Sequence[Row[M]]
) -> tuple[Row[M], ...]:
    """Append rows in one unit; see :meth:`twinstore.access.Access.append`.

    The parent is written although nothing in it changes: a lock alone would be invisible to a writer whose
    snapshot is older, and two of them would assign one sequence twice. Everything is decided before anything
    is inserted, so that a refusal leaves the unit of a caller as it was.
    """
    with access.unit(parent.scope, atomic=False) as unit:
        # First, so that two appends to one parent come one after the other from here to the commit.
        (held,) = unit.change([parent], lambda found, _: found)
        if held is None:
            raise not_found(parent.entity, key_text_of(parent), access.binding.driver)
        keys = keys_of(entity, rows)
        found = unit.find(entity, parent.scope, keys) if keys else ()
        stored = [row for row in found if row is not None]
        log = Log(entity, access.binding.driver, stored, lambda: last_number(unit, entity, parent))
        appended = tuple(log.place(row) for row in rows)
        for row in log.new:
            unit.insert(entity, parent.scope, row)
        return appended


def key_text_of(ref: Ref) -> str:
    """Return the key of a ref as messages show it."""
    key = ref.key if isinstance(ref.key, tuple) else ref.key.values
    return ref.entity.key_text(key)


def sequence_field(entity: Entity[M]) -> str:
    """Return the field that numbers the entries of an ordered log."""
    if entity.sequence is None:
        raise LookupError(f"{entity.name} is not an ordered log")  # met by programmers only
    return entity.sequence


def sequence_of(entity: Entity[M], row: Row[M]) -> int | None:
    """Return the number of an entry, ``None`` when it is still to be assigned."""
    number = entity.value(row.model, row.storage, sequence_field(entity))
    return number if isinstance(number, int) else None


def with_sequence(entity: Entity[M], row: Row[M], number: int) -> Row[M]:
    """Return an entry with its number."""
    name = entity.shapes[sequence_field(entity)].name
    return Row(row.model.evolve(**{name: number}), row.storage)


def keys_of(entity: Entity[M], rows: Sequence[Row[M]]) -> list[Key]:
    """Return the keys under which some entries may be stored already, each once."""
    return list(dict.fromkeys(key for row in rows if (key := key_of(entity, row)) is not None))


def key_of(entity: Entity[M], row: Row[M]) -> Key | None:
    """Return the key of an entry, ``None`` while its number is missing from it."""
    if sequence_field(entity) in entity.key and sequence_of(entity, row) is None:
        return None
    return entity.key_of(row.model, row.storage)


def last_number(unit: Access, entity: Entity[M], parent: Ref) -> int:
    """Return the highest number under a parent, 0 for none."""
    if entity.parent is None or not isinstance(parent.key, tuple):
        raise LookupError(f"{entity.name} is appended to a parent, which must be named by its key")
    name = sequence_field(entity)
    query = Query(
        entity=entity.name,
        scope=parent.scope,
        # The key of a parent has one part; the checks of the catalog see to that.
        where=(Equals(entity.parent.field, parent.key[-1]),),
        order=(SortKey(name, descending=True, number=True),),
        limit=1,
    )
    if name in entity.key:
        # The number alone: the entry that has it may be large.
        for key in unit.keys(entity, query):
            number = key[entity.key.index(name)]
            return number if isinstance(number, int) else 0
        return 0
    found = unit.page(entity, query)
    return (sequence_of(entity, found[0]) or 0) if found else 0


class Log(Generic[M]):
    """The log of one parent while entries are appended to it; ``new`` are those to be inserted."""

    def __init__(
        self, entity: Entity[M], driver: str, stored: Iterable[Row[M]], last: Callable[[], int]
    ) -> None:
        """Take what is known of the log, which its parent guards against other writers.

        Args:
            entity: what the entries are.
            driver: the name of the driver, for messages.
            stored: the entries under those of :func:`keys_of` that are stored.
            last: returns the highest stored number; asked for at most once.
        """
        self.new: list[Row[M]] = []
        self._entity = entity
        self._driver = driver
        self._known = {entity.key_of(row.model, row.storage): row for row in stored}
        self._last = last
        self._next: int | None = None

    def place(self, row: Row[M]) -> Row[M]:
        """Return an entry as it is stored, or will be: with a number of its own.

        Raises:
            ConflictError: its key is taken by other content, or there is no number left for it.
        """
        key = key_of(self._entity, row)
        if key is not None and key in self._known:
            return self._same(row, self._known[key], key)
        number = sequence_of(self._entity, row)
        placed = with_sequence(self._entity, row, self._following()) if number is None else row
        # A number that a caller gives may lie ahead of the assigned ones; the next must not meet it.
        if self._next is not None and number is not None:
            self._next = max(self._next, number + 1)
        # Two entries of one call may be the same one, which is then appended once.
        self._known[self._entity.key_of(placed.model, placed.storage)] = placed
        self.new.append(placed)
        return placed

    def _same(self, row: Row[M], known: Row[M], key: Key) -> Row[M]:
        """Return the known entry of a key when it has the content of this one."""
        number = sequence_of(self._entity, known)
        unnumbered = sequence_of(self._entity, row) is None and number is not None
        if (with_sequence(self._entity, row, number or 0) if unnumbered else row) != known:
            raise sequence_taken(self._entity, self._entity.key_text(key), self._driver)
        return known

    def _following(self) -> int:
        """Return the next number, and count it as taken."""
        # Asked for only when a number must be assigned: it costs a statement.
        if self._next is None:
            given = (sequence_of(self._entity, row) or 0 for row in self.new)
            self._next = max(self._last(), *given, 0) + 1
        if self._next > INT64_MAX:
            raise no_number_left(self._entity, self._driver)
        self._next += 1
        return self._next - 1
