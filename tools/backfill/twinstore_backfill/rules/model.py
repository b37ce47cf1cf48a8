"""The rules of a job file, as they were read: the only thing that a copy and a verification share of them."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from decimal import Decimal
from enum import StrEnum
from hashlib import sha256
from typing import TYPE_CHECKING, ClassVar, Final, Literal, TypeVar, cast

if TYPE_CHECKING:
    from twinstore.catalog.entity import Entity

__all__ = [
    "ANY",
    "NO_RULES",
    "REFUSED",
    "AcceptRule",
    "DateRule",
    "DefaultRule",
    "DeriveRule",
    "DropRule",
    "FunctionRule",
    "IdRule",
    "JobRules",
    "KeyRule",
    "LookupRule",
    "MapRule",
    "NumberRule",
    "RenameRule",
    "ReplaceRule",
    "Rule",
    "RuleKind",
    "TrimRule",
    "path_text",
    "toml_text",
]

ANY: Final = "*"
"""In the place of an entity: all of them. In the place of a name: every name of a map."""
REFUSED: Final = "the function of the module "
"""How the reason begins for which the function of a module leaves a document out."""
BARE: Final = re.compile(r"[\w$-]+")
R = TypeVar("R", bound="Rule")


class RuleKind(StrEnum):
    """The kinds of rules, in the order in which they apply to a document."""

    FUNCTION = "function"
    REPLACE = "replace"
    TRIM = "trim"
    MAP = "map"
    DATE = "date"
    NUMBER = "number"
    ID = "id"
    LOOKUP = "lookup"
    DERIVE = "derive"
    RENAME = "rename"
    DROP = "drop"
    KEY = "key"
    DEFAULT = "default"
    ACCEPT = "accept"


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """One rule.

    Attributes:
        number: its place in the file, from 1; reports count by it.
        line: the line of the file where it begins, 0 for one of the command line.
        entity: the entity, or ``*``.
        path: the names that lead to the value, in the source document as it is stored; of ``default`` and
            ``derive`` in the model. A path through a list applies to each element of it.
        reason: why; empty for a rule without a reason, such as one of the command line.
    """

    kind: ClassVar[RuleKind]
    number: int
    line: int
    entity: str
    path: tuple[str, ...]
    reason: str = ""

    @property
    def text(self) -> str:
        """The path as job files and reports have it; a name with a dot is quoted."""
        return path_text((self.entity, *self.path))

    def document(self) -> dict[str, object]:
        """Return what the rule says, without where it was read and why."""
        left_out = {"number", "line", "entity", "path", "reason"}
        said = {item.name: plain(getattr(self, item.name)) for item in fields(self)}
        own = {name: value for name, value in said.items() if name not in left_out}
        return {"kind": self.kind.value, "path": self.text, **own}


@dataclass(frozen=True, slots=True, kw_only=True)
class FunctionRule(Rule):
    """Calls the function that a module has for an entity; no job file has such a rule, and it has no path.

    Attributes:
        module: the module.
        sha256: the SHA-256 of the file that defines the function.
        kept: the stored names that it may not change.
    """

    kind: ClassVar = RuleKind.FUNCTION
    module: str
    sha256: str
    kept: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplaceRule(Rule):
    """Replaces each occurrence of ``text``, or what PostgreSQL cannot hold, also in names below the path."""

    kind: ClassVar = RuleKind.REPLACE
    old: str | None = None
    what: Literal["nul", "invalid-utf-8"] | None = None
    by: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrimRule(Rule):
    """Removes outer blanks; with ``empty`` empty texts, lists and objects become absent."""

    kind: ClassVar = RuleKind.TRIM
    empty: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class MapRule(Rule):
    """Replaces words. A key matches a text by all its characters, an integer or Boolean by its JSON form."""

    kind: ClassVar = RuleKind.MAP
    values: Mapping[str, str | int | float | bool] = field(
        default_factory=dict[str, str | int | float | bool]
    )
    absent: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class DateRule(Rule):
    """Reads instants that ISO 8601 does not cover. ``zone`` is that of formats without an offset."""

    kind: ClassVar = RuleKind.DATE
    formats: tuple[str, ...]
    zone: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class NumberRule(Rule):
    """Reads numbers from texts or decimals, times ``factor``, without rounding."""

    kind: ClassVar = RuleKind.NUMBER
    source: Literal["text", "decimal"]
    factor: Decimal = Decimal(1)


@dataclass(frozen=True, slots=True, kw_only=True)
class IdRule(Rule):
    """Turns an ObjectId, its digits or a reference into a UUID or a text."""

    kind: ClassVar = RuleKind.ID
    to: Literal["uuid", "text"]


@dataclass(frozen=True, slots=True, kw_only=True)
class LookupRule(Rule):
    """Replaces another unique field of a row, such as a name, by the key that this row has in the target.

    Attributes:
        other: the entity of the row.
        by: the stored name of the field, at the top of its documents.
        take: the part of the key; ``None`` if it has only one.
    """

    kind: ClassVar = RuleKind.LOOKUP
    other: str
    by: str
    take: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DeriveRule(Rule):
    """Fills a field that is absent with a value from a list of the same document."""

    kind: ClassVar = RuleKind.DERIVE
    how: Literal["max", "min", "first", "last", "count"]
    of: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class RenameRule(Rule):
    """Moves a value to a place of the model; ``keep`` leaves the old one as well."""

    kind: ClassVar = RuleKind.RENAME
    to: tuple[str, ...]
    keep: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class DropRule(Rule):
    """Removes a property that no model has."""

    kind: ClassVar = RuleKind.DROP


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyRule(Rule):
    """Takes another stored field for the key than ``_id``."""

    kind: ClassVar = RuleKind.KEY


@dataclass(frozen=True, slots=True, kw_only=True)
class DefaultRule(Rule):
    """Fills a field that is absent or null."""

    kind: ClassVar = RuleKind.DEFAULT
    value: object


@dataclass(frozen=True, slots=True, kw_only=True)
class AcceptRule(Rule):
    """Accepts an equivalence, or up to ``most`` rows of a cause of quarantine.

    Attributes:
        what: the equivalence or the cause, of the closed list in :mod:`twinstore_backfill.rules.kinds`.
        most: how many rows; required for a cause of quarantine, ``None`` for an equivalence.
        approved_by: who decided.
    """

    kind: ClassVar = RuleKind.ACCEPT
    what: str
    approved_by: str
    most: int | None = None


@dataclass(frozen=True, slots=True)
class JobRules:
    """All rules of a job, in the order of the file.

    Attributes:
        rules: the rules.
        file: the name of the file, for messages.
        reverse: whether the job is used backwards: a copy writes what the rules are made to read.
    """

    rules: tuple[Rule, ...] = ()
    file: str = ""
    reverse: bool = False
    _kinds: Mapping[RuleKind, Sequence[Rule]] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Sort the rules by kind, because a job may have a thousand."""
        kinds = defaultdict[RuleKind, list[Rule]](list)
        for rule in self.rules:
            kinds[rule.kind].append(rule)
        object.__setattr__(self, "_kinds", dict(kinds))

    def __bool__(self) -> bool:
        return bool(self.rules)

    def __iter__(self) -> Iterator[Rule]:
        return iter(self.rules)

    def of(self, entity: Entity | str, kind: type[R]) -> Sequence[R]:
        """Return the rules of one kind that apply to an entity, in the order of the file.

        An entity that keeps unknown properties has no drops of all entities, and none has drops of the names
        that its documents have for themselves.
        """
        name = entity if isinstance(entity, str) else entity.name
        known = self.rules if kind is Rule else self._kinds.get(kind.kind, ())
        return [
            rule
            for rule in cast("Sequence[R]", known)
            if rule.entity in {name, ANY}
            and not (isinstance(rule, DropRule) and not isinstance(entity, str) and keeps(entity, rule))
        ]

    def changing(self, entity: Entity) -> Sequence[Rule]:
        """Return the rules that change the documents of an entity, in the order in which they apply."""
        order = list(RuleKind)
        found = [rule for rule in self.of(entity, Rule) if not isinstance(rule, AcceptRule)]
        return sorted(found, key=lambda rule: order.index(rule.kind))

    def changing_found(self, entity: Entity) -> Sequence[Rule]:
        """Return the same rules as far as they count where others look a row up: it looks none up itself."""
        return [rule for rule in self.changing(entity) if not isinstance(rule, LookupRule)]

    def dropped(self, entity: Entity, *, with_reason: bool = False) -> frozenset[str]:
        """Return the properties at the top of the documents of an entity that are dropped.

        Args:
            entity: the entity.
            with_reason: only those that may be lost without leaving the proof open.
        """
        tops = (rule for rule in self.of(entity, DropRule) if len(rule.path) == 1)
        return frozenset(rule.path[0] for rule in tops if rule.reason or not with_reason)

    @property
    def of_source(self) -> JobRules:
        """The rules that apply to what a copy reads."""
        return replace(self, rules=tuple(self.accepted)) if self.reverse else self

    @property
    def accepted(self) -> Sequence[AcceptRule]:
        """The acceptances."""
        return [rule for rule in self.rules if isinstance(rule, AcceptRule)]

    def documents(self) -> Sequence[Mapping[str, object]]:
        """Return what the rules that change documents say, of which ``rules.stored`` makes them again."""
        return [rule.document() for rule in self.rules if not isinstance(rule, AcceptRule)]

    def deciding(self, entity: Entity) -> Sequence[Rule]:
        """Return the rules that decide what rows of an entity become, and rows that it looks up."""
        rules = list(self.changing(entity))
        names = {rule.other for rule in rules if isinstance(rule, LookupRule)}
        found = (rule for name in sorted(names) for rule in self.of(name, Rule))
        return rules + [rule for rule in found if not isinstance(rule, LookupRule | AcceptRule)]

    def digest(self, entity: Entity) -> str:
        """Return 16 digits that are the same for the same changes of an entity; empty without any.

        The order in the file counts for ``replace`` alone.
        """
        rules = self.deciding(entity)
        said = [json.dumps(rule.document(), sort_keys=True, default=str) for rule in rules]
        in_order = [text for text, rule in zip(said, rules, strict=True) if is_replace(rule)]
        rest = sorted(text for text in said if text not in in_order)
        return sha256("\n".join((*in_order, *rest)).encode()).hexdigest()[:16] if said else ""

    def under(self, entity: Entity) -> Mapping[str, int]:
        """Return the digest as the tally of a range has it: a name that counts once, or none."""
        digest = self.digest(entity)
        return {digest: 1} if digest else {}


def keeps(entity: Entity, drop: DropRule) -> bool:
    """Whether an entity keeps a property that a rule would drop."""
    own = len(drop.path) == 1 and drop.path[0] in entity.taken_names
    return own or (drop.entity == ANY and entity.extra is not None)


def is_replace(rule: Rule) -> bool:
    """Whether the order of a rule in the file matters."""
    return isinstance(rule, ReplaceRule)


def plain(value: object) -> object:
    """Return a part of a rule as JSON has it."""
    if isinstance(value, Decimal):
        return str(value)
    if isinstance(value, Mapping):
        return dict(value)
    return list(value) if isinstance(value, tuple) else value


def path_text(path: Sequence[str]) -> str:
    """Return a path as job files and reports have it."""
    return ".".join(map(quoted, path))


def quoted(name: str) -> str:
    """Return a name of a path, quoted where it would be read as several."""
    return name if name == ANY or BARE.fullmatch(name) else toml_text(name)


def toml_text(text: str) -> str:
    """Return a text as TOML has it."""
    # With the escapes of JSON, and one character more that it does not take as it is.
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


NO_RULES: Final = JobRules()
