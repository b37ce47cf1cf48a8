"""The bytes of a reader program, as native code reads them.

All numbers are signed, of 64 bits and little-endian (``q``). A text is its number of bytes and its bytes, a
list its number of items and its items.

- program: q version, list of nodes, q root, list of markers, list of q slots of the key, q slot of the tenant
  (-1 for none), q whether the tenant may lack, q slot of the instant of removal (-1 for none), list of
  conditions of the removal (q slot, list of q positions; none of them: it is there)
- marker: text name, q node, q required
- node: q kind, q flags, q low, q high, list of texts (text, q number, q rank), list of fields, list of rules,
  q node of the items (-1), q list rule, q list flags (1 descending, 2 unique by the first key), q most
  entries (-1 for any number), list of q sort keys (number of the field, and 2 to the power of 32 where
  ranked), q number of the field that no two entries share (-1 for none)
- field: text wire name, q node, q presence, q left out, text of the default, q number of the default
- rule: q op, list of operands; operand: list of q numbers of fields (a path), list of q numbers
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from twinstore.fast.nodes import DueWhere, Marked, Node, NodeField, NodeRule, NodeText, Operand
    from twinstore.fast.program import Program

__all__ = ["VERSION", "Writer", "encoded"]

T = TypeVar("T")
VERSION: Final = 1
RANKED: Final = 1 << 32
QUAD: Final = struct.Struct("<q")


class Writer:
    """Writes numbers, texts and lists one behind the other; drivers write their layouts with it too."""

    def __init__(self) -> None:
        """Begin with nothing."""
        self._parts = bytearray()

    def number(self, value: int) -> None:
        """Write a number of 64 bits."""
        self._parts += QUAD.pack(value)

    def numbers(self, values: Iterable[int]) -> None:
        """Write a list of numbers."""
        self.many(list(values), self.number)

    def text(self, value: bytes | str) -> None:
        """Write a text."""
        data = value.encode() if isinstance(value, str) else value
        self.number(len(data))
        self._parts += data

    def many(self, values: Sequence[T], write: Callable[[T], None]) -> None:
        """Write a list, each item by ``write``."""
        self.number(len(values))
        for value in values:
            write(value)

    def tobytes(self) -> bytes:
        """Return what was written."""
        return bytes(self._parts)


def encoded(program: Program) -> bytes:
    """Return the bytes of a program."""
    writer = Writer()
    writer.number(VERSION)
    writer.many(program.nodes, lambda node: _node(writer, node))
    writer.number(program.root)
    writer.many(program.markers, lambda marker: _marker(writer, marker))
    writer.numbers(program.key)
    writer.number(_slot(program.tenant))
    writer.number(program.tenant_may_lack)
    writer.number(_slot(program.expires))
    writer.many(program.due_where, lambda condition: _condition(writer, condition))
    return writer.tobytes()


def _slot(number: int | None) -> int:
    return -1 if number is None else number


def _marker(writer: Writer, marker: Marked) -> None:
    writer.text(marker.name)
    writer.number(marker.node)
    writer.number(marker.required)


def _condition(writer: Writer, condition: DueWhere) -> None:
    writer.number(condition.slot)
    writer.numbers(condition.numbers)


def _node(writer: Writer, node: Node) -> None:
    for number in (node.kind, node.flags, node.low, node.high):
        writer.number(number)
    writer.many(node.texts, lambda text: _text(writer, text))
    writer.many(node.fields, lambda field: _field(writer, field))
    writer.many(node.rules, lambda rule: _rule(writer, rule))
    for number in (node.item, node.list_rule, node.descending | node.unique << 1, node.limit):
        writer.number(number)
    writer.numbers(key.field | (RANKED if key.ranked else 0) for key in node.keys)
    writer.number(node.distinct)


def _text(writer: Writer, text: NodeText) -> None:
    writer.text(text.text)
    writer.number(text.number)
    writer.number(text.rank)


def _field(writer: Writer, field: NodeField) -> None:
    writer.text(field.name)
    for number in (field.node, field.presence, field.left_out):
        writer.number(number)
    writer.text(field.default)
    writer.number(field.number)


def _rule(writer: Writer, rule: NodeRule) -> None:
    writer.number(rule.op)
    writer.many(rule.operands, lambda operand: _operand(writer, operand))


def _operand(writer: Writer, operand: Operand) -> None:
    writer.numbers(operand.path)
    writer.numbers(operand.numbers)
