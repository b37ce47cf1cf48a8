"""The parity report: one deterministic document apart from its envelope."""

from __future__ import annotations

import os
import re
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from mmap import ACCESS_READ, mmap
from secrets import token_hex
from tempfile import SpooledTemporaryFile
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, Self, overload
from weakref import finalize

import orjson
import pydantic
from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    PlainSerializer,
    SerializationInfo,
    StrictInt,
    StrictStr,
    WrapValidator,
    model_validator,
)
from typing_extensions import override

from twinstore.errors import ValidationError
from twinstore_backfill.outcome import Exit
from twinstore_backfill.report.fast_path import FastPathReport

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

# As long as they are few, ranges are in memory.
RANGE_BYTES: Final = 1024 * 1024
FORMAT: Final = "twinstore.parity-report@1"
Result = Literal["pass", "fail", "inconclusive", "skipped"]
Verdict = Literal["PASS", "PARTIAL", "FAIL", "INCONCLUSIVE", "START-CLEAN (approved)"]
# The one place that says how a command ends whose report came to a verdict.
EXITS: Final[Mapping[Verdict, Exit]] = {
    "PASS": Exit.OK,
    "PARTIAL": Exit.OK,
    "START-CLEAN (approved)": Exit.OK,
    "FAIL": Exit.DIFFERENT,
    "INCONCLUSIVE": Exit.INCONCLUSIVE,
}
# Without coercion: a number in a key stays a number, and a text that looks like one a text.
ReportKey = tuple[StrictStr | StrictInt, ...]
Hex = Annotated[str, Field(pattern="^[0-9a-f]{32}$")]


class Frozen(BaseModel):
    """Base of every part."""

    # An unknown part is refused: a report of a later format must not be rendered in part.
    # Each is built at its first use: most commands use few of them.
    model_config = ConfigDict(
        frozen=True, extra="forbid", defer_build=True, json_schema_serialization_defaults_required=True
    )


class QueryTimes(Frozen):
    """How long the first page of a list takes on both sides, in milliseconds (``--benchmark``).

    Attributes:
        query: name of the list.
        source_median, source_p95, target_median, target_p95: median and 95th percentile of the repetitions.
    """

    query: str
    source_median: float
    source_p95: float
    target_median: float
    target_p95: float


class RangeShares(Frozen):
    """How the ranges of keys were compared.

    Attributes:
        by_digests: ranges that the digests of both sides proved equal.
        row_by_row: ranges that were compared row by row.
    """

    by_digests: int = Field(default=0, ge=0)
    row_by_row: int = Field(default=0, ge=0)


class TrendPoint(Frozen):
    """The numbers of documents of an earlier report of the same directory.

    Attributes:
        generated_at: when it was made.
        verdict: its verdict.
        proved: equal, without approved exceptions.
        approved: accepted with a reason.
        open: on the target, and different or not proved.
        refused: not copied, or not readable.
    """

    generated_at: str
    verdict: str
    proved: int
    approved: int
    open: int
    refused: int

    @property
    def counts(self) -> tuple[int, int, int, int]:
        """The numbers, in the order in which reports show them."""
        return self.proved, self.approved, self.open, self.refused


class Envelope(Frozen):
    """The only values that differ between two verifications of the same data.

    Attributes:
        generated_at: when the report was made, in UTC.
        host: name of the machine that verified.
        as_of: the instant at which expiry was decided.
        seconds: duration of the verification; of a continued one that of its last part.
        benchmark: times of the lists, if they were measured.
        fast_path: share of the rows that the fast path proved; ``null`` only in reports of earlier releases.
        ranges: how the ranges of keys were compared; ``null`` unless ``mode`` is ``full``.
        without_digests: by entity, why its rows were compared one by one, without digests.
        trend: the last 20 reports about the same that ``--out`` held before, the first one first.
        continued: with ``--resume``, when the interrupted verification began: some rows were compared then;
            otherwise ``null``.
    """

    generated_at: str
    host: str
    as_of: str
    seconds: float
    benchmark: tuple[QueryTimes, ...] = ()
    fast_path: FastPathReport | None = None
    ranges: RangeShares | None = None
    without_digests: dict[str, str] = Field(default_factory=dict)
    trend: tuple[TrendPoint, ...] = ()
    continued: str | None = None


