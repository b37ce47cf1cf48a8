"""Texts and whole numbers as nodes: which constraints of an annotation a reader program knows."""

from __future__ import annotations

import sys
from dataclasses import dataclass, fields, replace
from enum import Enum
from functools import reduce
from typing import TYPE_CHECKING, Final

from pydantic import AfterValidator, BaseModel, StringConstraints
from pydantic.fields import FieldInfo
from pydantic.types import Strict
from pydantic_core import PydanticUndefined

from twinstore.fast.nodes import NO_LIMIT, Node, NodeKind, NodeText, Presence, TextFlag, template_of
from twinstore.models import json_text
from twinstore.models.canonical import CanonicalJsonSerializer, CanonicalModel
from twinstore.models.fields import (
    INT64_MAX,
    INT64_MIN,
    NO_CONTROL,
    NO_NUL,
    TENANT_PATTERN,
    SchemaVersion,
    WholeNumber,
    is_empty,
    refuse_system_tenant,
)
from twinstore.models.rules import body_of
from twinstore.models.shapes import VariantModel

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from twinstore.models.json_text import JsonValue
    from twinstore.models.rules import ModelRule

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
    if is_function(function, "twinstore.models.cron", "cron_field"):
        return flagged(node, TextFlag.CRON)
    if is_function(function, "twinstore.models.cron", "timezone_field"):
        return _with_texts(node, TextFlag.LISTED, tuple(sorted(_zone_names())))
    name = getattr(function, "__qualname__", repr(function))
    raise UnrecognisedError(f"has the validator {name}, which no program knows")


def _zone_names() -> frozenset[str]:
    # Here, because it takes a third-party parser that most programs do not need.
    from twinstore.models.cron import zone_names  # noqa: PLC0415  # see above

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


@dataclass(frozen=True, slots=True)
class Absence:
    """What it means that a field is not there; see :class:`~twinstore.fast.nodes.NodeField`."""

    presence: Presence
    default: bytes = b""
    number: int = 0
    left_out: bool = False


# Also where the model would fill in something that no program knows: then it decides.
REQUIRED_FIELD = Absence(Presence.REQUIRED)


def absence_of(info: FieldInfo, node: Node, cls: type, *, optional: bool) -> Absence:
    """Return what the absence of a field means.

    Args:
        info: the field.
        node: the node of its value.
        cls: the class of its value.
        optional: whether its value may be ``None``.

    Raises:
        UnrecognisedError: it may be omitted from the wire form by a function that no program knows.
    """
    found = _absence(info, node, cls, optional=optional)
    if info.exclude_if is None:
        return found
    # What else the function would leave out must not be written either, so it must be the one that is known.
    if info.exclude_if is not is_empty or not _is_empty(found, node):
        raise UnrecognisedError(
            "is omitted from the wire form by an unknown function; "
            "use twinstore.module.is_empty, with an empty default"
        )
    return Absence(Presence.DEFAULT, found.default, found.number, left_out=True)


def as_written(default: bytes, node: Node, nodes: Sequence[Node]) -> bytes:
    """Return the JSON of a default with the fields of models as native code orders them."""
    if node.kind is not NodeKind.OBJECT or not default:
        return default
    return json_text.dumps(_as_written(json_text.loads(default), node, nodes))


def _as_written(value: JsonValue, node: Node, nodes: Sequence[Node]) -> JsonValue:
    if node.kind is NodeKind.OBJECT and isinstance(value, dict):
        fields = {field.name: nodes[field.node] for field in node.fields}
        # As PostgreSQL orders names; native code takes models whose names are ASCII.
        names = sorted(value, key=lambda name: (len(name), name))
        return {name: _as_written(value[name], fields[name], nodes) for name in names}
    if node.kind is NodeKind.LIST and isinstance(value, list):
        return [_as_written(item, nodes[node.item], nodes) for item in value]
    return value


def _is_empty(absence: Absence, node: Node) -> bool:
    emptiable = {NodeKind.LIST, NodeKind.MAP, NodeKind.JSON, NodeKind.INT}
    is_default = absence.presence is Presence.DEFAULT
    return is_default and node.kind in emptiable and absence.default in {b"[]", b"{}", b"0"}


def _absence(info: FieldInfo, node: Node, cls: type, *, optional: bool) -> Absence:
    if info.validate_default:
        return REQUIRED_FIELD
    if info.default_factory is not None:
        is_map = info.default_factory is dict and node.kind in {NodeKind.MAP, NodeKind.JSON}
        return Absence(Presence.DEFAULT, b"{}") if is_map else REQUIRED_FIELD
    default: object = info.default
    if default is PydanticUndefined:
        return REQUIRED_FIELD
    if default is None:
        return Absence(Presence.OPTIONAL) if optional else REQUIRED_FIELD
    return _with_default(default, node, cls)


