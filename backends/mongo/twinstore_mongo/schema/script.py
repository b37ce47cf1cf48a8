"""The migrations as a script for mongosh, for administrators who run them by hand.

It follows the order of the migrator: plain indexes, then the count of what the server would remove or refuse,
then what does so, with consent only, then the ledger.
"""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Final

from twinstore_mongo.schema.comparison import AGE
from twinstore_mongo.schema.steps import AppliedStep, whole_collections

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from twinstore.plugins.options import ModuleOptions
    from twinstore_mongo.client.types import Document
    from twinstore_mongo.mapping.layout import CollectionSpec, IndexSpec
    from twinstore_mongo.schema.steps import Step

HEAD: Final = """\
// Migrations of twinstore, module {module}. Run with: mongosh <connection string> <this file>
// It may be run again. Where the server would remove documents at once or refuse their next write, it makes
// plain indexes only, says how many there are, and stops. To agree, set the numbers here:
//   const accept = {{ttl: {{runs: 500}}, validator: {{runs: 17}}}};
const accept = {{ttl: {{}}, validator: {{}}}};
const present = new Set(db.getCollectionNames());
const asked = [];
function ask(kind, name, filter) {{
  const rows = present.has(name) ? db.getCollection(name).countDocuments(filter) : 0;
  if (rows > 0 && !(accept[kind][name] >= rows)) asked.push(`${{kind}}: {{${{name}}: ${{rows}}}}`);
}}
function index(name, key, options) {{
  const there = db.getCollection(name).getIndexes().some((found) => found.name === options.name);
  if (!there) db.getCollection(name).createIndex(key, {{...options, collation: {{locale: "simple"}}}});
}}
"""
STOP: Final = """\
if (asked.length > 0) throw new Error(`Plain indexes were made, nothing else. Agree to ${asked.join(", ")}`);
"""


def script(
    module: str, steps: Sequence[Step], validators: Mapping[str, Document], options: ModuleOptions
) -> str:
    """Return the script; all of it may be repeated."""
    collections = whole_collections(steps)
    aging = [
        (collection.name, index)
        for collection in collections
        for index in collection.indexes
        if AGE in index.options(options)
    ]
    known = [collection.name for collection in collections if collection.name in validators]
    lines = [
        HEAD.format(module=module),
        "// What may need consent",
        *(expiring(name, index, options) for name, index in aging),
        *(f'ask("validator", {text(name)}, {{$nor: [{text(validators[name])}]}});' for name in known),
        "",
        "// Collections and plain indexes",
        *(line for step in steps for line in plain_lines(step, options)),
        "",
        STOP,
        "// What lets the server refuse and remove documents",
        *(f"db.runCommand({text(validating(name, validators[name]))});" for name in known),
        *(f"db.runCommand({text(removing(name, index, options))});" for name, index in aging),
        *(line for step in steps for line in carry_lines(module, step)),
        "",
        "// The ledger",
        *(ledger_line(module, step) for step in steps),
        "",
    ]
    return "\n".join(lines)


def expiring(name: str, index: IndexSpec, options: ModuleOptions) -> str:
    """Return the statement that counts what an age would remove at once."""
    milliseconds = index.options(options)[AGE] * 1000
    field = text(index.key[0][0])
    return f'ask("ttl", {text(name)}, {{{field}: {{$lte: new Date(Date.now() - {milliseconds})}}}});'


def plain_lines(step: Step, options: ModuleOptions) -> Iterator[str]:
    """Yield the statements that make the collections and indexes of a step: unique ones first, no ages."""
    yield from (collection_line(collection) for collection in step.collections)
    indexes = [(item.name, index) for item in step.collections for index in item.indexes]
    # Duplicates refuse a unique index, and then no other one should have been built in vain.
    for name, index in sorted(indexes, key=lambda pair: not pair[1].unique):
        key = "{" + ", ".join(f"{text(field)}: {direction}" for field, direction in index.key) + "}"
        plain = {name: value for name, value in index.options(options).items() if name != AGE}
        yield f"index({text(name)}, {key}, {text(plain)});"


def collection_line(collection: CollectionSpec) -> str:
    """Return the statement that creates a collection."""
    name = text(collection.name)
    # A later step may add to it.
    return f"if (!present.has({name})) {{ db.createCollection({name}); present.add({name}); }}"


def validating(name: str, validator: Document) -> Document:
    """Return the command that sets a validator."""
    return {
        "collMod": name,
        "validator": validator,
        "validationLevel": "strict",
        "validationAction": "error",
    }


def removing(name: str, index: IndexSpec, options: ModuleOptions) -> Document:
    """Return the command that gives an index its age."""
    # Last and separate: from then on the server removes rows, within a minute.
    return {"collMod": name, "index": {"name": index.name, AGE: index.options(options)[AGE]}}


def carry_lines(module: str, step: Step) -> Iterator[str]:
    """Yield the statements that bring documents of an earlier version here, unless that was done before."""
    if not step.carry_overs:
        return
    recorded = f"db.getCollection('_migrations').countDocuments({{_id: {text(f'{module}:{step.name}')}}})"
    yield f"if ({recorded} === 0) {{"
    for item in step.carry_overs:
        pipeline = f"{text(item.pipeline)}, {{allowDiskUse: true}}"
        yield f"  db.getCollection({text(item.source)}).aggregate({pipeline}).toArray();"
    yield "}"


def ledger_line(module: str, step: Step) -> str:
    """Return the statement that notes a step as applied."""
    row = AppliedStep(
        migration_name=step.name, category=step.category, checksum=step.checksum, applied_by="mongosh"
    )
    values = {name: text(value) for name, value in asdict(row).items()} | {"applied_at": "new Date()"}
    fields = ", ".join(f"{name}: {value}" for name, value in values.items())
    return (
        f"db.getCollection('_migrations').updateOne({{_id: {text(f'{module}:{step.name}')}}}, "
        f"{{$setOnInsert: {{{fields}}}}}, {{upsert: true}});"
    )


def text(value: Any) -> str:  # noqa: ANN401  # JSON of any shape
    """Return JSON, which is JavaScript too."""
    return json.dumps(value, ensure_ascii=False)
