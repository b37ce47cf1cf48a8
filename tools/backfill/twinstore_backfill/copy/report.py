"""The report of a copy."""

from __future__ import annotations

import os
import socket
from collections import Counter, defaultdict
from dataclasses import dataclass, field, fields
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from twinstore.ledger import RangeTally
from twinstore.ledger.ledger import MAX_DEATHS
from twinstore.models import json_text
from twinstore_backfill.outcome import Exit, tool_identity

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from twinstore.catalog.entity import Entity
    from twinstore.ledger import RangeProgress
    from twinstore_backfill.report.failing import Failure
    from twinstore_backfill.report.fast_path import FastPathReport
    from twinstore_backfill.stores import Store

REPORT_FILE: Final = "backfill-report.json"
FORMAT: Final = "twinstore.backfill-report@1"
COUNTS: Final = tuple(item.name for item in fields(RangeTally))
# As many as of quarantine and conflicts; after a hundred the cause is elsewhere.
SHOWN: Final = 100
DIED: Final = f"its worker died {MAX_DEATHS} times; the next run tries it again"


class Totals:
    """The counts of a copy by entity and label of the owner."""

    def __init__(self) -> None:
        self._counts: dict[str, dict[str, Counter[str]]] = defaultdict(lambda: defaultdict(Counter))

    def add(self, entity: str, tally: RangeTally) -> None:
        """Add the tally of a range."""
        for name in COUNTS:
            counts: Mapping[str, int] = getattr(tally, name)
            for tenant, count in counts.items():
                self._counts[entity][tenant][name] += count

    def of(self, entity: str) -> Counter[str]:
        """Return the counts of an entity over all tenants."""
        return sum(self._counts[entity].values(), Counter[str]())

    def all(self) -> Counter[str]:
        """Return the counts over everything."""
        return sum((self.of(entity) for entity in list(self._counts)), Counter[str]())

    def document(self, entities: Sequence[Entity]) -> list[dict[str, object]]:
        """Return the counts for the report, in copy order and by tenant."""
        return [
            {
                "entity": entity.name,
                "total": _shown(self.of(entity.name)),
                "tenants": [
                    {"tenant": tenant, **_shown(counts)}
                    for tenant, counts in sorted(self._counts[entity.name].items())
                ],
            }
            for entity in entities
        ]


def outcomes_of(tally: RangeTally) -> dict[str, int]:
    """Return the outcomes of the rows of one range, for the progress."""
    return {"ranges": 1, **{name: sum(getattr(tally, name).values()) for name in COUNTS}}


class FailedRanges:
    """The ranges that failed too often and are skipped until the copy is run again."""

    def __init__(self, reasons: Mapping[int, str]) -> None:
        self.count = 0
        self.shown: list[dict[str, object]] = []
        self._reasons = reasons

    def add(self, item: RangeProgress) -> None:
        """Count a range and keep it while there is room."""
        self.count += 1
        if self.count <= SHOWN:
            ends = {"lower": item.within.lower, "upper": item.within.upper}
            died = item.deaths >= MAX_DEATHS
            reason = DIED if died else self._reasons.get(item.number)
            self.shown.append({"entity": item.entity, "range": item.number, **ends, "reason": reason})


def _shown(counts: Counter[str]) -> dict[str, int]:
    return {name: counts[name] for name in COUNTS}


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyResult:
    """The result of a copy, or of its dry run."""

    executed: bool
    complete: bool
    source: Store
    target: Store
    entities: Sequence[Entity]
    totals: Totals
    as_of: datetime
    started: datetime
    job: Mapping[str, object] | None = None
    stopped: str = ""
    settings: Mapping[str, str] = field(default_factory=dict[str, str])
    warnings: Sequence[str] = ()
    quarantine: Sequence[Mapping[str, object]] = ()
    conflicts: Sequence[Mapping[str, object]] = ()
    failed: FailedRanges = field(default_factory=lambda: FailedRanges({}))
    left_out: Sequence[Mapping[str, object]] = ()
    # The selection, if it was a part of the rows.
    subset: Mapping[str, object] | None = None
    fast_path: FastPathReport | None = None

    @property
    def exit(self) -> Exit:
        """The exit code: failed ranges weigh more than conflicts, and those more than quarantine."""
        totals = self.totals.all()
        if self.failed.count:
            return Exit.FAILED
        if totals["conflicts"]:
            return Exit.DIFFERENT
        if totals["quarantined"]:
            return Exit.INCONCLUSIVE
        return Exit.OK if self.complete else Exit.FAILED

    @property
    def state(self) -> str:
        """How it ended, in a word: ``complete``, ``stopped`` at a limit, or ``failed``."""
        if self.failed.count:
            return "failed"
        if self.stopped:
            return "stopped"
        return "complete" if self.complete else "failed"


def failure_document(failure: Failure) -> dict[str, object]:
    """Return the report of a copy without a result: the finished part is in the ledger."""
    envelope = {
        "generated_at": json_text.format_timestamp(datetime.now(UTC)),
        "host": socket.gethostname(),
        "pid": os.getpid(),
    }
    head = {"format": FORMAT, "envelope": envelope, "tool": tool_identity()}
    return {**head, **failure.document(), "complete": False}


def report_document(result: CopyResult) -> dict[str, object]:
    """Return the report; values that differ between two equal runs are only in the envelope."""
    totals = result.totals.all()
    return {
        "format": FORMAT,
        "envelope": _envelope(result),
        "tool": tool_identity(),
        "settings": dict(result.settings),
        "source": result.source.described(),
        "target": result.target.described(),
        "warnings": list(result.warnings),
        "as_of": json_text.format_timestamp(result.as_of),
        "subset": result.subset,
        "state": result.state,
        "executed": result.executed,
        "complete": result.complete,
        "stopped": result.stopped or None,
        "exit_code": int(result.exit),
        "job": result.job,
        "totals": _shown(totals),
        "entities": result.totals.document(result.entities),
        "left_out": list(result.left_out),
        "failed_ranges": {"count": result.failed.count, "shown": result.failed.shown},
        "quarantine": {"count": totals["quarantined"], "shown": _first(result.quarantine)},
        "conflicts": {"count": totals["conflicts"], "shown": _first(result.conflicts)},
    }


def _first(entries: Iterable[Mapping[str, object]]) -> list[dict[str, object]]:
    """Return the first entries without the original bytes, which only the file of the quarantine holds."""
    # Sorted, because threads finish ranges in any order and two equal runs should give one report.
    shown = sorted(entries, key=lambda entry: (str(entry["entity"]), str(entry["key"])))[:SHOWN]
    hidden = {"raw", "job", "generation", "range"}
    return [{name: value for name, value in entry.items() if name not in hidden} for entry in shown]


def _envelope(result: CopyResult) -> dict[str, object]:
    now = datetime.now(UTC)
    return {
        "generated_at": json_text.format_timestamp(now),
        "host": socket.gethostname(),
        "pid": os.getpid(),
        "seconds": round((now - result.started).total_seconds(), 3),
        "fast_path": None if result.fast_path is None else result.fast_path.model_dump(),
    }
