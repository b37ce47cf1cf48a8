"""Canonical JSON and digests: the one definition of "equal".

Every wire form is written and read here: by the drivers, the backfill, the parity check and the samples.
"""

from __future__ import annotations

from decimal import Decimal
from functools import cache, cached_property
from hashlib import sha256
from json import JSONDecoder
from typing import TYPE_CHECKING, ClassVar, Final, Self, TypeVar, Unpack, cast

import pydantic
from pydantic import BaseModel, ConfigDict, Field, PrivateAttr, TypeAdapter, model_validator
from pydantic.alias_generators import to_camel
from pydantic.fields import FieldInfo
from typing_extensions import dataclass_transform, override

from twinstore.errors import DocumentDecodeError, ValidationError
from twinstore.models import json_text
from twinstore.models.cron import QUOTING
from twinstore.models.fields import explain
from twinstore.models.rules import FilledFrom, ModelRule, check_fields, record_body, validator_of
from twinstore.runtime.formatting import SHORT_REPR_LENGTH, short_repr

__all__ = ["CanonicalJsonSerializer", "CanonicalModel", "content_digest", "decode_stored", "describe_failure"]


if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pydantic._internal._model_construction import ModelMetaclass  # it has no public name
    from pydantic_core import ErrorDetails, SchemaSerializer, SchemaValidator

    # Type checkers look here for what is frozen, not into `model_config`; an argument of the class would
    # have to be repeated by each class below it.
    @dataclass_transform(kw_only_default=True, frozen_default=True, field_specifiers=(Field, PrivateAttr))
    class FrozenMetaclass(ModelMetaclass):
        """The metaclass of the models, as type checkers see it."""

        @override
        def __hash__(self) -> int: ...
else:
    FrozenMetaclass = type(BaseModel)

M = TypeVar("M", bound="CanonicalModel")
# So many name what is wrong with a document; a broken list of many entries has as many problems.
MAX_NAMED_PROBLEMS: Final = 5
MANY_PROBLEMS: Final = 1000
FIRST_VALUE: Final = JSONDecoder()


class CanonicalModel(BaseModel, metaclass=FrozenMetaclass):  # noqa: PLW1641  # frozen, so pydantic adds a hash
    """Base of every entity and nested object: frozen, closed, camelCase on the wire.

    Python names are snake_case; wire names come from aliases; both are accepted on input. The order of the
    fields is the order of the properties. Rules between fields are in ``rules``; a class that has its own
    list repeats those of its bases in it (``rules = (*Base.rules, ...)``).
    """

    rules: ClassVar[tuple[ModelRule, ...]] = ()
    _keep_rules: ClassVar[object]

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        alias_generator=to_camel,
        validate_by_alias=True,
        validate_by_name=True,
        serialize_by_alias=True,
        # No message of pydantic may quote a value: it would end up in logs.
        hide_input_in_errors=True,
        ser_json_inf_nan="constants",
    )

    @override
    def __init_subclass__(cls, **config: Unpack[ConfigDict]) -> None:
        """Attach what fills fields and keeps the rules to a class that has some; the others pay nothing."""
        super().__init_subclass__(**config)
        fills = {
            name: value.default_factory
            for name, value in cls.__dict__.items()
            if isinstance(value, FieldInfo) and isinstance(value.default_factory, FilledFrom)
        }
        keeps = bool(cls.__dict__.get("rules") or fills)
        record_body(cls, cls.rules if keeps else None)
        if keeps:
            # Not in __get_pydantic_core_schema__: every model around this one would wrap its schema again.
            cls._keep_rules = model_validator(mode="after")(validator_of(cls.rules, fills))

    @override
    @classmethod
    def __pydantic_init_subclass__(cls, **config: object) -> None:
        """Check the rules once the fields are known.

        Raises:
            TypeError: a rule does not fit the fields, or a rule of a base class is missing.
        """
        super().__pydantic_init_subclass__(**config)
        inherited = [
            rule for base in cls.__bases__ if issubclass(base, CanonicalModel) for rule in base.rules
        ]
        # A list in the class replaces that of the base; without this check the rules of the base would be
        # silently lost.
        if not set(inherited) <= set(cls.rules):
            raise TypeError(
                f"{cls.__name__}.rules leaves out rules of a base class; begin it with *Base.rules"
            )
        check_fields(cls, cls.rules)

    @override
    def __eq__(self, other: object) -> bool:
        """Whether both have the same wire form, also where Python calls different values equal."""
        # Of other types it is not implemented here, but perhaps there.
        found = super().__eq__(other)
        if found is not True:
            return found
        return are_same(values_of(self), values_of(cast("CanonicalModel", other)))

    def evolve(self, /, **changes: object) -> Self:
        """Return a copy with some fields (Python names) changed, validated like a new model."""
        # By attribute, not by wire form: nested models are frozen, and pydantic takes them over as they are.
        cls, values = type(self), {**values_of(self), **changes}
        try:
            return cls.model_validate(values)
        except pydantic.ValidationError:
            shown = {name: info.serialization_alias or name for name, info in cls.model_fields.items()}
        # Again by wire name, so that the error has the names that a client sends.
        return cls.model_validate({shown.get(name, name): value for name, value in values.items()})

    def wire(self) -> dict[str, object]:
        """Return the properties by wire name in canonical order; optional nulls are omitted.

        Instants stay datetimes and enumerations stay (text) enumerations, as the drivers want them.
        """
        # Without model_dump, which costs a third more.
        wire: dict[str, object] = schema_serializer(type(self)).to_python(
            self, by_alias=True, exclude_none=True
        )
        return wire


