"""Copying single rows again and removing those that the source does not have, in transactions of some rows.

    read the source by key -> judge each record as a copy does -> replace the row in the target
    read the source by key again -> remove from the target the rows that it still does not have

You can stop and repeat it at any time: each step reads the source again.
"""

from __future__ import annotations

import json
from collections import Counter
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from itertools import islice
from logging import getLogger
from tempfile import TemporaryFile
from typing import IO, TYPE_CHECKING, Any, Final

from pydantic import Field

from twinstore.bulk.release import copy_writer
from twinstore.errors import ConfigurationError, ValidationError
from twinstore_backfill.copy.dry_run import FirstLines
from twinstore_backfill.copy.lease import ConflictRetry
from twinstore_backfill.copy.reader import RangeReader
from twinstore_backfill.copy.report import ExtraReport
from twinstore_backfill.copy.rules import copier_changes
from twinstore_backfill.ignored import check_ignored_fields
from twinstore_backfill.outcome import Exit
from twinstore_backfill.process.files import wrap_write_errors
from twinstore_backfill.report.model import Frozen, ParityReport, report_without_ranges
from twinstore_backfill.report.writing import DIFFERENCES
from twinstore_backfill.retention import expiry_test, resolve_as_of
from twinstore_backfill.rules import job_rules
from twinstore_backfill.rules.model import NO_RULES, JobRules
from twinstore_backfill.stores import prepare_target, refuse_same_store, select_entities
from twinstore_backfill.verify.engine import run_verify
from twinstore_backfill.verify.findings import FindingKind
from twinstore_backfill.verify.options import VerifyOptions

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from datetime import datetime
    from pathlib import Path

    from twinstore.bulk.port import Record
    from twinstore.catalog.entity import Entity
    from twinstore.catalog.keys import Key
    from twinstore_backfill.copy.options import CopyOptions
    from twinstore_backfill.process.stopping import StopSwitch
    from twinstore_backfill.progress.record import Progress
    from twinstore_backfill.stores import Store

log = getLogger(__name__)

APPEND_ONLY: Final = (
    "{entity}: rows of an append-only entity were left as they are, because the role of the target may only "
    "append; grant it DELETE on the table {module}.{entity} for the repair, and revoke it afterwards"
)
# The findings that a copy of the source row may repair.
COPIED: Final = tuple(kind for kind in FindingKind if kind is not FindingKind.EXTRA)


@dataclass(slots=True)
class RepairResult:
    """The outcome of the named rows, by entity.

    Attributes:
        written: rows that are now as a copy stores them and were not before.
        unchanged: rows that were right already.
        refused: rows whose source no copy accepts; ``reasons`` has the first ones.
        absent: rows that the source does not have any more, or that have expired.
        removed: rows of the target that the source does not have.
        kept: rows that should have been removed but that the source has by now.
    """

    written: Counter[str] = field(default_factory=Counter[str])
    unchanged: Counter[str] = field(default_factory=Counter[str])
    refused: Counter[str] = field(default_factory=Counter[str])
    absent: Counter[str] = field(default_factory=Counter[str])
    removed: Counter[str] = field(default_factory=Counter[str])
    kept: Counter[str] = field(default_factory=Counter[str])
    reasons: list[str] = field(default_factory=list[str])

    def counts(self) -> dict[str, Counter[str]]:
        """Return the numbers of rows by what became of them."""
        return {
            "written": self.written,
            "unchanged": self.unchanged,
            "refused": self.refused,
            "absent": self.absent,
            "removed": self.removed,
            "kept": self.kept,
        }


class RepairReport(Frozen):
    """The rows that a verification reported, and what became of them.

    Attributes:
        executed: whether they were repaired; otherwise they were only counted.
        delete_extra: whether rows are removed that the source does not have.
        to_copy, to_remove: rows by entity, before the repair.
        without_key: rows without a usable key, which cannot be found again.
        repaired: by outcome the rows of each entity; empty if it was not executed.
        reasons: why rows of the source were refused, the first ones.
        recheck: the comparison of these rows afterwards, ``null`` if it was not executed.
    """

    executed: bool
    delete_extra: bool
    to_copy: dict[str, int]
    to_remove: dict[str, int]
    without_key: dict[str, int]
    repaired: dict[str, dict[str, int]] = Field(default_factory=dict)
    reasons: tuple[str, ...] = ()
    recheck: ParityReport | None = None

    @property
    def exit_code(self) -> int:
        """The exit code of the command: that of the comparison, or 1 while there is something to do."""
        if self.recheck is not None:
            return self.recheck.exit_code
        return int(Exit.DIFFERENT if self.to_copy or self.to_remove or self.without_key else Exit.OK)

    def document(self) -> dict[str, object]:
        """Return it as JSON has it."""
        if self.recheck is None:
            counts = {"copy": self.to_copy, "remove": self.to_remove, "without_key": self.without_key}
            return {**counts, "delete_extra": self.delete_extra}
        repaired = {**self.repaired, "reasons": list(self.reasons)}
        return {"repaired": repaired, "recheck": self.recheck.model_dump(mode="json")}


