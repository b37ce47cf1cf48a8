"""Texts and whole numbers as nodes: which constraints of an annotation a reader program knows."""

from __future__ import annotations

import sys
from dataclasses import fields, replace
from functools import reduce
from typing import Final

from pydantic import AfterValidator, StringConstraints
from pydantic.types import Strict

from twinstore.fast.nodes import NO_LIMIT, Node, NodeKind, NodeText, TextFlag
from twinstore.fast.templates import template_of
from twinstore.fields import (
    INT64_MAX,
    INT64_MIN,
    NO_CONTROL,
    NO_NUL,
    TENANT_PATTERN,
    SchemaVersion,
    WholeNumber,
    refuse_system_tenant,
)

__all__ = ["UnrecognisedError", "bound_of", "flagged", "is_function", "text_node", "whole_node"]

DIGEST: Final = r"^sha256:[0-9a-f]{64}$"
IDENTIFIER: Final = r"^[A-Za-z0-9][A-Za-z0-9._:-]*$"
LOWER_IDENTIFIER: Final = TextFlag.IDENTIFIER | TextFlag.LOWER
PATTERNS: Final = {
    NO_NUL: TextFlag.NO_NUL,
    NO_CONTROL: TextFlag.NO_CONTROL,
    TENANT_PATTERN: TextFlag.NO_CONTROL | TextFlag.TENANT,
    DIGEST: TextFlag.DIGEST,
    # Upper-case letters are declined, also where the model admits them.
    IDENTIFIER: LOWER_IDENTIFIER,
}
KNOWN_CONSTRAINTS: Final = frozenset(
    {"strip_whitespace", "to_lower", "strict", "min_length", "max_length", "pattern"}
)
BOUNDS: Final = {
    "Ge": "ge",
    "Gt": "gt",
    "Le": "le",
    "Lt": "lt",
    "MinLen": "min_length",
    "MaxLen": "max_length",
}
# No table takes it, and what one store takes and the other does not is for the exact way to say.
PLAIN: Final = Node(kind=NodeKind.TEXT, flags=TextFlag.NO_NUL)


class UnrecognisedError(Exception):
    """Something that no program can express; the message says what, for a user to read.

    What is raised about a value begins with a verb, and who knows the name of the field puts it in front.
    """

    def __init__(self, message: str, subject: str = "") -> None:
        """Take the message, and whose it is where that is known."""
        super().__init__(f"{subject} {message}".lstrip())
        self.is_whole = bool(subject)


def is_function(function: object, module: str, name: str) -> bool:
    """Whether it is that function of a module; the module is not imported to find out."""
    return getattr(sys.modules.get(module), name, None) is function


def text_node(metadata: tuple[object, ...]) -> Node:
    """Return the node of a text with these constraints.

    Raises:
        UnrecognisedError: one of them is not known.
    """
    if len(metadata) == 1 and type(metadata[0]) is SchemaVersion:
        return Node(kind=NodeKind.CONST, texts=(NodeText(metadata[0].current),))
    return reduce(_narrowed, metadata, PLAIN)


def _narrowed(node: Node, constraint: object) -> Node:
    """Return the node of a text with one constraint more.

    What the model would change is declined, so the order of the constraints does not matter.
    """
    if type(constraint) is StringConstraints:
        return _constrained(node, constraint)
    if type(constraint) is AfterValidator:
        return _checked(node, constraint.func)
    if type(constraint) is Strict:
        return node
    match bound_of(constraint):
        case ("MinLen", number):
            return _at_least(node, number)
        case ("MaxLen", number):
            return _at_most(node, number)
        case _:
            raise UnrecognisedError(f"has the constraint {type(constraint).__name__}, which no program knows")


