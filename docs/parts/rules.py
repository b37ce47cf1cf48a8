"""The JSON Schema of job files, and the tables of their rules."""

from __future__ import annotations

import json
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from docs.parts.commands import root_command, subcommands
from docs.parts.reports import DIALECT
from docs.parts.tables import NONE, code, codes, plain, table
from twinstore_backfill.cli.job_file import ONLY_ON_THE_COMMAND_LINE
from twinstore_backfill.rules.forms import DERIVATIONS, FORMS, IGNORE_UNKNOWN, REASON, RULES, Form
from twinstore_backfill.rules.job_file import REVERSE
from twinstore_backfill.rules.kinds import ACCEPTABLE, SCHEMA
from twinstore_backfill.rules.model import RuleKind

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from docs.parts.commands import Command, Parameter
    from twinstore_backfill.rules.forms import RuleKey

__all__ = ["parts", "schema_files"]

Node = dict[str, Any]
TEXT: Final[Node] = {"type": "string"}
FILLED: Final[Node] = {"type": "string", "minLength": 1}
NODES: Final[Mapping[Form, Node]] = {
    Form.TEXT: TEXT,
    Form.FILLED: FILLED,
    Form.FLAG: {"type": "boolean"},
    Form.COUNT: {"type": "integer", "minimum": 1},
    Form.TEXTS: {"type": "array", "items": TEXT},
    Form.WORDS: {
        "type": "object",
        "additionalProperties": {"type": ["string", "integer", "number", "boolean"]},
    },
    Form.VALUE: {},
    Form.FACTOR: {"type": ["number", "string"]},
    Form.ENTITY: FILLED,
    Form.PATH: {"type": "string", "pattern": r"[.]"},
    Form.INNER_PATH: FILLED,
}
LEFT_OUT: Final = {*ONLY_ON_THE_COMMAND_LINE, "help", "help-all", IGNORE_UNKNOWN, *RuleKind}
# Of these keys a rule has one.
ALTERNATIVES: Final[Mapping[RuleKind, tuple[str, ...]]] = {
    RuleKind.REPLACE: ("text", "what"),
    RuleKind.DERIVE: DERIVATIONS,
}
IGNORE_FIELD: Final[Node] = {
    "type": "array",
    "description": "A field that is copied and not compared.",
    "items": {
        "type": "object",
        "properties": {"path": NODES[Form.PATH], "reason": FILLED},
        "required": ["path", "reason"],
        "additionalProperties": False,
    },
}
REVERSED: Final[Node] = {
    "type": "boolean",
    "description": "Copy back: source and target exchanged, and the rules undone. Default: false.",
}


def schema_files() -> dict[Path, str]:
    """Return the JSON Schema of job files by the path of its file."""
    folder = Path(str(files("twinstore_backfill.rules")))
    return {folder / SCHEMA: f"{json.dumps(_schema(), indent=2, ensure_ascii=False)}\n"}


def parts() -> dict[str, Callable[[], str]]:
    """Return the generated parts of the page on rules."""
    return {"rules": _kinds_table, "acceptable": _acceptable_table}


def _kinds_table() -> str:
    rows = (
        (
            code(f"[[{kind.value}]]"),
            codes(key.name for key in FORMS[kind] if key.required),
            codes(key.name for key in FORMS[kind] if not key.required) or NONE,
            _meaning(kind),
        )
        for kind in FORMS
    )
    return table(("Rule", "Keys", "Optional keys", "Meaning"), rows)


def _acceptable_table() -> str:
    return table(
        ("Kind", "Accepts", "Meaning"),
        ((code(item.form), item.group.value, item.text) for item in ACCEPTABLE),
    )


def _meaning(kind: RuleKind) -> str:
    """Return the docstring of a rule up to its attributes."""
    return plain(" ".join((RULES[kind].__doc__ or "").partition("Attributes:")[0].split()))


def _schema() -> Node:
    """Return the schema; the options of the commands have one description each, whichever command it is."""
    commands = subcommands(subcommands(root_command())["backfill"])
    options = dict(_options(*commands.values(), *subcommands(commands["quarantine"]).values()))
    rules = {
        kind.value: {"type": "array", "description": _meaning(kind), "items": _rule(kind)} for kind in FORMS
    }
    return {
        "$schema": DIALECT,
        "title": "Job file of `twinstore backfill`",
        "allOf": [{"$ref": "#/$defs/options"}],
        "properties": {
            **rules,
            REVERSE: REVERSED,
            "ignore-field": IGNORE_FIELD,
            **{name: {"$ref": "#/$defs/options"} for name in commands},
        },
        "$defs": {"options": {"type": "object", "properties": options}},
    }


def _table(properties: Node) -> Node:
    return {"type": "object", "properties": properties, "additionalProperties": False}


def _rule(kind: RuleKind) -> Node:
    keys = (*FORMS[kind], REASON)
    node = _table({key.name: _node(kind, key) for key in keys})
    node["required"] = [key.name for key in keys if key.required]
    if kind in ALTERNATIVES:
        node["oneOf"] = [{"required": [name]} for name in ALTERNATIVES[kind]]
    return node


def _node(kind: RuleKind, key: RuleKey) -> Node:
    node = {**NODES[key.form], "description": key.text}
    if key.words:
        node["enum"] = list(key.words)
    if kind is RuleKind.ACCEPT and key.name == "kind":
        node["anyOf"] = [
            {"pattern": f"^{item.name}:.", "description": f"{item.form}: {item.text}"}
            if item.argument
            else {"const": item.name, "description": item.text}
            for item in ACCEPTABLE
        ]
    return node


def _options(*commands: Command) -> Iterator[tuple[str, Node]]:
    for command in commands:
        for item in command.params:
            names = {text.lstrip("-") for text in item.opts if text.startswith("--")}
            yield from ((name, _option(item)) for name in sorted(names - LEFT_OUT))


def _option(item: Parameter) -> Node:
    single: Node = {"type": "boolean"} if getattr(item, "is_flag", False) else {"type": ["string", "number"]}
    if getattr(item, "multiple", False):
        single = {"anyOf": [single, {"type": "array", "items": single}]}
    return {**single, "description": str(getattr(item, "help", ""))}
