"""The JSON Schemas of the reports, and the tables of their fields."""

from __future__ import annotations

import json
from functools import partial
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast

from pydantic import TypeAdapter

from docs.parts.tables import attributes, code, prose, table
from twinstore_backfill.copy.report import CopyReport, FailedCopyReport
from twinstore_backfill.report.fast_path import FastPathReport
from twinstore_backfill.report.model import FindingLine, Frozen, ParityReport

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pydantic import BaseModel

__all__ = ["SCHEMAS", "parts", "schema_files"]

DIALECT: Final = "https://json-schema.org/draft/2020-12/schema"
SCHEMAS: Final[dict[str, TypeAdapter[Any]]] = {
    "parity-report": TypeAdapter(ParityReport),
    "backfill-report": TypeAdapter(CopyReport | FailedCopyReport),
    "differences": TypeAdapter(FindingLine),
}
DEFINITION: Final = "#/$defs/"
Node = dict[str, Any]


def schema_files() -> dict[Path, str]:
    """Return the JSON Schema of each report by the path of its file."""
    folder = Path(str(files("twinstore_backfill.report"))) / "schemas"
    return {
        folder / f"{name}.schema.json": f"{json.dumps(_schema(name), indent=2, ensure_ascii=False)}\n"
        for name in SCHEMAS
    }


def parts() -> dict[str, Callable[[], str]]:
    """Return the tables of each report by the name of their part."""
    return {f"report.{name}": partial(_tables, name) for name in SCHEMAS}


def _schema(name: str) -> Node:
    """Return a schema whose descriptions come from the docstrings of the models."""
    schema = {"$schema": DIALECT, **SCHEMAS[name].json_schema(mode="serialization")}
    for title, node in _objects(schema):
        model = _models()[title]
        meanings = _meanings(model)
        node["description"] = " ".join(prose(model).split())
        for field, value in node["properties"].items():
            value.pop("title", None)
            value["description"] = meanings[field]
    return schema


def _objects(schema: Node) -> Iterator[tuple[str, Node]]:
    """Yield the objects of a schema, that of the whole file first."""
    if "properties" in schema:
        yield schema["title"], schema
    whole = [item["$ref"].removeprefix(DEFINITION) for item in schema.get("anyOf", ())]
    definitions = schema.get("$defs", {})
    yield from (
        (name, definitions[name])
        for name in dict.fromkeys([*whole, *definitions])
        if "properties" in definitions[name]
    )


def _models() -> dict[str, type[BaseModel]]:
    pending: list[type[BaseModel]] = [FastPathReport, *Frozen.__subclasses__()]
    found: dict[str, type[BaseModel]] = {}
    while pending:
        model = pending.pop()
        found[model.__name__] = model
        pending += model.__subclasses__()
    return found


def _meanings(model: type[BaseModel]) -> dict[str, str]:
    """Return the documented attributes of a model and of those that it extends."""
    found: dict[str, str] = {}
    for cls in reversed(model.__mro__):
        if "__doc__" in vars(cls):
            found |= attributes(cls)
    return found


def _tables(name: str) -> str:
    """Return the tables of a file, without the objects that the table of an earlier file describes."""
    names = list(SCHEMAS)
    earlier = {title for other in names[: names.index(name)] for title, _ in _objects(_schema(other))}
    sections = [_section(title, node) for title, node in _objects(_schema(name)) if title not in earlier]
    return "\n\n".join(sections)


def _section(title: str, node: Node) -> str:
    optional = node["properties"].keys() - set(node["required"])
    rows = [
        (code(field) + " (optional)" * (field in optional), _type(value), value["description"])
        for field, value in node["properties"].items()
    ]
    return f"### {title}\n\n{node['description']}\n\n{table(('field', 'type', 'meaning'), rows)}"


def _type(node: Node) -> str:  # noqa: PLR0911  # one line for each shape
    """Return the type of a value in a few words."""
    if "$ref" in node:
        title = node["$ref"].removeprefix(DEFINITION)
        return f"[{title}](#{title.lower()})"
    if "const" in node:
        return code(node["const"] if isinstance(node["const"], str) else json.dumps(node["const"]))
    if "enum" in node:
        return ", ".join(code(item) for item in cast("list[object]", node["enum"]))
    if "anyOf" in node:
        return " or ".join(_type(item) for item in node["anyOf"])
    if node.get("type") == "array":
        return f"list of {_type(node['items'])}"
    if node.get("type") == "object":
        return f"object of {_type(node['additionalProperties'])} by name"
    return str(node["type"])
