"""Documents changed at the level of BSON: other types, names, orders and values, and broken bytes."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import bson
from bson import Binary, Code, DBRef, Decimal128, MaxKey, MinKey, ObjectId, Regex, Timestamp

from tests.fast.texts import odd_texts, own_texts
from tests.fast.trees import ARRAY, TEXT, Element, Tree, encoded, parsed
from twinstore.fast.nodes import HEX_DIGIT, NodeKind

if TYPE_CHECKING:
    from collections.abc import Callable
    from random import Random

    from twinstore.fast.program import Program

__all__ = ["Mutator"]

INT32: Final = struct.Struct("<i")
INT64: Final = struct.Struct("<q")
DOUBLE: Final = struct.Struct("<d")
FLAG: Final = 8
INSTANT: Final = 9
INT: Final = 0x10
LONG: Final = 0x12
TEXTUAL: Final = frozenset({NodeKind.TEXT, NodeKind.ENUM, NodeKind.CONST})
# How many of the documents are changed once more, and of how many the bytes are broken.
AGAIN: Final = 0.2
BROKEN: Final = 0.03
INTS: Final = (
    0,
    1,
    -1,
    2,
    5,
    20,
    21,
    2**31 - 1,
    2**31,
    -(2**31),
    -(2**31) - 1,
    2**53,
    2**53 + 1,
    2**63 - 1,
    -(2**63),
)
DOUBLES: Final = (
    0.0,
    -0.0,
    1.0,
    3.0,
    -1.0,
    0.5,
    1e-5,
    1e-7,
    5e-324,
    2.2e-308,
    1e16,
    1e22,
    1e300,
    2.0**53,
    2.0**63,
    float("inf"),
    float("nan"),
    0.1,
    1 / 3,
)
MILLISECONDS: Final = (
    0,
    1,
    -1,
    1_700_000_000_000,
    1_700_000_000_001,
    1_699_999_999_999,
    -62135596800000,
    -62135596800001,
    253402300799999,
    253402300800000,
    2**63 - 1,
    -(2**63),
)
FOREIGN: Final[tuple[object, ...]] = (
    None,
    True,
    False,
    ObjectId(b"twelve bytes"),
    Binary(b"bytes"),
    Binary(b"0123456789abcdef", 4),
    Code("x"),
    Code("x", {"a": 1}),
    DBRef("c", "i"),
    Decimal128("1"),
    Regex("a"),
    Timestamp(1, 2),
    MinKey(),
    MaxKey(),
    {},
    [],
    [1],
    ["a", "b"],
    ["b", "a"],
    ["a", "a"],
    {"a": "b"},
    {"b": 1, "a": 2},
    {"$date": "2025-10-26T14:05:00+00:00"},
    {"$ref": "c", "$id": "i"},
    {"$numberLong": "1"},
    {"A": 1, "a": 2},
    {" a": "1"},
    {"": "x"},
    {"a": None},
    {"a": {"b": [{"c": 1.5}]}},
)
BAD_TEXTS: Final = (b"\xff", b"\xc0\x80", b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"a\x80", b"\xe2\x82")
NAMES: Final = (
    b"",
    b"_id",
    b"id",
    b"_version",
    b"_x",
    b"_\xc3\xa9",
    b"$ref",
    b"$id",
    b"a.b",
    b"\xff",
    b"cronExpression",
    b"concelierExportId",
    b"excititorExportId",
    b"name",
)
LEAST: Final = 12


def raw_value(value: object) -> tuple[int, bytes]:
    """Return type and bytes of a value as an encoder writes it."""
    document = bson.encode({"": value})
    return document[4], document[6:-1]


def raw_text(text: str | bytes) -> bytes:
    """Return the bytes of a text, which may be none of UTF-8."""
    data = text.encode("utf-8", "surrogatepass") if isinstance(text, str) else text
    return INT32.pack(len(data) + 1) + data + b"\0"


FOREIGN_RAW: Final = tuple(map(raw_value, FOREIGN))


@dataclass(slots=True)
class Place:
    """What is to be changed: an element among others.

    Attributes:
        tree: the elements.
        parts: the same, encoded; of these one is changed.
        at: which one.
        node: the number of the node that its value has to fit, or -1.
        names: the number of the node that its name has to fit, or -1 where it is one of given names.
    """

    tree: Tree
    parts: list[bytes]
    at: int
    node: int = -1
    names: int = -1

    @property
    def element(self) -> Element:
        """The element."""
        return self.tree[self.at]

    def put(self, element: Element) -> None:
        """Replace the element."""
        self.parts[self.at] = element.raw


class Mutator:
    """Changes documents of one entity; what the program says of a place tells what comes near it."""

    def __init__(self, program: Program, documents: list[bytes], random: Random) -> None:
        """Take the program, documents that it takes, and the source of chance."""
        self._random = random
        self._nodes = program.nodes
        self._trees = [parsed(document) for document in documents]
        self._root = {field.name.encode(): field.node for field in program.nodes[program.root].fields}
        self._root |= {marker.name.encode(): marker.node for marker in program.markers}
        self._root |= {b"_" + marker.name.encode(): marker.node for marker in program.markers}
        # Of the one that stands as ``_id``, which is a part of the key wherever it is one.
        self._root.setdefault(b"_id", program.slots[program.key[0]].node)
        self._texts = {
            number: odd_texts(node if node.kind in TEXTUAL else None)
            for number, node in enumerate(program.nodes)
        }
        self._any = odd_texts(None)
        self._changes: tuple[Callable[[Place], None], ...] = (
            *[self._come_near] * 8,
            *[self._drop] * 3,
            *[self._make_foreign] * 2,
            *[self._swap] * 2,
            self._rename,
            self._repeat,
            self._add,
            self._borrow,
        )

    def mutant(self) -> bytes:
        """Return a changed document."""
        random = self._random
        # Half of them with as much as possible in them, where more can be wrong.
        some = random.sample(self._trees, min(random.choice((1, 4)), len(self._trees)))
        tree = max(some, key=weight_of)
        document = encoded(self._changed(tree, self._root))
        while random.random() < AGAIN:
            document = encoded(self._changed(parsed_or(document, tree), self._root))
        return self._broken(document) if len(document) > LEAST and random.random() < BROKEN else document

    def _broken(self, document: bytes) -> bytes:
        """Return a document with other bytes; by its length and its end readers find the next one."""
        random = self._random
        changed = bytearray(document)
        for _ in range(random.choice((1, 1, 2))):
            at = random.randrange(4, len(changed) - 1)
            changed[at] = random.choice((changed[at] ^ (1 << random.randrange(8)), random.randrange(256), 0))
        if random.random() < 0.3:
            del changed[random.randrange(4, len(changed) - 1)]
            INT32.pack_into(changed, 0, len(changed))
        return bytes(changed)

    def _changed(self, tree: Tree, known: dict[bytes, int], item: int = -1, names: int = -1) -> list[bytes]:
        """Return the elements of a tree with one change, there or below.

        Args:
            tree: the elements.
            known: the nodes of their values by name.
            item: the node of the value of each, or -1.
            names: the node of the name of each, or -1.
        """
        random = self._random
        parts = [element.raw for element in tree]
        if not tree:
            self._add(Place(tree, parts, 0))
            return parts
        at = self._chosen(tree)
        element = tree[at]
        node = item if item >= 0 else known.get(element.name, -1)
        if element.inner is None or random.random() < 1 / min(element.weight, 8):
            # The names of a map are values, and have but this one change.
            change = self._rename if names >= 0 and random.random() < 0.3 else random.choice(self._changes)
            change(Place(tree, parts, at, node, names))
        else:
            inner = self._changed(element.inner, *self._below(node))
            if element.kind == ARRAY and random.random() < 0.9:
                inner = numbered(inner)
            parts[at] = Element(element.kind, element.name, encoded(inner)).raw
        return parts

    def _chosen(self, tree: Tree) -> int:
        """Return the number of an element: of any one, or mostly of one in which many stand."""
        random = self._random
        if random.random() < 0.5:
            return random.randrange(len(tree))
        left = random.randrange(weight_of(tree))
        for at, element in enumerate(tree):
            left -= element.weight
            if left < 0:
                return at
        raise AssertionError(tree)

    def _below(self, number: int) -> tuple[dict[bytes, int], int, int]:
        """Return the nodes of what stands in a value: by name, of all values, and of all names."""
        if number < 0:
            return {}, -1, -1
        node = self._nodes[number]
        known = {field.name.encode(): field.node for field in node.fields}
        return known, node.item, node.low if node.kind is NodeKind.MAP else -1

    def _come_near(self, place: Place) -> None:
        """Take a value that comes near what the node of the place admits, on either side."""
        random, element = self._random, place.element
        if element.kind == TEXT:
            place.put(Element(TEXT, element.name, raw_text(self._near_text(place))))
        elif element.kind in {INT, LONG}:
            place.put(self._near_number(place))
        elif element.kind == INSTANT:
            old = INT64.unpack(element.value)[0]
            some = random.choice((*MILLISECONDS, old - 3_000, old + 3_000, old - 1))
            place.put(Element(INSTANT, element.name, INT64.pack(max(-(2**63), min(some, 2**63 - 1)))))
        elif element.kind == FLAG:
            place.put(Element(FLAG, element.name, bytes([random.choice((element.value[0] ^ 1, 2))])))
        elif element.inner is not None:
            self._rearrange(place)
        else:
            place.put(Element(1, element.name, DOUBLE.pack(random.choice(DOUBLES))))

    def _near_text(self, place: Place) -> str | bytes:
        random = self._random
        if random.random() < 0.04:
            return random.choice(BAD_TEXTS)
        node = self._nodes[place.node] if place.node >= 0 else None
        if node is not None and node.texts and random.random() < 0.8:
            own = random.choice(node.texts).text if random.random() < 0.6 else random.choice(own_texts(node))
            return own.replace(HEX_DIGIT, "b")
        if random.random() < 0.7:
            return random.choice(self._texts.get(place.node, self._any))
        old = place.element.value[4:-1].decode(errors="replace")
        blank, end = random.choice("  \u2003\x85"), random.choice(("\x00", "\x07", ":", "\u00e9", "A"))
        return random.choice(
            (blank + old, old + blank, old.upper(), old + end, old[1:], old[:1] + end + old[1:])
        )

    def _near_number(self, place: Place) -> Element:
        random, name = self._random, place.element.name
        node = self._nodes[place.node] if place.node >= 0 else None
        near = [*INTS]
        if node is not None and node.kind is NodeKind.INT:
            near += [node.low, node.low - 1, node.high, node.high + 1, node.low + 1] * 3
        number = random.choice([number for number in near if -(2**63) <= number < 2**63])
        if random.random() < 0.15:
            return Element(1, name, DOUBLE.pack(float(number) + random.choice((0.0, 0.5))))
        if -(2**31) <= number < 2**31 and random.random() < 0.5:
            return Element(INT, name, INT32.pack(number))
        return Element(LONG, name, INT64.pack(number))

    def _rearrange(self, place: Place) -> None:
        """Put what stands in a value into another order, or take fewer of it, or more."""
        random, element = self._random, place.element
        inner = [one.raw for one in element.inner or ()]
        match random.randrange(5) if inner else 5:
            case 0:
                inner.reverse()
            case 1:
                random.shuffle(inner)
            case 2:
                inner.insert(random.randrange(len(inner) + 1), random.choice(inner))
            case 3:
                inner *= random.choice((2, 8, 21))
            case _:
                inner = []
        if element.kind == ARRAY:
            inner = numbered(inner)
        place.put(Element(element.kind, element.name, encoded(inner)))

    def _drop(self, place: Place) -> None:
        del place.parts[place.at]

    def _make_foreign(self, place: Place) -> None:
        kind, value = self._random.choice(FOREIGN_RAW)
        place.put(Element(kind, place.element.name, value))

    def _rename(self, place: Place) -> None:
        random, element = self._random, place.element
        own = element.name
        others = [*NAMES, random.choice(place.tree).name, own.upper(), own + b"x", b"_" + own, b"$" + own]
        if place.names >= 0 and random.random() < 0.8:
            near = own.decode(errors="replace")
            text = random.choice((*self._texts[place.names], f" {near}", near.upper(), near.title()))
            others = [text.replace("\x00", "").encode()]
        place.put(Element(element.kind, random.choice(others), element.value))

    def _repeat(self, place: Place) -> None:
        place.parts.insert(self._random.randrange(len(place.parts) + 1), place.parts[place.at])

    def _swap(self, place: Place) -> None:
        parts, other = place.parts, self._random.randrange(len(place.parts))
        parts[place.at], parts[other] = parts[other], parts[place.at]

    def _add(self, place: Place) -> None:
        random = self._random
        kind, value = (
            random.choice(FOREIGN_RAW) if random.random() < 0.5 else raw_value(random.choice(INTS[:6]))
        )
        added = Element(kind, random.choice(NAMES), value).raw
        place.parts.insert(random.randrange(len(place.parts) + 1), added)

    def _borrow(self, place: Place) -> None:
        """Take the value of another element, here or in another document, sometimes with its name."""
        random, element = self._random, place.element
        other = random.choice(random.choice(self._trees) if random.random() < 0.5 else place.tree)
        is_named = random.random() < 0.5 and other.name not in {one.name for one in place.tree}
        place.put(Element(other.kind, other.name if is_named else element.name, other.value))


def weight_of(tree: Tree) -> int:
    """Return how many elements a document is."""
    return sum(element.weight for element in tree)


def numbered(parts: list[bytes]) -> list[bytes]:
    """Return encoded entries of a list under their numbers."""
    return [b"%c%d%b" % (part[0], number, part[part.index(0, 1) :]) for number, part in enumerate(parts)]


def parsed_or(document: bytes, other: Tree) -> Tree:
    """Return the elements of a document; of one that has foreign types or none, those of another one."""
    try:
        return parsed(document) or other
    except (struct.error, ValueError, IndexError):
        return other
