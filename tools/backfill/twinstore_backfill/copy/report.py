"""The report of a copy."""

from __future__ import annotations

import os
import socket
from collections import Counter, defaultdict
from dataclasses import dataclass, field, fields
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final, Literal

from pydantic import ConfigDict

from twinstore.ledger import RangeTally
from twinstore.ledger.ledger import MAX_DEATHS
from twinstore.models.json_text import format_timestamp
from twinstore_backfill.accepted import Accepted
from twinstore_backfill.copy.options import shown_settings
from twinstore_backfill.copy.rules.tallies import counted_rules
from twinstore_backfill.outcome import Exit, tool_identity
from twinstore_backfill.process.files import json_text, write_atomic
from twinstore_backfill.report.fast_path import FastPathReport
from twinstore_backfill.report.model import (
    CauseReport,
    Equivalence,
    ExceptionReport,
    Frozen,
    LeftOut,
    ReportKey,
    SideReport,
    SubsetReport,
    Tool,
)
from twinstore_backfill.rules.model import NO_RULES, JobRules

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    from twinstore.catalog.entity import Entity
    from twinstore.ledger import RangeProgress
    from twinstore_backfill.report.failures import Failure
    from twinstore_backfill.stores import Store

REPORT_FILE: Final = "backfill-report.json"
FORMAT: Final = "twinstore.backfill-report@1"
# What has another label than the owner of a row.
OTHER_COUNTS: Final = frozenset({"equivalences", "rules", "under"})
COUNTS: Final = tuple(item.name for item in fields(RangeTally) if item.name not in OTHER_COUNTS)
# As many as of quarantine and conflicts; after a hundred the cause is elsewhere.
SHOWN: Final = 100
DIED: Final = f"its worker died {MAX_DEATHS} times; the next run tries it again"


class RunEnvelope(Frozen):
    """The only values that differ between two copies of the same data.

    Attributes:
        generated_at: when the report was made, in UTC.
        host: name of the machine that copied.
        pid: number of its process.
    """

    generated_at: str
    host: str
    pid: int


class CopyEnvelope(RunEnvelope):
    """The only values that differ between two copies of the same data.

    Attributes:
        seconds: duration of the copy.
        fast_path: share of the rows that the fast path copied; ``null`` in a dry run.
    """

    seconds: float
    fast_path: FastPathReport | None


class RowCounts(Frozen):
    """Numbers of documents, by outcome. ``read`` is the sum of the five that follow it.

    Attributes:
        read: read from the source.
        written: written to the target, overwritten rows included.
        unchanged: equal in the target already.
        conflicts: in the target with other content, not overwritten.
        quarantined: not copied; the quarantine has the reason.
        expired: expired by retention, so not copied.
        text_timestamp: read, with a timestamp that the source stores as text.
        torn_tail: unfinished last lines of log files, not copied nor in ``read``.
        ignored: read without a property that ``--ignore-unknown`` names.
    """

    read: int
    written: int
    unchanged: int
    conflicts: int
    quarantined: int
    expired: int
    text_timestamp: int
    torn_tail: int
    ignored: int


class RuleCount(Frozen):
    """A rule of the job and the rows that it changed.

    Attributes:
        kind: its kind.
        path: where it applies; ``*`` stands for every entity, or for every name.
        reason: why.
        rows: how many rows of those that were copied, or equal already, it changed. Of an entity of which
            several properties are dropped and nothing else is changed: rows that had any of them.
    """

    kind: str
    path: str
    reason: str
    rows: int


class OfTenant(Frozen):
    """What belongs to one tenant.

    Attributes:
        tenant: the tenant; ``:none`` for documents without one, empty for an unknown one.
    """

    tenant: str


class TenantCounts(RowCounts, OfTenant):
    """Numbers of documents of one tenant."""


class EntityCounts(Frozen):
    """Numbers of documents of one entity.

    Attributes:
        entity: its name.
        total: over all tenants.
        tenants: by tenant.
    """

    entity: str
    total: RowCounts
    tenants: tuple[TenantCounts, ...]


class SourceChange(Frozen):
    """An entity of the source that changed during the copy.

    Attributes:
        entity: its name.
        rows_before, rows_after: its number of rows when the copy began and ended.
        latest_before, latest_after: the highest date of its rows, of their last change or of their creation;
            ``null`` if it is unknown.
    """

    entity: str
    rows_before: int
    rows_after: int
    latest_before: str | None
    latest_after: str | None


class JobReport(Frozen):
    """The copy job, which is stored in the ledger of the target.

    Attributes:
        id: its identifier.
        generation: grows each time a complete job starts over.
        state: ``running`` or ``complete``.
    """

    id: str
    generation: int
    state: str


class FailedRange(Frozen):
    """A range of keys that could not be copied.

    Attributes:
        entity: its entity.
        range: its number.
        lower: the first key, included; ``null`` is unbounded.
        upper: the key at its end, excluded; ``null`` is unbounded.
        reason: why; ``null`` if another worker has logged it.
    """

    entity: str
    range: int
    lower: ReportKey | None
    upper: ReportKey | None
    reason: str | None


