"""Reading the rules of a job file: what each table says, and in which line it begins."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date, datetime, time
from decimal import Decimal, InvalidOperation
from difflib import get_close_matches
from logging import getLogger
from math import isfinite
from typing import Final, TypeGuard, cast

from twinstore.errors import ConfigurationError, ValidationError
from twinstore.models.fields import INT64_MAX, INT64_MIN, parse_timestamp
from twinstore.models.json_text import format_timestamp
from twinstore_backfill.rules.forms import DERIVATIONS, FORMS, IGNORE_UNKNOWN, REASON, RULES, Form, RuleKey
from twinstore_backfill.rules.kinds import ACCEPTABLE, Group, acceptable
from twinstore_backfill.rules.model import (
    ANY,
    AcceptRule,
    DateRule,
    DropRule,
    JobRules,
    MapRule,
    ReplaceRule,
    Rule,
    RuleKind,
)
from twinstore_backfill.rules.paths import PathError, parse_path

__all__ = ["is_rule_table", "nearest", "read_rules", "with_options"]

log = getLogger(__name__)
OPTION: Final = f"--{IGNORE_UNKNOWN}"
KINDS: Final[Mapping[str, RuleKind]] = {kind.value: kind for kind in FORMS} | {IGNORE_UNKNOWN: RuleKind.DROP}
# A header begins a line that is no part of a string; a comment may hold one quote.
HEADER: Final = re.compile(
    r'"""(?:\\.|[^\\])*?"{3,5}'
    r"|'''.*?'{3,5}"
    r'|"(?:\\.|[^"\\\n])*"'
    r"|'[^'\n]*'"
    r"|#[^\n]*"
    r"|^[ \t]*\[\[[ \t]*(?P<name>[\w-]+)[ \t]*\]\]",
    re.MULTILINE | re.DOTALL,
)
LARGEST_POWER: Final = 400
Table = Mapping[str, object]


class FormError(ValueError):
    """A value has another form."""


def nearest(given: str, known: Iterable[str]) -> str:
    """Return the end of a message about an unknown name: the name that was probably meant, or all of them."""
    names = list(known)
    near = get_close_matches(given, names, 1)
    return f"; did you mean {near[0]}?" if near else f"; known: {', '.join(names)}."


def is_rule_table(name: str, value: object) -> bool:
    """Whether an entry at the top of a job file is meant as rules and not as an option or a command."""
    if name == IGNORE_UNKNOWN or _is_tables(value):
        return True
    return name in KINDS and isinstance(value, dict)


def _is_tables(value: object) -> TypeGuard[list[Table]]:
    return isinstance(value, list) and bool(value) and all(isinstance(item, dict) for item in value)


def read_rules(tables: Mapping[str, object], text: str, file: str) -> JobRules:
    """Return the rules of a job file in the order of the file.

    Args:
        tables: the entries of the file that are rules, see :func:`is_rule_table`.
        text: the file, which is valid TOML.
        file: its name.

    Raises:
        ConfigurationError: a rule is unknown or incomplete, or one of its values has another form; with
            file and line.
    """
    lines = _lines(text)
    found = sorted(_found(tables, lines, file), key=lambda item: item[0])
    if any(name == IGNORE_UNKNOWN for _, name, _ in found):
        log.warning(
            "%s: [[%s]] is called [[drop]] now; the next release does not read it.", file, IGNORE_UNKNOWN
        )
    return JobRules(
        tuple(
            RuleTable(name, number, line, table, file).rule()
            for number, (line, name, table) in enumerate(found, 1)
        ),
        file,
    )


def _lines(text: str) -> Mapping[str, Sequence[int]]:
    """Return by name the lines of the headers with two brackets."""
    lines: defaultdict[str, list[int]] = defaultdict(list)
    for found in HEADER.finditer(text):
        if found["name"]:
            lines[found["name"]].append(text.count("\n", 0, found.start("name")) + 1)
    return lines


def _found(
    tables: Mapping[str, object], lines: Mapping[str, Sequence[int]], file: str
) -> Iterator[tuple[int, str, Table]]:
    for name, value in tables.items():
        places = lines.get(name, ())
        if name not in KINDS:
            where = f", line {places[0]}" if places else ""
            raise ConfigurationError(
                f"The job file {file}{where}: there is no rule [[{name}]]{nearest(name, KINDS)}"
            )
        if not _is_tables(value) or len(value) != len(places):
            raise ConfigurationError(
                f"The job file {file}: write each rule as a table that begins with [[{KINDS[name].value}]]."
            )
        yield from zip(places, [name] * len(value), value, strict=True)


