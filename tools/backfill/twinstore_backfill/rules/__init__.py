"""The rules of a job: what changes on the way, and what is accepted.

They are data. A copy and a verification each apply them with code of their own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from twinstore.catalog.entity import Entity
    from twinstore_backfill.rules.model import JobRules

__all__ = ["check_job"]


def check_job(rules: JobRules, entities: Iterable[Entity]) -> None:
    """Refuse rules that mean nothing for the entities of a module; see :mod:`~.rules.checking`.

    Raises:
        ValidationError: the first such rule.
    """
    if rules:
        from twinstore_backfill.rules.checking import check_rules  # noqa: PLC0415  # few jobs have rules

        check_rules(rules, entities)