class QuarantinedRow(Frozen):
    """A document that could not be copied.

    Attributes:
        entity, tenant: its entity and tenant.
        key: its key; a text is what is stored in its place, as extended JSON, ``null`` if that is unknown.
        reason: why.
    """

    entity: str
    tenant: str
    key: ReportKey | str | None
    reason: str


class ConflictingRow(Frozen):
    """A document that the target has with other content.

    Attributes:
        entity, tenant, key: its entity, tenant and key.
        overwritten: whether the copy replaced it.
    """

    entity: str
    tenant: str
    key: ReportKey
    overwritten: bool


class FailedRangeList(Frozen):
    """Ranges that failed too often and are skipped until the copy is run again.

    Attributes:
        count: the number of all.
        shown: the first 100.
    """

    count: int
    shown: tuple[FailedRange, ...]


class QuarantineList(Frozen):
    """Documents that could not be copied.

    Attributes:
        count: the number of all.
        shown: the first 100.
    """

    count: int
    shown: tuple[QuarantinedRow, ...]


class ConflictList(Frozen):
    """Documents that the target has with other content.

    Attributes:
        count: the number that were not overwritten.
        shown: the first 100, overwritten ones included.
    """

    count: int
    shown: tuple[ConflictingRow, ...]


class ExtraReport(Frozen):
    """Rows that only the target has, with ``--delete-extra``.

    Attributes:
        found, removed: numbers by entity.
        without_key: rows without a usable key, which must be removed by hand.
        recheck: the verdict of the comparison afterwards; ``null`` in a dry run or if nothing was found.
        reasons: why rows are still there.
    """

    found: dict[str, int]
    removed: dict[str, int]
    without_key: int
    recheck: str | None
    reasons: tuple[str, ...]


class CopyReport(Frozen):
    """The result of a copy or of its dry run.

    Attributes:
        format: the format of this file.
        envelope: the values that differ between two copies of the same data.
        tool: the program.
        title: ``--title``, the name of the migration.
        settings: the options that make two runs the same job; empty in a dry run.
        source, target: both sides.
        warnings: what does not change the result.
        speed_only: how many of them, the last ones, only say what makes reading slow.
        as_of: the instant at which expiry was decided.
        subset: the selected part of the rows, ``null`` for all.
        state: ``stopped`` at a limit means that the next run continues.
        executed: whether it was a copy, not a dry run.
        complete: whether every range is finished.
        stopped: the limit at which it stopped, ``null`` if none.
        exit_code: the exit code of the command.
        job: the job; ``null`` in a dry run.
        totals: numbers of documents over all entities.
        entities: numbers by entity and tenant, in copy order.
        equivalences: unchanged rows that both sides hold in a form that no copy writes, by kind.
        rules: the rules that change rows, in the order of the job file.
        source_changes: entities of the source that changed meanwhile.
        left_out: entities that are not copied.
        causes: why documents were not copied, counted over all of them, the most frequent first.
        exceptions: what the job accepts of the quarantined documents.
        failed_ranges, quarantine: what was not copied.
        conflicts: rows that the target has with other content.
        extra: rows that only the target has; absent without ``--delete-extra`` or if not ``complete``.
    """

    model_config = ConfigDict(json_schema_serialization_defaults_required=False)

    format: Literal["twinstore.backfill-report@1"]
    envelope: CopyEnvelope
    tool: Tool
    title: str = ""
    settings: dict[str, str]
    source: SideReport
    target: SideReport
    warnings: tuple[str, ...]
    speed_only: int = 0
    as_of: str
    subset: SubsetReport | None
    state: Literal["complete", "stopped", "failed"]
    executed: bool
    complete: bool
    stopped: str | None
    exit_code: int
    job: JobReport | None
    totals: RowCounts
    entities: tuple[EntityCounts, ...]
    equivalences: tuple[Equivalence, ...] = ()
    rules: tuple[RuleCount, ...] = ()
    source_changes: tuple[SourceChange, ...] = ()
    left_out: tuple[LeftOut, ...]
    causes: tuple[CauseReport, ...] = ()
    exceptions: tuple[ExceptionReport, ...] = ()
    failed_ranges: FailedRangeList
    quarantine: QuarantineList
    conflicts: ConflictList
    extra: ExtraReport | None = None

    def document(self) -> dict[str, object]:
        """Return it as JSON has it."""
        return self.model_dump(mode="json", exclude=set() if self.extra else {"extra"})


class ErrorReport(Frozen):
    """Why a command has no result.

    Attributes:
        code: the code of the error.
        message: its message.
    """

    code: str
    message: str


class FailedCopyReport(Frozen):
    """The report of a copy without a result. Finished ranges are in the ledger of the target.

    Attributes:
        format: the format of this file.
        envelope: the values that differ between two runs.
        tool: the program.
        state: how it ended.
        exit_code: the exit code of the command.
        error: why.
        complete: always false.
    """

    format: Literal["twinstore.backfill-report@1"]
    envelope: RunEnvelope
    tool: Tool
    state: Literal["interrupted", "refused", "failed"]
    exit_code: int
    error: ErrorReport
    complete: Literal[False]


