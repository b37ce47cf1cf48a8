"""The rules of a job: what changes on the way, and what is accepted.

They are data. A copy and a verification each apply them with code of their own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from twinstore_backfill.rules.model import JobRules
    from twinstore_backfill.stores import Store

__all__ = ["job_rules"]


def job_rules(rules: JobRules, source: Store) -> JobRules:
    """Return the rules of a job with the functions of its module, see :mod:`~.rules.functions`.

    Raises:
        ValidationError: a rule means nothing for the entities of the module, see :mod:`~.rules.checking`.
        ConfigurationError: a function has no source file.
    """
    from twinstore.errors import ValidationError  # noqa: PLC0415  # few jobs have rules
    from twinstore.plugins.modules import module_spec  # noqa: PLC0415  # it imports models

    if rules:
        from twinstore_backfill.rules.checking import check_rules  # noqa: PLC0415  # few jobs have rules

        check_rules(rules, source.bulk.entities())
    if module_spec(source.module).normalise:
        from twinstore_backfill.rules.functions import with_functions  # noqa: PLC0415  # few modules have them

        if rules.reverse:
            raise ValidationError(
                "reverse = true cannot undo the functions with which the module changes documents; copy back "
                "without it."
            )
        return with_functions(rules, source.module, source.bulk.entities())
    return rules
