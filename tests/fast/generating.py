"""Random rows of any entity that has a program, and their documents as the driver writes them."""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final

import bson
import pydantic
from bson import Int64

from tests.fast.texts import fitting_text
from twinstore.catalog.row import Row
from twinstore.fast.nodes import ListRule, NodeKind, Presence
from twinstore.models.shapes import ValueShape, shapes_of
from twinstore_mongo.mapping.codec import codec_of

if TYPE_CHECKING:
    from collections.abc import Callable
    from random import Random

    from twinstore.fast.nodes import Node, NodeField
    from twinstore.fast.program import Program
    from twinstore.models.canonical import CanonicalModel

__all__ = ["Generator"]

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
        for field in filter(self._has, node.fields):
            old = before.get(field.name)
            keeps = isinstance(old, (dict, list)) and self._random.random() < 0.9
            found[field.name] = (
                old if keeps else self._value(self.program.nodes[field.node], shapes[field.name])
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
