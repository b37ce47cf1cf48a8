"""``$jsonSchema`` validators, derived from the descriptions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from twinstore.catalog.entity import is_path
from twinstore.catalog.keys import KeyType
from twinstore.models.shapes import Kind, shapes_of
from twinstore_mongo.mapping.layout import ID, id_parts, stored_names

if TYPE_CHECKING:
    from collections.abc import Mapping

    from twinstore.catalog.entity import Entity, Marker
    from twinstore.models.canonical import CanonicalModel
    from twinstore.models.shapes import ValueShape
    from twinstore_mongo.client.types import Document

NUMBER: Final = ("int", "long", "double")
CLOSED_BY: Final = "twinstore migrate revert"
SIMPLE: Final = {
    Kind.TEXT: "string",
    Kind.FLAG: "bool",
    Kind.INSTANT: "date",
    Kind.OBJECT_ID: "objectId",
    Kind.UUID: "binData",
    Kind.BYTES: "binData",
}
ID_TYPES: Final = {KeyType.OBJECT_ID: "objectId", KeyType.BINARY_UUID: "binData"}
# Models take an integer for a decimal, and no double.
DECIMAL: Final = ("decimal", "int", "long")


def validator_of(entity: Entity) -> Document:
    """Return the validator of a collection: required fields, BSON types and enumeration texts.

    Fields it does not know are not refused, so that an older process can share the database; derived fields
    are none that a reader relies on, so they are not asked for unless they are the key.
    """
    schema = object_schema(entity.model)
    names = stored_names(entity)
    markers = [marker for marker in entity.storage if names[marker.name] != ID]
    keys = [names[item.name] for item in entity.derived if item.name in entity.key]
    in_id = {entity.document_id, *id_parts(entity)}
    required = [name for name in schema.get("required", ()) if name not in in_id]
    required += [names[marker.name] for marker in markers if marker.required]
    required += keys
    properties = {name: value for name, value in schema["properties"].items() if name not in in_id}
    return {
        "$jsonSchema": {
            "bsonType": "object",
            "required": [ID, *required],
            "properties": {
                ID: id_schema(entity, schema["properties"]),
                **properties,
                **{names[marker.name]: marker_schema(marker) for marker in markers},
                **{name: {"bsonType": "string"} for name in keys},
            },
        }
    }


def id_schema(entity: Entity, fields: Mapping[str, Document]) -> Document:
    """Return the schema of ``_id``: what is generated, the key as it is, or a text.

    A number in it may have any type of number, as in other fields.
    """
    if not entity.key_as_id:
        return {"bsonType": id_type(entity)}
    parts = id_parts(entity)
    if not parts:
        return fields[entity.key[0]]
    known = {name: fields[name] for name in parts}
    return {"bsonType": "object", "required": [*parts], "properties": known, "additionalProperties": False}


def id_type(entity: Entity) -> str:
    """Return the type of an ``_id`` that is generated, one text, ObjectId or UUID, or the parts joined."""
    if entity.generated_id:
        return "objectId"
    is_key = entity.single_key is not None and entity.document_id == entity.single_key
    return ID_TYPES.get(entity.key_parts[0].type, "string") if is_key else "string"


def closing_validator(step: str) -> Document:
    """Return a validator that no document meets; it says itself who set it."""
    # No document equals a text. The server shows this text to clients that write meanwhile.
    return {"$expr": {"$eq": ["$$ROOT", f"{CLOSED_BY} {step}"]}}


def is_closed(validator: Mapping[str, Any]) -> bool:
    """Whether a validator is that of a step which is being taken back."""
    match validator:
        case {"$expr": {"$eq": ["$$ROOT", str(text)]}}:
            return text.startswith(CLOSED_BY)
        case _:
            return False


def marker_schema(marker: Marker) -> Document:
    """Return the schema of a marker; one under its plain name may be null, as other programs write it."""
    schema = scalar_schema(marker.kind)
    if not marker.plain:
        return schema
    types = schema["bsonType"]
    return {**schema, "bsonType": [*(types if isinstance(types, list) else [types]), "null"]}


def object_schema(model: type[CanonicalModel]) -> Document:
    """Return the schema of a model; optional fields may be absent, and nothing may be null.

    The server knows no schema of a field to which no path leads.
    """
    shapes = [shape for shape in shapes_of(model) if is_path(shape.wire) and not shape.keeps_unknown]
    required = [shape.wire for shape in shapes if shape.always_written]
    schema: Document = {"bsonType": "object"}
    if required:  # the server takes no empty list
        schema["required"] = required
    schema["properties"] = {shape.wire: schema_of(shape.value) for shape in shapes}
    return schema


def schema_of(value: ValueShape) -> Document:
    """Return the schema of one value; of free JSON nothing is known."""
    schema = present_schema(value)
    return {"anyOf": [{"bsonType": "null"}, schema]} if value.nullable and schema else schema


def present_schema(value: ValueShape) -> Document:
    """Return the schema of one value that is not null."""
    item = {} if value.item is None else schema_of(value.item)
    match value.kind:
        case Kind.LIST:
            return {"bsonType": "array", "items": item}
        case Kind.MAP if value.cls is object:
            return {}
        case Kind.MAP:
            return {"bsonType": "object", "additionalProperties": item} if item else {"bsonType": "object"}
        case Kind.OBJECT:
            return object_schema(value.model)
        case Kind.NUMBERED | Kind.NAMED:
            return {"enum": [member.value for member in value.members]}
        case _:
            return scalar_schema(value.kind)


def scalar_schema(kind: Kind) -> Document:
    """Return the schema of a text, flag, instant or number.

    A whole number may arrive as any kind of number but a decimal, which models refuse too.
    """
    if kind is Kind.INTEGER:
        return {"bsonType": list(NUMBER), "multipleOf": 1}
    if kind is Kind.DECIMAL:
        return {"bsonType": list(DECIMAL)}
    return {"bsonType": list(NUMBER) if kind is Kind.NUMBER else SIMPLE[kind]}
