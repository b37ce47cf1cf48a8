"""Rules as the ledger of a job keeps them."""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING, Any, cast

from twinstore_backfill.rules.forms import RULES
from twinstore_backfill.rules.model import FunctionRule, JobRules, Rule, RuleKind
from twinstore_backfill.rules.paths import parse_path

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

__all__ = ["rules_of"]


def rules_of(documents: Iterable[Mapping[str, Any]]) -> JobRules:
    """Return rules of what :meth:`JobRules.documents` says of them, after JSON."""
    return JobRules(tuple(_rule(number, document) for number, document in enumerate(documents, 1)))


def _rule(number: int, document: Mapping[str, Any]) -> Rule:
    kind = RuleKind(document["kind"])
    entity, *path = parse_path(document["path"])
    own = {name: _value(name, value) for name, value in document.items() if name not in {"kind", "path"}}
    # No job file has one of these.
    made = cast("Callable[..., Rule]", FunctionRule if kind is RuleKind.FUNCTION else RULES[kind])
    return made(number=number, line=0, entity=entity, path=tuple(path), **own)


def _value(name: str, value: object) -> object:
    """Return a value of a rule as :func:`~twinstore_backfill.rules.model.plain` got it."""
    if name == "factor":
        return Decimal(str(value))
    # The value of a default is JSON.
    return tuple(cast("list[object]", value)) if isinstance(value, list) and name != "value" else value
