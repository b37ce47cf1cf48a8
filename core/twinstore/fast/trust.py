"""Whether a model is one whose class does nothing beside what its annotations and rules say.

Validators and the like are known from the body of the class; see :class:`twinstore.rulechecks.Body`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from twinstore.canonical import CanonicalModel
from twinstore.fast.constraints import UnrecognisedError
from twinstore.rulechecks import body_of
from twinstore.variants import VariantModel

if TYPE_CHECKING:
    from collections.abc import Iterator

    from twinstore.modelrules import ModelRule

__all__ = ["check_class", "check_field", "names_asked_without", "nested_metadata"]

# The configuration of which the wire form of a value does not depend, or only by names, which are read.
HARMLESS: Final = frozenset(
    {"title", "alias_generator", "json_schema_extra", "use_attribute_docstrings", "protected_namespaces"}
)
# What would run beside the fields, or in place of them.
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
    """Refuse a class that does something of its own with its data.

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
    for key in sorted((ours.keys() | theirs.keys()) - HARMLESS):
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
        for name in body.acts:
            yield f"has the validator, serializer or computed field {name}"
        kept = kept if body.kept is None else body.kept
    if model.rules != kept:
        yield "has rules that it does not keep"


def names_asked_without(model: type[CanonicalModel]) -> frozenset[str]:
    """Return the wire names without which a validator of the model changes what it is given."""
    return frozenset(name for base in _bases(model) for name in body_of(base).asked)


def check_field(info: FieldInfo) -> None:
    """Refuse a field with something beside its annotation, its constraints, its default and its names.

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
