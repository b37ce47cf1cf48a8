"""What each table of rules in a job file may say; reading and JSON Schema follow from here."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Final

from twinstore_backfill.rules.model import (
    AcceptRule,
    DateRule,
    DefaultRule,
    DeriveRule,
    DropRule,
    IdRule,
    KeyRule,
    LookupRule,
    MapRule,
    NumberRule,
    RenameRule,
    ReplaceRule,
    Rule,
    RuleKind,
    TrimRule,
)

__all__ = ["DERIVATIONS", "FORMS", "IGNORE_UNKNOWN", "RULES", "Form", "RuleKey"]

IGNORE_UNKNOWN: Final = "ignore-unknown"
"""The name of ``[[drop]]`` in earlier releases."""


class Form(Enum):
    """The form of a value."""

    TEXT = "a text"
    FILLED = "a text that is neither empty nor …"
    FLAG = "true or false"
    COUNT = "a number of at least 1"
    TEXTS = "a list of texts"
    WORDS = 'a table of words, such as { done = "completed" }'
    VALUE = "a value"
    FACTOR = "an integer other than 0 or a power of ten"
    ENTITY = "the name of an entity"
    PATH = "an entity and a path, such as runs.stats.old"
    INNER_PATH = "a path without the entity, such as stats.old"


@dataclass(frozen=True, slots=True)
class RuleKey:
    """One key of a table.

    Attributes:
        name: its name in the file.
        form: what its value is.
        text: a sentence for editors.
        field: the field of the rule that it fills; empty for the place of the rule.
        required: whether every rule of the kind has it.
        words: the texts that it may be; empty for any.
    """

    name: str
    form: Form
    text: str
    field: str = ""
    required: bool = False
    words: tuple[str, ...] = ()


def _path(text: str = "The value in the source, such as runs.state; * for every entity or name.") -> RuleKey:
    return RuleKey("path", Form.PATH, text, required=True)


DERIVATIONS: Final = ("max", "min", "first", "last", "count")
FORMS: Final[Mapping[RuleKind, tuple[RuleKey, ...]]] = {
    RuleKind.REPLACE: (
        _path(),
        RuleKey("text", Form.TEXT, "The text to replace, at every occurrence.", "old"),
        RuleKey("what", Form.TEXT, "Characters to replace.", "what", words=("nul", "invalid-utf-8")),
        RuleKey("by", Form.TEXT, "What takes its place. Default: nothing.", "by"),
    ),
    RuleKind.TRIM: (
        _path(),
        RuleKey("empty", Form.FLAG, "Also remove empty texts, lists and objects.", "empty"),
    ),
    RuleKind.MAP: (
        _path(),
        RuleKey("values", Form.WORDS, "The new value of each word.", "values"),
        RuleKey("absent", Form.TEXTS, "Words to remove.", "absent"),
    ),
    RuleKind.DATE: (
        _path(),
        RuleKey(
            "formats",
            Form.TEXTS,
            "Formats such as %d.%m.%Y %H:%M, or epoch-seconds, epoch-milliseconds, epoch-microseconds.",
            "formats",
            required=True,
        ),
        RuleKey(
            "zone", Form.FILLED, "Time zone of formats without an offset, such as Europe/Zurich.", "zone"
        ),
    ),
    RuleKind.NUMBER: (
        _path(),
        RuleKey("from", Form.TEXT, "How it is stored.", "source", required=True, words=("text", "decimal")),
        RuleKey("factor", Form.FACTOR, "An integer or a power of ten. Default: 1.", "factor"),
    ),
    RuleKind.ID: (
        _path(),
        RuleKey("to", Form.TEXT, "What it becomes.", "to", required=True, words=("uuid", "text")),
    ),
    RuleKind.LOOKUP: (
        _path("The value in the source that names another row, such as triggers.scheduleId."),
        RuleKey("in", Form.ENTITY, "The entity of that row.", "other", required=True),
        RuleKey("by", Form.FILLED, "The stored field of it that has the value.", "by", required=True),
        RuleKey("take", Form.FILLED, "The part of its key. Default: the only one.", "take"),
    ),
    RuleKind.DERIVE: (
        _path("The field of the model that is filled where it is absent."),
        *(
            RuleKey(how, Form.INNER_PATH, f"The list of which the {how} is used, such as events.timestamp.")
            for how in DERIVATIONS
        ),
    ),
    RuleKind.RENAME: (
        _path(),
        RuleKey("to", Form.INNER_PATH, "The place in the model.", "to", required=True),
        RuleKey("keep", Form.FLAG, "Leave the old place as well.", "keep"),
    ),
    RuleKind.DROP: (_path("The property that no model has, such as runs.legacy or *.__v."),),
    RuleKind.KEY: (
        RuleKey("entity", Form.ENTITY, "The entity.", required=True),
        RuleKey("from", Form.INNER_PATH, "The stored field that is the key.", required=True),
    ),
    RuleKind.DEFAULT: (
        _path("The field of the model that is filled where it is absent or null."),
        RuleKey("value", Form.VALUE, "The value.", "value", required=True),
    ),
    RuleKind.ACCEPT: (
        RuleKey("kind", Form.FILLED, "What is accepted.", "what", required=True),
        RuleKey("path", Form.PATH, "The place of an equivalence, as reports show it."),
        RuleKey("entity", Form.ENTITY, "The entity of a cause of quarantine."),
        RuleKey("most", Form.COUNT, "The largest number of rows of a cause of quarantine.", "most"),
        RuleKey("approved-by", Form.FILLED, "Who decided.", "approved_by", required=True),
    ),
}
RULES: Final[Mapping[RuleKind, type[Rule]]] = {
    rule.kind: rule
    for rule in (
        ReplaceRule,
        TrimRule,
        MapRule,
        DateRule,
        NumberRule,
        IdRule,
        LookupRule,
        DeriveRule,
        RenameRule,
        DropRule,
        KeyRule,
        DefaultRule,
        AcceptRule,
    )
}
REASON: Final = RuleKey("reason", Form.FILLED, "Why; every report prints it.", "reason", required=True)
