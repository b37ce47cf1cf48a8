"""Models that stand in one table or one field: told apart by how one text of theirs begins.

A base names the field; each model under it says with which text the field begins::

    class Shape(VariantModel, told_by="id"):
        id: Id

    class Circle(Shape, begins="circle_"):
        radius: Count

To read a ``Shape`` is then to read the model that the text asks for, alone, nested, and out of a store.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar, Self, Unpack, cast

from pydantic import ConfigDict
from pydantic_core import core_schema
from typing_extensions import override

from twinstore.canonical import CanonicalModel, schema_serializer, schema_validator

if TYPE_CHECKING:
    from pydantic import GetCoreSchemaHandler
    from pydantic_core import CoreSchema

__all__ = ["VariantModel", "variants_of"]


class VariantModel(CanonicalModel):
    """Base of models that share a table.

    Attributes:
        told_by: the Python name of the field that tells; its wire name is the same.
        variants: the models by the text with which that field begins.
    """

    told_by: ClassVar[str] = ""
    variants: ClassVar[dict[str, type[VariantModel]]] = {}

    def __new__(cls, *values: object, **fields: object) -> Self:
        """Refuse to make one of a base, which stands for models that have more fields.

        Raises:
            TypeError: it is a base.
        """
        del values, fields
        if variants := variants_of(cls):
            names = " or ".join(variant.__name__ for variant in variants)
            raise TypeError(f"{cls.__name__} stands for several models; make a {names}, or validate it")
        return super().__new__(cls)

    @override
    def __init_subclass__(cls, *, told_by: str = "", begins: str = "", **config: Unpack[ConfigDict]) -> None:
        """Take the words of :meth:`__pydantic_init_subclass__`, which pydantic hands to both."""
        del told_by, begins
        super().__init_subclass__(**config)

    @override
    @classmethod
    def __pydantic_init_subclass__(cls, **config: object) -> None:
        """Take a base, or a model under one.

        Raises:
            TypeError: the description contradicts itself.
        """
        told_by, begins = str(config.pop("told_by", "")), str(config.pop("begins", ""))
        super().__pydantic_init_subclass__(**config)
        if told_by:
            check_base(cls, told_by)
            cls.told_by, cls.variants = told_by, {}
            return
        base = base_of(cls)
        check_variant(cls, base, begins)
        base.variants[begins] = cls
        # Only now is it known what the base stands for.
        base.model_rebuild(force=True)
        schema_validator.cache_clear()
        schema_serializer.cache_clear()

    @override
    @classmethod
    def __get_pydantic_core_schema__(cls, source: object, handler: GetCoreSchemaHandler) -> CoreSchema:
        """Return the schema of a model, or that of the choice between those under a base."""
        if not cls.__dict__.get("variants"):
            return handler(source)
        return core_schema.tagged_union_schema(
            {variant.__name__: handler.generate_schema(variant) for variant in cls.variants.values()},
            discriminator=cls.name_of,
            custom_error_type="variant",
            custom_error_message=f"{cls.told_by} should begin with {' or '.join(cls.variants)}",
        )

    @classmethod
    def name_of(cls, data: object) -> str | None:
        """Return the name of the model that some data are, ``None`` for none of them."""
        if isinstance(data, cls):
            return type(data).__name__
        if not isinstance(data, Mapping):
            return None
        text = cast("Mapping[str, object]", data).get(cls.told_by)
        found = [name for name in cls.variants if isinstance(text, str) and text.strip().startswith(name)]
        return cls.variants[found[0]].__name__ if found else None


def variants_of(model: type) -> tuple[type[CanonicalModel], ...]:
    """Return the models that a base stands for; empty for any other model."""
    is_base = issubclass(model, VariantModel) and "variants" in model.__dict__
    return tuple(model.variants.values()) if is_base and issubclass(model, VariantModel) else ()


def base_of(variant: type[VariantModel]) -> type[VariantModel]:
    """Return the base that tells a model from others.

    Raises:
        TypeError: it has none.
    """
    for base in variant.__mro__:
        if issubclass(base, VariantModel) and base is not VariantModel and "variants" in base.__dict__:
            return base
    raise TypeError(
        f"{variant.__name__} has no base that says told_by, the field that tells its models apart"
    )


def check_base(base: type[VariantModel], told_by: str) -> None:
    """Refuse a field that cannot tell.

    Raises:
        TypeError: there is no such field, or its wire name is another one.
    """
    info = base.model_fields.get(told_by)
    if info is None:
        known = ", ".join(base.model_fields)
        raise TypeError(f"{base.__name__} is told by {told_by!r}, which is no field of it; it has {known}")
    if (info.serialization_alias or info.alias or told_by) != told_by:
        raise TypeError(
            f"{base.__name__} is told by {told_by!r}, whose wire name is another one; choose one of one word"
        )


def check_variant(variant: type[VariantModel], base: type[VariantModel], begins: str) -> None:
    """Refuse a model that cannot be told from the others under its base.

    Raises:
        TypeError: it does not say how the field begins, or another one begins alike.
    """
    if not begins:
        raise TypeError(f"{variant.__name__} does not say how its {base.told_by} begins; write begins=")
    for known, other in base.variants.items():
        if known.startswith(begins) or begins.startswith(known):
            raise TypeError(
                f"{variant.__name__} and {other.__name__} cannot be told apart: their {base.told_by} begin "
                f"with {begins!r} and {known!r}"
            )
