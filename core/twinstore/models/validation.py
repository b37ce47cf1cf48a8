"""Models that callers hand in, checked again before the library reads them.

A model is frozen, and yet there are ways past its checks: ``model_copy`` and ``model_construct`` of pydantic
do not check anything, and the value of a field may be changed in place. Such a model would be stored, and no
client could read it again. So a model that a caller hands in is rebuilt from its values, at every depth: a
value that breaks a rule is refused, and subclasses of text, numbers and instants become plain ones, which
every store accepts.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, TypeVar, cast

import pydantic

from twinstore.errors import ValidationError
from twinstore.models.canonical import CanonicalModel, describe_failure, schema_validator, values_of
from twinstore.models.shapes import Kind, ValueShape, shapes_of

if TYPE_CHECKING:
    from collections.abc import Mapping

M = TypeVar("M", bound=CanonicalModel)


def revalidated(model: M, cls: type[M], name: str) -> M:
    """Return a model of the same values that is checked as a whole and shares nothing that can be changed.

    Args:
        model: what was handed in; an instance of ``cls``.
        cls: the class that is asked for.
        name: the argument, for messages.

    Raises:
        ValidationError: a value breaks a rule; names each path and its rule, and none of the values.
    """
    try:
        # As where stored rows are read: model_validate costs a call more.
        found: M = schema_validator(cls).validate_python(_values(model))
    except pydantic.ValidationError as error:
        problem = describe_failure(cls, error, quote=False)
        raise ValidationError(f"Argument {name}: {problem}.", entity=cls.__name__) from error
    except RecursionError as error:
        text = f"Argument {name}: {cls.__name__} holds itself, or is nested too deeply."
        raise ValidationError(text, entity=cls.__name__) from error
    return found


def _values(model: CanonicalModel) -> Mapping[str, object]:
    """Return the values of a model by Python name, nested models too; those are not checked otherwise."""
    values = values_of(model)
    nested = _nested(type(model))
    if not nested:
        return values
    return {**values, **{name: _plain(values[name]) for name in nested if name in values}}


def _plain(value: object) -> object:
    if isinstance(value, CanonicalModel):
        return _values(value)
    if isinstance(value, (tuple, list)):
        return [_plain(item) for item in cast("list[object]", value)]
    if isinstance(value, dict):
        return {name: _plain(item) for name, item in cast("dict[object, object]", value).items()}
    return value


@cache
def _nested(cls: type[CanonicalModel]) -> tuple[str, ...]:
    """Return the fields that may hold models."""
    try:
        return tuple(shape.name for shape in shapes_of(cls) if _holds_models(shape.value))
    except TypeError:
        # A class that a user derived from ours; values of its additional fields are refused anyway.
        return tuple(cls.model_fields)


def _holds_models(value: ValueShape) -> bool:
    return value.kind is Kind.OBJECT or (value.item is not None and _holds_models(value.item))
