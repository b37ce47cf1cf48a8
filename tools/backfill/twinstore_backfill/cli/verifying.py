"""What the commands that compare do and print; imported by the one that runs."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson
from rich.console import RenderableType

from twinstore.catalog.entity import Entity
from twinstore.catalog.keys import Key
from twinstore.errors import ValidationError
from twinstore_backfill.cli.options import Format
from twinstore_backfill.cli.output import (
    JSON_REPORT,
    cause_texts,
    emit,
    table,
    toned,
    warning_texts,
)
from twinstore_backfill.outcome import Exit
from twinstore_backfill.report.model import ParityReport
from twinstore_backfill.report.texts import (
    EXCEPTION_COLUMNS,
    EXCEPTIONS,
    IGNORED_FIELD,
    LONGEST_SENTENCE,
    NO_SOURCE,
    SPEED_COLUMNS,
    clipped,
    exception_rows,
    exceptions_text,
    expired_rows,
    expired_text,
    functions_text,
    headline,
    key_text,
    left_out_texts,
    lists_of,
    number_of,
    proved_text,
    speed_rows,
)
from twinstore_backfill.report.writing import (
    DIFFERENCES,
    json_pieces,
)
from twinstore_backfill.subset import described
from twinstore_backfill.verify.options import Approval

if TYPE_CHECKING:
    from twinstore_backfill.verify.one_row import RowComparison

# As many as fit on a screen; differences.ndjson holds every one.
NAMED = 10


def show(report: ParityReport, out: Path | None, output: Format) -> None:
    """Print a report; its directory has it, too."""
    emit(output, partial(json_pieces, report), *report_texts(report, out), saved=out)


def approval_option(reason: str | None, approved_by: str | None, *, start_clean: bool) -> Approval | None:
    """Return who approved a fresh start, and why; ``None`` if none was requested."""
    if not start_clean:
        if reason or approved_by:
            raise ValidationError(
                "--reason and --approved-by belong to --start-clean; add it or leave them out."
            )
        return None
    return Approval(reason or "", approved_by or "")


def require_source(given: str | None) -> None:
    """Raise ``ValidationError`` if no driver of a source is named."""
    if given is not None and given.casefold() == NO_SOURCE:
        raise ValidationError(
            f"--from {NO_SOURCE} belongs to --start-clean; name the driver of the source, for example Mongo."
        )


def report_texts(report: ParityReport, out: Path | None) -> Iterator[RenderableType]:
    """Return what a terminal shows of a report: the verdict first, and what to do last."""
    title = f" ({clipped(report.title)})" if report.title else ""
    yield toned(f"{report.verdict}{title}: {_sentence(_result(report))}", report.verdict)
    yield from _decisions(report)
    yield from cause_texts(report.open_causes, JSON_REPORT)
    yield from _entities(report)
    checks = [
        (clipped(check.id), clipped(check.title), check.result, _sentence(check.summary))
        for check in report.checks
    ]
    yield table(("check", "", "result", ""), checks)
    if speed := speed_rows(report):
        yield table(SPEED_COLUMNS, speed, "Milliseconds for the first page of each list")
    yield from _named(report)
    yield from (f"{_sentence(text)}." for text in left_out_texts(report))
    if report.subset is not None:
        yield f"Only a part was compared: {clipped(described(report.subset.model_dump()))}."
    yield from _rules(report)
    for left in report.ignored:
        if left.kind == "field":
            yield f"Not compared: {clipped(left.entity)}.{clipped(left.path)}."
    for item in report.equivalences:
        how = "apart from ignored fields" if item.name == IGNORED_FIELD else "after normalisation"
        yield f"Equal {how}: {number_of(item.documents, 'document')} ({clipped(item.name)})."
    if proved := proved_text(report):
        yield proved
    if report.envelope.fast_path is not None:
        yield _sentence(str(report.envelope.fast_path))
    # Repeated here, where readers look for it after a long list.
    yield toned(f"{report.verdict}. {_sentence(report.next_step)}", report.verdict)
    if out is not None:
        yield f"Reports: {out}/parity-report.json, .xml, .md and .html."
        if report.approval is None:
            yield f"Every finding: {out}/{DIFFERENCES}."


def _rules(report: ParityReport) -> Iterator[str]:
    """Say what rules changed."""
    for rule in report.rules:
        rows = "" if rule.rows is None else f" ({number_of(rule.rows, 'row')})"
        yield f"Rule {clipped(rule.kind)} {clipped(rule.path)}{rows}: {_sentence(rule.reason)}"


def _decisions(report: ParityReport) -> Iterator[RenderableType]:
    """Yield what is accepted, what leaves the proof open, and the warnings."""
    if rows := exception_rows(report):
        yield table(EXCEPTION_COLUMNS, rows, f"{EXCEPTIONS}: {report.approved_exceptions:,}")
    yield from (f"- {_sentence(reason)}" for reason in report.reasons)
    yield from warning_texts(report.warnings, report.speed_only)


def _sentence(text: str) -> str:
    return clipped(text, LONGEST_SENTENCE)


def _result(report: ParityReport) -> str:
    """Say what is wrong first; of two equal stores their number is enough."""
    if report.verdict != "PASS":
        return headline(report)
    texts = (
        f"{number_of(report.documents_equal, 'document')} equal.",
        functions_text(report),
        exceptions_text(report),
        expired_text(report),
    )
    return " ".join(filter(None, texts))


def _entities(report: ParityReport) -> Iterator[RenderableType]:
    rows = [
        (
            entity.entity,
            entity.result,
            entity.counts.equal,
            entity.counts.missing,
            entity.counts.extra,
            entity.counts.different + entity.counts.stale,
            entity.counts.quarantined + entity.counts.undecodable,
            f"{entity.counts.expired_source:,} / {entity.counts.expired_target:,}",
        )
        for entity in report.entities
    ]
    columns = ("entity", "result", "equal", "missing", "extra", "different", "undecodable", "expired")
    width = len(columns) if any(expired_rows(report)) else len(columns) - 1
    if rows:
        yield table(columns[:width], [row[:width] for row in rows])


def _named(report: ParityReport) -> Iterator[str]:
    """Name the fields and the first keys that differ, so that a terminal is enough to go on."""
    for entity in report.entities:
        name = entity.entity
        for item in entity.fields[:NAMED]:
            yield f"{item.kind} {name}, field {clipped(item.path)}: {item.documents:,}"
        for listed in lists_of(entity):
            suffix = "" if listed.kind in {"missing", "extra"} else ": {}"
            for row in listed.rows[:NAMED]:
                yield f"{listed.kind} {name} {_key(row.named)}{suffix.format(row.where)}"
            if listed.count > NAMED:
                yield f"… and {listed.count - NAMED:,} more {listed.kind} in {name}"


def _key(key: Key | str | None) -> str:
    if key is None or isinstance(key, str):
        return key_text(key)
    return json.dumps(clipped("/".join(map(str, key))), ensure_ascii=False)


CODES = {
    "equal": Exit.OK,
    "unproved": Exit.INCONCLUSIVE,
    "quarantined": Exit.INCONCLUSIVE,
    "expired": Exit.OK,
}


def key_option(entity: Entity, parts: Sequence[str]) -> Key:
    """Return the key that an option gives in parts.

    Raises:
        ValidationError: it is not a key of the entity.
    """
    from twinstore_backfill.repair.engine import is_nameable

    wanted = entity.key_parts
    if len(parts) == len(wanted):
        try:
            key = tuple(
                int(text) if part.type.is_number else text for text, part in zip(parts, wanted, strict=True)
            )
        except ValueError:
            key = ()
        if key and is_nameable(entity, key):
            return key
    described = ", ".join(f"{part.field} ({part.type.value})" for part in wanted)
    raise ValidationError(
        f"--key does not name a row of {entity.name}, whose key is {described}; give --key once for each."
    )


def row_document(found: RowComparison, *, show_values: bool) -> dict[str, Any]:
    """Return the comparison of one row for programs."""
    places = [
        {"path": item.path, **({"source": item.source, "target": item.target} if show_values else {})}
        for item in found.places
    ]
    return {
        "entity": found.entity,
        "key": list(found.key),
        "verdict": found.verdict,
        "tenant_in_source": found.source_tenant,
        "tenant_in_target": found.target_tenant,
        "reason": found.reason,
        "equivalences": list(found.equivalences),
        "differences": places,
    }


def row_texts(found: RowComparison, *, show_values: bool) -> Iterator[str]:
    """Yield the comparison of one row for people."""
    yield f"{found.entity} {'/'.join(map(str, found.key))}: {found.verdict}"
    if found.reason is not None:
        yield f"The source row cannot be copied: {found.reason}."
    for text in found.equivalences:
        how = "Not compared" if text.endswith(f"({IGNORED_FIELD})") else "Equal after normalisation"
        yield f"{how}: {text}."
    for item in found.places:
        yield f"  {item.path}"
        if show_values:
            yield f"    expected: {_shown(item.source)}"
            yield f"    stored:   {_shown(item.target)}"


def _shown(value: object) -> str:
    return "(nothing)" if value is None else orjson.dumps(value).decode()
