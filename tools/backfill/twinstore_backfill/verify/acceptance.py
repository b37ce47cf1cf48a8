"""What a job accepts with a reason: which rule accepts a change or a quarantined row, and how many rows.

A comparison only notes for each row which rules accept it. Whether a rule holds is known at the end: one that
accepts a cause of quarantine does so up to a number of rows, and beyond it for none.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from twinstore_backfill.reasons import QUARANTINED
from twinstore_backfill.report.model import ExceptionReport
from twinstore_backfill.rules.kinds import Group, acceptable
from twinstore_backfill.rules.model import ANY

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from twinstore.catalog.entity import Entity
    from twinstore_backfill.causes import Cause
    from twinstore_backfill.report.model import CauseReport
    from twinstore_backfill.rules.model import AcceptRule, JobRules
    from twinstore_backfill.verify.expected import Change

# The names in a path as reports show it: plain, or quoted and escaped. Places in lists do not count.
NAME: Final = re.compile(r'(?:^|\.)([A-Za-z_][\w-]*)|\["((?:[^"\\]|\\.)*)"\]')
ESCAPED: Final = re.compile(r"\\(.)")


def names_of(path: str) -> tuple[str, ...]:
    """Return the names of a path such as ``doc.events[2].timestamp`` behind its first part."""
    names = [plain or ESCAPED.sub(r"\1", quoted) for plain, quoted in NAME.findall(path)]
    return tuple(names[1:])


def covers(rule: AcceptRule, path: str) -> bool:
    """Whether the path of a rule leads to a place of a row."""
    names = names_of(path)
    return len(names) == len(rule.path) and all(
        wanted in {ANY, name} for wanted, name in zip(rule.path, names, strict=True)
    )


class Acceptance:
    """What a job accepts of the rows of one entity."""

    def __init__(self, entity: Entity, rules: JobRules) -> None:
        self._rules = [rule for rule in rules.accepted if rule.entity in {ANY, entity.name}]
        # What identifies a row or its owner is never accepted, whatever path leads there.
        self._never = {*entity.key, entity.tenant_field, entity.document_id}
        self._never |= {name for index in entity.uniques for name in index.names}

    def equivalence(self, change: Change) -> int | None:
        """Return the number of the rule that accepts a change, ``None`` if there is none."""
        if not self._rules or change.field in self._never:
            return None
        return next(
            (rule.number for rule in self._rules if rule.what == change.kind and covers(rule, change.path)),
            None,
        )

    def cause(self, cause: Cause) -> int | None:
        """Return the number of the rule that accepts why a row is in quarantine."""
        return next((rule.number for rule in self._rules if rule.what == str(cause)), None)


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
