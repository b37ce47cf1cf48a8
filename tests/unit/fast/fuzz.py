"""Whether native code accepts only what the product accepts, and makes the same of it.

``python -m tests.unit.fast.fuzz --documents N --seed S`` tries as many documents as are asked for and prints
what became of them. Rows are drawn from the programs, their documents are changed at the level of BSON, and
programs are weakened by one check each.
"""

from __future__ import annotations

import argparse
import math
import struct
import sys
from base64 import b64encode
from collections import Counter
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from random import Random
from typing import TYPE_CHECKING, Final
from uuid import UUID

import bson
import pydantic
from bson import Binary, Code, DBRef, Decimal128, Int64, MaxKey, MinKey, ObjectId, Regex, Timestamp

from tests.unit.fast.exact_way import Oracle
from tests.unit.fast.programs import programs
from tests.unit.fast.texts import fitting_text, odd_texts, own_texts
from tests.unit.fast.trees import ARRAY, BINARY, TEXT, Element, Tree, encoded, parsed
from twinstore.catalog.row import Row
from twinstore.fast.library import fast_path
from twinstore.fast.nodes import (
    HEX_DIGIT,
    NO_LIMIT,
    ListRule,
    Node,
    NodeField,
    NodeKind,
    NodeRule,
    Operand,
    Presence,
    RuleOp,
    TextFlag,
)
from twinstore.models.shapes import ValueShape, shapes_of
from twinstore.testing.scalars import TYPED_OBJECTS
from twinstore_mongo.bulk.records import documents_of
from twinstore_mongo.mapping.codec import codec_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from twinstore.fast.program import Program
    from twinstore.models.canonical import CanonicalModel

EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
INSTANTS: Final = (
    -62135596800000,
    -1,
    0,
    1,
    999,
    1_000,
    1_700_000_000_000,
    4_102_444_800_123,
    253402300799999,
)
FREE_NAMES: Final = ("a", "b", "B", "size", "Näme", "x.y", "_id", 'quo"te', "line\n", "漢", "")
FREE_VALUES: Final = (
    None,
    True,
    False,
    0,
    -1,
    2**31,
    -(2**63),
    2**63 - 1,
    0.5,
    -2.25,
    1e-5,
    1.5e-9,
    123456.789,
    0.1,
    "",
    "text",
    'é \\ " \t',
)
DEEP: Final = 3
TRIES: Final = 20_000


