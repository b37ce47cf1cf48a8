"""The parts of a reader program: what a document must look like for native code to take it.

The numbers are those of :mod:`twinstore.fast.program`; native code has the same numbers in a header.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import IntEnum, IntFlag
from typing import Final

ABSENT_NODE: Final = -1
NO_LIMIT: Final = -1


class NodeKind(IntEnum):
    """What a value is."""

    TEXT = 0
    INT = 1
    FLAG = 2
    INSTANT = 3
    ENUM = 4
    CONST = 5
    OBJECT = 6
    LIST = 7
    MAP = 8
    JSON = 9
    NUMBER = 10
    OBJECT_ID = 11
    UUID = 12
    DECIMAL = 13
    BYTES = 14


class TextFlag(IntFlag):
    """What a text must be; of a map, what its names must be."""

    NONE = 0
    TRIM = 1
    """No blank and no control character at either end."""
    NONEMPTY = 2
    NO_CONTROL = 4
    TENANT = 8
    """No colon, and not the reserved name of every tenant."""
    DIGEST = 16
    """``sha256:`` and 64 lower-case hexadecimal digits."""
    NO_NUL = 32
    IDENTIFIER = 64
    """Lower-case ASCII letters, digits and ``._:-``; the first is a letter or a digit."""
    LOWER = 128
    """ASCII without upper-case letters; what else is in lower case is declined, since languages differ."""
    TEMPLATE = 256
    """As long as the one text of the node and equal to it, but for :data:`HEX_DIGIT`."""
    LISTED = 512
    """One of the texts of the node, which rise by their bytes."""
    CRON = 1024
    """A cron expression of five fields of numbers, in its collapsed form, that surely fires."""


HEX_DIGIT: Final = "\x01"
"""Represents a lower-case hexadecimal digit in a template."""
LOWER_KEYS: Final = 1
"""The flag of free JSON whose names of the first level are ASCII without upper-case letters."""
PRESERVE_ORDER: Final = 2
"""The flag of a map of which the model leaves the names in the order in which they are stored."""


class Presence(IntEnum):
    """What a field that is not there means."""

    OPTIONAL = 0
    REQUIRED = 1
    DEFAULT = 2


class ListRule(IntEnum):
    """What the entries of a list must be together, in addition to the node of each entry."""

    NONE = 0
    SET = 1
    """Texts that are not empty and strictly rise by their bytes."""
    ORDERED = 2
    """In the order of the sort keys; neighbours that are equal in all of them stay as they are."""
    RISING = 3
    """Strictly rising, and empty texts are admitted."""
    DISTINCT = 4
    """Texts or integers in any order, none of them twice."""


class RuleOp(IntEnum):
    """The kinds of rules, in the order of :mod:`twinstore.models.rules`."""

    FIELD_AT_MOST = 0
    SUM_AT_MOST = 1
    LENGTH_AT_MOST = 2
    NOT_BEFORE = 3
    PRESENT_EXACTLY_IN = 4
    PRESENT_IN = 5
    ABSENT_IN = 6
    PRESENT_EXACTLY_WHEN = 7
    ALL_OR_NONE = 8
    REQUIRES_ENTRY = 9
    EQUAL_OR_ABSENT = 10
    EQUAL_EXACTLY_IN = 11
    FIRST_OF = 12


@dataclass(frozen=True, slots=True)
class NodeText:
    """A text of an enumeration, or the text of a constant; ``rank`` is its place where a list sorts by it."""

    text: str
    number: int = 0
    rank: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeField:
    """A field of an object.

    Attributes:
        name: its wire name.
        node: the number of the node of its value.
        presence: what it means that it is not there.
        left_out: whether the wire form leaves it out where it has its default; a document that holds exactly
            the default is declined, and where it is not there nothing is emitted. Rules see the default.
        default: the JSON of the default, with the fields of models as native code orders them; empty where
            there is none.
        number: what rules see of the default: an integer, a flag as 0 or 1, the position of an enumeration,
            the number of entries of a list.
    """

    name: str
    node: int
    presence: Presence = Presence.OPTIONAL
    left_out: bool = False
    default: bytes = b""
    number: int = 0


@dataclass(frozen=True, slots=True)
class Operand:
    """What a rule reads: a path of field numbers from the object of the rule, and further numbers.

    The numbers are positions in the texts of the enumeration at the path.
    """

    path: tuple[int, ...]
    numbers: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class NodeRule:
    """A rule between fields.

    The operands by kind, as :mod:`twinstore.models.rules` names them; in brackets the numbers next to a path:

    - FIELD_AT_MOST: field, limit
    - SUM_AT_MOST: limit, fields...
    - LENGTH_AT_MOST: field, limit
    - NOT_BEFORE: field, earlier...
    - PRESENT_EXACTLY_IN, PRESENT_IN, ABSENT_IN: field, by (members)
    - PRESENT_EXACTLY_WHEN: field, flag
    - ALL_OR_NONE: fields...
    - REQUIRES_ENTRY: for each entry two operands: by (member), field
    - EQUAL_OR_ABSENT: field, other
    - EQUAL_EXACTLY_IN: field (value), by (members)
    - FIRST_OF: field, items
    """

    op: RuleOp
    operands: tuple[Operand, ...]


@dataclass(frozen=True, slots=True)
class SortKey:
    """A field of the entries of a list by which they are sorted; ``ranked``: by the ranks of its texts."""

    field: int
    ranked: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """A value: what it is and what it must be. What is of no use to its kind stays as it is here.

    Attributes:
        kind: what it is.
        flags: of a text :class:`TextFlag`; of free JSON :data:`LOWER_KEYS`; of a map
            :data:`PRESERVE_ORDER`.
        low: of an integer the least one; of a map the node of its names, which is a text.
        high: of an integer the greatest one; of a text the most code points, -1 for any number.
        texts: of an enumeration all, of a constant the one, of a text a template or a list.
        fields: of an object, in canonical order.
        rules: of an object.
        item: of a list or map the node of its values.
        list_rule: of a list.
        descending: whether the order of a list is descending by all of its keys.
        unique: whether no two neighbours of an ordered list are equal in the first key.
        limit: of a list the most entries, -1 for any number.
        keys: of an ordered list, the deciding one first.
        distinct: of an ordered list the field in which no two entries are equal, at any distance; -1 for
            none.
    """

    kind: NodeKind
    flags: int = 0
    low: int = 0
    high: int = NO_LIMIT
    texts: tuple[NodeText, ...] = ()
    fields: tuple[NodeField, ...] = ()
    rules: tuple[NodeRule, ...] = ()
    item: int = ABSENT_NODE
    list_rule: ListRule = ListRule.NONE
    descending: bool = False
    unique: bool = False
    limit: int = NO_LIMIT
    keys: tuple[SortKey, ...] = ()
    distinct: int = -1


@dataclass(frozen=True, slots=True)
class MarkerNode:
    """A storage marker: its name, the node of its value, and whether every row has it."""

    name: str
    node: int
    required: bool


@dataclass(frozen=True, slots=True)
class ExpiryCondition:
    """A condition under which a row expires: the value of a slot.

    It is one of ``numbers``, positions in the texts of its enumeration; without any it must only be present.
    """

    slot: int
    numbers: tuple[int, ...]


# Patterns that admit texts of one form only: literal characters and hexadecimal digits at their places.


# What such a pattern consists of: a class or a literal character or a group of them, each repeated or not.
PART: Final = re.compile(
    r"(?:(?P<digit>\[0-9a-f\])|(?P<literal>[A-Za-z0-9_:-])|\((?P<group>[^()|?*+]+)\))(?:\{(?P<times>\d{1,3})\})?"
)
MAX_TEMPLATE_LENGTH: Final = 256


def template_of(pattern: str) -> str | None:
    """Return the only form of text that a pattern admits, ``None`` where it may admit another one.

    In the template :data:`~twinstore.fast.nodes.HEX_DIGIT` represents a hexadecimal digit.
    """
    if not (pattern.startswith("^") and pattern.endswith("$")):
        return None
    found = _expanded(pattern[1:-1])
    return found if found and len(found) <= MAX_TEMPLATE_LENGTH else None


def _expanded(text: str) -> str | None:
    parts: list[str] = []
    at = 0
    while at < len(text):
        part = PART.match(text, at)
        if part is None:
            return None
        group = part["group"]
        one = _expanded(group) if group else part["literal"] or HEX_DIGIT
        if one is None:
            return None
        parts.append(one * int(part["times"] or 1))
        at = part.end()
    return "".join(parts)
