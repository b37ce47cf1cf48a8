"""Rows that retention removes while both sides are compared.

A TTL monitor or a purge does not stop for a verification. A row that only one side has, and that was due by
the moment at which it was looked for, has expired; it is neither missing nor extra.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from twinstore_backfill.copy.retention import is_due

if TYPE_CHECKING:
    from twinstore.bulk import ScanRow
    from twinstore.catalog import Entity

__all__ = ["OwnAges", "Pair", "Removals", "ServerTime", "Side", "counted_rows", "sampled_rows"]

# Whoever removes rows goes by a clock of its own: another member of a set, or the host of a purge.
MARGIN: Final = timedelta(minutes=1)
# The lists of one tenant take seconds, those over all tenants may take minutes.
LISTS_AHEAD: Final = timedelta(minutes=15)
# The monitor of MongoDB comes every minute, and after a busy time much later; rows that were due longer ago
# than this were gone before a verification began.
DELAY: Final = timedelta(minutes=10)
# Thousands of rows may be due; the servers need not be asked for each.
KEPT_SECONDS: Final = 1.0

# Of source and target.
Pair: TypeAlias = tuple[int, int]
Side: TypeAlias = Literal["source", "target"]


class ServerTime:
    """The time of the server that is ahead, asked for at most once a second."""

    def __init__(
        self, clocks: Sequence[Callable[[], datetime]], ticks: Callable[[], float] = time.monotonic
    ) -> None:
        """Take how each server is asked."""
        self._clocks = clocks
        self._ticks = ticks
        self._asked = 0.0
        self._known: datetime | None = None

    def now(self, *, at_least: datetime | None = None) -> datetime:
        """Return the time; it may be a second old, unless that is too early for ``at_least``."""
        known = self._known
        early = known is None or (at_least is not None and known < at_least)
        if known is None or (early and self._ticks() - self._asked >= KEPT_SECONDS):
            # Before the answer, so that the time it takes makes what is kept older, never younger.
            self._asked = self._ticks()
            known = self._known = max(clock() for clock in self._clocks)
        return known


@dataclass(frozen=True, slots=True)
class OwnAges:
    """By entity, the age at which the servers remove rows by themselves, without being asked."""

    source: Mapping[str, timedelta] = field(default_factory=dict[str, timedelta])
    target: Mapping[str, timedelta] = field(default_factory=dict[str, timedelta])

    def of(self, entity: str) -> dict[Side, timedelta]:
        """Return the ages of one entity by side; a side that removes nothing is left out."""
        sides: tuple[tuple[Side, Mapping[str, timedelta]], ...] = (
            ("source", self.source),
            ("target", self.target),
        )
        return {side: ages[entity] for side, ages in sides if entity in ages}


@dataclass(frozen=True, slots=True, kw_only=True)
class Removals:
    """Which rows of one entity may have been removed by now.

    Attributes:
        time: the time of the servers.
        as_of: the instant by which expired rows are left out.
        since: when the verification began.
        age: the age at which rows expire by the settings of the target, ``None``: never.
        own: the age at which the server of a side removes rows by itself.
    """

    entity: Entity
    time: ServerTime
    as_of: datetime
    since: datetime
    age: timedelta | None
    own: Mapping[Side, timedelta] = field(default_factory=dict[Side, timedelta])

    @property
    def possible(self) -> bool:
        """Whether any row can be removed."""
        return self.age is not None or bool(self.own)

    def may_have_taken(self, row: ScanRow, lacking: Side) -> bool:
        """Tell whether a row may have been removed for its age on the side that lacks it."""
        expires = row.expires
        if expires is None:
            return False
        return any(
            (earliest is None or expires > earliest) and is_due(self.entity, row, self._limit(age, expires))
            for age, earliest in self._ages(lacking)
        )

    def ahead(self) -> datetime | None:
        """Return the instant up to which rows may be gone on one side before a list is read to its end."""
        ages = list(self.own.values())
        # By settings rows go while somebody purges; who judges by an instant long ago means all rows since.
        if self.age is not None and self.as_of >= self.since - DELAY:
            ages.append(self.age)
        return self.time.now() + LISTS_AHEAD - min(ages) if ages else None

    def _ages(self, lacking: Side) -> Iterator[tuple[timedelta, datetime | None]]:
        """Yield each age with the instant from which on rows count by it."""
        if self.age is not None:
            yield self.age, self.since - DELAY - self.age
        own = self.own.get(lacking)
        if own is not None:
            # With the age of the settings the server only does what is settled. With another one, what it
            # removed before the verification is no part of that side any more.
            yield own, None if own == self.age else self.since - DELAY - own

    def _limit(self, age: timedelta, expires: datetime) -> datetime:
        return self.time.now(at_least=expires + age - MARGIN) + MARGIN - age


def counted_rows(before: Pair, after: Pair, read: Pair) -> Pair:
    """Return how many rows source and target had when they were read.

    Args:
        before: the rows that each side counted before it was read.
        after: the same, counted afterwards.
        read: the rows that were read.
    """
    # Only where the count has fallen that far: rows that a scan left out are still counted afterwards.
    source, target = (
        seen if end <= seen < start else start for start, end, seen in zip(before, after, read, strict=True)
    )
    return source, target


def sampled_rows(before: Pair, after: Pair, apart: int) -> Pair:
    """Return how many rows each side may have had at the same time, where a sample has not read them all.

    Args:
        before: the rows that source and target counted at the beginning.
        after: the same, counted at the end.
        apart: how many more rows the source must have than the target.
    """
    # The latest moment at which both numbers fit together, if there is one.
    source = min(before[0], before[1] + apart)
    target = source - apart
    return (source, target) if source >= after[0] and target >= after[1] else before