class Tool(Frozen):
    """The program that made the report.

    Attributes:
        name, version: name and version of the distribution.
        checksum: SHA-256 of every Python file of core and of the migration tool.
    """

    name: str
    version: str
    checksum: str


class SideReport(Frozen):
    """One side. Of the source of a fresh start only ``backend`` is known.

    Attributes:
        backend: the driver, as ``--from`` and ``--to`` name it.
        identity: the database, as its server identifies it.
        place: host and database of the settings, without secrets.
        server_version: version of the server.
    """

    backend: str
    identity: str
    place: str = ""
    server_version: str


class ApprovalReport(Frozen):
    """The approval of a start without the old data.

    Attributes:
        reason: ``--reason``.
        approved_by: ``--approved-by``.
    """

    reason: str
    approved_by: str


class Check(Frozen):
    """One check.

    Attributes:
        id: the identifier, such as ``C2``.
        title: what the check compares.
        result: its outcome.
        summary: the outcome in a sentence.
        count: the number of all findings.
        findings: the first 100.
        by_rows: the first 100 lists that were compared with the rows of the target, because the source
            answers them otherwise under rules or for approved exceptions.
    """

    id: str
    title: str
    result: Result
    summary: str
    count: int = 0
    findings: tuple[str, ...] = ()
    by_rows: tuple[str, ...] = ()


class SideDigest(Frozen):
    """The digests of the documents of one side.

    Attributes:
        count: number of documents.
        xor, sum: XOR and sum (modulo 2^128) of the digests of the documents, 32 hexadecimal digits.
    """

    count: int
    xor: Hex
    sum: Hex


class Counts(Frozen):
    """The numbers of documents of a tenant or an entity, by outcome.

    Attributes:
        equal: equal, documented equivalences included.
        equal_approved: of these, equal only because an equivalence is accepted.
        missing: in the source, not in the target.
        extra: in the target, not in the source.
        different: on both sides, with different content.
        stale: in the target, under the key of a source document that no copy accepts.
        unproved: equal only after a normalisation that matters, such as in a key, filter or order.
        undecodable: the same on both sides, and not readable.
        quarantined: in the source, not in the target, and cannot be copied.
        quarantined_approved: of these, those whose cause is accepted.
        expired_source, expired_target: expired by retention, so not compared.
    """

    equal: int = 0
    equal_approved: int = 0
    missing: int = 0
    extra: int = 0
    different: int = 0
    stale: int = 0
    unproved: int = 0
    undecodable: int = 0
    quarantined: int = 0
    quarantined_approved: int = 0
    expired_source: int = 0
    expired_target: int = 0

    @property
    def wrong(self) -> int:
        """How many documents are missing, extra or not as a copy stores them."""
        return self.missing + self.extra + self.different + self.stale

    @property
    def unresolved(self) -> int:
        """How many documents keep the proof open."""
        return self.unproved + self.quarantined - self.quarantined_approved

    @property
    def approved(self) -> int:
        """How many documents are accepted with a reason."""
        return self.equal_approved + self.quarantined_approved

    @property
    def result(self) -> Result:
        """What they amount to."""
        if self.wrong or self.undecodable:
            return "fail"
        return "inconclusive" if self.unresolved else "pass"

    @property
    def named(self) -> int:
        """How many documents there is something to say of."""
        return self.wrong + self.unproved + self.undecodable + self.quarantined


class TenantReport(Frozen):
    """One tenant of one entity.

    Attributes:
        tenant: the tenant; ``:none`` for documents without one, empty for an unknown one.
        stored_source, stored_target: rows that each side counts, expired ones included.
        source, target: the digests of each side.
        counts: the outcomes.
    """

    tenant: str
    stored_source: int
    stored_target: int
    source: SideDigest
    target: SideDigest
    counts: Counts