class CanonicalJsonSerializer:
    """The only writer and reader of wire forms."""

    @staticmethod
    def serialize(model: CanonicalModel) -> bytes:
        """Return the compact canonical bytes of a model."""
        return CanonicalJsonSerializer.serialize_wire(type(model), model.wire())

    @staticmethod
    def serialize_wire(model: type[CanonicalModel], wire: Mapping[str, object]) -> bytes:
        """Return the same bytes of properties that a model of this class gave, or of some of them."""
        del model  # earlier releases asked it whether it has fields for floats
        text = json_text.dumps(wire)
        # Rarely more than this: the walk through all values costs more than the JSON.
        return json_text.dumps(_encodable(wire)) if json_text.may_need_repr(text) else text

    @staticmethod
    def serialize_pretty(model: CanonicalModel) -> bytes:
        """Return the canonical JSON with two blanks of indent and one final line feed."""
        wire = model.wire()
        return json_text.dumps_pretty(_encodable(wire))

    @staticmethod
    def deserialize(model: type[M], data: bytes | str) -> M:
        """Build a model from JSON text.

        Raises:
            ValidationError: malformed JSON, a duplicate key, an unknown property or a bad value;
                the message names each path.
        """
        try:
            return model.model_validate(json_text.parse_json(data))
        except pydantic.ValidationError as error:
            raise ValidationError(describe_failure(model, error), entity=model.__name__) from error
        except (ValueError, RecursionError) as error:
            raise ValidationError(
                f"{model.__name__}: {_syntax_problem(error)}", entity=model.__name__
            ) from error

    @staticmethod
    def digest(model: CanonicalModel) -> str:
        """Return ``sha256:`` and the lower-case hex SHA-256 of the compact canonical bytes."""
        return content_digest(CanonicalJsonSerializer.serialize(model))


@cache
def schema_validator(model: type[CanonicalModel]) -> SchemaValidator:
    """Return what makes a model of values."""
    return cast("SchemaValidator", TypeAdapter(model).validator)


@cache
def schema_serializer(model: type[CanonicalModel]) -> SchemaSerializer:
    """Return what makes a wire form of a model."""
    return TypeAdapter(model).serializer


def are_same(one: object, other: object) -> bool:
    """Whether two values that Python calls equal are the same in JSON: to Python 1 and true are equal."""
    if isinstance(one, dict):
        members, others = cast("Mapping[str, object]", one), cast("Mapping[str, object]", other)
        return all(are_same(value, others[name]) for name, value in members.items())
    if isinstance(one, list | tuple):
        return all(map(are_same, cast("Sequence[object]", one), cast("Sequence[object]", other)))
    if isinstance(one, float | Decimal):
        # Of decimals the scale counts.
        return type(one) is type(other) and str(one) == str(other)
    if isinstance(one, int):
        # A driver may have its own class for integers of 64 bits.
        return isinstance(other, int) and isinstance(one, bool) is isinstance(other, bool)
    return True