class Generator:
    """Makes rows that the model admits, by the nodes of its program, and has the model judge them."""

    def __init__(self, program: Program, random: Random) -> None:
        """Take the program and the source of chance."""
        self.program = program
        self.entity = program.entity
        self._random = random
        self._codec = codec_of(program.entity)

    def document(self) -> bytes:
        """Return the document of a random row as the driver writes it."""
        row = self.row()
        return bson.encode(self._codec.encode(row, Int64(self._random.choice((1, 7, 2**40)))))

    def row(self) -> Row[CanonicalModel]:
        """Return a random row."""
        nodes = self.program.nodes
        storage = {
            marker.name: self._value(nodes[marker.node])
            for marker in self.program.markers
            if marker.required or self._random.random() < 0.5
        }
        return Row(self._model(), storage)

    def _model(self) -> CanonicalModel:
        return self._kept(self.program.nodes[self.program.root], self.entity.model)[1]

    def _kept(self, node: Node, model: type[CanonicalModel]) -> tuple[dict[str, object], CanonicalModel]:
        """Return random values that keep the rules of a model, and the model of them."""
        problem, wire = "", dict[str, object]()
        for _ in range(TRIES):
            wire = self._object(node, model, wire)
            try:
                return wire, model.model_validate(wire)
            except pydantic.ValidationError as error:
                problem = str(error)
        raise AssertionError(f"no random {model.__name__} keeps the rules: {problem}")

    def _object(
        self, node: Node, model: type[CanonicalModel], before: dict[str, object]
    ) -> dict[str, object]:
        """Return random values; nested ones are mostly those that were made before, since they cost most."""
        shapes = {shape.wire: shape.value for shape in shapes_of(model)}
        found: dict[str, object] = {}
        for entry in filter(self._has, node.fields):
            old = before.get(entry.name)
            keeps = isinstance(old, (dict, list)) and self._random.random() < 0.9
            found[entry.name] = (
                old if keeps else self._value(self.program.nodes[entry.node], shapes[entry.name])
            )
        return found

    def _has(self, field: NodeField) -> bool:
        return field.presence is Presence.REQUIRED or self._random.random() < 0.6

    def _value(self, node: Node, shape: ValueShape | None = None) -> object:
        random = self._random
        scalars: dict[NodeKind, Callable[[], object]] = {
            NodeKind.TEXT: lambda: fitting_text(node, random),
            NodeKind.INT: lambda: self._integer(node),
            NodeKind.FLAG: lambda: random.random() < 0.5,
            NodeKind.INSTANT: self._instant,
            NodeKind.ENUM: lambda: random.choice(node.texts).text,
            NodeKind.CONST: lambda: node.texts[0].text,
            NodeKind.NUMBER: lambda: random.choice((0.5, 3, 12345.678, 1e-7, -0.25, 2**40)),
            NodeKind.OBJECT_ID: lambda: random.randbytes(12).hex(),
            NodeKind.UUID: lambda: str(UUID(bytes=random.randbytes(16))),
            NodeKind.DECIMAL: self._decimal,
            NodeKind.BYTES: lambda: b64encode(random.randbytes(random.randrange(9))).decode(),
        }
        make = scalars.get(node.kind)
        return self._nested(node, shape) if make is None else make()

    def _nested(self, node: Node, shape: ValueShape | None) -> object:
        if node.kind is NodeKind.OBJECT and shape is not None:
            return self._kept(node, shape.model)[0]
        if node.kind is NodeKind.LIST and shape is not None:
            return self._list(node, shape)
        if node.kind is NodeKind.MAP:
            names = (fitting_text(self.program.nodes[node.low], self._random) for _ in range(self._count(3)))
            # The driver writes such names, but the client makes references of them.
            return {name: self._value(self.program.nodes[node.item]) for name in names if name[:1] != "$"}
        return self._free(0)

    def _integer(self, node: Node) -> int:
        random = self._random
        near = (
            node.low,
            node.low + 1,
            node.high,
            node.high - 1,
            0,
            1,
            5,
            random.randrange(100),
            2**31,
            -(2**31) - 1,
        )
        return random.choice([number for number in near if node.low <= number <= node.high])

    def _decimal(self) -> str:
        digits = self._random.choice((0, 5, 10**7, 10**33, 10**34 - 1, self._random.randrange(10**9)))
        sign = "-" if digits and self._random.random() < 0.3 else ""
        return f"{sign}{Decimal(f'{digits}E-{self._random.choice((0, 1, 2, 34))}'):f}"

    def _instant(self) -> datetime:
        random = self._random
        some = (
            random.choice(INSTANTS) if random.random() < 0.1 else 1_700_000_000_000 + random.randrange(3_000)
        )
        return EPOCH + timedelta(milliseconds=some)

    def _count(self, most: int) -> int:
        some = self._random.randrange(most + 1)
        return some if self._random.random() < 0.4 else min(some, self._random.randrange(most + 1))

    def _list(self, node: Node, shape: ValueShape) -> list[object]:
        item = self.program.nodes[node.item]
        most = 4 if node.limit < 0 else min(4, node.limit)
        found = [self._value(item, shape.item) for _ in range(self._count(most))]
        if node.list_rule is ListRule.SET:
            return [text for text in found if text]
        return found

    def _free(self, depth: int) -> dict[str, object]:
        random = self._random
        return {random.choice(FREE_NAMES): self._free_value(depth) for _ in range(self._count(4))}

    def _free_value(self, depth: int) -> object:
        random = self._random
        if depth < DEEP and random.random() < 0.3:
            return (
                [self._free_value(depth + 1) for _ in range(self._count(3))]
                if random.random() < 0.5
                else self._free(depth + 1)
            )
        value = random.choice(FREE_VALUES)
        if isinstance(value, float) and random.random() < 0.5:
            value = (
                random.uniform(-1e6, 1e6)
                if random.random() < 0.5
                else math.ldexp(random.random(), random.randrange(-60, 30))
            )
        return value


INT32: Final = struct.Struct("<i")
INT64: Final = struct.Struct("<q")
DOUBLE: Final = struct.Struct("<d")
FLAG: Final = 8
INSTANT: Final = 9
INT: Final = 0x10
LONG: Final = 0x12
# Of binary data, ObjectIds and decimals any byte is part of a value.
FIXED: Final = frozenset({BINARY, 7, 0x13})
TEXTUAL: Final = frozenset({NodeKind.TEXT, NodeKind.ENUM, NodeKind.CONST})
# The share of documents that are changed again, and of those whose bytes are broken.
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
    *TYPED_OBJECTS,
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
    b"$oid",
    b"$numberDecimal",
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
    """Changes documents of one entity; the program's rule for a place decides which values come near it."""

    def __init__(self, program: Program, documents: list[bytes], random: Random) -> None:
        """Take the program, documents that it takes, and the source of chance."""
        self._random = random
        self._nodes = program.nodes
        self._trees = [parsed(document) for document in documents]
        self._root = {field.name.encode(): field.node for field in program.nodes[program.root].fields}
        self._root |= {marker.name.encode(): marker.node for marker in program.markers}
        self._root |= {b"_" + marker.name.encode(): marker.node for marker in program.markers}
        # Of the one that is stored as ``_id``, which is a part of the key wherever it is one.
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
        """Return the number of an element: of any one, or mostly of one that contains many."""
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
        """Return the nodes of the content of a value: by name, of all values, and of all names."""
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
        elif element.kind in FIXED:
            value = bytearray(element.value)
            # Behind the length, where there is one.
            least = 4 if element.kind == BINARY else 0
            value[random.randrange(least, len(value))] ^= 1 << random.randrange(8)
            place.put(Element(element.kind, element.name, bytes(value)))
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
        """Put the elements of a value into another order, or remove some, or add some."""
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


