"""Looking at a source before its rows are read. A source is only read: it needs no schema of ours."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from logging import getLogger
from typing import TYPE_CHECKING

from twinstore_backfill.outcome import PreflightError
from twinstore_backfill.stores import preflight

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from twinstore.bulk import Survey
    from twinstore_backfill.stores import Store

__all__ = ["SourceState", "inspect_source", "own_ages"]

log = getLogger(__name__)


@dataclass(frozen=True, slots=True)
class SourceState:
    """What a source lacks.

    Attributes:
        absent: entities without a collection or table; they count as empty.
        warnings: what is absent, and what makes reading slow, each a sentence with its cost.
        own_ages: by entity, the age at which its server removes rows by itself.
        slow: entities of which each look at a range may read all rows.
    """

    absent: frozenset[str] = frozenset()
    warnings: tuple[str, ...] = ()
    own_ages: Mapping[str, timedelta] = field(default_factory=dict[str, timedelta])
    slow: frozenset[str] = frozenset()


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
    slow = frozenset(item.entity for item in found if item.warnings)
    state = SourceState(absent, tuple(_warnings(found)), ages_in(found), slow)
    for text in state.warnings:
        log.warning("source: %s", text)
    return state


def _warnings(found: Sequence[Survey]) -> Iterator[str]:
    """Yield what is absent in one sentence, because a foreign source lacks most entities; then the rest."""
    absent = [item for item in found if not item.present]
    if len(absent) > 1:
        yield f"There is nothing for {', '.join(item.entity for item in absent)}; they count as empty."
    yield from (text for item in found if item.present or len(absent) == 1 for text in item.warnings)


def own_ages(store: Store) -> dict[str, timedelta]:
    """Return, by entity, the age at which the server of a store removes rows by itself."""
    # Not every target can be surveyed as a source is, and no other one removes anything.
    return ages_in(store.bulk.survey()) if store.storage.capabilities.server_ttl else {}


def ages_in(found: Iterable[Survey]) -> dict[str, timedelta]:
    """Return the ages that a survey tells, by entity."""
    return {item.entity: item.removed_after for item in found if item.removed_after is not None}
