"""``twinstore backfill verify``."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import orjson
import typer
from rich.console import RenderableType

from twinstore.catalog.entity import Entity
from twinstore.catalog.keys import Key
from twinstore.config import Settings
from twinstore.errors import ConfigurationError, ValidationError
from twinstore.plugins.drivers import installed_backend_names, load_backend
from twinstore_backfill.cli.options import (
    AsOf,
    Format,
    Ignored,
    OnFinish,
    OutputFormat,
    RowOptions,
    Sides,
    drivers,
    expand_option_groups,
    instant_option,
    side_settings,
)
from twinstore_backfill.cli.output import (
    OutputOptions,
    ProgressOutput,
    emit,
    table,
    toned,
)
from twinstore_backfill.cli.streams import emit_text
from twinstore_backfill.ignored import check_ignored, check_ignored_fields, of_entity
from twinstore_backfill.outcome import Exit, on_finish
from twinstore_backfill.process.stopping import StopSwitch, stop_on_signals
from twinstore_backfill.repair.engine import is_nameable
from twinstore_backfill.report.model import ParityReport, parse_report
from twinstore_backfill.report.texts import (
    IGNORED_FIELD,
    LONGEST_SENTENCE,
    NO_SOURCE,
    SPEED_COLUMNS,
    clipped,
    expired_rows,
    expired_text,
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
    REPORT_FILES,
    ReportFormat,
    render,
    report_directory,
    reports_in,
    write_reports,
)
from twinstore_backfill.retention import resolve_as_of
from twinstore_backfill.stores import Store, open_store, preflight, select_entities
from twinstore_backfill.subset import described
from twinstore_backfill.verify.checks import read_groups
from twinstore_backfill.verify.engine import run_start_clean, run_verify
from twinstore_backfill.verify.one_row import RowComparison, compare_row
from twinstore_backfill.verify.options import Approval, VerifyOptions

RequireReady = Annotated[
    bool,
    typer.Option(
        "--require-cutover-ready",
        help="Exit with 3 instead of 0 unless it is safe to cut over now.",
    ),
]

FromOrNone = Annotated[
    str,
    typer.Option(
        "--from",
        help="Driver of the source, for example Mongo; with --start-clean also `none`: no source.",
        autocompletion=drivers,
    ),
]


@dataclass(frozen=True)
class VerifySides(Sides):
    """Source and target of a verification, of which a fresh start has the target only."""

    source: FromOrNone


StartClean = Annotated[
    bool,
    typer.Option(
        "--start-clean",
        help="Approve a start without the old data: the source is not opened, and the target must be empty.",
    ),
]


GroupsFile = Annotated[
    Path | None,
    typer.Option(
        "--groups",
        help="Mapping file (JSON, YAML or TOML) of the groups in the report: group, collection, table.",
    ),
]
Benchmark = Annotated[
    bool, typer.Option("--benchmark", help="Also measure how long each side takes for the lists.")
]
MaxRatio = Annotated[
    float | None,
    typer.Option(
        "--max-ratio",
        help="With --benchmark: fail if a list takes more than this many times as long on the target.",
    ),
]
# As many as fit on a screen; differences.ndjson holds every one.
NAMED = 10


class Mode(StrEnum):
    """How much is compared."""

    FULL = "full"
    SAMPLE = "sample"


@expand_option_groups
def verify(
    *,
    sides: VerifySides,
    rows: RowOptions,
    mode: Annotated[Mode, typer.Option("--mode", help="Compare every document, or a sample.")] = Mode.FULL,
    seed: Annotated[int, typer.Option("--seed", help="Seed that chooses the sample.")] = 0,
    sample_size: Annotated[int, typer.Option("--sample-size", help="Documents to sample per entity.")] = 1000,
    as_of: AsOf = None,
    jobs: Annotated[int, typer.Option("--jobs", help="Readers of each side, and processes.")] = 1,
    range_size: Annotated[int, typer.Option("--range-size", help="Documents per range.")] = 10_000,
    out: Annotated[
        Path | None,
        typer.Option("--out", help="Directory for the report as JSON, JUnit XML, Markdown and HTML."),
    ] = None,
    start_clean: StartClean = False,
    reason: Annotated[str | None, typer.Option("--reason", help="Why a clean start is acceptable.")] = None,
    approved_by: Annotated[str | None, typer.Option("--approved-by", help="Who decided it.")] = None,
    require_cutover_ready: RequireReady = False,
    groups: GroupsFile = None,
    benchmark: Benchmark = False,
    max_ratio: MaxRatio = None,
    ignored: Ignored,
    finish: OnFinish = None,
    shown: OutputOptions,
) -> None:
    """Prove that two stores hold the same. Writes only a test lock, to the target. Stop writers first."""
    # From here on, so that the files of --out agree with the exit code at every moment.
    with report_directory(out), stop_on_signals() as stop:
        on_finish(finish, out)
        approval = _approval(reason, approved_by, start_clean=start_clean)
        # A fresh start needs no source, so not even its settings are read.
        name = sides.module_of(sides.target_config) if approval else sides.name
        options = VerifyOptions(
            entities=rows.entity or (),
            tenants=rows.tenant or (),
            mode=mode.value,
            seed=seed,
            sample_size=sample_size,
            as_of=instant_option(as_of, "--as-of"),
            jobs=jobs,
            range_size=range_size,
            approval=approval,
            switch=switch_of(sides.common.settings(), name),
            require_ready=require_cutover_ready,
            benchmark=benchmark,
            max_ratio=max_ratio,
            groups=read_groups(groups, name) if groups is not None else {},
            ignored=ignored.unknown(sides.context),
            ignored_fields=ignored.fields(sides.context),
            subset=rows.subset,
        )
        if approval is not None:
            with open_store(name, sides.target, side_settings(sides.common, sides.target_config)) as store:
                report = run_start_clean(_source_name(sides.source), store, options, stop)
        else:
            _require_source(sides.source)
            progress_output = shown.progress_output("verify")
            report = run_and_write(sides.opened(name), options, out, stop, progress_output)
        conclude(report, out, shown.output)
    raise typer.Exit(report.exit_code)


def run_and_write(
    sides: AbstractContextManager[tuple[Store, Store]],
    options: VerifyOptions,
    out: Path | None,
    stop: StopSwitch,
    progress_output: ProgressOutput,
) -> ParityReport:
    """Compare and return the report; the findings are written to the directory."""
    with reports_in(out) as write, sides as (left, right), progress_output.progress() as progress:
        return run_verify(left, right, options, progress, stop, write)


def conclude(report: ParityReport, out: Path | None, output: Format) -> None:
    """Write and print a report."""
    if out is not None:
        write_reports(report, out)
    emit(output, report.model_dump(mode="json"), *report_texts(report, out), saved=out)


def _approval(reason: str | None, approved_by: str | None, *, start_clean: bool) -> Approval | None:
    if not start_clean:
        if reason or approved_by:
            raise ValidationError(
                "--reason and --approved-by belong to --start-clean; add it or leave them out."
            )
        return None
    if not (reason and reason.strip()) or not (approved_by and approved_by.strip()):
        raise ValidationError("--start-clean needs --reason TEXT and --approved-by NAME.")
    return Approval(reason.strip(), approved_by.strip())


def _source_name(given: str) -> str:
    """Return the proper name of a driver that is not opened, or ``none``.

    Raises:
        ConfigurationError: there is no such driver.
    """
    known = {name.casefold(): name for name in (*installed_backend_names(), NO_SOURCE)}
    # The spelling only: a fresh start does not need the client library of its source either.
    return known.get(given.casefold()) or load_backend(given).name


def _require_source(given: str) -> None:
    if given.casefold() == NO_SOURCE:
        raise ValidationError(
            f"--from {NO_SOURCE} belongs to --start-clean; name the driver of the source, for example Mongo."
        )


def switch_of(settings: Settings, module: str) -> str | None:
    """Return the driver that the settings name for a module, ``None`` where they name none."""
    try:
        return settings.backend_name(module)
    except ConfigurationError:
        # A comparison needs no switch; the report then says that none is set.
        return None


def report_texts(report: ParityReport, out: Path | None) -> Iterator[RenderableType]:
    """Return what a terminal shows of a report: the verdict first, and what to do last."""
    yield toned(f"{report.verdict}: {_sentence(_result(report))}", report.verdict)
    yield from (f"- {_sentence(reason)}" for reason in report.reasons)
    yield from (f"Warning: {_sentence(text)}" for text in report.warnings)
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


def _sentence(text: str) -> str:
    return clipped(text, LONGEST_SENTENCE)


def _result(report: ParityReport) -> str:
    """Say what is wrong first; of two equal stores their number is enough."""
    if report.verdict != "PASS":
        return headline(report)
    return f"{number_of(report.documents_equal, 'document')} equal. {expired_text(report)}".strip()


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


def _key(key: Key | None) -> str:
    if key is None:
        return key_text(key)
    return json.dumps(clipped("/".join(map(str, key))), ensure_ascii=False)


KeyOption = Annotated[
    list[str],
    typer.Option("--key", help="Key of the row; for a key of several parts once for each, in their order."),
]
ShowValues = Annotated[
    bool, typer.Option("--show-values", help="Print stored values. They may contain customer data.")
]
CODES = {
    "equal": Exit.OK,
    "unproved": Exit.INCONCLUSIVE,
    "quarantined": Exit.INCONCLUSIVE,
    "expired": Exit.OK,
}


@expand_option_groups
def diff(
    *,
    sides: Sides,
    entity: Annotated[str, typer.Option("--entity", help="Entity of the row.")],
    key: KeyOption,
    as_of: AsOf = None,
    show_values: ShowValues = False,
    ignored: Ignored,
    output: OutputFormat = Format.TEXT,
) -> None:
    """Compare one row as a verification does, and show where it differs. Shows values on request only."""
    name = sides.name
    requested_as_of = instant_option(as_of, "--as-of")
    with sides.opened(name) as (left, right):
        (chosen,) = select_entities(left.bulk, [entity])
        instant = resolve_as_of(left.bulk, requested_as_of)
        unknown = ignored.unknown(sides.context)
        check_ignored(unknown, left.bulk.entities())
        row = key_option(chosen, key)
        fields = ignored.fields(sides.context)
        check_ignored_fields(fields, left.bulk.entities())
        ignoring = of_entity(unknown, chosen), of_entity(fields, chosen)
        found = preflight(partial(compare_row, left, right, chosen, row, instant, *ignoring))
    emit(output, _document(found, show_values=show_values), *_texts(found, show_values=show_values))
    raise typer.Exit(CODES.get(found.verdict, Exit.DIFFERENT))


def key_option(entity: Entity, parts: Sequence[str]) -> Key:
    """Return the key that an option gives in parts.

    Raises:
        ValidationError: it is not a key of the entity.
    """
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


def _document(found: RowComparison, *, show_values: bool) -> dict[str, Any]:
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


def _texts(found: RowComparison, *, show_values: bool) -> Iterator[str]:
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


class ReportOutput(StrEnum):
    """How a report is printed: as the command that made it does, or as one of its files."""

    TEXT = "text"
    JSON = "json"
    JUNIT = "junit"
    MARKDOWN = "markdown"
    HTML = "html"


def report(
    file: Annotated[
        Path, typer.Option("--in", help="A parity-report.json, or the --out directory of a verification.")
    ] = Path("report"),
    output: Annotated[ReportOutput, typer.Option("--format", help="What to print.")] = ReportOutput.MARKDOWN,
) -> None:
    """Print a parity report in another format."""
    path = file / REPORT_FILES[0] if file.is_dir() else file
    try:
        content = path.read_bytes()
    except OSError as error:
        raise ValidationError(f"{path} cannot be read: {error.strerror}. Name a report with --in.") from error
    found = parse_report(content, str(path))
    if output is ReportOutput.TEXT:
        emit(Format.TEXT, None, *report_texts(found, None))
    else:
        emit_text(render(found, ReportFormat(output.value)).decode())
