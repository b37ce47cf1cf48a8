"""Whether a model is one whose class does nothing beside what its annotations and rules say.

What pydantic keeps about a class is read here and nowhere else; a test pins it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from twinstore.canonical import CanonicalModel
from twinstore.fast.constraints import UnrecognisedError
from twinstore.rulechecks import name_without_which, rules_kept_by
from twinstore.variants import VariantModel

if TYPE_CHECKING:
    from collections.abc import Iterator

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
KINDS_OF_DECORATORS: Final = (
    "validators",
    "field_validators",
    "root_validators",
    "field_serializers",
    "model_serializers",
    "computed_fields",
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
    known: set[type] = {CanonicalModel, *CanonicalModel.__mro__}
    for base in model.__mro__:
        for hook in sorted(HOOKS & vars(base).keys()) if base not in known else ():
            yield f"has its own {hook}"
    if model.__private_attributes__:
        yield "has private attributes"
    if not model.__pydantic_complete__:
        yield "has annotations that are not resolved"


def _decorated(model: type[CanonicalModel]) -> Iterator[str]:
    decorators = model.__pydantic_decorators__
    for kind in KINDS_OF_DECORATORS:
        for name in getattr(decorators, kind):
            yield f"has {name} among its {kind.replace('_', ' ')}"
    keepers = 0
    for name, decorator in decorators.model_validators.items():
        if decorator.info.mode == "after" and rules_kept_by(decorator.func) == model.rules:
            keepers += 1
        elif decorator.info.mode != "before" or name_without_which(decorator.func) is None:
            yield f"has the model validator {name}"
    if model.rules and not keepers:
        yield "has rules that it does not keep"


def names_asked_without(model: type[CanonicalModel]) -> frozenset[str]:
    """Return the wire names without which a validator of the model changes what it is given."""
    validators = model.__pydantic_decorators__.model_validators.values()
    names = (name_without_which(item.func) for item in validators)
    return frozenset(name for name in names if name is not None)


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