def run_repair(  # noqa: PLR0917  # both sides, the request, and the receivers of reports
    source: Store,
    target: Store,
    differences: Path,
    options: VerifyOptions,
    progress: Progress,
    stop: StopSwitch,
    write: Callable[[Iterable[bytes]], object] = list,
    *,
    execute: bool,
    delete_extra: bool,
) -> RepairReport:
    """Copy the rows that a verification reported again, and compare them.

    Args:
        source: the side that is right.
        target: the side that is repaired.
        differences: the findings, or the directory of the verification.
        options: of the comparison afterwards.
        progress: receives its progress.
        stop: the switch that may stop it.
        write: takes the findings of the comparison as lines.
        execute: write; otherwise the rows are only counted.
        delete_extra: also remove the rows that the source does not have.

    Raises:
        ValidationError: an unknown entity or field, or the findings are of other stores or cannot be read.
        PreflightError: the target cannot be written to.
        InterruptedRunError: ``stop`` was requested; finished rows stay finished.
    """
    entities = select_entities(source.bulk, options.entities)
    refuse_same_store(source.bulk, target.bulk)
    rules = job_rules(options.rules, source)
    check_ignored_fields(options.ignored_fields, source.bulk.entities())
    with reported_rows(differences, source, target) as rows:
        names = [entity.name for entity in entities]
        kinds = rows.to_copy, rows.to_remove, rows.keyless
        to_copy, to_remove, keyless = ({name: of[name] for name in names if of[name]} for of in kinds)
        report = RepairReport(
            executed=execute,
            delete_extra=delete_extra,
            to_copy=to_copy,
            to_remove=to_remove,
            without_key=keyless,
        )
        if not execute:
            return report
        prepare_target(target)
        as_of = resolve_as_of(source.bulk, options.as_of)
        done = Repair(source, target, as_of, stop, rules).run(entities, rows, remove=delete_extra)
        recheck = run_verify(source, target, replace(options, only=rows), progress, stop, write)
    counts = {word: dict(sorted(found.items())) for word, found in done.counts().items()}
    return report.model_copy(update={"repaired": counts, "reasons": tuple(done.reasons), "recheck": recheck})


class Repair:
    """Puts named rows of a target right."""

    def __init__(  # both sides, and how rows are judged
        self,
        source: Store,
        target: Store,
        as_of: datetime,
        stop: StopSwitch,
        rules: JobRules = NO_RULES,
    ) -> None:
        self._source, self._target, self._as_of, self._stop = source, target, as_of, stop
        changes = copier_changes(rules, source.bulk.entities())
        self._rows = source.bulk.with_changes(changes)
        self._rules = rules
        self._conflict_retry = ConflictRetry(stop)
        self.done = RepairResult()

    def run(self, entities: Sequence[Entity], rows: ReportedRows, *, remove: bool) -> RepairResult:
        """Copy the named rows again, parents first; with ``remove`` also remove, children first.

        Raises:
            InterruptedRunError: a signal requested the stop; finished rows stay finished.
        """
        for entity in entities:
            for keys in rows.key_batches(entity.name, *COPIED):
                self._run_permitted(entity, keys, self._rewrite)
        for entity in reversed(entities) if remove else ():
            for keys in rows.key_batches(entity.name, FindingKind.EXTRA):
                self._run_permitted(entity, keys, self._remove)
        return self.done

    def _run_permitted(
        self, entity: Entity, keys: Sequence[Key], step: Callable[[Entity, Sequence[Key]], None]
    ) -> None:
        """Take a step; where the role may only append, say so and go on."""
        try:
            self._conflict_retry.run(f"A repair of {entity.name}", lambda: step(entity, keys))
        except ConfigurationError as error:
            if not entity.append_only:
                raise
            log.info("rows of %s were left as they are: %s", entity.name, error)
            self.done.refused[entity.name] += len(keys)
            reason = APPEND_ONLY.format(entity=entity.name, module=entity.module)
            if reason not in self.done.reasons:
                self.done.reasons.append(reason)

    def _rewrite(self, entity: Entity, keys: Sequence[Key]) -> None:
        self._stop.raise_if_interrupted("Rows that were repaired stay repaired; run the same command again.")
        lines = FirstLines()
        expired = expiry_test(entity, self._target.options, self._as_of)
        reader = RangeReader(entity, expired=expired, lines=lines, rules=self._rules)
        with ExitStack() as stack:
            view = stack.enter_context(self._rows.view())
            # In order, so that a second row of one key is seen as one.
            records = sorted(view.records_of(entity, keys), key=_key_of)
            writer = stack.enter_context(copy_writer(self._target.bulk, entity, on_conflict="overwrite"))
            wanted = reader.wanted(records)
            if entity.append_only:
                # A copy never overwrites these; here the user named the exact rows.
                writer.remove([record.key for record in wanted if record.key is not None])
            writer.write(wanted)
            tally = reader.tally(writer.flush())
            writer.commit()
        name = entity.name
        self.done.written[name] += sum(tally.written.values())
        self.done.unchanged[name] += sum(tally.unchanged.values())
        self.done.refused[name] += sum(tally.quarantined.values())
        self.done.absent[name] += len(keys) - len(records) + sum(tally.expired.values())
        self.done.reasons += [f"{name} {line['key']}: {line['reason']}" for line in lines.kept.quarantine]

    def _remove(self, entity: Entity, keys: Sequence[Key]) -> None:
        self._stop.raise_if_interrupted("Rows that were repaired stay repaired; run the same command again.")
        with self._rows.view() as view:
            # Judged again: the list may be older than the row.
            there = {row.key for row in view.rows_of(entity, keys)}
        with self._target.bulk.writer(entity) as writer:
            writer.remove([key for key in keys if key not in there])
            removed = writer.flush().removed
            writer.commit()
        self.done.removed[entity.name] += removed
        self.done.kept[entity.name] += len(there)