class Totals:
    """The counts of a copy by entity and label of the owner."""

    def __init__(self) -> None:
        self._counts: dict[str, dict[str, Counter[str]]] = defaultdict(lambda: defaultdict(Counter))
        self.equivalences = Counter[str]()
        self.rules = Counter[str]()

    def add(self, entity: str, tally: RangeTally) -> None:
        """Add the tally of a range."""
        self.equivalences.update(tally.equivalences)
        self.rules.update(tally.rules)
        for name in COUNTS:
            counts: Mapping[str, int] = getattr(tally, name)
            for tenant, count in counts.items():
                self._counts[entity][tenant][name] += count

    def refuse(self, entity: str, tenant: str) -> None:
        """Count a row as quarantined that was counted as written."""
        self._counts[entity][tenant].update(written=-1, quarantined=1)

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
    speed_only: int = 0
    title: str = ""
    quarantine: Sequence[Mapping[str, object]] = ()
    conflicts: Sequence[Mapping[str, object]] = ()
    failed: FailedRanges = field(default_factory=lambda: FailedRanges({}))
    left_out: Sequence[Mapping[str, object]] = ()
    source_changes: Sequence[Mapping[str, object]] = ()
    # The selection, if it was a part of the rows.
    subset: Mapping[str, object] | None = None
    causes: Sequence[CauseReport] = ()
    fast_path: FastPathReport | None = None
    rules: JobRules = NO_RULES

    @property
    def accepted(self) -> Accepted:
        """What the job accepts of the quarantined rows."""
        return Accepted.of_causes(self.rules, self.causes)

    @property
    def exit(self) -> Exit:
        """The exit code: failed ranges weigh more than conflicts, and those more than open quarantine."""
        totals = self.totals.all()
        if self.failed.count:
            return Exit.FAILED
        if totals["conflicts"]:
            return Exit.DIFFERENT
        # One that was stopped may find more of an accepted cause.
        approved = sum(item.rows for item in self.accepted.reports()) if self.complete else 0
        if totals["quarantined"] > approved:
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
        "generated_at": format_timestamp(datetime.now(UTC)),
        "host": socket.gethostname(),
        "pid": os.getpid(),
    }
    head = {"format": FORMAT, "envelope": envelope, "tool": tool_identity()}
    content = {**head, **failure.document(), "complete": False}
    return FailedCopyReport.model_validate(content).model_dump(mode="json")


def copy_report(result: CopyResult) -> CopyReport:
    """Return the report; values that differ between two equal runs are only in the envelope."""
    totals = result.totals.all()
    content = {
        "format": FORMAT,
        "envelope": _envelope(result),
        "tool": tool_identity(),
        "title": result.title,
        "settings": shown_settings(result.settings),
        "source": result.source.described(),
        "target": result.target.described(),
        "warnings": list(result.warnings),
        "speed_only": result.speed_only,
        "as_of": format_timestamp(result.as_of),
        "subset": result.subset,
        "state": result.state,
        "executed": result.executed,
        "complete": result.complete,
        "stopped": result.stopped or None,
        "exit_code": int(result.exit),
        "job": result.job,
        "totals": _shown(totals),
        "entities": result.totals.document(result.entities),
        "equivalences": [
            {"name": name, "documents": count} for name, count in sorted(result.totals.equivalences.items())
        ],
        "rules": counted_rules(result.rules, result.totals.rules),
        "source_changes": list(result.source_changes),
        "left_out": list(result.left_out),
        "causes": [result.accepted.approved(item).model_dump() for item in result.causes],
        "exceptions": [item.model_dump() for item in result.accepted.reports()],
        "failed_ranges": {"count": result.failed.count, "shown": result.failed.shown},
        "quarantine": {"count": totals["quarantined"], "shown": _first(result.quarantine)},
        "conflicts": {"count": totals["conflicts"], "shown": _first(result.conflicts)},
    }
    return CopyReport.model_validate(content)


def write_copy_report(report: CopyReport, out: Path | None) -> None:
    """Write the report to a directory, if there is one."""
    if out is not None:
        write_atomic(out / REPORT_FILE, json_text(report.document()))


def _first(entries: Iterable[Mapping[str, object]]) -> list[dict[str, object]]:
    """Return the first entries without the original bytes, which only the file of the quarantine holds."""
    # Sorted, because threads finish ranges in any order and two equal runs should give one report.
    shown = sorted(entries, key=lambda entry: (str(entry["entity"]), str(entry["key"])))[:SHOWN]
    hidden = {"raw", "job", "generation", "range"}
    return [{name: value for name, value in entry.items() if name not in hidden} for entry in shown]


def _envelope(result: CopyResult) -> dict[str, object]:
    now = datetime.now(UTC)
    return {
        "generated_at": format_timestamp(now),
        "host": socket.gethostname(),
        "pid": os.getpid(),
        "seconds": round((now - result.started).total_seconds(), 3),
        "fast_path": result.fast_path,
    }
