"""Looking at a source before its rows are read. A source is only read: it needs no schema of ours."""

from __future__ import annotations

from dataclasses import dataclass
from logging import getLogger
from typing import TYPE_CHECKING

from twinstore_backfill.outcome import PreflightError
from twinstore_backfill.stores import preflight

if TYPE_CHECKING:
    from twinstore_backfill.stores import Store

__all__ = ["SourceState", "inspect_source"]

log = getLogger(__name__)


@dataclass(frozen=True, slots=True)
class SourceState:
    """What a source lacks.

    Attributes:
        absent: entities without a collection or table; they count as empty.
        warnings: what is absent, and what makes reading slow, each a sentence with its cost.
    """

    absent: frozenset[str] = frozenset()
    warnings: tuple[str, ...] = ()


def inspect_source(source: Store) -> SourceState:
    """Return what a source lacks, and warn of it before it is felt.

    Raises:
        PreflightError: there is nothing of the module at all, or something cannot be read in full.
    """
    found = preflight(source.bulk.survey)
    names = [item.entity for item in found]
    absent = frozenset(item.entity for item in found if not item.present)
    if len(absent) == len(found):
        raise PreflightError(
            f"The source {source.bulk.place} has none of {', '.join(names)}, so there is nothing to read; "
            "check the name of its database in --source-config or --config.",
            driver=source.backend,
        )
    state = SourceState(absent, tuple(text for item in found for text in item.warnings))
    for text in state.warnings:
        log.warning("source: %s", text)
    return state