def _constrained(node: Node, constraint: StringConstraints) -> Node:
    for field in fields(constraint):
        if field.name not in KNOWN_CONSTRAINTS and getattr(constraint, field.name) is not None:
            raise UnrecognisedError(f"has the constraint {field.name}, which no program knows")
    if constraint.strip_whitespace:
        node = flagged(node, TextFlag.TRIM)
    if constraint.to_lower:
        node = flagged(node, TextFlag.LOWER)
    if constraint.min_length is not None:
        node = _at_least(node, constraint.min_length)
    if constraint.max_length is not None:
        node = _at_most(node, constraint.max_length)
    return node if constraint.pattern is None else _matching(node, constraint.pattern)


def _matching(node: Node, pattern: object) -> Node:
    flags = PATTERNS.get(pattern) if isinstance(pattern, str) else None
    if flags is not None:
        return flagged(node, flags)
    template = template_of(pattern) if isinstance(pattern, str) else None
    if template is None:
        raise UnrecognisedError(f"has the pattern {pattern}, which no program knows")
    return _with_texts(node, TextFlag.TEMPLATE, (template,))


def _checked(node: Node, function: object) -> Node:
    """Return the node of a text that a function looks at in the end."""
    if function is refuse_system_tenant:
        return flagged(node, TextFlag.TENANT)
    if is_function(function, "twinstore.cronrule", "validate_cron"):
        return flagged(node, TextFlag.CRON)
    if is_function(function, "twinstore.cron", "validate_timezone"):
        return _with_texts(node, TextFlag.LISTED, tuple(sorted(_zone_names())))
    name = getattr(function, "__qualname__", repr(function))
    raise UnrecognisedError(f"has the validator {name}, which no program knows")


def _zone_names() -> frozenset[str]:
    # Here, because it takes a third-party parser that most programs do not need.
    from twinstore.cron import zone_names  # noqa: PLC0415  # see above

    return zone_names()


def flagged(node: Node, flags: TextFlag) -> Node:
    """Return a node with some flags more."""
    return replace(node, flags=node.flags | flags)


def _at_least(node: Node, length: int) -> Node:
    if length > 1:
        raise UnrecognisedError(f"has a least length of {length}, which no program knows")
    return flagged(node, TextFlag.NONEMPTY) if length == 1 else node


def _at_most(node: Node, length: int) -> Node:
    return replace(node, high=length if node.high == NO_LIMIT else min(node.high, length))


def _with_texts(node: Node, flag: TextFlag, texts: tuple[str, ...]) -> Node:
    if node.texts:
        raise UnrecognisedError("has two forms at the same time, which no program knows")
    return replace(flagged(node, flag), texts=tuple(map(NodeText, texts)))


def whole_node(metadata: tuple[object, ...]) -> Node:
    """Return the node of a whole number with these constraints.

    Raises:
        UnrecognisedError: one of them is not known.
    """
    low, high = INT64_MIN, INT64_MAX
    for constraint in metadata:
        least, most = _bounds(constraint)
        low, high = max(low, least), min(high, most)
    return Node(kind=NodeKind.INT, low=low, high=high)


def _bounds(constraint: object) -> tuple[int, int]:
    if type(constraint) is WholeNumber:
        return constraint.minimum, constraint.maximum
    if type(constraint) is Strict:
        return INT64_MIN, INT64_MAX
    match bound_of(constraint):
        case ("Ge", number):
            return number, INT64_MAX
        case ("Gt", number):
            return number + 1, INT64_MAX
        case ("Le", number):
            return INT64_MIN, number
        case ("Lt", number):
            return INT64_MIN, number - 1
        case _:
            raise UnrecognisedError(f"has the constraint {type(constraint).__name__}, which no program knows")


def bound_of(constraint: object) -> tuple[str, int] | None:
    """Return name and number of a bound that pydantic took out of ``Field``, ``None`` for anything else."""
    kind = type(constraint)
    # By name: the package of these classes is one of pydantic's own, and none that we ask for.
    name = BOUNDS.get(kind.__name__) if kind.__module__ == "annotated_types" else None
    number = None if name is None else getattr(constraint, name)
    return (kind.__name__, number) if type(number) is int else None
