"""How many rows each rule changed."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from twinstore_backfill.copy.rules.changes import only_drops
from twinstore_backfill.rules.model import AcceptRule, DropRule

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from twinstore.catalog.entity import Entity
    from twinstore_backfill.rules.model import JobRules, Rule


class RuleTally:
    """The rows of one range by the rules that changed them."""

    def __init__(self, rules: JobRules, entity: Entity) -> None:
        changing = rules.changing(entity)
        self._names = rule_names(rules) if changing else {}
        self._drops = frozenset(rule.number for rule in changing if isinstance(rule, DropRule))
        # A driver that only skips names does not say which one it met.
        self._skipping = self._drops if only_drops(changing) is not None else frozenset[int]()
        self._counts = Counter[int]()

    def drops(self, numbers: Sequence[int]) -> bool:
        """Whether one of these rules drops something."""
        return bool(numbers) and not self._drops.isdisjoint(numbers)

    def add(self, numbers: Sequence[int]) -> None:
        """Count a row that these rules changed."""
        self._counts.update(numbers)

    def add_dropped(self, rows: int) -> None:
        """Count rows of which a driver skipped names: for each rule that drops one, as all they are known."""
        self._counts.update(dict.fromkeys(self._skipping, rows))

    def counts(self) -> dict[str, int]:
        """Return the number of rows by the name of the rule, without zeros."""
        return {self._names[number]: count for number, count in sorted(self._counts.items()) if count}


def rule_names(rules: JobRules) -> Mapping[int, str]:
    """Return a name for each rule that changes rows, which stays when others are added or removed."""
    found: dict[int, str] = {}
    seen = Counter[str]()
    for rule in rules:
        if isinstance(rule, AcceptRule):
            continue
        name = f"{rule.kind} {rule.text}"
        seen[name] += 1
        # Only texts are replaced several times at one path, in the order of the file.
        found[rule.number] = name if seen[name] == 1 else f"{name} ({seen[name]})"
    return found


def counted_rules(rules: JobRules, counts: Mapping[str, int]) -> list[dict[str, object]]:
    """Return the rules that change rows as reports list them, each with its number of rows."""
    names = rule_names(rules)
    return [described(rule, counts.get(names[rule.number], 0)) for rule in rules if rule.number in names]


def described(rule: Rule, rows: int) -> dict[str, object]:
    """Return one rule as a report shows it."""
    return {"kind": rule.kind.value, "path": rule.text, "reason": rule.reason, "rows": rows}