def _key_of(record: Record) -> Key:
    return record.key or ()


@dataclass(frozen=True, slots=True)
class ExtraRows:
    """The rows that only the target has.

    Attributes:
        found, removed: rows by entity.
        keyless: rows without a usable key, which can only be removed by hand.
        recheck: the comparison of the removed rows afterwards; nothing in a dry run.
        reasons: why rows that should have been removed are still there.
    """

    found: Mapping[str, int]
    removed: Mapping[str, int]
    keyless: int
    recheck: ParityReport | None
    reasons: Sequence[str] = ()

    @property
    def exit(self) -> Exit:
        """The exit code: rows that are still there are a difference."""
        if self.recheck is not None and self.recheck.exit_code:
            return Exit(self.recheck.exit_code)
        left = self.keyless or (self.recheck is None and any(self.found.values()))
        return Exit.DIFFERENT if left else Exit.OK

    def report(self) -> ExtraReport:
        """Return it as the report of the copy shows it."""
        return ExtraReport(
            found=dict(self.found),
            removed=dict(self.removed),
            without_key=self.keyless,
            recheck=None if self.recheck is None else self.recheck.verdict,
            reasons=tuple(self.reasons),
        )


def remove_extra(  # noqa: PLR0917  # both sides, the request, and the receivers of reports
    source: Store,
    target: Store,
    options: CopyOptions,
    as_of: datetime,
    progress: Progress,
    stop: StopSwitch,
) -> ExtraRows:
    """Compare the copied rows, and remove those that the source does not have; a dry run only names them.

    Raises:
        InterruptedRunError: a signal requested the stop; removed rows stay removed.
    """
    verify_options = VerifyOptions(
        entities=options.entities,
        tenants=options.tenants,
        as_of=as_of,
        rules=options.rules,
        subset=options.subset,
    )
    entities = select_entities(source.bulk, options.entities)
    with empty_reported_rows(entities) as named:
        run_verify(source, target, verify_options, progress, stop, named.add_extra)
        found, keyless = dict(sorted(named.to_remove.items())), named.keyless.total()
        if not options.execute or not found:
            return ExtraRows(found, {}, keyless, None)
        rules = job_rules(options.rules, source)
        done = Repair(source, target, as_of, stop, rules).run(entities, named, remove=True)
        report = run_verify(source, target, replace(verify_options, only=named), progress, stop)
    removed = dict(sorted(done.removed.items()))
    return ExtraRows(found, removed, keyless, report, tuple(done.reasons))


# The rows that a file of differences names, kept on disk: they may be as many as the rows of a store.


REPORT: Final = "parity-report.json"
# Rows of one transaction or one task. All of them are in memory, of both sides, and each may be as large as a
# document may be.
ROWS_PER_BATCH: Final = 10


