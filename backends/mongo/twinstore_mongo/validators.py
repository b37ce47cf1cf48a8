"""``$jsonSchema`` validators, generated from the fields of the models."""

from __future__ import annotations

import types
from datetime import datetime
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any, Final, Union, get_args, get_origin

from twinstore.canonical import CanonicalModel

if TYPE_CHECKING:
    from pydantic.fields import FieldInfo

    from twinstore_mongo.codec import Codec
    from twinstore_mongo.connection import Document

__all__ = ["instant_paths", "validator_of"]

# A whole number may arrive as any of these; a decimal is refused, because models refuse it too.
WHOLE_NUMBER: Final = {"bsonType": ["int", "long", "double"], "multipleOf": 1}
MARKERS: Final[dict[str, dict[str, object]]] = {
    "schedules": {"deletedAt": {"bsonType": ["date", "null"]}, "deletedBy": {"bsonType": ["string", "null"]}},
    "impact_snapshots": {
        "_tenantId": {"bsonType": "string"},
        "_runId": {"bsonType": "string"},
        "_selectorDigest": {"bsonType": "string"},
    },
}
REQUIRED_MARKERS: Final = {"impact_snapshots": ["_tenantId", "_selectorDigest"]}


def validator_of(codec: Codec[Any]) -> Document:
    """Return the validator of a collection: required fields, BSON types and enumeration texts.

    Fields it does not know are not refused, so that an older process can share the database.
    """
    schema = object_schema(codec.model)
    properties, required = schema["properties"], schema["required"]
    if codec.identity is not None:
        properties.pop(codec.identity)
        required = [name for name in required if name != codec.identity]
    name = codec.entity.name
    return {
        "$jsonSchema": {
            "bsonType": "object",
            "required": ["_id", *required, *REQUIRED_MARKERS.get(name, [])],
            "properties": {"_id": {"bsonType": "string"}, **properties, **MARKERS.get(name, {})},
        }
    }


def object_schema(model: type[CanonicalModel]) -> Document:
    """Return the schema of a model; optional fields may be absent, and nothing may be null."""
    fields = {field.serialization_alias or name: field for name, field in model.model_fields.items()}
    required = [name for name, field in fields.items() if always_written(field)]
    schema: Document = {"bsonType": "object"}
    if required:  # the server takes no empty list
        schema["required"] = required
    schema["properties"] = {name: schema_of(field.annotation) for name, field in fields.items()}
    return schema


def always_written(field: FieldInfo) -> bool:
    """Whether the wire form has the field in every document."""
    return not is_optional(field.annotation) and field.exclude_if is None


def is_optional(annotation: Any) -> bool:  # noqa: ANN401  # annotations have no common type
    """Whether ``None`` is an accepted value."""
    plain = without_metadata(annotation)
    return get_origin(plain) in {Union, types.UnionType} and types.NoneType in get_args(plain)


def without_metadata(annotation: Any) -> Any:  # noqa: ANN401  # annotations have no common type
    """Return the bare type of an annotation."""
    while get_origin(annotation) is Annotated:
        annotation = get_args(annotation)[0]
    return annotation


def without_none(annotation: Any) -> Any:  # noqa: ANN401  # annotations have no common type
    """Return the type of an optional value."""
    plain = without_metadata(annotation)
    if not is_optional(plain):
        return plain
    (inner,) = (part for part in get_args(plain) if part is not types.NoneType)
    return without_none(inner)


def schema_of(annotation: Any) -> Document:  # noqa: ANN401  # annotations have no common type
    """Return the schema of one value."""
    plain = without_none(annotation)
    if get_origin(plain) is tuple:
        return {"bsonType": "array", "items": schema_of(get_args(plain)[0])}
    if get_origin(plain) is dict:
        return {"bsonType": "object", "additionalProperties": schema_of(get_args(plain)[1])}
    return scalar_schema(plain)


def scalar_schema(plain: type) -> Document:
    """Return the schema of a value that is no collection."""
    if issubclass(plain, CanonicalModel):
        return object_schema(plain)
    if issubclass(plain, StrEnum):
        return {"enum": [member.value for member in plain]}
    if issubclass(plain, bool):
        return {"bsonType": "bool"}
    if issubclass(plain, int):
        return dict(WHOLE_NUMBER)
    return {"bsonType": "date" if issubclass(plain, datetime) else "string"}


def instant_paths(model: type[CanonicalModel]) -> tuple[tuple[str, ...], ...]:
    """Return the wire paths of all instants of a model; lists on the way do not count."""
    paths: list[tuple[str, ...]] = []
    for name, field in model.model_fields.items():
        plain = without_none(field.annotation)
        while get_origin(plain) is tuple:
            plain = without_none(get_args(plain)[0])
        wire = field.serialization_alias or name
        if isinstance(plain, type) and issubclass(plain, CanonicalModel):
            paths += [(wire, *rest) for rest in instant_paths(plain)]
        elif isinstance(plain, type) and issubclass(plain, datetime):
            paths.append((wire,))
    return tuple(paths)
