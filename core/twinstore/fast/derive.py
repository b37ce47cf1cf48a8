"""What a reader program knows of a model, from its annotations, constraints and rules.

Whatever is not recognised has no program: its rows go the exact way.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum, StrEnum
from types import NoneType, UnionType
from typing import TYPE_CHECKING, Annotated, Final, Union, get_args, get_origin

from pydantic import AfterValidator, AliasChoices
from pydantic.types import Strict

from twinstore.fast.constraints import (
    UnrecognisedError,
    absence_of,
    as_written,
    check_class,
    check_field,
    flagged,
    names_when_missing,
    nested_metadata,
    text_node,
    whole_node,
)
from twinstore.fast.nodes import (
    ABSENT_NODE,
    LOWER_KEYS,
    NO_LIMIT,
    PRESERVE_ORDER,
    ListRule,
    Node,
    NodeField,
    NodeKind,
    NodeRule,
    NodeText,
    Operand,
    Presence,
    RuleOp,
    SortKey,
    TextFlag,
)
from twinstore.models import rules
from twinstore.models.canonical import CanonicalModel
from twinstore.models.collections import Ordered, Ranked, without_repeats
from twinstore.models.enums import NumberedEnum
from twinstore.models.fields import (
    BinaryUuid,
    Bytes,
    DecimalNumber,
    FreeObject,
    KeepsUnknown,
    LowerKeyObject,
    Number,
    ObjectIdText,
    Timestamp,
    empty_to_none,
    lower_key_map,
    sorted_map,
    string_set,
    trimmed_key_map,
)
from twinstore.models.shapes import wire_name

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from twinstore.models.rules import ModelRule

MAX_TEXTS: Final = 255
SORTABLE: Final = frozenset({NodeKind.TEXT, NodeKind.INT, NodeKind.INSTANT, NodeKind.ENUM})
# What a model does with the names and values of a map of texts; the names rise in any case.
MAPS: Final[Mapping[object, tuple[TextFlag, TextFlag]]] = {
    sorted_map: (TextFlag.NONE, TextFlag.NONE),
    trimmed_key_map: (TextFlag.TRIM, TextFlag.NONE),
    lower_key_map: (TextFlag.TRIM | TextFlag.NONEMPTY | TextFlag.LOWER, TextFlag.TRIM),
}


@dataclass(frozen=True, slots=True)
class NodeContext:
    """How a model is known at its place.

    Attributes:
        there: the wire names of fields whose absence is declined.
        ranks: the order of enumerations that do not sort by their text, by Python name.
    """

    there: frozenset[str] = frozenset()
    ranks: tuple[tuple[str, tuple[Enum, ...]], ...] = ()


PLAIN: Final = NodeContext()


@dataclass(frozen=True, slots=True)
class Value:
    """A value: the number of its node, its class, and whether it may be ``None``."""

    node: int
    cls: type
    optional: bool = False


class Deriver:
    """Collects the nodes of a model.

    Attributes:
        nodes: those that were made so far; equal ones are made once.
    """

    def __init__(self) -> None:
        self.nodes: list[Node] = []
        self._numbers: dict[Node, int] = {}
        self._open: list[type[CanonicalModel]] = []

    def used(self, roots: Sequence[int]) -> tuple[tuple[Node, ...], tuple[int, ...]]:
        """Return the nodes that can be reached from some, renumbered, and the new numbers of those."""
        reached = dict.fromkeys(number for root in roots for number in self._below(root))
        numbers = {number: position for position, number in enumerate(reached)}
        nodes = tuple(renumbered(self.nodes[number], numbers) for number in reached)
        return nodes, tuple(numbers[root] for root in roots)

    def _below(self, number: int) -> Iterator[int]:
        """Yield the numbers of the nodes in and under one, the innermost ones first."""
        node = self.nodes[number]
        inner = [field.node for field in node.fields]
        inner += [node.low] if node.kind is NodeKind.MAP else []
        inner += [] if node.item == ABSENT_NODE else [node.item]
        for other in inner:
            yield from self._below(other)
        yield number

    def add(self, node: Node) -> int:
        """Return the number of a node."""
        number = self._numbers.setdefault(node, len(self.nodes))
        if number == len(self.nodes):
            self.nodes.append(node)
        return number

    def model(self, cls: type[CanonicalModel], context: NodeContext = PLAIN) -> Node:
        """Return the node of a model.

        Raises:
            UnrecognisedError: no program can express it.
        """
        if cls in self._open:
            raise UnrecognisedError("holds itself", cls.__name__)
        check_class(cls)
        self._open.append(cls)
        node = self._object(cls, context)
        self._open.pop()
        return node

    def _object(self, cls: type[CanonicalModel], context: NodeContext) -> Node:
        ranks, there = dict(context.ranks), context.there | names_when_missing(cls)
        fields = [self._field(cls, name, ranks.get(name)) for name in cls.model_fields]
        names = [field.name for field in fields]
        if len({*names}) < len(names) or not there <= {*names}:
            raise UnrecognisedError("has names that cannot be distinguished, or that it lacks", cls.__name__)
        there |= {name for rule in cls.rules for name in self._needed(cls, rule, fields)}
        kept = tuple(present(field) if field.name in there else field for field in fields)
        rules = tuple(self._rule(cls, rule, kept) for rule in cls.rules)
        return Node(kind=NodeKind.OBJECT, fields=kept, rules=rules)

    def _field(self, cls: type[CanonicalModel], name: str, ranks: tuple[Enum, ...] | None) -> NodeField:
        info = cls.model_fields[name]
        wire = wire_name(name, info)
        try:
            check_field(info)
            check_names(cls, name, wire)
            value = self.value(info.annotation, tuple(info.metadata), ranks)
            absence = absence_of(info, self.nodes[value.node], value.cls, optional=value.optional)
        except UnrecognisedError as error:
            raise (
                error
                if error.is_whole
                else UnrecognisedError(str(error), f"the field {wire} of {cls.__name__}")
            ) from error
        return NodeField(
            name=wire,
            node=value.node,
            presence=absence.presence,
            left_out=absence.left_out,
            default=as_written(absence.default, self.nodes[value.node], self.nodes),
            number=absence.number,
        )

    def value(self, annotation: object, around: Metadata, ranks: tuple[Enum, ...] | None = None) -> Value:
        """Return the value of an annotation with the metadata around it.

        Raises:
            UnrecognisedError: no program can express it.
        """
        plain, metadata = unwrapped(annotation, around)
        origin = get_origin(plain)
        if origin is Union or origin is UnionType:
            return self._optional(plain, metadata, ranks)
        if origin is tuple:
            return Value(self._list(plain, metadata), tuple)
        if origin is dict:
            return Value(self._map(plain, metadata), dict)
        if not isinstance(plain, type):
            raise UnrecognisedError(f"is of the type {plain}, which no program knows")
        return Value(self._scalar(plain, metadata, ranks), plain)

    def _optional(self, plain: object, metadata: Metadata, ranks: tuple[Enum, ...] | None) -> Value:
        kinds = [kind for kind in get_args(plain) if kind is not NoneType]
        if len(kinds) != 1 or len(kinds) == len(get_args(plain)):
            raise UnrecognisedError("may be of several types, which no program knows")
        value = self.value(kinds[0], (), ranks)
        if metadata:
            node = self.nodes[value.node]
            if metadata != (AfterValidator(empty_to_none),) or node.kind is not NodeKind.TEXT:
                raise UnrecognisedError(
                    f"has {describe_metadata(metadata)} around a union, which no program knows"
                )
            value = replace(value, node=self.add(flagged(node, TextFlag.NONEMPTY)))
        return replace(value, optional=True)

    def _scalar(self, cls: type, metadata: Metadata, ranks: tuple[Enum, ...] | None) -> int:
        if not metadata and issubclass(cls, CanonicalModel):
            return self.add(self.model(cls))
        node = plain_node(cls, metadata)
        if node is None and not metadata and issubclass(cls, StrEnum):
            node = enum_node(cls, ranks)
        if node is None:
            what = describe_metadata(metadata)
            raise UnrecognisedError(f"is of the type {cls.__name__} with {what}, which no program knows")
        return self.add(node)

    def _map(self, plain: object, metadata: Metadata) -> int:
        for free, flags in ((FreeObject, 0), (LowerKeyObject, LOWER_KEYS)):
            if (plain, metadata) == annotation_of(free):
                return self.add(Node(kind=NodeKind.JSON, flags=flags))
        if any(isinstance(item, KeepsUnknown) for item in metadata):
            raise UnrecognisedError("keeps unknown properties, of which no program knows the names")
        names, values = (self.value(part, ()) for part in get_args(plain))
        key, item = self.nodes[names.node], self.nodes[values.node]
        if key.kind is not NodeKind.TEXT or names.optional or values.optional:
            raise UnrecognisedError("is a map with names that are not strings, or with optional values")
        if metadata:
            function = only_function(metadata)
            if function not in MAPS or item.kind is not NodeKind.TEXT:
                raise UnrecognisedError(
                    f"is a map with {describe_metadata(metadata)}, which no program knows"
                )
            of_names, of_values = MAPS[function]
            key, item = flagged(key, of_names), flagged(item, of_values)
        order = 0 if metadata else PRESERVE_ORDER
        return self.add(Node(kind=NodeKind.MAP, flags=order, low=self.add(key), item=self.add(item)))

    def _list(self, plain: object, metadata: Metadata) -> int:
        item, *more = get_args(plain)
        if more != [Ellipsis]:
            raise UnrecognisedError(f"is of the type {plain}, which no program knows")
        if len(metadata) == 1 and type(metadata[0]) is Ordered:
            return self._ordered(item, metadata[0])
        value = self.value(item, ())
        kind = self.nodes[value.node].kind
        if value.optional:
            raise UnrecognisedError("is a list whose entries may be absent")
        return self.add(Node(kind=NodeKind.LIST, item=value.node, list_rule=list_rule(kind, metadata)))

    def _ordered(self, item: object, order: Ordered) -> int:
        plain, metadata = unwrapped(item, ())
        if metadata or not isinstance(plain, type) or not issubclass(plain, CanonicalModel):
            raise UnrecognisedError(
                f"is an ordered list with {describe_metadata(metadata)}, which no program knows"
            )
        unique: tuple[str, ...] = () if order.unique is None else (order.unique.field,)
        names = list(plain.model_fields)
        by = [key.field if isinstance(key, Ranked) else key for key in order.by]
        wires = frozenset(wire_name(name, plain.model_fields[name]) for name in (*by, *unique))
        ranks = tuple((key.field, key.members) for key in order.by if isinstance(key, Ranked))
        entry = self.model(plain, NodeContext(wires, ranks))
        for name in (*by, *unique):
            if self.nodes[entry.fields[names.index(name)].node].kind not in SORTABLE:
                raise UnrecognisedError(f"is ordered by {name}, which no program compares")
        ranked = {name for name, _ in ranks}
        is_first = bool(unique) and unique[0] == by[0]
        return self.add(
            Node(
                kind=NodeKind.LIST,
                item=self.add(entry),
                list_rule=ListRule.ORDERED,
                descending=order.descending,
                unique=is_first,
                limit=NO_LIMIT if order.limit is None else order.limit.count,
                keys=tuple(SortKey(names.index(name), name in ranked) for name in by),
                distinct=-1 if is_first or not unique else names.index(unique[0]),
            )
        )

    def _needed(
        self, cls: type[CanonicalModel], rule: ModelRule, fields: Sequence[NodeField]
    ) -> Iterator[str]:
        """Yield the fields with a default of which a rule would have to know more than its number."""
        for item in model_rule_inputs(cls, rule):
            path, node = self._find(cls, fields, item.name)
            field = fields[path[0]]
            is_counted = len(path) == 1 and item.kinds <= COUNTED and node.kind in COUNTED
            if field.presence is Presence.DEFAULT and not is_counted:
                yield field.name

    def _rule(self, cls: type[CanonicalModel], rule: ModelRule, fields: Sequence[NodeField]) -> NodeRule:
        try:
            return rule_node(rule, lambda name: self._find(cls, fields, name))
        except UnrecognisedError as error:
            raise UnrecognisedError(str(error), cls.__name__) from error

    def _find(
        self, cls: type[CanonicalModel], fields: Sequence[NodeField], name: str
    ) -> tuple[tuple[int, ...], Node]:
        """Return the path of a dotted Python name in numbers of fields, and the node at its end."""
        first, _, rest = name.partition(".")
        number = list(cls.model_fields).index(first)
        node = self.nodes[fields[number].node]
        if not rest:
            return (number,), node
        inner = model_in(cls.model_fields[first].annotation)
        if inner is None or node.kind is not NodeKind.OBJECT:
            raise UnrecognisedError(f"has a rule about {name}, which no program finds", cls.__name__)
        path, found = self._find(inner, node.fields, rest)
        last = self.nodes[fields[number].node].fields[path[0]]
        if len(path) == 1 and last.presence is Presence.DEFAULT and found.kind not in COUNTED:
            raise UnrecognisedError(f"has a rule about {name}, whose default no program knows", cls.__name__)
        return (number, *path), found


def model_rule_inputs(cls: type[CanonicalModel], rule: ModelRule) -> tuple[RuleInput, ...]:
    """Return what a rule of a model looks at.

    Raises:
        UnrecognisedError: no program evaluates such a rule.
    """
    try:
        _, seen = rule_inputs(rule)
    except UnrecognisedError as error:
        raise UnrecognisedError(str(error), cls.__name__) from error
    return seen


def renumbered(node: Node, numbers: Mapping[int, int]) -> Node:
    """Return a node that knows others by other numbers."""
    return replace(
        node,
        fields=tuple(replace(field, node=numbers[field.node]) for field in node.fields),
        low=numbers[node.low] if node.kind is NodeKind.MAP else node.low,
        item=ABSENT_NODE if node.item == ABSENT_NODE else numbers[node.item],
    )


def present(field: NodeField) -> NodeField:
    """Return a field that is declined where it is not there."""
    if field.left_out:
        raise UnrecognisedError(f"leaves {field.name} out of the wire form, which is needed")
    return NodeField(name=field.name, node=field.node, presence=Presence.REQUIRED)


def check_names(cls: type[CanonicalModel], name: str, wire: str) -> None:
    """Refuse a field that is not read under the name under which it is written.

    Raises:
        UnrecognisedError: it is not, or another field is read under one of its names.
    """
    alias: object = cls.model_fields[name].validation_alias
    if alias == wire or (alias is None and name == wire):
        return
    others = {wire_name(other, info) for other, info in cls.model_fields.items() if other != name}
    choices: list[object] = list(alias.choices) if type(alias) is AliasChoices else []
    if wire not in choices or not all(type(choice) is str and choice not in others for choice in choices):
        raise UnrecognisedError("is read under another name than it is written")


# Annotations of fields: what is left without their metadata, and the nodes of what holds no other values.


Metadata = tuple[object, ...]


def unwrapped(annotation: object, around: Metadata) -> tuple[object, Metadata]:
    """Return an annotation without its metadata, and all of these, the inner ones first."""
    metadata = nested_metadata(around)
    while get_origin(annotation) is Annotated:
        annotation, *inner = get_args(annotation)
        metadata = (*nested_metadata(tuple(inner)), *metadata)
    return annotation, metadata


def annotation_of(annotated: object) -> tuple[object, Metadata]:
    """Return one of the types of :mod:`twinstore.models.fields` as :func:`unwrapped` would."""
    return unwrapped(annotated, ())


def model_in(annotation: object) -> type[CanonicalModel] | None:
    """Return the model of an annotation that may be absent."""
    plain, _ = unwrapped(annotation, ())
    first, *_ = [kind for kind in get_args(plain) if kind is not NoneType] or [plain]
    found, _ = unwrapped(first, ())
    return found if isinstance(found, type) and issubclass(found, CanonicalModel) else None


# Values that BSON has types for, in the order of their kinds.
TYPED: Final = {
    NodeKind.OBJECT_ID: annotation_of(ObjectIdText),
    NodeKind.UUID: annotation_of(BinaryUuid),
    NodeKind.DECIMAL: annotation_of(DecimalNumber),
    NodeKind.BYTES: annotation_of(Bytes),
}


def plain_node(cls: type, metadata: Metadata) -> Node | None:
    """Return the node of a text, number, flag or instant; ``None`` for anything else."""
    for kind, annotation in TYPED.items():
        if (cls, metadata) == annotation:
            return Node(kind=kind)
    if cls is str:
        return text_node(metadata)
    if cls is int:
        return whole_node(metadata)
    if cls is bool and all(type(item) is Strict for item in metadata):
        return Node(kind=NodeKind.FLAG)
    if (cls, metadata) == annotation_of(Timestamp):
        return Node(kind=NodeKind.INSTANT)
    return Node(kind=NodeKind.NUMBER) if (cls, metadata) == annotation_of(Number) else None


def only_function(metadata: Metadata) -> object:
    """Return the function that alone looks at a value in the end, ``None`` where there is more."""
    first, *more = metadata
    return None if more or type(first) is not AfterValidator else first.func


def enum_node(cls: type[StrEnum], ranks: tuple[Enum, ...] | None) -> Node:
    """Return the node of an enumeration of texts; ``ranks`` are its members in another order.

    Raises:
        UnrecognisedError: it has custom handling of its members.
    """
    if hasattr(cls, "__get_pydantic_core_schema__") or len(cls) > MAX_TEXTS:
        raise UnrecognisedError(f"is of the type {cls.__name__}, which no program knows")
    order = tuple(ranks or cls)
    texts: list[NodeText] = []
    for position, member in enumerate(cls):
        if type(member.value) is not str or str.__str__(member) != member.value:
            raise UnrecognisedError(f"is of the type {cls.__name__}, whose values are not plain strings")
        number = member.number if isinstance(member, NumberedEnum) else position
        texts.append(NodeText(member.value, number, order.index(member)))
    return Node(kind=NodeKind.ENUM, texts=tuple(texts))


def list_rule(kind: NodeKind, metadata: Metadata) -> ListRule:
    """Return what the entries of a list must be.

    Raises:
        UnrecognisedError: no program knows it.
    """
    if not metadata:
        return ListRule.NONE
    if metadata == (AfterValidator(string_set),) and kind is NodeKind.TEXT:
        return ListRule.SET
    if metadata == (AfterValidator(without_repeats),) and kind in {NodeKind.TEXT, NodeKind.INT}:
        return ListRule.DISTINCT
    raise UnrecognisedError(f"is a list with {describe_metadata(metadata)}, which no program knows")


def describe_metadata(things: tuple[object, ...]) -> str:
    """Return an item of the metadata of an annotation as a message names it."""
    names = (getattr(getattr(item, "func", item), "__name__", type(item).__name__) for item in things)
    return " and ".join(names) or "no constraint"


NodeKinds = frozenset[NodeKind]
NUMBER: Final[NodeKinds] = frozenset({NodeKind.INT})
LISTS: Final[NodeKinds] = frozenset({NodeKind.LIST})
INSTANTS: Final[NodeKinds] = frozenset({NodeKind.INSTANT})
ENUMS: Final[NodeKinds] = frozenset({NodeKind.ENUM})
FLAGS: Final[NodeKinds] = frozenset({NodeKind.FLAG})
TEXTS: Final[NodeKinds] = frozenset({NodeKind.TEXT})
ANY: Final[NodeKinds] = frozenset(NodeKind)
# Of these a rule sees the default by its number alone.
COUNTED: Final[NodeKinds] = NUMBER | LISTS | ENUMS | FLAGS
KNOWN: Final = frozenset(
    {
        rules.FieldAtMost,
        rules.SumAtMost,
        rules.LengthAtMost,
        rules.NotBefore,
        rules.PresentExactlyIn,
        rules.PresentIn,
        rules.AbsentIn,
        rules.PresentExactlyWhen,
        rules.AllOrNone,
        rules.RequiresEntry,
        rules.EqualOrAbsent,
        rules.EqualExactlyIn,
    }
)


@dataclass(frozen=True, slots=True)
class RuleInput:
    """A field that a rule looks at: its dotted Python name, and of which kinds it may be.

    ``members`` are those of its enumeration that the rule names.
    """

    name: str
    kinds: NodeKinds
    members: tuple[Enum, ...] = ()


RuleInputs = tuple[RuleOp, tuple[RuleInput, ...]]


def rule_inputs(rule: ModelRule) -> RuleInputs:
    """Return the kind of a rule and what it looks at, in the order of ``NodeRule``.

    Raises:
        UnrecognisedError: no program evaluates such a rule.
    """
    # By the very class: one below it may mean something else.
    if type(rule) not in KNOWN:
        raise UnrecognisedError(f"has the rule {rule.code} ({type(rule).__name__}), which no program knows")
    return _presence_inputs(rule) or _number_inputs(rule) or _value_inputs(rule)


def _number_inputs(rule: ModelRule) -> RuleInputs | None:
    match rule:
        case rules.FieldAtMost():
            return RuleOp.FIELD_AT_MOST, (RuleInput(rule.field, NUMBER), RuleInput(rule.limit, NUMBER))
        case rules.SumAtMost():
            parts = tuple(RuleInput(name, NUMBER) for name in rule.fields)
            return RuleOp.SUM_AT_MOST, (RuleInput(rule.limit, NUMBER), *parts)
        case rules.LengthAtMost():
            return RuleOp.LENGTH_AT_MOST, (RuleInput(rule.field, LISTS), RuleInput(rule.limit, NUMBER))
        case _:
            return None


def _value_inputs(rule: ModelRule) -> RuleInputs:
    match rule:
        case rules.NotBefore():
            earlier = tuple(RuleInput(name, INSTANTS) for name in rule.earlier)
            return RuleOp.NOT_BEFORE, (RuleInput(rule.field, INSTANTS), *earlier)
        case rules.RequiresEntry():
            pairs = (
                (RuleInput(rule.by, ENUMS, (member,)), RuleInput(name, LISTS))
                for member, name in rule.entries
            )
            return RuleOp.REQUIRES_ENTRY, tuple(seen for pair in pairs for seen in pair)
        case rules.EqualOrAbsent():
            return RuleOp.EQUAL_OR_ABSENT, (RuleInput(rule.field, TEXTS), RuleInput(rule.other, TEXTS))
        case rules.EqualExactlyIn():
            field = RuleInput(rule.field, ENUMS, (rule.value,))
            return RuleOp.EQUAL_EXACTLY_IN, (field, RuleInput(rule.by, ENUMS, rule.members))
        case _:
            raise AssertionError(rule)  # met by programmers only


def _presence_inputs(rule: ModelRule) -> RuleInputs | None:
    match rule:
        case rules.PresentExactlyIn():
            op = RuleOp.PRESENT_EXACTLY_IN
        case rules.PresentIn():
            op = RuleOp.PRESENT_IN
        case rules.AbsentIn():
            op = RuleOp.ABSENT_IN
        case rules.PresentExactlyWhen():
            return RuleOp.PRESENT_EXACTLY_WHEN, (RuleInput(rule.field, ANY), RuleInput(rule.flag, FLAGS))
        case rules.AllOrNone():
            return RuleOp.ALL_OR_NONE, tuple(RuleInput(name, ANY) for name in rule.fields)
        case _:
            return None
    return op, (RuleInput(rule.field, ANY), RuleInput(rule.by, ENUMS, rule.members))


def rule_node(rule: ModelRule, find: Callable[[str], tuple[tuple[int, ...], Node]]) -> NodeRule:
    """Return a rule as a program has it.

    Args:
        rule: a rule of a model.
        find: returns the path of a dotted Python name, and the node at its end.

    Raises:
        UnrecognisedError: no program evaluates such a rule, or not about such fields.
    """
    op, seen = rule_inputs(rule)
    found = [(item, *find(item.name)) for item in seen]
    for item, _, node in found:
        if node.kind not in item.kinds:
            raise UnrecognisedError(f"has the rule {rule.code}, which no program evaluates of {item.name}")
    return NodeRule(op, tuple(Operand(path, _positions(item, node)) for item, path, node in found))


def _positions(seen: RuleInput, node: Node) -> tuple[int, ...]:
    texts = [item.text for item in node.texts]
    return tuple(texts.index(member.value) for member in seen.members)