class RangeReport(Frozen):
    """One range of keys of one entity.

    Attributes:
        tenant: the tenant, ``null`` for all tenants.
        lower: the first key, included; ``null`` is unbounded.
        upper: the key at its end, excluded; ``null`` is unbounded.
        source, target: the digests of each side.
        equal: whether the digests are equal.
    """

    tenant: str | None
    lower: ReportKey | None
    upper: ReportKey | None
    source: SideDigest
    target: SideDigest
    equal: bool


class RangeReports(Sequence[RangeReport]):  # noqa: PLW1641  # it grows
    """Ranges in a temporary file, because there may be a million of them."""

    def __init__(self, ranges: Iterable[RangeReport] = ()) -> None:
        """Take the first ranges."""
        self._file = SpooledTemporaryFile[bytes](RANGE_BYTES)
        finalize(self, self._file.close)
        self._ends = array("Q", [0])
        self._unequal = set[int]()
        for item in ranges:
            self.append(item.model_dump())

    @classmethod
    def of(cls, ranges: Iterable[RangeReport]) -> Self:
        """Return ranges as they are stored."""
        return ranges if isinstance(ranges, cls) else cls(ranges)

    def append(self, values: Mapping[str, object]) -> None:
        """Add a range, given by the values of its fields in their order."""
        if not values["equal"]:
            self._unequal.add(len(self))
        text = orjson.dumps(values, option=orjson.OPT_INDENT_2)
        self._file.write(text)
        self._ends.append(self._ends[-1] + len(text))

    def texts(self) -> Iterator[bytes]:
        """Yield the JSON of each range."""
        for number in range(len(self)):
            yield self._text(number)
        self._file.seek(self._ends[-1])

    def shown(self, most: int) -> list[RangeReport]:
        """Return the first ranges, those before all others whose digests differ."""
        numbers = sorted(self._unequal)[:most]
        numbers += [number for number in range(min(len(self), most)) if number not in self._unequal]
        return [self[number] for number in numbers[:most]]

    def _text(self, number: int) -> bytes:
        start, end = self._ends[number : number + 2]
        self._file.seek(start)
        return self._file.read(end - start)

    @override
    def __len__(self) -> int:
        return len(self._ends) - 1

    @overload
    def __getitem__(self, index: int) -> RangeReport: ...
    @overload
    def __getitem__(self, index: slice) -> list[RangeReport]: ...
    @override
    def __getitem__(self, index: int | slice) -> RangeReport | list[RangeReport]:
        numbers = range(len(self))[index]
        found = [numbers] if isinstance(numbers, int) else numbers
        ranges = [RangeReport.model_validate_json(self._text(number)) for number in found]
        self._file.seek(self._ends[-1])
        return ranges[0] if isinstance(numbers, int) else ranges

    @override
    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and [*self] == [*other]


class Places:
    """What a report has in place of ranges while it is dumped, so that they never are in memory together."""

    def __init__(self) -> None:
        """Begin with none."""
        self.name = token_hex(16)
        self.ranges: list[RangeReports] = []


def _stored_ranges(value: object, handler: Callable[[object], Iterable[RangeReport]]) -> RangeReports:
    return value if isinstance(value, RangeReports) else RangeReports.of(handler(value))


def _dumped_ranges(value: RangeReports, info: SerializationInfo) -> Any:  # noqa: ANN401  # the schema has the type
    places = info.context
    if isinstance(places, Places) and value:
        places.ranges.append(value)
        return places.name
    return [orjson.loads(text) for text in value.texts()]


class Named(Frozen):
    """One document.

    Attributes:
        key: its key; a text is what is stored in its place, as extended JSON, ``null`` if that is unknown.
        tenant: its tenant.
        reason: why it cannot be read or copied, if so.
        cause: the same by name, as ``[[accept]]`` names it; ``null`` in reports of earlier releases.
    """

    key: ReportKey | str | None
    tenant: str
    reason: str | None = None
    cause: str | None = None