class ReportedRows:
    """Keys by entity.

    Attributes:
        to_copy: by entity, how many rows a copy of the source row may put right.
        to_remove: by entity, how many rows the source does not have.
        keyless: by entity, how many findings have no key by which to find their row again.
    """

    def __init__(self, entities: Iterable[Entity], spool: IO[bytes]) -> None:
        self.to_copy: Counter[str] = Counter()
        self.to_remove: Counter[str] = Counter()
        self.keyless: Counter[str] = Counter()
        self._known = {entity.name: entity for entity in entities}
        self._spool = spool

    def take(self, lines: Iterable[bytes], place: str = "the verification") -> None:
        """Take findings as lines.

        Raises:
            ValidationError: a line is not a finding of one of the entities.
        """
        for number, line in enumerate(lines, 1):
            entity, key, kind = self._finding(line, f"{place}, line {number}")
            counts = self.to_remove if kind is FindingKind.EXTRA else self.to_copy
            (self.keyless if key is None else counts)[entity] += 1
            self._spool.write(line)

    def add_extra(self, lines: Iterable[bytes]) -> None:
        """Take of a verification the rows that only the target has."""
        self.take(line for line in lines if json.loads(line)["kind"] == FindingKind.EXTRA)

    @property
    def counts(self) -> Mapping[str, int]:
        """How many rows of each entity can be found again."""
        return self.to_copy + self.to_remove

    def key_batches(self, entity: str, *kinds: FindingKind) -> Iterator[tuple[Key, ...]]:
        """Yield the keys of an entity, some at a time, in the order of the file; of some kinds or of all."""
        found = self._keys(entity, kinds or tuple(FindingKind))
        while some := tuple(islice(found, ROWS_PER_BATCH)):
            yield some

    def _keys(self, entity: str, kinds: tuple[FindingKind, ...]) -> Iterator[Key]:
        self._spool.seek(0)
        for line in self._spool:
            name, key, kind = self._finding(line, "a finding")
            if name == entity and kind in kinds and key is not None:
                yield key

    def _finding(self, line: bytes, place: str) -> tuple[str, Key | None, FindingKind]:
        try:
            item: dict[str, Any] = json.loads(line)
            entity, kind = self._known[item["entity"]], FindingKind(item["kind"])
            key = _as_key(item["key"])
        except (ValueError, KeyError, TypeError, RecursionError):
            raise ValidationError(
                f"{place} is not a finding of this module; give the unchanged {DIFFERENCES} of a "
                "verification."
            ) from None
        if key is not None and not is_nameable(entity, key):
            raise ValidationError(f"{place}: the key is none of {entity.name}; give the unchanged file.")
        return entity.name, key, kind


def is_nameable(entity: Entity, key: tuple[object, ...]) -> bool:
    """Whether user input can be the key of a row; no server accepts a text with a lone surrogate."""
    texts = (part for part in key if isinstance(part, str))
    return entity.admits_key(key) and all(part.encode(errors="ignore").decode() == part for part in texts)


def _as_key(key: Any) -> tuple[Any, ...] | None:  # noqa: ANN401  # as JSON has it
    """Return a key as a finding lists it; a text is what a store holds in place of a key."""
    return None if key is None or isinstance(key, str) else tuple(key)


@contextmanager
def empty_reported_rows(entities: Iterable[Entity]) -> Iterator[ReportedRows]:
    """Yield a list that names nothing yet."""
    # Without a name on disk: it holds keys, and is gone whatever happens.
    with TemporaryFile() as spool:
        yield ReportedRows(entities, spool)


@contextmanager
def read_reported_rows(path: Path, entities: Iterable[Entity]) -> Iterator[ReportedRows]:
    """Yield the rows that ``differences.ndjson``, or the one in a directory, names.

    They are read at once, so that the file may be replaced meanwhile.

    Raises:
        ValidationError: the file cannot be read, or a line is not a finding of one of the entities.
        FileError: what was read cannot be kept in a temporary file.
    """
    file = path / DIFFERENCES if path.is_dir() else path
    with empty_reported_rows(entities) as rows:
        with wrap_write_errors(None):
            rows.take(_lines_of(file), str(file))
        yield rows


def _lines_of(file: Path) -> Iterator[bytes]:
    # A failure of what takes them, such as a full temporary file, is not one of this file.
    try:
        with file.open("rb") as lines:
            yield from lines
    except OSError as error:
        advice = "Name with --in the --out directory of a verification."
        raise ValidationError(f"{file} cannot be read: {error.strerror}. {advice}") from error


@contextmanager
def reported_rows(path: Path, source: Store, target: Store) -> Iterator[ReportedRows]:
    """Yield the rows that a verification of two stores named.

    Raises:
        ValidationError: they cannot be read, or are of other stores.
    """
    with read_reported_rows(path, select_entities(source.bulk, ())) as rows:
        require_same_stores(path, source, target)
        yield rows


def require_same_stores(path: Path, source: Store, target: Store) -> None:
    """Refuse differences of other stores, if the report next to them names the stores.

    Raises:
        ValidationError: the report is of another pair of stores.
    """
    report = (path if path.is_dir() else path.parent) / REPORT
    if not report.exists():
        return
    before = report_without_ranges(report)
    for name, side, store in (("source", before.source, source), ("target", before.target, target)):
        if side.identity != store.bulk.identity:
            raise ValidationError(
                f"{report} is of another {name}: {side.place or side.identity}, not {store.bulk.place}. Name "
                "the stores that were verified."
            )
