"""Rules between the fields of one model, as data: which kinds there are and what each one means.

A model lists its rules in ``rules``; the first one that is broken is the one that is reported. A rule holds
names of fields, members of enumerations and the words of the refusal, and nothing that runs, so that more
than one program can evaluate it; :class:`FieldDerived` alone holds a function and says so. Below the sentence
that says what a kind of rule means is ``breach``, the same in Python, from which one function for each model
is made.

Fields have their Python names. A dotted name leads into a nested model; where that one is absent, so is the
field. A rule that names a field the model does not have, or needs it otherwise than it is, is a ``TypeError``
where the class is defined.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from functools import cached_property, wraps
from operator import attrgetter
from types import FunctionType, GetSetDescriptorType, MappingProxyType, NoneType, UnionType
from typing import Any, Final, LiteralString, TypeVar, Union, cast, get_args, get_origin  # noqa: TID251  # Any: what Field of pydantic returns
from weakref import WeakKeyDictionary

from pydantic import BaseModel, Field
from pydantic_core import PydanticCustomError
from typing_extensions import override

__all__ = [
    "AbsentIn",
    "AllOrNone",
    "EqualExactlyIn",
    "EqualOrAbsent",
    "FieldAtMost",
    "FieldDerived",
    "FieldTypes",
    "FilledFrom",
    "FirstOf",
    "LengthAtMost",
    "ModelRule",
    "NotBefore",
    "PresentExactlyIn",
    "PresentExactlyWhen",
    "PresentIn",
    "RequiresEntry",
    "SumAtMost",
    "body_of",
    "check_fields",
    "field_types",
    "filled_from",
    "first_broken",
    "record_body",
    "validator_of",
    "when_missing",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelRule(ABC):
    """What every rule has: the type of the error, as pydantic reports it, and the sentence a user reads."""

    code: LiteralString
    message: LiteralString

    @abstractmethod
    def breach(self, reads: Reads) -> str:
        """Return the Python expression that is true where the rule is broken."""


@dataclass(frozen=True, slots=True)
class FieldAtMost(ModelRule):
    """The number in ``field`` is at most the one in ``limit``; neither is ever absent."""

    field: str
    limit: str

    @override
    def breach(self, reads: Reads) -> str:
        return f"{reads.always(self.field)} > {reads.always(self.limit)}"


@dataclass(frozen=True, slots=True)
class SumAtMost(ModelRule):
    """The numbers in ``fields`` sum to at most the one in ``limit``; none is ever absent."""

    fields: tuple[str, ...]
    limit: str

    @override
    def breach(self, reads: Reads) -> str:
        return f"{' + '.join(map(reads.always, self.fields))} > {reads.always(self.limit)}"


@dataclass(frozen=True, slots=True)
class LengthAtMost(ModelRule):
    """The list in ``field`` has at most as many entries as the number in ``limit`` says."""

    field: str
    limit: str

    @override
    def breach(self, reads: Reads) -> str:
        return f"len({reads.items(self.field)}) > {reads.always(self.limit)}"


@dataclass(frozen=True, slots=True)
class NotBefore(ModelRule):
    """The instant in ``field`` is not before any of those in ``earlier``; absent ones do not count."""

    field: str
    earlier: tuple[str, ...]

    @override
    def breach(self, reads: Reads) -> str:
        later = reads.any(self.field)
        before = [f"({it} is not None and {later} < {it})" for it in map(reads.any, self.earlier)]
        return f"{later} is not None and ({' or '.join(before)})"


@dataclass(frozen=True, slots=True)
class PresentExactlyIn(ModelRule):
    """``field`` is present if and only if ``by`` is one of ``members``."""

    field: str
    by: str
    members: tuple[Enum, ...]

    @override
    def breach(self, reads: Reads) -> str:
        return f"({reads.sometimes(self.field)} is None) is ({reads.among(self.by, self.members)})"


@dataclass(frozen=True, slots=True)
class PresentIn(ModelRule):
    """``field`` is present where ``by`` is one of ``members``; elsewhere it may be."""

    field: str
    by: str
    members: tuple[Enum, ...]

    @override
    def breach(self, reads: Reads) -> str:
        return f"{reads.sometimes(self.field)} is None and {reads.among(self.by, self.members)}"


@dataclass(frozen=True, slots=True)
class AbsentIn(ModelRule):
    """``field`` is absent where ``by`` is one of ``members``; elsewhere it may be present."""

    field: str
    by: str
    members: tuple[Enum, ...]

    @override
    def breach(self, reads: Reads) -> str:
        return f"{reads.sometimes(self.field)} is not None and {reads.among(self.by, self.members)}"


@dataclass(frozen=True, slots=True)
class PresentExactlyWhen(ModelRule):
    """``field`` is present if and only if ``flag`` is true."""

    field: str
    flag: str

    @override
    def breach(self, reads: Reads) -> str:
        return f"({reads.sometimes(self.field)} is None) is {reads.flag(self.flag)}"


@dataclass(frozen=True, slots=True)
class AllOrNone(ModelRule):
    """The ``fields`` are all present or all absent."""

    fields: tuple[str, ...]

    @override
    def breach(self, reads: Reads) -> str:
        # A set of truth values has two members where some fields are absent and others are not.
        absent = ", ".join(f"{name} is None" for name in map(reads.sometimes, self.fields))
        return f"len({{{absent}}}) > 1"


@dataclass(frozen=True, slots=True)
class RequiresEntry(ModelRule):
    """If ``by`` is a member named in ``entries``, the list in the field paired with it has an entry.

    The message quotes the two as ``{<by>}`` and ``{field}``.
    """

    by: str
    entries: tuple[tuple[Enum, str], ...]

    @override
    def breach(self, reads: Reads) -> str:
        return " or ".join(
            f"({reads.among(self.by, (member,))} and not {reads.items(field)})"
            for member, field in self.entries
        )


@dataclass(frozen=True, slots=True)
class EqualOrAbsent(ModelRule):
    """``field`` is absent or equal to ``other``."""

    field: str
    other: str

    @override
    def breach(self, reads: Reads) -> str:
        value = reads.any(self.field)
        return f"{value} is not None and {value} != {reads.any(self.other)}"


@dataclass(frozen=True, slots=True)
class EqualExactlyIn(ModelRule):
    """``field`` is ``value`` if and only if ``by`` is one of ``members``."""

    field: str
    value: Enum
    by: str
    members: tuple[Enum, ...]

    @override
    def breach(self, reads: Reads) -> str:
        return f"({reads.among(self.field, (self.value,))}) is not ({reads.among(self.by, self.members)})"


@dataclass(frozen=True, slots=True)
class FirstOf(ModelRule):
    """``field`` equals the first entry of the list in ``items``, and is absent when that is empty."""

    field: str
    items: str

    @override
    def breach(self, reads: Reads) -> str:
        items = reads.items(self.items)
        return f"{reads.sometimes(self.field)} != ({items}[0] if {items} else None)"


@dataclass(frozen=True, slots=True)
class FieldDerived(ModelRule):
    """``field`` equals what ``function`` makes of ``source``.

    For what data cannot say: another evaluator knows the function by its name or leaves such models alone.
    """

    field: str
    source: str
    function: Callable[..., object]

    @override
    def breach(self, reads: Reads) -> str:
        return f"{reads.any(self.field)} != {reads.constant(self.function)}({reads.any(self.source)})"


@dataclass(frozen=True, slots=True)
class FieldTypes:
    """The types that a field may have besides ``None``, and whether it may be absent."""

    types: tuple[object, ...]
    optional: bool = False

    @property
    def models(self) -> list[type[BaseModel]]:
        """The models among the types."""
        return [kind for kind in self.types if isinstance(kind, type) and issubclass(kind, BaseModel)]

    @property
    def is_tuple(self) -> bool:
        """Whether it is a list that is never absent."""
        return self._always(lambda kind: get_origin(kind) is tuple)

    @property
    def is_flag(self) -> bool:
        """Whether it is true or false and never absent."""
        return self._always(lambda kind: kind is bool)

    def is_one_of(self, kinds: set[type]) -> bool:
        """Whether its types are exactly these classes."""
        classes = [kind for kind in self.types if isinstance(kind, type)]
        return len(classes) == len(self.types) and set(classes) == kinds

    def is_ranked_by(self, members: tuple[Enum, ...]) -> bool:
        """Whether the members are those of its enumeration, each once."""
        kinds: set[type[Enum]] = {type(member) for member in members}
        whole = [member for kind in kinds for member in kind]
        return self.is_one_of({*kinds}) and set(whole) == set(members) and len(whole) == len(members)

    def _always(self, wanted: Callable[[object], bool]) -> bool:
        return not self.optional and all(wanted(kind) for kind in self.types)


def field_types(model: type[BaseModel], name: str, where: str) -> FieldTypes:
    """Return what a field may hold; a dotted name leads through every nested model.

    Raises:
        TypeError: there is no such field; begins with ``where``.
    """
    shape = FieldTypes((model,))
    for part in name.split("."):
        shape = _inside(shape, part, where)
    return shape


def _inside(outer: FieldTypes, part: str, where: str) -> FieldTypes:
    # A union with something that has no fields: the name would be right for some values only.
    if len(outer.models) != len(outer.types):
        raise TypeError(
            f"{where}, but {part!r} is looked for in something that is not a model; correct the name"
        )
    for owner in outer.models:
        if part not in owner.model_fields:
            known = ", ".join(owner.model_fields)
            raise TypeError(f"{where}, but {owner.__name__} has no field {part!r}; it has {known}")
    annotations = [owner.model_fields[part].annotation for owner in outer.models]
    kinds = [kind for annotation in annotations for kind in _alternatives(annotation)]
    return FieldTypes(
        tuple(kind for kind in kinds if kind is not NoneType), outer.optional or NoneType in kinds
    )


def _alternatives(annotation: object) -> tuple[object, ...]:
    union = isinstance(annotation, UnionType) or get_origin(annotation) is Union
    return get_args(annotation) if union else (annotation,)


# The evaluator: the rules of a model become one function.
#
# The expressions of the rules are compiled where the class is defined, as ``dataclasses`` and ``attrs`` do: a
# loop over the rules made reading a run 8 % slower than checks written by hand, and this is not slower. The
# text that is compiled consists of names of fields and of words of these two modules; members, functions and
# the rules themselves are handed in as values.


M = TypeVar("M", bound=BaseModel)
Validator = TypeVar("Validator", bound=Callable[..., object])


class FilledFrom:
    """The default of a field that follows from another field of the model.

    It is in the field until all fields are known to be valid. pydantic has such defaults too, and reports
    each of them as a separate error wherever anything else in the model is wrong.
    """

    def __init__(self, source: str, function: Callable[..., object] | None = None) -> None:
        """Take the Python name of the other field, and what makes the default of its value; default: it."""
        self.source = source
        self.function = function

    def __call__(self) -> object:
        """Return what is in the field meanwhile."""
        return self


def filled_from(source: str, function: Callable[..., object] | None = None) -> Any:  # noqa: ANN401  # as Field
    """Return a field whose default follows from another one; see :class:`FilledFrom`."""
    return Field(default_factory=FilledFrom(source, function))


NO_FILLS: Final[Mapping[str, FilledFrom]] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Body:
    """What the body of a class says, apart from its fields.

    pydantic keeps this in attributes that it does not document, and takes it out of the class. So it is noted
    before pydantic sees the class.

    Attributes:
        hooks: the names of validators, serializers and computed fields.
        when_missing: the wire names without which a validator changes its data; see :func:`when_missing`.
        kept: the rules that models of the class keep; ``None``: those of its base.
    """

    hooks: tuple[str, ...]
    when_missing: frozenset[str]
    kept: tuple[ModelRule, ...] | None = None


_when_missing: Final[WeakKeyDictionary[object, str]] = WeakKeyDictionary()
_bodies: Final[WeakKeyDictionary[type, Body]] = WeakKeyDictionary()
# Members of a class that pydantic leaves alone. It marks all others by an object that has `__get__`.
PLAIN_MEMBERS: Final = (
    FunctionType,
    GetSetDescriptorType,
    cached_property,
    classmethod,
    property,
    staticmethod,
)


def validator_of(
    rules: tuple[ModelRule, ...], fills: Mapping[str, FilledFrom] = NO_FILLS
) -> Callable[[M], M]:
    """Return the function that answers with a model that keeps the rules and refuses any other.

    ``fills`` are the fields, by Python name, whose defaults follow from other fields; they are filled first.
    """
    return cast("Callable[[M], M]", _compiled(rules, "raise refusal({rule}, model)", "return model", fills))


def record_body(cls: type, kept: tuple[ModelRule, ...] | None) -> None:
    """Note the body of a class before pydantic changes it; ``kept`` are the rules that it begins to keep."""
    body = body_of(cls)
    _bodies[cls] = Body(body.hooks, body.when_missing, kept)


def body_of(cls: type) -> Body:
    """Return the body of a class, as it is unless it was noted before."""
    if cls in _bodies:
        return _bodies[cls]
    members = vars(cls).items()
    marked = [(name, item) for name, item in members if hasattr(item, "__get__")]
    hooks = {name: _missing_name(item) for name, item in marked if not isinstance(item, PLAIN_MEMBERS)}
    when_missing = frozenset(wire for wire in hooks.values() if wire is not None)
    return Body(tuple(name for name, wire in hooks.items() if wire is None), when_missing)


def when_missing(wire: str) -> Callable[[Validator], Validator]:
    """Return a decorator of a ``before`` validator: it is called only for data that lack a name.

    So it is known without running it that all other data stay what they are.
    """

    def decorated(validator: Validator) -> Validator:
        @wraps(validator)
        def check(cls: type[BaseModel], data: object) -> object:
            return validator(cls, data) if _lacks(data, wire) else data

        _when_missing[check] = wire
        return cast("Validator", check)

    return decorated


def _lacks(data: object, wire: str) -> bool:
    return isinstance(data, dict) and wire not in data


def _missing_name(validator: object) -> str | None:
    """Return the name without which :func:`when_missing` asks a validator; ``None`` for any other one."""
    when_missing = getattr(validator, "__func__", validator)
    return _when_missing.get(when_missing) if isinstance(when_missing, FunctionType) else None


def first_broken(rules: tuple[ModelRule, ...]) -> Callable[[BaseModel], ModelRule | None]:
    """Return the function that finds the first rule a model breaks; ``None`` for a model that keeps all."""
    return cast("Callable[[BaseModel], ModelRule | None]", _compiled(rules, "return {rule}", "return None"))


def _compiled(
    rules: tuple[ModelRule, ...], broken: str, kept: str, fills: Mapping[str, FilledFrom] = NO_FILLS
) -> object:
    reads = Reads()
    checks = [f"if {rule.breach(reads)}: {broken.format(rule=reads.constant(rule))}" for rule in rules]
    # Each field is read once, whatever the number of rules; absent nested models read as None.
    filled = [filling(name, fill, reads) for name, fill in fills.items()]
    lines = ["def check(model):", "values = model.__dict__", *filled, *reads.statements, *checks, kept]
    # Members and functions go in as values, so that no text of theirs is ever compiled.
    names = {"refusal": _refusal, **reads.constants}
    exec(compile("\n    ".join(lines), f"<{__name__}>", "exec"), names)  # noqa: S102  # holds no text of a user
    return names["check"]


def filling(name: str, fill: FilledFrom, reads: Reads) -> str:
    """Return the statement that fills a field where nothing was given for it."""
    value = f"values[{fill.source!r}]"
    made = value if fill.function is None else f"{reads.constant(fill.function)}({value})"
    return f"if values[{name!r}] is {reads.constant(fill)}: values[{name!r}] = {made}"


def check_fields(model: type[BaseModel], rules: tuple[ModelRule, ...]) -> None:
    """Check what the rules of a model say of its fields.

    Raises:
        TypeError: a field does not exist or is not what a rule needs, or has another enumeration.
    """
    for rule in rules:
        reads = Reads()
        rule.breach(reads)
        for need in reads.needs:
            where = f"{model.__name__}: rule {rule.code!r} ({type(rule).__name__}) names {need.name!r}"
            if not need.met(field_types(model, need.name, where)):
                raise TypeError(f"{where}, which should be {need.wanted}; correct the rule or the field")


def _refusal(rule: ModelRule, model: BaseModel) -> PydanticCustomError:
    if not isinstance(rule, RequiresEntry):
        return PydanticCustomError(rule.code, rule.message)
    member = attrgetter(rule.by)(model)
    context: dict[str, object] = {rule.by: str(member), "field": dict(rule.entries)[member]}
    return PydanticCustomError(rule.code, rule.message, context)


@dataclass(frozen=True, slots=True)
class Need:
    """What a rule needs of a field; ``wanted`` says it in words."""

    name: str
    wanted: str
    met: Callable[[FieldTypes], bool]


@dataclass(slots=True)
class Reads:
    """What the expressions of some rules read, the values they compare it with, and what they need of it."""

    needs: list[Need] = field(default_factory=list[Need])
    constants: dict[str, object] = field(default_factory=dict[str, object])
    variables: dict[str, str] = field(default_factory=dict[str, str])

    @property
    def statements(self) -> list[str]:
        """The statements that put each field into its local variable."""
        return [f"{local} = {_value(name)}" for name, local in self.variables.items()]

    def any(self, name: str) -> str:
        """Return the expression for a field of any shape."""
        return self._field(name, "a field", lambda _: True)

    def always(self, name: str) -> str:
        """Return the expression for a field that is never absent."""
        return self._field(name, "a field that is never absent", lambda shape: not shape.optional)

    def sometimes(self, name: str) -> str:
        """Return the expression for a field that may be absent."""
        return self._field(name, "a field that may be absent", lambda shape: shape.optional)

    def items(self, name: str) -> str:
        """Return the expression for a list that is never absent."""
        return self._field(name, "a tuple that is never absent", lambda shape: shape.is_tuple)

    def flag(self, name: str) -> str:
        """Return the expression for a field that is true or false."""
        return self._field(name, "a bool that is never absent", lambda shape: shape.is_flag)

    def among(self, name: str, members: tuple[Enum, ...]) -> str:
        """Return the condition that a field is one of some members of its enumeration."""
        kinds: set[type] = {type(member) for member in members}
        wanted = " or ".join(sorted(kind.__name__ for kind in kinds)) or "given members"
        local = self._field(name, wanted, lambda shape: shape.is_one_of(kinds))
        return f"{local} in {self.constant(members)}"

    def constant(self, value: object) -> str:
        """Return the name under which a value is handed to the function."""
        name = f"constant{len(self.constants)}"
        self.constants[name] = value
        return name

    def _field(self, name: str, wanted: str, met: Callable[[FieldTypes], bool]) -> str:
        self.needs.append(Need(name, wanted, met))
        return self.variables.setdefault(name, f"field{len(self.variables)}")


def _value(name: str) -> str:
    first, *rest = name.split(".")
    text = f"values[{first!r}]"
    for part in rest:
        text = f"getattr({text}, {part!r}, None)"
    return text