# Rows that documents of one entity are changed from.
BASES: Final = 60
BATCH: Final = 4_000


@dataclass(frozen=True, slots=True)
class Taken:
    """A document that native code accepted, with the row that it made."""

    raw: bytes
    row: bytes


@dataclass(frozen=True, slots=True)
class Fault:
    """A document that native code accepted and should not have, or not so."""

    name: str
    raw: bytes
    problem: str

    def __str__(self) -> str:
        """Return what a failing test says."""
        return f"{self.name}: {self.problem}\n  bytes.fromhex('{self.raw.hex()}')"


@dataclass(slots=True)
class Outcome:
    """What became of the documents."""

    counts: Counter[str] = field(default_factory=Counter[str])
    faults: list[Fault] = field(default_factory=list[Fault])


def taken(program: Program, raws: Sequence[bytes]) -> list[Taken]:
    """Return the documents that native code accepts by a program, with their rows."""
    library = fast_path().library
    assert library is not None, str(fast_path())
    documents = documents_of(library, program)
    assert documents is not None
    joined = b"".join(raws)
    found = documents.read(joined)
    assert found is not None
    rows, places = found.rows.tobytes(), memoryview(found.places).cast("I")
    ends = [*places[3::3], len(rows)]
    return [
        Taken(joined[places[at + 1] : places[at + 1] + places[at + 2]], rows[places[at] : ends[at // 3]])
        for at in range(0, len(places), 3)
    ]


def mutants(program: Program, random: Random, count: int, *, bases: int = BASES) -> Iterator[bytes]:
    """Yield changed documents of an entity, each changed from one of a few."""
    generator = Generator(program, random)
    mutator = Mutator(program, [generator.document() for _ in range(bases)], random)
    for _ in range(count):
        yield mutator.mutant()


def fuzz(documents: int, seed: int, *, names: Sequence[str] = ()) -> Outcome:
    """Try changed documents of all entities, or of some, about as many of each."""
    found = {name: program for name, program in programs().items() if not names or name in names}
    outcome = Outcome()
    share = -(-documents // len(found))
    for name, program in found.items():
        left = share
        while left > 0:
            count = min(left, BATCH)
            _try(name, program, list(mutants(program, Random(f"{seed} {name} {left}"), count)), outcome)
            left -= count
    return outcome


def _try(name: str, program: Program, raws: list[bytes], outcome: Outcome) -> None:
    oracle = Oracle(program)
    accepted = taken(program, raws)
    outcome.counts["documents"] += len(raws)
    outcome.counts["accepted"] += len(accepted)
    for item in accepted:
        problem = oracle.wrong(item.raw, item.row)
        if problem:
            outcome.faults.append(Fault(name, item.raw, problem))


def main() -> int:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--documents", type=int, default=200_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "names", nargs="*", help="entities such as scheduler.runs; default: all with a program"
    )
    arguments = parser.parse_args()
    outcome = fuzz(arguments.documents, arguments.seed, names=arguments.names)
    counts = outcome.counts
    print(  # noqa: T201  # its answer
        f"{counts['documents']:,} documents, {counts['accepted']:,} accepted, {len(outcome.faults):,} faults"
    )
    for fault in outcome.faults[:20]:
        print(fault)  # noqa: T201  # as above
    return bool(outcome.faults)


INT64_MIN: Final = -(2**63)
INT64_MAX: Final = 2**63 - 1
# Of these a rule needs at least this many operands.
LEAST_OPERANDS: Final = {RuleOp.SUM_AT_MOST: 2, RuleOp.NOT_BEFORE: 2, RuleOp.ALL_OR_NONE: 2}


def weakened(program: Program) -> Iterator[tuple[str, Program]]:
    """Yield programs without one of the checks of a program."""
    for number, node in enumerate(program.nodes):
        place = f"{number} {node.kind.name}"
        for what, other in _weaker(node):
            nodes = (*program.nodes[:number], other, *program.nodes[number + 1 :])
            slots = tuple(
                replace(slot, kind=other.kind) if slot.node == number else slot for slot in program.slots
            )
            yield f"{place} {what}", replace(program, nodes=nodes, slots=slots)
    for number, marker in enumerate(program.markers):
        if marker.required:
            markers = list(program.markers)
            markers[number] = replace(marker, required=False)
            yield f"marker {marker.name} required", replace(program, markers=tuple(markers))


def _weaker(node: Node) -> Iterator[tuple[str, Node]]:
    match node.kind:
        case NodeKind.TEXT:
            yield from _weaker_text(node)
        case NodeKind.INT:
            if node.low > INT64_MIN:
                yield "least", replace(node, low=INT64_MIN)
            if node.high < INT64_MAX:
                yield "most", replace(node, high=INT64_MAX)
        case NodeKind.ENUM | NodeKind.CONST:
            # What the fuzz tries too.
            others = [replace(text, text=text.text.upper()) for text in node.texts]
            yield "texts", replace(node, texts=(*node.texts[node.kind is NodeKind.CONST :], *others))
        case NodeKind.OBJECT:
            yield from _weaker_object(node)
        case NodeKind.LIST:
            yield from _weaker_list(node)
        case NodeKind.JSON if node.flags:
            yield "lower names", replace(node, flags=0)
        case _:
            pass


def _weaker_text(node: Node) -> Iterator[tuple[str, Node]]:
    for flag in TextFlag(node.flags):
        texts = () if flag in {TextFlag.TEMPLATE, TextFlag.LISTED} else node.texts
        yield flag.name or "", replace(node, flags=node.flags & ~flag, texts=texts)
    if node.high != NO_LIMIT:
        yield "length", replace(node, high=NO_LIMIT)


def _weaker_object(node: Node) -> Iterator[tuple[str, Node]]:
    for number, entry in enumerate(node.fields):
        for what, other in _weaker_field(entry):
            fields = (*node.fields[:number], other, *node.fields[number + 1 :])
            yield f"{entry.name} {what}", replace(node, fields=fields)
    for number, rule in enumerate(node.rules):
        for what, rules in (("", ()), *((what, (other,)) for what, other in _weaker_rule(rule))):
            kept = (*node.rules[:number], *rules, *node.rules[number + 1 :])
            yield f"rule {number} {rule.op.name} {what}", replace(node, rules=kept)


def _weaker_field(field: NodeField) -> Iterator[tuple[str, NodeField]]:
    if field.presence is Presence.REQUIRED:
        yield "required", replace(field, presence=Presence.OPTIONAL)
    if field.presence is Presence.DEFAULT and not field.left_out:
        yield "default", NodeField(name=field.name, node=field.node)
    if field.left_out:
        yield "left out", replace(field, left_out=False)


def _weaker_rule(rule: NodeRule) -> Iterator[tuple[str, NodeRule]]:
    """Yield a rule that looks at one thing less."""
    least = LEAST_OPERANDS.get(rule.op)
    for number in range(1, len(rule.operands)) if least is not None and len(rule.operands) > least else ():
        operands = (*rule.operands[:number], *rule.operands[number + 1 :])
        yield f"operand {number}", NodeRule(rule.op, operands)
    for number, operand in enumerate(rule.operands):
        for position in operand.numbers if len(operand.numbers) > 1 else ():
            fewer = Operand(operand.path, tuple(item for item in operand.numbers if item != position))
            operands = (*rule.operands[:number], fewer, *rule.operands[number + 1 :])
            yield f"member {position}", NodeRule(rule.op, operands)


def _weaker_list(node: Node) -> Iterator[tuple[str, Node]]:
    if node.list_rule is not ListRule.NONE:
        yield node.list_rule.name, replace(node, list_rule=ListRule.NONE, keys=(), unique=False, distinct=-1)
    if node.unique:
        yield "unique", replace(node, unique=False)
    if node.distinct >= 0:
        yield "distinct", replace(node, distinct=-1)
    if node.limit >= 0:
        yield "limit", replace(node, limit=NO_LIMIT)
    if node.list_rule is ListRule.ORDERED:
        yield "direction", replace(node, descending=not node.descending)
    for number in range(1, len(node.keys)):
        yield f"key {number}", replace(node, keys=node.keys[:number])
    if any(key.ranked for key in node.keys):
        yield "ranks", replace(node, keys=tuple(replace(key, ranked=False) for key in node.keys))


if __name__ == "__main__":
    sys.exit(main())