class KeyList(Frozen):
    """Documents with one outcome.

    Attributes:
        count: the number of all.
        shown: the first 100 in order of keys.
    """

    count: int = 0
    shown: tuple[Named, ...] = ()


class Differing(Frozen):
    """One document that differs: where, but never the values.

    Attributes:
        key: its key.
        tenant: its tenant.
        source_digest, target_digest: digests of the expected and the stored document.
        paths: the first 20 places that differ or were normalised.
        path_count: the number of all places.
        reason: why the source document cannot be copied, if so.
    """

    key: ReportKey
    tenant: str
    source_digest: str
    target_digest: str
    paths: tuple[str, ...]
    path_count: int
    reason: str | None = None


class DifferingList(Frozen):
    """Differing documents.

    Attributes:
        count: the number of all.
        shown: the first 100 in order of keys.
    """

    count: int = 0
    shown: tuple[Differing, ...] = ()


class FieldReport(Frozen):
    """The number of documents in which one field differs.

    Attributes:
        kind: the outcome of these documents, such as ``different``.
        path: the field, the same for every item of a list and every name of a free map.
        documents: the number of documents.
    """

    kind: str
    path: str
    documents: int


class EntityReport(Frozen):
    """One entity.

    Attributes:
        entity: its name.
        group: its group.
        result: the outcome of all its documents.
        counts: the outcomes over all tenants.
        tenants: the outcomes by tenant.
        ranges: the ranges of keys; none for a part of the rows or a recheck.
        missing, extra, different, stale, unproved, undecodable, quarantined: the first documents with this
            outcome.
        fields: the first 100 fields that differ, the most frequent first.
    """

    entity: str
    group: str
    result: Result
    counts: Counts
    tenants: tuple[TenantReport, ...]
    ranges: Annotated[
        Sequence[RangeReport],
        WrapValidator(_stored_ranges),
        # Without the annotation the schema is that of the field.
        PlainSerializer(lambda value, info: _dumped_ranges(value, info)),  # noqa: PLW0108
    ]
    missing: KeyList = KeyList()
    extra: KeyList = KeyList()
    different: DifferingList = DifferingList()
    stale: DifferingList = DifferingList()
    unproved: DifferingList = DifferingList()
    undecodable: KeyList = KeyList()
    quarantined: KeyList = KeyList()
    fields: tuple[FieldReport, ...] = ()


class CauseReport(Frozen):
    """A reason for which documents of an entity are not copied or not proved, counted over all of them.

    Attributes:
        entity: its name.
        kind: the outcome of these documents, such as ``quarantined`` or ``unproved``; ``conflict`` in a copy.
        cause: the cause or the equivalence, as ``[[accept]]`` names it; empty for a difference.
        reason: the reason, without stored values.
        documents: the number of documents.
        example: the key of one; a text is what is stored in place of a key, as extended JSON.
        remedy: the rule of a job file, or the command, that solves it; empty if none does.
        approved: whether a rule of the job accepts it.
    """

    entity: str
    kind: str
    cause: str = ""
    reason: str
    documents: int
    example: ReportKey | str | None = None
    remedy: str = ""
    approved: bool = False


class FindingGroup(Frozen):
    """A group of entities.

    Attributes:
        name: its name.
        entities: its entities.
        result: the outcome of all of them.
    """

    name: str
    entities: tuple[str, ...]
    result: Result


class LeftOut(Frozen):
    """An entity that is neither copied nor compared.

    Attributes:
        entity: its name.
        why: why its rows are skipped.
        source, target: rows by tenant.
    """

    entity: str
    why: str
    source: dict[str, int]
    target: dict[str, int]


