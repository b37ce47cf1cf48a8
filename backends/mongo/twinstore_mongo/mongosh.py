"""The migrations as a script for mongosh, for administrators who run them by hand."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from twinstore.options import ModuleOptions
    from twinstore_mongo.connection import Document
    from twinstore_mongo.steps import CollectionSpec, Step

__all__ = ["script"]


def script(
    module: str, steps: Sequence[Step], validators: Mapping[str, Document], options: ModuleOptions
) -> str:
    """Return the script: collections, unique indexes, other indexes, ledger; all of it may be repeated."""
    lines = [
        f"// Migrations of twinstore, module {module}. Run with: mongosh <connection string> <this file>",
        "const present = new Set(db.getCollectionNames());",
        "",
    ]
    for step in steps:
        lines += [f"// {step.name}", *step_lines(module, step, validators, options), ""]
    return "\n".join(lines)


def step_lines(
    module: str, step: Step, validators: Mapping[str, Document], options: ModuleOptions
) -> Iterator[str]:
    """Yield the statements of one step."""
    for collection in step.collections:
        yield from collection_lines(collection, validators)
    indexes = [(item.name, index) for item in step.collections for index in item.indexes]
    for name, index in sorted(indexes, key=lambda pair: not pair[1].unique):
        key = "{" + ", ".join(f"{text(field)}: {direction}" for field, direction in index.key) + "}"
        yield f"db.getCollection({text(name)}).createIndex({key}, {text(index.options(options))});"
    row = {"migration_name": step.name, "category": step.category, "checksum": step.checksum}
    fields = f"{text(row)[:-1]}, applied_at: new Date(), applied_by: 'mongosh', duration_ms: 0}}"
    yield (
        f"db.getCollection('_migrations').updateOne({{_id: {text(f'{module}:{step.name}')}}}, "
        f"{{$setOnInsert: {fields}}}, {{upsert: true}});"
    )


def collection_lines(collection: CollectionSpec, validators: Mapping[str, Document]) -> Iterator[str]:
    """Yield the statements that create a collection, or set the validator of one that exists."""
    name = text(collection.name)
    options: Document = {}
    if collection.name in validators:
        options = {
            "validator": validators[collection.name],
            "validationLevel": "strict",
            "validationAction": "error",
        }
    yield f"if (!present.has({name})) db.createCollection({name}, {text(options)});"
    if options:
        yield f"else db.runCommand({text({'collMod': collection.name, **options})});"


def text(value: Any) -> str:  # noqa: ANN401  # JSON of any shape
    """Return JSON, which is JavaScript too."""
    return json.dumps(value, ensure_ascii=False)
