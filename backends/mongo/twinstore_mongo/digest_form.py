"""What stands where in the documents of an entity, for native code that digests them.

Names and places only, as :class:`~twinstore_mongo.stored_form.StoredForm` has them; the program of a copy has
no part in it. What native code cannot show exactly has no form, and is compared row by row.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from twinstore.fast.encoding import Writer
from twinstore.fast.removal import write_removal
from twinstore.keys import KeyType
from twinstore.shapes import Kind, is_whole, shapes_of
from twinstore_mongo.bulk_scan import CollectionScan
from twinstore_mongo.derive import ID, VERSION, stored_names

if TYPE_CHECKING:
    from collections.abc import Iterable
    from collections.abc import Set as AbstractSet

    from twinstore.catalog import Entity
    from twinstore.shapes import ValueShape

__all__ = ["digest_form", "why_not"]

# Kinds of places, as native code numbers them; the first place of all is a plain one.
PLAIN, INSTANT, LONG, LIST, OBJECT, MAP, FREE = range(7)
# What stands on the top level.
FIELD, MARKER, COUNTER, SKIPPED, IGNORED = range(5)
# What `_id` is: a field, what joins the key, or generated.
SHOWN, OF_KEY, ANY = range(3)
MOST_PARTS: Final = 4
MOST_TOPS: Final = 256

Members = tuple[tuple[str, int], ...]


def why_not(entity: Entity, ignored: AbstractSet[str] = frozenset()) -> str | None:
    """Return why documents of an entity have no such form, ``None`` where they have."""
    form = CollectionScan.of(entity).form
    if form.derived:
        return "documents hold beside the content what follows from it"
    if form.derived_key is not None:
        return "its key follows from its content"
    if form.wire_id is None and not form.joined and not form.generated:
        return "its id is no field of the content"
    if entity.shapes.keys() & {*entity.markers}:
        return "a marker has the name of a field"
    if len(entity.key_parts) > MOST_PARTS or any(part.type is KeyType.HEX for part in entity.key_parts):
        return "its key is of a kind that native code does not know"
    has_room = len(entity.shapes) + len(entity.storage) + len(ignored) < MOST_TOPS
    return None if has_room else "it has too many fields"


def digest_form(entity: Entity, *, of_source: bool = False, ignored: AbstractSet[str] = frozenset()) -> bytes:
    """Return the form as native code reads it; see ``core/native/verifier/document_form.c``."""
    scan, tops = CollectionScan.of(entity), Tops(entity, of_source=of_source, ignored=ignored)
    writer = Writer()
    form = scan.form
    tops.places.write(writer)
    writer.many(tops.names, lambda name: tops.write(writer, name))
    writer.many(_in_order(form.markers), lambda name: tops.write_marker(writer, name, form.markers[name]))
    writer.many(scan.key, lambda name: tops.write_part(writer, name, is_number=name in scan.numbers))
    writer.number(OF_KEY if form.joined else ANY if form.generated else SHOWN)
    tops.write_number(writer, form.wire_id)
    tops.write_number(writer, scan.tenant)
    writer.number(scan.may_lack_tenant)
    tops.write_number(writer, form.expires)
    stored = stored_names(entity)
    write_removal(writer, entity.retention, lambda name: tops.number(stored[name]))
    return writer.tobytes()


class Tops:
    """The names on the top level, as the content has them: ``_id`` stands under that of its field."""

    def __init__(self, entity: Entity, *, of_source: bool, ignored: AbstractSet[str] = frozenset()) -> None:
        """Number names and places."""
        self.places = Places()
        stored, form = stored_names(entity), CollectionScan.of(entity).form
        self._wire_id = form.wire_id
        dated = {path[0] for path in form.instants if len(path) == 1}
        self._known: dict[str, tuple[int, int]] = {
            name: (FIELD, self.places.of_field(shape.value, is_long=stored[name] in form.longs))
            for name, shape in entity.shapes.items()
        }
        for name in form.markers.values():
            place = self.places.of(INSTANT) if name in dated else 0
            self._known[name] = (MARKER, self.places.of(LONG) if name in form.longs else place)
        if form.versioned:
            # No copy reads it, and the documents of another program may have none.
            self._known[VERSION] = (SKIPPED if of_source else COUNTER, 0)
        for name in ignored - {*form.internal, *stored.values()}:
            self._known[name] = (IGNORED, 0)
        self.names = _in_order(self._known)

    def number(self, stored: str) -> int:
        """Return the number of a stored name."""
        return self.names.index(self._wire_id if stored == ID and self._wire_id is not None else stored)

    def write(self, writer: Writer, name: str) -> None:
        """Write a name, what it is, and the place of its value."""
        writer.text(name)
        for number in self._known[name]:
            writer.number(number)

    def write_marker(self, writer: Writer, name: str, stored: str) -> None:
        """Write the name under which a marker is shown, and where it stands."""
        writer.text(name)
        writer.number(self.number(stored))

    def write_part(self, writer: Writer, stored: str, *, is_number: bool) -> None:
        """Write a part of the key."""
        writer.number(self.number(stored))
        writer.number(is_number)

    def write_number(self, writer: Writer, stored: str | None) -> None:
        """Write the number of a name and one, or zero for none."""
        writer.number(0 if stored is None else self.number(stored) + 1)


class Places:
    """The places of values, each once; where nothing stands below that has one, it is the plain place."""

    def __init__(self) -> None:
        """Begin with the plain place, and that of what stands in free JSON, as its own members do."""
        self._known: list[tuple[int, int, Members]] = [(PLAIN, 0, ()), (FREE, 1, ())]

    def of(self, kind: int, item: int = 0, members: Members = ()) -> int:
        """Return the number of a place."""
        place = (kind, item, members)
        if place not in self._known:
            self._known.append(place)
        return self._known.index(place)

    def of_field(self, value: ValueShape, *, is_long: bool) -> int:
        """Return the place of a field; ``is_long`` tells whether its integers have 64 bits."""
        if not (is_long and is_whole(value)):
            return self._of(value, dated=True)
        return self.of(LIST, self.of(LONG)) if value.kind is Kind.LIST else self.of(LONG)

    def _of(self, value: ValueShape, *, dated: bool) -> int:
        """Return the place of a value; ``dated`` tells whether an instant is known to stand there."""
        match value.kind:
            case Kind.INSTANT:
                return self.of(INSTANT) if dated else 0
            case Kind.OBJECT:
                return self._object(value, dated=dated)
            case Kind.LIST if value.item is not None:
                return self._around(LIST, self._of(value.item, dated=dated))
            case Kind.MAP if value.item is not None:
                # The path of an instant leads through no map.
                return self._around(MAP, self._of(value.item, dated=False))
            case Kind.MAP if value.cls is dict:
                return self.of(MAP, self.of(FREE, 1))
            case _:
                return 0

    def _around(self, kind: int, item: int) -> int:
        return self.of(kind, item) if item else 0

    def _object(self, value: ValueShape, *, dated: bool) -> int:
        places = {shape.wire: self._of(shape.value, dated=dated) for shape in shapes_of(value.model)}
        members = tuple((name, places[name]) for name in _in_order(places) if places[name])
        return self.of(OBJECT, 0, members) if members else 0

    def write(self, writer: Writer) -> None:
        """Write all places."""
        writer.number(len(self._known))
        writer.number(sum(len(members) for _, _, members in self._known))
        for kind, item, members in self._known:
            writer.number(kind)
            writer.number(item)
            writer.number(len(members))
            for name, place in members:
                writer.text(name)
                writer.number(place)


def _in_order(names: Iterable[str]) -> list[str]:
    return sorted(names, key=str.encode)
