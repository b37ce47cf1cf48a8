"""Documents changed at the level of BSON: other types, names, orders and values, and broken bytes."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final

import bson
from bson import Binary, Code, DBRef, Decimal128, Int64, MaxKey, MinKey, ObjectId, Regex, Timestamp

from tests.fast.texts import odd_texts
from tests.fast.trees import ARRAY, DOCUMENT, TEXT, Element, Tree, encoded, parsed
from twinstore.fast.nodes import NodeKind, Presence

if TYPE_CHECKING:
    from random import Random

    from twinstore.fast.nodes import Node
    from twinstore.fast.program import Program

__all__ = ["Mutator"]

INT32: Final = struct.Struct("<i")
INT64: Final = struct.Struct("<q")
DOUBLE: Final = struct.Struct("<d")
INSTANT: Final = 9
INTS: Final = (0, 1, -1, 2, 5, 20, 21, 2**31 - 1, 2**31, -(2**31), -(2**31) - 1, 2**53, 2**53 + 1, 2**63 - 1, -(2**63))
DOUBLES: Final = (0.0, -0.0, 1.0, 3.0, -1.0, 0.5, 1e-5, 1e-7, 5e-324, 2.2e-308, 1e16, 1e22, 1e300, 2.0**53, 2.0**63, float("inf"), float("nan"), 0.1, 1 / 3)
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
FOREIGN: Final = (
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
NAMES: Final = (b"", b"_id", b"id", b"_version", b"_x", b"_\xc3\xa9", b"$ref", b"$id", b"a.b", b"\xff", b"cronExpression", b"concelierExportId", b"excititorExportId", b"name")
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
        texts = {NodeKind.TEXT, NodeKind.ENUM, NodeKind.CONST}
        self._texts = {number: odd_texts(node if node.kind in texts else None) for number, node in enumerate(program.nodes)}
        self._any = odd_texts(None)
        self._changes = (
            *[self._near] * 8,
            *[self._dropped] * 3,
            *[self._foreign] * 2,
            self._renamed,
            self._repeated,
            *[self._swapped] * 2,
            self._added,
            self._borrowed,
        )

    def mutant(self) -> bytes:
        """Return a changed document."""
        random = self._random
        tree = random.choice(self._trees)
        document = encoded(self._changed(tree, self._root, -1))
        if random.random() < 0.15:
            document = encoded(self._changed(parsed_or(document, tree), self._root, -1))
        return self._broken(document) if len(document) > LEAST and random.random() < 0.03 else document

    def _broken(self, document: bytes) -> bytes:
        """Return a document with other bytes between its length and its end, by which readers find the next."""
        random = self._random
        changed = bytearray(document)
        for _ in range(random.choice((1, 1, 2))):
            at = random.randrange(4, len(changed) - 1)
            changed[at] = random.choice((changed[at] ^ (1 << random.randrange(8)), random.randrange(256), 0))
        if random.random() < 0.3:
            del changed[random.randrange(4, len(changed) - 1)]
            INT32.pack_into(changed, 0, len(changed))
        return bytes(changed)

    def _changed(self, tree: Tree, names: dict[bytes, int], item: int) -> list[bytes]:
        """Return the elements of a tree with one change, there or below."""
        random = self._random
        parts = [element.raw for element in tree]
        if not tree:
            return self._added(tree, parts, 0, -1)
        # Lists are short, and what stands in them is judged apart from what stands beside it.
        at = random.randrange(len(tree))
        element = tree[at]
        node = item if item >= 0 else names.get(element.name, -1)
        if element.inner is not None and random.random() < 0.7:
            inner, entries = self._below(node)
            parts[at] = Element(element.kind, element.name, encoded(self._changed(element.inner, inner, entries))).raw
            if element.kind == ARRAY:
                parts[at] = self._numbered(parts[at], element.name)
            return parts
        return random.choice(self._changes)(tree, parts, at, node)

    def _numbered(self, raw: bytes, name: bytes) -> bytes:
        """Return a list whose entries have their numbers as names, mostly; others are malformed."""
        if self._random.random() < 0.1:
            return raw
        tree = parsed_or(raw[2 + len(name) :], None)
        if tree is None:
            return raw
        for number, element in enumerate(tree):
            element.name = str(number).encode()
        return Element(ARRAY, name, encoded([element.raw for element in tree])).raw

    def _below(self, number: int) -> tuple[dict[bytes, int], int]:
        """Return the nodes of what stands in a value by name, or the one node of all of it."""
        if number < 0:
            return {}, -1
        node = self._nodes[number]
        return {field.name.encode(): field.node for field in node.fields}, node.item

    def _near(self, tree: Tree, parts: list[bytes], at: int, number: int) -> list[bytes]:
        """Return the elements with one value that comes near what its node admits."""
        random, element = self._random, tree[at]
        node = self._nodes[number] if number >= 0 else None
        if element.kind == TEXT:
            texts = self._texts.get(number, self._any)
            value: str | bytes = random.choice(texts)
            if random.random() < 0.3:
                old = element.value[4:-1].decode(errors="replace")
                value = random.choice((f" {old}", f"{old} ", f"{old}\u2003", old.upper(), f"{old}\x00", f"{old}\x07", f"{old}:", old[1:], f"{old}é"))
            elif random.random() < 0.05:
                value = random.choice(BAD_TEXTS)
            new = Element(TEXT, element.name, raw_text(value))
        elif element.kind in {0x10, 0x12}:
            new = self._integer(element, node)
        elif element.kind == INSTANT:
            old_instant = INT64.unpack(element.value)[0]
            some = random.choice((*MILLISECONDS, old_instant - 3_000, old_instant + 3_000, old_instant - 1))
            new = Element(INSTANT, element.name, INT64.pack(max(-(2**63), min(some, 2**63 - 1))))
        elif element.kind == 8:
            new = Element(8, element.name, bytes([random.choice((element.value[0] ^ 1, element.value[0] ^ 1, 2))]))
        elif element.inner is not None:
            return self._rearranged(tree, parts, at)
        else:
            new = Element(1, element.name, DOUBLE.pack(random.choice(DOUBLES)))
        parts[at] = new.raw
        return parts

    def _integer(self, element: Element, node: Node | None) -> Element:
        random = self._random
        near = [*INTS]
        if node is not None and node.kind is NodeKind.INT:
            near += [node.low, node.low - 1, node.high, node.high + 1, node.low + 1] * 3
        number = random.choice([number for number in near if -(2**63) <= number < 2**63])
        if random.random() < 0.15:
            return Element(1, element.name, DOUBLE.pack(float(number) + random.choice((0.0, 0.5))))
        if -(2**31) <= number < 2**31 and random.random() < 0.5:
            return Element(0x10, element.name, INT32.pack(number))
        return Element(0x12, element.name, INT64.pack(number))

    def _rearranged(self, tree: Tree, parts: list[bytes], at: int) -> list[bytes]:
        """Return the elements with one whose own elements are in another order, or fewer, or more."""
        random, element = self._random, tree[at]
        inner = list(element.inner or ())
        if inner:
            choice = random.randrange(5)
            if choice == 0:
                inner.reverse()
            elif choice == 1:
                random.shuffle(inner)
            elif choice == 2:
                inner.insert(random.randrange(len(inner) + 1), random.choice(inner))
            elif choice == 3:
                inner = []
            else:
                inner *= random.choice((2, 8, 21))
        if element.kind == ARRAY:
            inner = [Element(one.kind, str(number).encode(), one.value) for number, one in enumerate(inner)]
        parts[at] = Element(element.kind, element.name, encoded([one.raw for one in inner])).raw
        return parts

    def _dropped(self, tree: Tree, parts: list[bytes], at: int, number: int) -> list[bytes]:
        del parts[at]
        return parts

    def _foreign(self, tree: Tree, parts: list[bytes], at: int, number: int) -> list[bytes]:
        kind, value = self._random.choice(FOREIGN_RAW)
        parts[at] = Element(kind, tree[at].name, value).raw
        return parts

    def _renamed(self, tree: Tree, parts: list[bytes], at: int, number: int) -> list[bytes]:
        random, element = self._random, tree[at]
        others = (*NAMES, random.choice(tree).name, element.name.upper(), element.name + b"x", b"_" + element.name)
        parts[at] = Element(element.kind, random.choice(others), element.value).raw
        return parts

    def _repeated(self, tree: Tree, parts: list[bytes], at: int, number: int) -> list[bytes]:
        parts.insert(self._random.randrange(len(parts) + 1), parts[at])
        return parts

    def _swapped(self, tree: Tree, parts: list[bytes], at: int, number: int) -> list[bytes]:
        other = self._random.randrange(len(parts))
        parts[at], parts[other] = parts[other], parts[at]
        return parts

    def _added(self, tree: Tree, parts: list[bytes], at: int, number: int) -> list[bytes]:
        random = self._random
        kind, value = random.choice(FOREIGN_RAW) if random.random() < 0.5 else raw_value(random.choice(INTS[:6]))
        parts.insert(random.randrange(len(parts) + 1), Element(kind, random.choice(NAMES), value).raw)
        return parts

    def _borrowed(self, tree: Tree, parts: list[bytes], at: int, number: int) -> list[bytes]:
        """Return the elements with a value of another one, or of another document."""
        random, element = self._random, tree[at]
        other = random.choice(random.choice(self._trees)) if random.random() < 0.5 else random.choice(tree)
        name = other.name if random.random() < 0.3 and other.name not in {one.name for one in tree} else element.name
        parts[at] = Element(other.kind, name, other.value).raw
        return parts


def parsed_or(document: bytes, other: Tree | None) -> Tree | None:
    """Return the elements of a document; of one that has foreign types, those of another one."""
    try:
        return parsed(document)
    except (struct.error, ValueError, IndexError):
        return other