def values_of(model: CanonicalModel) -> Mapping[str, object]:
    """Return the values of the fields of a model by Python name."""
    values: Mapping[str, object] = model.__dict__
    remembered = _cached_names(type(model))
    return {name: values[name] for name in values if name not in remembered} if remembered else values


@cache
def _cached_names(cls: type[CanonicalModel]) -> frozenset[str]:
    """Return what a class that a user derived from ours remembers in addition to its fields."""
    members = (vars(base).items() for base in cls.__mro__)
    return frozenset(name for items in members for name, value in items if isinstance(value, cached_property))


def _encodable(wire: Mapping[str, object]) -> object:
    """Return a wire form with its floating-point numbers in their canonical spelling."""
    return json_text.encodable(cast("json_text.JsonValue", wire))


def content_digest(data: bytes) -> str:
    """Return ``sha256:`` and the lower-case hex SHA-256 of some bytes."""
    return f"sha256:{sha256(data).hexdigest()}"


def decode_stored(cls: type[M], document: object, *, entity: str, key: str, driver: str) -> M:
    """Build a model from stored values.

    Raises:
        DocumentDecodeError: the values do not form a model; names entity and key, never the content.
    """
    try:
        # For wire names only, and without model_validate, which costs a call more.
        model: M = schema_validator(cls).validate_python(document, by_alias=True, by_name=False)
    except pydantic.ValidationError as error:
        reason = describe_failure(cls, error, quote=False)
        raise undecodable(reason, entity=entity, key=key, driver=driver) from error
    return model


def undecodable(reason: str, *, entity: str, key: str, driver: str) -> DocumentDecodeError:
    """Return the error of a stored document that does not form a model."""
    name = f"{entity} {short_repr(key)}"
    message = f"{name} stored in {driver} cannot be read: {reason}. Repair or quarantine the document."
    error = DocumentDecodeError(message, entity=entity, key=key, driver=driver)
    error.reason = reason
    return error


def describe_failure(cls: type[BaseModel], error: pydantic.ValidationError, *, quote: bool = True) -> str:
    """Return one line that names each failing path and its rule, without any of the values.

    A time rule quotes the part that is wrong, unless ``quote`` is false.
    """
    rule = explain if quote else _explain_silently
    problems = [f"{_path(problem['loc'])}: {rule(problem)}" for problem in _problems(error)]
    more = error.error_count() - len(problems)
    tail = f"; and {more} more" if more > 0 else ""
    return f"{cls.__name__} {'; '.join(problems)}{tail}"


def _problems(error: pydantic.ValidationError) -> list[ErrorDetails]:
    """Return the first problems."""
    if error.error_count() <= MANY_PROBLEMS:
        # Unknown properties last, by name: each store has them in another order.
        problems = error.errors(include_url=False, include_input=False)
        return sorted(problems, key=_unknown_name)[:MAX_NAMED_PROBLEMS]
    # A document may have a million, which as objects take a hundred times its bytes.
    text, found, at = error.json(include_url=False, include_input=False), list["ErrorDetails"](), 0
    while len(found) < MAX_NAMED_PROBLEMS:
        # Behind the bracket, or the comma.
        problem, at = FIRST_VALUE.raw_decode(text, at + 1)
        found.append(problem)
    return found


def _unknown_name(problem: ErrorDetails) -> str:
    return _path(problem["loc"]) if problem["type"] == "extra_forbidden" else ""


def _explain_silently(problem: ErrorDetails) -> str:
    if problem["type"] == QUOTING:
        return str(problem.get("ctx", {}).get("rule"))
    # What raises a plain ValueError may be anybody's, and may repeat the value.
    return "Value is not acceptable" if problem["type"] == "value_error" else explain(problem)


def _path(location: tuple[int | str, ...]) -> str:
    return ".".join(str(part)[:SHORT_REPR_LENGTH] for part in location) or "document"


def _syntax_problem(error: Exception) -> str:
    if isinstance(error, UnicodeDecodeError):
        return "text is not UTF-8"
    if isinstance(error, RecursionError):
        return "JSON is nested too deeply"
    return f"JSON is not acceptable: {error}"