class Equivalence(Frozen):
    """A documented, lossless difference in representation.

    Attributes:
        name: its kind, such as ``text_timestamp``; also ``ignored`` and ``ignored_field``.
        documents: the number of documents that have it.
    """

    name: str
    documents: int


class IgnoredReport(Frozen):
    """A property that was ignored on request.

    Attributes:
        entity: the entity, ``*`` for all.
        path: the property.
        reason: the reason, if one was given.
        kind: ``unknown`` is a property of no model, which the copy dropped; ``field`` is copied but not
            compared.
    """

    entity: str
    path: str
    reason: str | None = None
    kind: Literal["unknown", "field"] = "unknown"


class RuleReport(Frozen):
    """A rule of the job that changes documents on the way.

    Attributes:
        kind: its kind, such as ``map``.
        path: the entity and the place that it names.
        reason: why.
        rows: how many rows of the source it changed; ``null`` for a property at the top of documents that
            are otherwise as they are, which is left out where they are read.
    """

    kind: str
    path: str
    reason: str
    rows: int | None


class ExceptionReport(Frozen):
    """One ``[[accept]]`` of the job file that made a difference.

    Attributes:
        kind: the equivalence, the cause of quarantine or the finding that is accepted.
        path: the entity, ``*`` for all, with the place in its documents.
        rows: how many documents it accepts.
        most: how many it may accept, ``null`` for any number.
        reason, approved_by: why, and who decided.
    """

    kind: str
    path: str
    rows: int
    most: int | None = None
    reason: str
    approved_by: str


class SubsetReport(Frozen):
    """The selected part of the rows.

    Attributes:
        key_from, since: lower bounds, included.
        key_to, until: upper bounds, excluded.
        dated_by: by entity, the field that ``since`` and ``until`` bound.
    """

    key_from: ReportKey | None = None
    key_to: ReportKey | None = None
    since: str | None = None
    until: str | None = None
    dated_by: dict[str, str] = Field(default_factory=dict)


class ParityReport(Frozen):
    """The result of a verification.

    Attributes:
        format: the format of this file.
        envelope: the values that differ between two verifications of the same data.
        tool: the program.
        module: the module.
        title: ``--title``, the name of the migration.
        mode: ``full``, a ``sample``, a ``recheck`` of reported rows, or ``start-clean``.
        seed, sample_size: ``--seed`` and ``--sample-size`` of a sample, ``null`` otherwise.
        as_of: ``--as-of``, ``null`` if it was not given.
        entities_asked, tenants_asked: ``--entity`` and ``--tenant``; empty for all.
        subset: the selected part of the rows, ``null`` for all.
        source, target: both sides.
        switch: the backend that the configuration names for the module, ``null`` if unknown.
        verdict: the outcome.
        exit_code: the exit code of the command.
        cutover_ready: whether it is safe to cut over now.
        cutover_ready_required: ``--require-cutover-ready``.
        approved_exceptions: how many documents the verdict holds for only because of ``exceptions``.
        no_exceptions_required: ``--require-no-exceptions``.
        exceptions: what ``[[accept]]`` of the job file accepts, as far as it made a difference.
        reasons: a sentence for each check that failed or is inconclusive.
        causes: why documents are not proved, counted over all of them, the most frequent first.
        warnings: what does not change the verdict.
        speed_only: how many of them, the last ones, only say what makes reading slow.
        ignored: properties that were ignored on request.
        rules: the rules that change documents.
        next_step: what to do next.
        documents_equal: number of equal documents.
        approval: the approval of a start without the old data.
        checks: the checks in order.
        groups: the outcomes by group of entities.
        equivalences: documented equivalences and their numbers of documents.
        entities: the outcomes by entity.
        left_out: entities that are neither copied nor compared.
    """

    format: Literal["twinstore.parity-report@1"] = FORMAT
    envelope: Envelope
    tool: Tool
    module: str
    title: str = ""
    mode: Literal["full", "sample", "recheck", "start-clean"]
    seed: int | None
    sample_size: int | None
    as_of: str | None
    entities_asked: tuple[str, ...]
    tenants_asked: tuple[str, ...]
    subset: SubsetReport | None = None
    source: SideReport
    target: SideReport
    switch: str | None
    verdict: Verdict
    exit_code: int
    cutover_ready: bool
    cutover_ready_required: bool = False
    approved_exceptions: int = 0
    no_exceptions_required: bool = False
    exceptions: tuple[ExceptionReport, ...] = ()
    reasons: tuple[str, ...]
    causes: tuple[CauseReport, ...] = ()
    warnings: tuple[str, ...] = ()
    speed_only: int = Field(default=0, ge=0)
    ignored: tuple[IgnoredReport, ...] = ()
    rules: tuple[RuleReport, ...] = ()
    next_step: str
    documents_equal: int
    approval: ApprovalReport | None
    checks: tuple[Check, ...]
    groups: tuple[FindingGroup, ...]
    equivalences: tuple[Equivalence, ...]
    entities: tuple[EntityReport, ...]
    left_out: tuple[LeftOut, ...] = ()

    @property
    def open_causes(self) -> tuple[CauseReport, ...]:
        """The causes that no rule of the job accepts."""
        return tuple(item for item in self.causes if not item.approved)

    @model_validator(mode="after")
    def _agrees_with_itself(self) -> Self:
        """Refuse a report whose exit code contradicts its verdict."""
        unready = (self.cutover_ready_required and not self.cutover_ready) or (
            self.no_exceptions_required and self.approved_exceptions > 0
        )
        code = EXITS[self.verdict]
        if self.exit_code != (Exit.INCONCLUSIVE if unready and code is Exit.OK else code):
            raise ValueError(f"exit_code {self.exit_code} does not belong to the verdict {self.verdict}")
        return self


