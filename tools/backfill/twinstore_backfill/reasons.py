"""Why rows are not moved or not proved, counted by reason over all rows: one table for every command.

    row -> (entity, kind, reason) -> Reasons, whose size is bounded -> CauseReport, with what solves it

Reasons are sentences of ours without a stored value. What a sentence says of one row alone, such as which
other row holds its name, is taken out before it is counted.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from twinstore.bulk.unique_moves import without_holder
from twinstore_backfill.causes import cause_of
from twinstore_backfill.report.model import CauseReport
from twinstore_backfill.rules.kinds import acceptable
from twinstore_backfill.rules.model import quoted, toml_text

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from twinstore.catalog.entity import Entity
    from twinstore.catalog.keys import Key

    Example = Key | str | None

__all__ = ["CONFLICT", "NORMALISED", "QUARANTINED", "UNPROVED", "Reasons", "accept_rule", "remedy_of"]

QUARANTINED: Final = "quarantined"
UNPROVED: Final = "unproved"
NORMALISED: Final = "normalised"
CONFLICT: Final = "conflict"
# A model has a few dozen rules; more than this are names that users chose, and their number has no bound.
MOST: Final = 1000
OTHER: Final = "another reason; differences.ndjson or the quarantine has it"
INDEX: Final = re.compile(r"\.\d+(?=[.:])")
# The model, the path and the rule of a refusal of a model; the path and the kind of an equivalence.
REFUSAL: Final = re.compile(r"\w+ (?P<path>[^:]+): (?P<rule>[^;]+)")
EQUIVALENCE: Final = re.compile(r"(?:doc|storage)\.?(?P<path>.*) \((?P<kind>\w+)\)")
MEMBER: Final = re.compile(r"\[(?:\d*|\*)\]")
WORD: Final = re.compile(r"Input should be '([^']*)'")


@dataclass(slots=True)
class CountedReason:
    """How many rows have a reason; ``example`` is the key of the first, or what is stored in its place."""

    rows: int
    example: Example


class Reasons:
    """Counts rows by entity, kind and reason, in the order in which they are added."""

    def __init__(self) -> None:
        self.counted: dict[tuple[str, str, str], CountedReason] = {}

    def add(self, entity: str, kind: str, reason: str, example: Example, rows: int = 1) -> None:
        """Count rows of a reason."""
        place = (entity, kind, _of_all_rows(reason))
        if place not in self.counted and len(self.counted) >= MOST:
            place = (entity, kind, OTHER)
        counted = self.counted.get(place)
        if counted is None:
            self.counted[place] = CountedReason(rows, example)
        else:
            counted.rows += rows

    def merge(self, other: Reasons) -> None:
        """Add what was counted of later rows."""
        for (entity, kind, reason), counted in other.counted.items():
            self.add(entity, kind, reason, counted.example, counted.rows)

    def reports(self, entities: Iterable[Entity]) -> tuple[CauseReport, ...]:
        """Return the reasons for a report, the most frequent ones first."""
        known = {entity.name: entity for entity in entities}
        found = [
            _report(known[entity], kind, reason, counted)
            for (entity, kind, reason), counted in self.counted.items()
        ]
        return tuple(sorted(found, key=lambda item: (-item.documents, item.entity, item.kind, item.reason)))


def _of_all_rows(reason: str) -> str:
    """Return a reason without what it says of one row alone."""
    return INDEX.sub("", without_holder(reason))


def _report(entity: Entity, kind: str, reason: str, counted: CountedReason) -> CauseReport:
    cause = str(cause_of(entity, reason)) if kind in REFUSED else _equivalence(reason)
    return CauseReport(
        entity=entity.name,
        kind=kind,
        cause=cause,
        reason=reason,
        documents=counted.rows,
        example=counted.example,
        remedy=remedy_of(entity, kind, cause, reason, counted.rows),
    )


def _equivalence(reason: str) -> str:
    found = EQUIVALENCE.fullmatch(reason)
    return found["kind"] if found else ""


# Kinds of which the reason says why the source row cannot be copied.
REFUSED: Final = frozenset({QUARANTINED, "undecodable", "stale"})
COMMANDS: Final[Mapping[str, str]] = {
    "missing": "twinstore backfill copy --execute",
    "different": "twinstore backfill repair --execute",
    "extra": "twinstore backfill repair --delete-extra --execute",
    CONFLICT: "twinstore backfill copy --on-conflict overwrite --execute",
}


# Nothing replaces a row that is only ever appended.
NEW_COPY: Final = "twinstore backfill copy --target-config empty.json --execute"


def remedy_of(entity: Entity, kind: str, cause: str, reason: str, rows: int) -> str:
    """Return what solves a cause, to paste: a rule of a job file, or a command."""
    if kind in COMMANDS:
        return NEW_COPY if kind == CONFLICT and entity.append_only else COMMANDS[kind]
    if kind == UNPROVED:
        return _for_equivalence(entity, reason)
    if kind not in REFUSED:
        return ""
    if rule := _rule_for(entity, cause, reason):
        return rule
    if acceptable(cause) is None:
        return f"twinstore backfill quarantine list --entity {entity.name}"
    return accept_rule(cause, {"entity": entity.name, "most": rows})


def accept_rule(kind: str, keys: Mapping[str, object]) -> str:
    """Return the acceptance of a kind as a job file has it."""
    return _rule("accept", {"kind": kind, **keys, "reason": "…", "approved-by": "…"})


def _for_equivalence(entity: Entity, reason: str) -> str:
    found = EQUIVALENCE.fullmatch(reason)
    if found is None:
        return ""
    names = MEMBER.sub("", found["path"])
    field = names.partition(".")[0]
    # No rule changes a key, and no job accepts another form of what identifies a row.
    if field in entity.key:
        return ""
    if found["kind"] == "ignored":  # a dropped property, without a reason
        return _rule("drop", {"path": _path(entity, names), "reason": "…"})
    if found["kind"] == "whitespace":
        return _rule("trim", {"path": _path(entity, names), "reason": "…"})
    identity = {entity.tenant_field, *(name for index in entity.uniques for name in index.names)}
    if field in identity or acceptable(found["kind"]) is None:
        return ""
    return accept_rule(found["kind"], {"path": _path(entity, names)})


def _rule_for(entity: Entity, cause: str, reason: str) -> str:
    """Return the rule that changes what a model refuses, an empty text where no rule does."""
    if cause == "key" and len(entity.key) == 1:
        # The _id differs from the field that is the key, or is an ObjectId.
        if reason.startswith("its fields _id and "):
            return _rule("key", {"entity": entity.name, "from": entity.key[0], "reason": "…"})
        return _rule("id", {"path": f"{entity.name}._id", "to": "text", "reason": "…"})
    refusal = REFUSAL.match(reason)
    if refusal is None or refusal["path"] == "document":
        return ""
    path, rule = _path(entity, refusal["path"]), refusal["rule"]
    return next((made(path, rule) for begin, made in RULES if rule.startswith(begin)), "")


def _path(entity: Entity, path: str) -> str:
    return ".".join(quoted(name) for name in (entity.name, *path.split(".")) if name)


def _map(path: str, rule: str) -> str:
    word = WORD.match(rule)
    # The stored words appear in no report; only their owner knows which word each of them means.
    meant = word[1] if word else TIMES["timezone" if rule.startswith(NO_ZONE) else "cron"]
    return _rule("map", {"path": path, "values": {"…": meant}, "reason": "…"})


def _plain(kind: str, keys: Mapping[str, object]) -> Callable[[str, str], str]:
    return lambda path, _: _rule(kind, {"path": path, **keys, "reason": "…"})


NO_ZONE: Final = "not a known time zone"
TIMES: Final = {"timezone": "Europe/Berlin", "cron": "0 0 * * *"}
FROM_TEXT: Final = {"from": "text"}
SWISS: Final = {"formats": ["%d.%m.%Y %H:%M"], "zone": "Europe/Zurich"}


# How the rules of models begin, and what changes a value that breaks one.
RULES: Final[tuple[tuple[tuple[str, ...], Callable[[str, str], str]], ...]] = (
    (("Unknown property",), _plain("drop", {})),
    (("Required property is missing",), _plain("default", {"value": "…"})),
    (("Input should be '", NO_ZONE, "cron "), _map),
    (
        ("Input should be ISO 8601", "Input should be a timestamp", "Timestamp has no offset"),
        _plain("date", SWISS),
    ),
    (("Input should be a whole number", "Input should be a valid number"), _plain("number", FROM_TEXT)),
    (("Text contains U+0000", "text contains U+0000"), _plain("replace", {"what": "nul", "by": ""})),
    (("Text is no ObjectId",), _plain("id", {"to": "text"})),
    (("Text is no UUID",), _plain("id", {"to": "uuid"})),
)


def _rule(kind: str, keys: Mapping[str, object]) -> str:
    """Return a rule as a job file has it; a value that only the user knows is an ellipsis."""
    lines = (f"{name} = {_toml(value)}" for name, value in keys.items() if value is not None)
    return "\n".join((f"[[{kind}]]", *lines))


def _toml(value: object) -> str:
    if isinstance(value, dict):
        return f"{{ {', '.join(f'{_toml(name)} = {_toml(item)}' for name, item in value.items())} }}"
    if isinstance(value, list):
        return f"[{', '.join(map(_toml, value))}]"
    return str(value) if isinstance(value, int) else toml_text(str(value))
