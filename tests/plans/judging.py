"""What a plan must hold, and which statements may do otherwise, with their reason."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

__all__ = ["Allowance", "Fault", "Finding", "figures", "judged"]

# Rows examined for each row that a statement returns or may return, and pages of tables and indexes read.
RATIO: Final = 10
# So few rows a server may rather read and sort than follow an index: the hundredth part of a filled table.
FEW: Final = 100
SHARE: Final = 100
# Pages that any statement reads on its way down the indexes that it uses.
DESCENT: Final = 60


class Fault(Enum):
    """What a plan may not do."""

    SCANS = "reads the whole table"
    EXAMINES = "examines too many rows"
    SORTS = "sorts"
    INDEX = "uses no index of the entity"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """What a server did for one statement.

    Attributes:
        statement: its name.
        mode: the kind of plan, where a server has several.
        examined: rows, or index entries, that were looked at.
        returned: rows that were returned or written.
        page: rows that may be returned at most.
        blocks: pages of tables and indexes that were read; 0 where a server does not tell, and for writes.
        indexes: those that were used.
        scans_all: whether a table was read from its beginning to its end.
        sorts: the kinds of sorts that no index spares; a server may also sort a few rows although one has
            their order, because that is cheaper.
        reads: whether a table was read at all.
    """

    statement: str
    mode: str = ""
    examined: int
    returned: int
    page: int
    blocks: int = 0
    indexes: frozenset[str]
    scans_all: bool
    sorts: tuple[str, ...]
    reads: bool

    @property
    def ratio(self) -> float:
        """Rows examined for each row that was returned or could be."""
        return self.examined / (self.returned + self.page)

    def faults(self, known: Iterable[str], few: int = FEW) -> set[Fault]:
        """Return what it does that no plan may."""
        found = {Fault.SCANS} if self.scans_all else set()
        # Entries of an index that a condition passes over are no rows, but they stand on pages.
        pages = RATIO * (self.returned + self.page) + DESCENT
        many = self.examined > few and self.ratio > RATIO
        found |= {Fault.EXAMINES} if many or self.blocks > pages + few - FEW else set()
        found |= {Fault.SORTS} if self.sorts else set()
        foreign = self.indexes - set(known)
        return found | ({Fault.INDEX} if foreign or (self.reads and not self.indexes) else set())

    def __str__(self) -> str:
        """Return it in one line."""
        return (
            f"{self.statement} {self.mode}: examined {self.examined}, returned {self.returned}, "
            f"page {self.page}, blocks {self.blocks}, indexes {sorted(self.indexes)}, "
            f"sorts {list(self.sorts)}"
        )


@dataclass(frozen=True, slots=True)
class Allowance:
    """What the statements of a name may do; the name is a pattern.

    Attributes:
        statements: the pattern.
        faults: what they may do.
        reason: why; with the index that leaves no other way where it is about a sort.
        few_rows: whether a server does so on few rows, where it is right, and not on many.
    """

    statements: str
    faults: frozenset[Fault]
    reason: str
    few_rows: bool = False

    def covers(self, name: str) -> bool:
        """Whether it is about a statement."""
        return fnmatchcase(name, self.statements)


def judged(
    findings: Iterable[Finding], known: Iterable[str], allowed: Iterable[Allowance], rows: int = 0
) -> tuple[list[str], list[str]]:
    """Return the faults that nothing allows, and the allowances, fault by fault, that nothing needs."""
    known, allowed = frozenset(known), tuple(allowed)
    needed: set[tuple[Allowance, Fault]] = set()
    bad: list[str] = []
    for finding in findings:
        for fault in sorted(finding.faults(known, max(FEW, rows // SHARE)), key=lambda item: item.value):
            covering = [
                (item, fault) for item in allowed if fault in item.faults and item.covers(finding.statement)
            ]
            needed.update(covering)
            if not covering:
                bad.append(f"{fault.value}: {finding}")
    unneeded = [
        f"{item.statements}: {fault.value}"
        for item in allowed
        if not item.few_rows
        for fault in sorted(item.faults, key=lambda found: found.value)
        if (item, fault) not in needed
    ]
    return bad, unneeded


def figures(findings: Sequence[Finding], bad: Sequence[str], rows: int) -> str:
    """Return in a few lines what was explained and how it went."""
    worst = max((item for item in findings if ".bulk." not in item.statement), key=lambda item: item.ratio)
    names = {item.statement for item in findings}
    return (
        f"{len(names)} statements in {len(findings)} plans on {rows} rows of each entity; "
        f"{len(bad)} faults; worst ratio outside of copies {worst.ratio:.1f}: {worst}"
    )
