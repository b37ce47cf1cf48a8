"""The parity report: one deterministic document apart from its envelope."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Final, Literal, Self

import pydantic
from pydantic import BaseModel, ConfigDict, Field, StrictInt, StrictStr, model_validator

from twinstore.errors import ValidationError
from twinstore_backfill.outcome import Exit
from twinstore_backfill.report.fast_path import FastPathReport

if TYPE_CHECKING:
    from collections.abc import Mapping

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
    model_config = ConfigDict(frozen=True, extra="forbid")


class QueryTimes(Frozen):
    """How long the first page of a list takes on both sides, in milliseconds."""

    query: str
    source_median: float
    source_p95: float
    target_median: float
    target_p95: float


class RangeShares(Frozen):
    """How many ranges the digests of both sides proved, and how many were compared row by row."""

    by_digests: int = Field(default=0, ge=0)
    row_by_row: int = Field(default=0, ge=0)


class Envelope(Frozen):
    """The only values that differ between two verifications of the same data.

    ``without_digests`` has, by entity, why its rows were compared one by one and no digests were used.
    """

    generated_at: str
    host: str
    as_of: str
    seconds: float
    benchmark: tuple[QueryTimes, ...] = ()
    fast_path: FastPathReport | None = None
    ranges: RangeShares | None = None
    without_digests: dict[str, str] = Field(default_factory=dict)


class Tool(Frozen):
    """Which program made the report."""

    name: str
    version: str
    checksum: str


class SideReport(Frozen):
    """One store: ``identity`` comes from its server, ``place`` from the settings."""

    backend: str
    identity: str
    place: str = ""
    server_version: str


class ApprovalReport(Frozen):
    """The decision to begin without old data."""

    reason: str
    approved_by: str


class Check(Frozen):
    """One check: its findings are capped, ``count`` is the true number."""

    id: str
    title: str
    result: Result
    summary: str
    count: int = 0
    findings: tuple[str, ...] = ()


class SideDigest(Frozen):
    """Number, XOR and sum of the document digests of one side."""

    count: int
    xor: Hex
    sum: Hex


class Counts(Frozen):
    """The outcomes of the documents of a tenant or an entity."""

    equal: int = 0
    missing: int = 0
    extra: int = 0
    different: int = 0
    stale: int = 0
    unproved: int = 0
    undecodable: int = 0
    quarantined: int = 0
    expired_source: int = 0
    expired_target: int = 0

    @property
    def wrong(self) -> int:
        """How many documents are missing, extra or not as a copy stores them."""
        return self.missing + self.extra + self.different + self.stale

    @property
    def named(self) -> int:
        """How many documents there is something to say of."""
        return self.wrong + self.unproved + self.undecodable + self.quarantined


class TenantReport(Frozen):
    """One tenant of one entity. ``stored`` are the rows that each side counts, expired ones included."""

    tenant: str
    stored_source: int
    stored_target: int
    source: SideDigest
    target: SideDigest
    counts: Counts


class RangeReport(Frozen):
    """One range of one entity: ``lower`` is included, ``upper`` is not, ``null`` is unbounded."""

    tenant: str | None
    lower: ReportKey | None
    upper: ReportKey | None
    source: SideDigest
    target: SideDigest
    equal: bool


class Named(Frozen):
    """One key; ``null`` where what is stored is not a key of the entity. ``reason``: why it is unreadable."""

    key: ReportKey | None
    tenant: str
    reason: str | None = None


class KeyList(Frozen):
    """The first keys in order, and how many there are."""

    count: int = 0
    shown: tuple[Named, ...] = ()


class Differing(Frozen):
    """One document that differs: where, but not what. ``reason``: why no copy takes that of the source."""

    key: ReportKey
    tenant: str
    source_digest: str
    target_digest: str
    paths: tuple[str, ...]
    path_count: int
    reason: str | None = None


class DifferingList(Frozen):
    """The first differing documents in order, and how many there are."""

    count: int = 0
    shown: tuple[Differing, ...] = ()


class FieldReport(Frozen):
    """In how many documents one field differs: the same for every item of a list and name of a free map."""

    kind: str
    path: str
    documents: int


class EntityReport(Frozen):
    """One entity. ``fields`` says of what kind most differences are."""

    entity: str
    group: str
    result: Result
    counts: Counts
    tenants: tuple[TenantReport, ...]
    ranges: tuple[RangeReport, ...]
    missing: KeyList = KeyList()
    extra: KeyList = KeyList()
    different: DifferingList = DifferingList()
    stale: DifferingList = DifferingList()
    unproved: DifferingList = DifferingList()
    undecodable: KeyList = KeyList()
    quarantined: KeyList = KeyList()
    fields: tuple[FieldReport, ...] = ()


class FindingGroup(Frozen):
    """A logical group of entities."""

    name: str
    entities: tuple[str, ...]
    result: Result


class LeftOut(Frozen):
    """An entity that is neither copied nor compared, with its rows by the label of their owner."""

    entity: str
    why: str
    source: dict[str, int]
    target: dict[str, int]


class Equivalence(Frozen):
    """A difference in spelling that means the same, and how many documents needed it."""

    name: str
    documents: int


class IgnoredReport(Frozen):
    """What was ignored on request, and why that is right, if a reason was given.

    ``unknown`` is a property of no model, which the copy dropped; ``field`` one that is copied, not compared.
    """

    entity: str
    path: str
    reason: str | None = None
    kind: Literal["unknown", "field"] = "unknown"


class SubsetReport(Frozen):
    """The part of the rows that was compared: ``key_from`` and ``since`` are included, the others are not.

    ``dated_by`` names, by entity, the instant that ``since`` and ``until`` ask.
    """

    key_from: ReportKey | None = None
    key_to: ReportKey | None = None
    since: str | None = None
    until: str | None = None
    dated_by: dict[str, str] = Field(default_factory=dict)


class ParityReport(Frozen):
    """The result of a verification."""

    format: Literal["twinstore.parity-report@1"] = FORMAT
    envelope: Envelope
    tool: Tool
    module: str
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
    reasons: tuple[str, ...]
    warnings: tuple[str, ...] = ()
    ignored: tuple[IgnoredReport, ...] = ()
    next_step: str
    documents_equal: int
    approval: ApprovalReport | None
    checks: tuple[Check, ...]
    groups: tuple[FindingGroup, ...]
    equivalences: tuple[Equivalence, ...]
    entities: tuple[EntityReport, ...]
    left_out: tuple[LeftOut, ...] = ()

    @model_validator(mode="after")
    def _agrees_with_itself(self) -> Self:
        """Refuse a report whose exit code contradicts its verdict."""
        unready = self.cutover_ready_required and not self.cutover_ready
        code = EXITS[self.verdict]
        if self.exit_code != (Exit.INCONCLUSIVE if unready and code is Exit.OK else code):
            raise ValueError(f"exit_code {self.exit_code} does not belong to the verdict {self.verdict}")
        return self


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