class FindingLine(Frozen):
    """One line of ``differences.ndjson``: a document that is missing, extra, different or not verified.

    Attributes:
        entity: the entity.
        kind: the outcome, as in the counts of the report.
        tenant: its tenant.
        key: its key; a text is what is stored in its place, as extended JSON, ``null`` if that is unknown.
        paths: the first 20 places that differ or were normalised, without values.
        path_count: the number of all places.
        source_digest, target_digest: digests of the expected and the stored document; ``null`` if absent,
            undecodable or quarantined.
        reason: why the document cannot be read or copied, if so.
        cause: the same by name; absent in the lines of earlier releases.
    """

    entity: str
    kind: Literal["missing", "extra", "different", "stale", "unproved", "undecodable", "quarantined"]
    tenant: str
    key: ReportKey | str | None
    paths: tuple[str, ...]
    path_count: int
    source_digest: str | None
    target_digest: str | None
    reason: str | None
    cause: str | None = None


# As reports are written: no text has a line feed, and nothing else ends at this depth.
RANGES: Final = re.compile(rb'\n {6}"ranges": \[\n.*?\n {6}\]', re.DOTALL)


def report_without_ranges(path: Path) -> ParityReport:
    """Return a report that was written before, without its ranges, of which there may be a million.

    Raises:
        OSError: it cannot be read.
        ValidationError: the content is not a parity report of this format.
    """
    with path.open("rb") as file:
        if not os.fstat(file.fileno()).st_size:  # which cannot be mapped
            return parse_report(b"", str(path))
        with mmap(file.fileno(), 0, access=ACCESS_READ) as content:
            return parse_report(RANGES.sub(b'\n      "ranges": []', content), str(path))


def parse_report(content: bytes, name: str) -> ParityReport:
    """Return a report that was written before.

    Raises:
        ValidationError: the content is not a parity report of this format.
    """
    try:
        return ParityReport.model_validate_json(content)
    except pydantic.ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        place = ".".join(map(str, first["loc"])) or "the top level"
        raise ValidationError(
            f"{name} is not a parity report of the format {FORMAT}: {place}: {first['msg']}. "
            "Make it with `twinstore backfill verify --out`."
        ) from None