def with_options(rules: JobRules, texts: Iterable[str]) -> JobRules:
    """Return the rules of a job file with those of ``--ignore-unknown`` that it does not have.

    Such a rule is a drop without a reason.

    Raises:
        ValidationError: a text names no property of an entity.
    """
    known = {rule.text for rule in rules if isinstance(rule, DropRule)}
    drops = {rule.text: rule for rule in map(_drop, texts) if rule.text not in known}
    first = len(rules.rules) + 1
    added = (replace(drops[text], number=number) for number, text in enumerate(sorted(drops), first))
    return replace(rules, rules=(*rules, *added))


def _drop(text: str) -> DropRule:
    try:
        entity, *path = parse_path(text)
    except PathError as error:
        raise ValidationError(f"{OPTION} {error}.") from None
    if not path:
        raise ValidationError(
            f"{OPTION} {text!r} names no property; give entity and path, such as runs.legacy."
        )
    return DropRule(number=0, line=0, entity=entity, path=tuple(path))


@dataclass(frozen=True, slots=True)
class RuleTable:
    """One table of a job file that is read as a rule.

    Attributes:
        name: the name in its header.
        number: its place among all rules of the file, from 1.
        line: the line of its header.
        table: its content.
        file: the name of the file.
    """

    name: str
    number: int
    line: int
    table: Table
    file: str

    def rule(self) -> Rule:
        """Return the rule.

        Raises:
            ConfigurationError: a key is unknown or missing, or a value has another form.
        """
        kind = KINDS[self.name]
        keys = {key.name: key for key in (*FORMS[kind], REASON)}
        for name in self.table:
            if name not in keys:
                raise self._error(f"has the unknown key {name}{nearest(name, keys)}")
        for key in keys.values():
            if key.required and key.name not in self.table:
                raise self._error(f"needs {key.name}: {key.form.value}.")
        values = {name: self._value(keys[name], value) for name, value in self.table.items()}
        fields = {key.field: values[name] for name, key in keys.items() if key.field and name in values}
        fields |= self._place(values)
        if kind is RuleKind.DERIVE:
            how = self._one_of(values, DERIVATIONS)
            fields |= {"how": how, "of": values[how]}
        made = cast("Callable[..., Rule]", RULES[kind])(number=self.number, line=self.line, **fields)
        self._check(made)
        return made

    def _error(self, problem: str) -> ConfigurationError:
        return ConfigurationError(f"The job file {self.file}, line {self.line}: [[{self.name}]] {problem}")

    def _value(self, key: RuleKey, value: object) -> object:
        try:
            made = READ[key.form](value)
        except PathError as error:
            raise self._error(f"{key.name}: {error}.") from None
        except ValueError:
            raise self._error(f"expects {key.form.value} for {key.name}.") from None
        if key.words and made not in key.words:
            raise self._error(f"has an unknown value of {key.name}{nearest(str(made), key.words)}")
        return made

    def _one_of(self, values: Mapping[str, object], names: Sequence[str]) -> str:
        given = [name for name in names if name in values]
        if len(given) != 1:
            raise self._error(f"needs one of {', '.join(names)}.")
        return given[0]

    def _place(self, values: Mapping[str, object]) -> dict[str, object]:
        """Return the entity and the path of the rule."""
        if "path" in values:
            entity, *path = cast("tuple[str, ...]", values["path"])
            if not path:
                raise self._error(
                    f"names no property at path; give entity and path, such as {entity}.legacy."
                )
            if "entity" in values:
                raise self._error("takes either path or entity.")
            return {"entity": entity, "path": tuple(path)}
        return {"entity": values.get("entity", ANY), "path": values.get("from", ())}

    def _check(self, rule: Rule) -> None:
        """Refuse what no combination of values means."""
        if isinstance(rule, ReplaceRule) and (not rule.old) is (rule.what is None):
            raise self._error("needs either text, which is not empty, or what.")
        if isinstance(rule, MapRule) and not rule.values and not rule.absent:
            raise self._error("needs values or absent.")
        if isinstance(rule, MapRule) and (both := sorted(rule.values.keys() & set(rule.absent))):
            raise self._error(f"has {both[0]!r} in values and in absent.")
        words = list(rule.values.values()) if isinstance(rule, MapRule) else []
        if has_nul([*words, getattr(rule, "value", None), getattr(rule, "by", None)]):
            raise self._error("gives a text with U+0000, which PostgreSQL cannot hold.")
        if getattr(rule, "value", None) == "…":
            raise self._error("needs a value in place of ….")
        if isinstance(rule, DateRule) and not rule.formats:
            raise self._error("needs at least one format.")
        if isinstance(rule, AcceptRule):
            self._check_accepted(rule)

    def _check_accepted(self, rule: AcceptRule) -> None:
        found = acceptable(rule.what)
        if found is None:
            forms = [item.form for item in ACCEPTABLE]
            raise self._error(f"has the unknown kind {rule.what!r}{nearest(rule.what, forms)}")
        wants = found.group
        if wants is not Group.CHECK and bool(rule.path) is not (wants is Group.EQUIVALENCE):
            raise self._error(
                f"of {rule.what} needs {'path' if not rule.path else 'entity instead of path'}."
            )
        if wants is Group.QUARANTINE and "entity" not in self.table:
            raise self._error(f"of {rule.what} needs entity.")
        if (rule.most is not None) is not (wants is Group.QUARANTINE):
            needs = "needs most, the largest number of rows" if rule.most is None else "takes no most"
            raise self._error(f"of {rule.what} {needs}.")


