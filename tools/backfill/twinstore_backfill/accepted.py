"""How many rows the acceptances of a job have met, and which of them hold.

A copy or a comparison only notes for each row which rule accepts it. Whether the rule holds is known at the
end: one that accepts a cause of quarantine does so up to a number of rows, and beyond it for none.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from twinstore_backfill.reasons import QUARANTINED
from twinstore_backfill.report.model import ExceptionReport
from twinstore_backfill.rules.kinds import Group, acceptable
from twinstore_backfill.rules.model import ANY

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from twinstore_backfill.report.model import CauseReport
    from twinstore_backfill.rules.model import AcceptRule, JobRules


@dataclass(frozen=True, slots=True)
class Accepted:
    """How many rows each acceptance of a job has met, by its number, in all entities."""

    rules: Sequence[AcceptRule]
    rows: Mapping[int, int]

    @classmethod
    def of(cls, rules: JobRules, found: Iterable[Mapping[int, int]]) -> Accepted:
        """Return the sum over entities."""
        rows = Counter[int]()
        for counts in found:
            rows.update(counts)
        return cls(rules.accepted, rows)

    @classmethod
    def of_causes(cls, rules: JobRules, causes: Iterable[CauseReport]) -> Accepted:
        """Return how many of the quarantined rows that were counted by cause each rule accepts."""
        rows = Counter[int]()
        for cause in causes:
            matching = (
                rule for rule in rules.accepted if rule.what == cause.cause and cause.kind == QUARANTINED
            )
            found = next((rule for rule in matching if rule.entity in {ANY, cause.entity}), None)
            if found is not None:
                rows[found.number] += cause.documents
        return cls(rules.accepted, rows)

    @property
    def of_quarantine(self) -> frozenset[int]:
        """The numbers of the rules that accept quarantined rows, and have not met more than they accept."""
        return frozenset(rule.number for rule in self.rules if is_of_quarantine(rule) and self.holds(rule))

    @property
    def exceeded(self) -> Sequence[str]:
        """A sentence for each rule that has met more rows than it accepts."""
        return [
            f"{rule.entity}: {self.rows[rule.number]:,} of {rule.what}, but only {rule.most:,} are accepted"
            for rule in self.rules
            if not self.holds(rule)
        ]

    def rule_of(self, kind: str, entity: str) -> AcceptRule | None:
        """Return the rule that accepts a finding about an entity that no single row causes."""
        return next((rule for rule in self.rules if rule.what == kind and rule.entity in {ANY, entity}), None)

    def approved(self, cause: CauseReport) -> CauseReport:
        """Return a cause as a report has it, approved if a rule accepts all of its rows."""
        rules = [rule for rule in self.rules if rule.what == cause.cause and self.holds(rule)]
        accepted = any(is_of_quarantine(rule) and rule.entity in {ANY, cause.entity} for rule in rules)
        return cause.model_copy(update={"approved": accepted and cause.kind == QUARANTINED})

    def with_rows(self, rule: AcceptRule, rows: int) -> Accepted:
        """Return the same with the rows that such a finding is about."""
        return replace(self, rows={**self.rows, rule.number: rows})

    def holds(self, rule: AcceptRule) -> bool:
        """Whether a rule has not met more rows than it accepts."""
        return rule.most is None or self.rows.get(rule.number, 0) <= rule.most

    def reports(self) -> tuple[ExceptionReport, ...]:
        """Return the rules that hold and have met rows, as reports list them."""
        return tuple(
            ExceptionReport(
                kind=rule.what,
                path=rule.text,
                rows=self.rows[rule.number],
                reason=rule.reason,
                approved_by=rule.approved_by,
                most=rule.most,
            )
            for rule in self.rules
            if self.rows.get(rule.number) and self.holds(rule)
        )


def is_of_quarantine(rule: AcceptRule) -> bool:
    """Whether a rule accepts quarantined rows."""
    found = acceptable(rule.what)
    return found is not None and found.group is Group.QUARANTINE
