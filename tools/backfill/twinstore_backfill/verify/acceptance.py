"""What a job accepts with a reason: which rule accepts a change or a quarantined row."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from twinstore_backfill.rules.model import ANY

if TYPE_CHECKING:
    from twinstore.catalog.entity import Entity
    from twinstore_backfill.causes import Cause
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