def has_nul(value: object) -> bool:
    """Whether a text in a value of a rule has the character U+0000."""
    if isinstance(value, dict):
        return has_nul([*value, *value.values()])
    return any(map(has_nul, value)) if isinstance(value, list) else isinstance(value, str) and "\0" in value


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise FormError
    return value


def _filled(value: object) -> str:
    # A rule that a report suggests has … where a person must decide.
    if (text := _text(value).strip()) in {"", "…"}:
        raise FormError
    return text


def _flag(value: object) -> bool:
    if not isinstance(value, bool):
        raise FormError
    return value


def _count(value: object) -> int:
    if type(value) is not int or not 1 <= value <= INT64_MAX:
        raise FormError
    return value


def _texts(value: object) -> tuple[str, ...]:
    if not isinstance(value, list):
        raise FormError
    return tuple(map(_text, value))


def _words(value: object) -> dict[str, str | int | float | bool]:
    if not isinstance(value, dict):
        raise FormError
    words = {name: _json(word) for name, word in value.items()}
    if any(isinstance(word, list | dict) for word in words.values()):
        raise FormError
    return cast("dict[str, str | int | float | bool]", words)


def _json(value: object) -> object:
    """Return a value of TOML as JSON has it."""
    if isinstance(value, datetime):
        return format_timestamp(parse_timestamp(value))
    if isinstance(value, date | time):
        raise FormError
    if isinstance(value, dict):
        return {name: _json(item) for name, item in value.items()}
    if isinstance(value, list):
        return [_json(item) for item in value]
    if isinstance(value, float) and not isfinite(value):
        raise FormError
    if type(value) is int and not INT64_MIN <= value <= INT64_MAX:
        raise FormError
    return value


def _factor(value: object) -> Decimal:
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise FormError
    try:
        factor = Decimal(str(value))
    except InvalidOperation:
        raise FormError from None
    # A larger one gives no number that a store holds.
    if not factor or not factor.is_finite() or abs(factor.adjusted()) > LARGEST_POWER:
        raise FormError
    is_power = factor.normalize().as_tuple()[:2] == (0, (1,))
    if not is_power and factor != factor.to_integral_value():
        raise FormError
    return factor


def _inner_path(value: object) -> tuple[str, ...]:
    return parse_path(_text(value))


READ: Final[Mapping[Form, Callable[[object], object]]] = {
    Form.TEXT: _text,
    Form.FILLED: _filled,
    Form.FLAG: _flag,
    Form.COUNT: _count,
    Form.TEXTS: _texts,
    Form.WORDS: _words,
    Form.VALUE: _json,
    Form.FACTOR: _factor,
    Form.ENTITY: _filled,
    Form.PATH: _inner_path,
    Form.INNER_PATH: _inner_path,
}