def _with_default(default: object, node: Node, cls: type) -> Absence:
    """Return what a default means, as the model writes it; pydantic does not look at defaults."""
    # Native code writes no default of a type that BSON has alone.
    if type(default) is not cls or node.kind >= NodeKind.OBJECT_ID:
        return REQUIRED_FIELD
    if isinstance(default, CanonicalModel):
        return Absence(Presence.DEFAULT, CanonicalJsonSerializer.serialize(default))
    number = _number(default, node)
    return REQUIRED_FIELD if number is None else Absence(Presence.DEFAULT, json_text.dumps(default), number)


def _number(default: object, node: Node) -> int | None:
    """Return what rules see of a default, ``None`` where no program knows such a default."""
    match default:
        case Enum():
            return [text.text for text in node.texts].index(str(default.value))
        case bool():
            return int(default)
        case int() if INT64_MIN <= default <= INT64_MAX:
            return default
        case str() if "\x00" not in default:
            return 0
        case ():
            return 0
        case _:
            return None


# Whether the class of a model does only what its annotations and rules say.
#
# Validators and the like are known from the body of the class; see :class:`twinstore.models.rules.Body`.


# The configuration of which the wire form of a value does not depend, or only by names, which are read.
IGNORED_CONFIG: Final = frozenset(
    {"title", "alias_generator", "json_schema_extra", "use_attribute_docstrings", "protected_namespaces"}
)
# What would run in addition to the fields, or in place of them.
HOOKS: Final = frozenset(
    {
        "__get_pydantic_core_schema__",
        "__init__",
        "__new__",
        "__pydantic_init_subclass__",
        "__init_subclass__",
        "model_post_init",
        "model_validate",
        "model_dump",
        "wire",
    }
)
NOT_NESTED: Final = (
    "default",
    "default_factory",
    "alias",
    "validation_alias",
    "serialization_alias",
    "exclude_if",
)


def check_class(model: type[CanonicalModel]) -> None:
    """Refuse a class with custom handling of its data.

    Raises:
        UnrecognisedError: it does; says what.
    """
    name = model.__name__
    if issubclass(model, VariantModel):
        raise UnrecognisedError("is one of several models that share a table", name)
    for problem in (*_configured(model), *_hooked(model), *_decorated(model)):
        raise UnrecognisedError(f"{problem}, which no program knows", name)


def _configured(model: type[CanonicalModel]) -> Iterator[str]:
    ours: dict[str, object] = {**CanonicalModel.model_config}
    theirs: dict[str, object] = {**model.model_config}
    for key in sorted((ours.keys() | theirs.keys()) - IGNORED_CONFIG):
        if key not in ours or key not in theirs or ours[key] != theirs[key]:
            yield f"has the configuration {key}"


def _hooked(model: type[CanonicalModel]) -> Iterator[str]:
    for base in _bases(model):
        for hook in sorted(HOOKS & vars(base).keys()):
            yield f"has its own {hook}"


def _bases(model: type[CanonicalModel]) -> list[type]:
    """Return the model and its bases, without those of all models."""
    return [base for base in model.__mro__ if base not in CanonicalModel.__mro__]


def _decorated(model: type[CanonicalModel]) -> Iterator[str]:
    kept: tuple[ModelRule, ...] = ()
    for base in reversed(_bases(model)):
        body = body_of(base)
        if issubclass(base, BaseModel) and not issubclass(base, CanonicalModel):
            yield f"has the base {base.__name__}, which is not a CanonicalModel"
        for name in body.hooks:
            yield f"has the validator, serializer or computed field {name}"
        kept = kept if body.kept is None else body.kept
    if model.rules != kept:
        yield "has rules that it does not keep"


def names_when_missing(model: type[CanonicalModel]) -> frozenset[str]:
    """Return the wire names without which a validator of the model changes what it is given."""
    return frozenset(name for base in _bases(model) for name in body_of(base).when_missing)


def check_field(info: FieldInfo) -> None:
    """Refuse a field with more than its annotation, its constraints, its default and its names.

    Raises:
        UnrecognisedError: it has; says what.
    """
    if info.exclude:
        raise UnrecognisedError("is excluded from the wire form")
    if info.discriminator is not None:
        raise UnrecognisedError("has a discriminator, which no program knows")
    if info.init_var:
        raise UnrecognisedError("is known to the constructor alone")


def nested_metadata(metadata: tuple[object, ...]) -> tuple[object, ...]:
    """Return the metadata of an annotation with those of each ``Field(...)`` among them in its place.

    Raises:
        UnrecognisedError: such a ``Field`` says more than constraints.
    """
    found: list[object] = []
    for item in metadata:
        if type(item) is FieldInfo:
            _check_nested(item)
            found += item.metadata
        else:
            found.append(item)
    return tuple(found)


def _check_nested(info: FieldInfo) -> None:
    check_field(info)
    plain = FieldInfo()
    for name in NOT_NESTED:
        value = getattr(info, name)
        if value is not getattr(plain, name) and value is not PydanticUndefined:
            raise UnrecognisedError(f"has {name} inside its annotation, which no program knows")
