"""The report for people: one page that needs nothing else.

The words are in ``templates/``, where every text of the report is escaped by the engine; this file only puts
together what they show. Nothing here makes markup.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Final

from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined, Template
from markupsafe import Markup

from twinstore_backfill.report.fast_path import share
from twinstore_backfill.report.model import RangeReports
from twinstore_backfill.report.texts import (
    EXCEPTION_COLUMNS,
    EXCEPTIONS,
    KINDS,
    LONGEST_SENTENCE,
    NOT_COMPARED,
    NOT_COMPARED_NOTE,
    RULE_COLUMNS,
    SHARES,
    SPEED_COLUMNS,
    clipped,
    equivalence_rows,
    exception_rows,
    expired_rows,
    facts,
    group_rows,
    headline,
    instant_text,
    key_text,
    lists_of,
    made_text,
    more_rows,
    named_counts,
    number_of,
    rule_rows,
    shares_of,
    short,
    speed_rows,
    summary_rows,
    tenant_text,
    visible,
)
from twinstore_backfill.report.trend import trend_point

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from twinstore_backfill.report.failures import Failure
    from twinstore_backfill.report.model import Check, EntityReport, ParityReport
    from twinstore_backfill.report.texts import KindList

NUMBERS: Final = frozenset({"documents", "equal", "expired", *KINDS, *SHARES, *SPEED_COLUMNS[1:]})
KEYS: Final = frozenset({"key", "source (XOR, sum)", "target (XOR, sum)", "from key", "to key"})
NAMES: Final = frozenset({"kind", "path", "approved by", "tenant", "group", "equivalence", "list", "skipped"})
TEXTS: Final = frozenset({"reason", "field or place", "what was compared", "where", "entities"})
TONES: Final[Mapping[str, str]] = {
    "PASS": "pass",
    "FAIL": "fail",
    "INCONCLUSIVE": "inconclusive",
    "PARTIAL": "inconclusive",
}
RESULTS: Final = frozenset({"pass", "fail", "inconclusive", "skipped"})
# Of a list that is open by default; longer ones are folded.
FEW: Final = 10
# Of tenants and ranges: a store may have as many as it likes, and a page should open on a phone.
MANY: Final = 500
# The units of a bar; an existing part is never too narrow to be seen.
BAR: Final = 1000
MIN_PIECE_WIDTH: Final = 6


class Whole(str):
    """A text that is not clipped, because the statements that repair a schema are in it."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class Column:
    """One column of a table."""

    name: str

    @property
    def style(self) -> str:
        """How its head looks."""
        return "number" if self.name in NUMBERS else ""

    def style_of(self, text: str) -> str:
        """Return how one of its cells looks."""
        if self.name == "result":
            return text if text in RESULTS else ""
        if self.name in {"check", "entity"}:
            return self.name
        for names, style in ((NUMBERS, "number"), (KEYS, "key"), (NAMES, "name"), (TEXTS, "text")):
            if self.name in names:
                return style
        return ""


@dataclass(frozen=True, slots=True)
class Cell:
    """One cell of a table."""

    text: str
    style: str


@dataclass(frozen=True, slots=True)
class Table:
    """A table: screen readers announce ``name``, ``more`` says which rows are not shown."""

    name: str
    columns: tuple[Column, ...]
    rows: Sequence[Sequence[str]]
    more: str = ""

    @property
    def cells(self) -> Iterator[tuple[Cell, ...]]:
        """Its cells by row."""
        for row in self.rows:
            yield tuple(
                Cell(text, column.style_of(text)) for column, text in zip(self.columns, row, strict=True)
            )


@dataclass(frozen=True, slots=True)
class Piece:
    """One part of a bar."""

    kind: str
    text: str
    left: int
    width: int


@dataclass(frozen=True, slots=True)
class Bar:
    """The outcomes of the documents of one entity."""

    name: str
    result: str
    pieces: tuple[Piece, ...]
    width: int


@dataclass(frozen=True, slots=True)
class Cause:
    """One cause of documents that are not proved."""

    title: str
    reason: str
    example: str
    remedy: tuple[str, ...]
    width: int


@dataclass(frozen=True, slots=True)
class Folded:
    """A part that is open or folded: the keys of one kind, or the findings of a check."""

    title: str
    open: bool
    table: Table | None = None
    texts: tuple[str, ...] = ()
    more: str = ""


@dataclass(frozen=True, slots=True)
class Differences:
    """What differs in one entity."""

    name: str
    summary: Table
    lists: tuple[Folded, ...]


@dataclass(frozen=True, slots=True)
class Section:
    """One section; ``kind`` says what its content is."""

    title: str
    content: object
    kind: str = "table"
    note: str = ""
    found: tuple[Folded, ...] = ()
    folded: Table | None = None
    folded_title: str = ""

    @property
    def anchor(self) -> str:
        """What a link names."""
        return self.title.lower().replace(" ", "-")


def html(report: ParityReport) -> str:
    """Return a self-contained HTML page."""
    return _page().render(
        verdict=report.verdict,
        module=clipped(report.module),
        # The verdict of an approved clean start names the approval and has no separate tone.
        tone=TONES.get(report.verdict, "pass"),
        headline=headline(report),
        made=made_text(report),
        # Its own words, which show commands between backticks.
        next_step=report.next_step.split("`"),
        title=clipped(report.title) or f"Parity of {clipped(report.module)}",
        whole=_whole(report),
        # Where rows are open, their causes say it better.
        reasons=() if report.open_causes else report.reasons,
        sections=list(_sections(report)),
    )


def html_failure(failure: Failure) -> str:
    """Return the page of a verification without a verdict."""
    return _page().render(
        verdict=failure.state.upper(),
        module="both sides",
        tone="fail",
        title="Parity of both sides",
        whole=None,
        headline=Whole(failure.message),
        made=f"Exit code {failure.exit_code}",
        next_step=[failure.next_step],
        reasons=[],
        sections=[],
    )


@cache
def _page() -> Template:
    return environment("twinstore_backfill.report").get_template("page.html")


def environment(*packages: str) -> Environment:
    """Return what renders the templates of packages: it escapes every text and shows no invisible one."""
    return Environment(
        loader=ChoiceLoader([PackageLoader(package) for package in packages]),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_shown,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )


def _shown(value: object) -> object:
    """Return what is shown of a value: nothing invisible, nothing without end."""
    # What a macro of the templates has made; no text of a report is of this type.
    if isinstance(value, Markup):
        return value
    return visible(value if isinstance(value, Whole) else clipped(str(value), LONGEST_SENTENCE))


def _sections(report: ParityReport) -> Iterator[Section]:
    """Yield the sections: what is open, what it was judged by, and what identifies it."""
    yield from _first_sections(report)
    yield _checks(report)
    if found := [_differences(report, item) for item in report.entities if item.counts.named]:
        yield Section("What differs", found, "differences")
    if report.groups:
        yield Section("Groups", _table("Groups", ("group", "entities", "result"), group_rows(report)))
    if report.entities:
        yield _tenants(report)
    yield from _equivalences(report)
    if times := speed_rows(report):
        name = "Speed of lists"
        yield Section(name, _table(name, SPEED_COLUMNS, times), note="Milliseconds for the first page.")
    yield Section("What was compared", facts(report), "facts")
    if report.entities:
        yield _digests(report)
    if rules := rule_rows(report):
        yield Section("Rules", _table("Rules", RULE_COLUMNS, rules))
    if report.warnings:
        folded = Folded(number_of(len(report.warnings), "warning"), open=False, texts=report.warnings)
        yield Section("Warnings", folded, "warnings", _of_speed(report))


def _first_sections(report: ParityReport) -> Iterator[Section]:
    """Yield what was decided, what is open, where, and since when."""
    if rows := exception_rows(report):
        yield Section(EXCEPTIONS, _table(EXCEPTIONS, EXCEPTION_COLUMNS, rows))
    if report.open_causes:
        yield _causes(report)
    if report.entities:
        bars = [_bar(item) for item in sorted(report.entities, key=lambda item: item.result == "pass")]
        shown = [bar for bar in bars if bar.pieces or bar.result != "pass"]
        empty = [bar.name for bar in bars if bar not in shown]
        note = "Each bar is all documents of an entity."
        yield Section("Entities", (shown, ", ".join(empty), len(empty)), "bars", note)
    if report.envelope.trend:
        yield _trend(report)


def _equivalences(report: ParityReport) -> Iterator[Section]:
    if rows := equivalence_rows(report, ignored=False):
        name = "Equal after normalisation"
        yield Section(name, _table(name, ("equivalence", "documents"), rows))
    if rows := equivalence_rows(report, ignored=True):
        table = _table(NOT_COMPARED, ("skipped", "documents"), rows)
        yield Section(NOT_COMPARED, table, note=NOT_COMPARED_NOTE)


def _of_speed(report: ParityReport) -> str:
    return f"{report.speed_only:,} of them only say what makes reading slow." if report.speed_only else ""


def _whole(report: ParityReport) -> Bar | None:
    """Return the bar of all documents: proved, approved, open, refused; nothing where there are none."""
    counts = shares_of(report)
    total = sum(counts.values())
    if not total:
        return None
    parts = [(kind, count, f"{share(count, total)} {kind} ({count:,})") for kind, count in counts.items()]
    return Bar("all documents", report.verdict, *pieces(parts, total))


def _causes(report: ParityReport) -> Section:
    """Return the causes, the most frequent ones open, each with what solves it."""
    causes = report.open_causes
    largest = max(item.documents for item in causes)
    items = [
        Cause(
            title=f"{number_of(item.documents, 'document')} of {item.entity} {item.kind}",
            reason=item.reason,
            example=key_text(item.example),
            remedy=tuple(item.remedy.splitlines()),
            width=max(BAR * item.documents // largest, MIN_PIECE_WIDTH),
        )
        for item in causes[:MANY]
    ]
    note = "By size. Put a rule into the job file and copy again; a command is run as it is."
    return Section("Causes", (items[:FEW], items[FEW:]), "causes", note)


def _trend(report: ParityReport) -> Section:
    """Return how much was open in earlier reports of this directory, the latest first."""
    rows = [
        (instant_text(item.generated_at), item.verdict, *(f"{number:,}" for number in item.counts))
        for item in (*report.envelope.trend, trend_point(report))
    ]
    table = _table("Trend", ("made", "verdict", *SHARES), rows[::-1])
    return Section("Trend", table, note="Of the reports that were in this directory before.")


def _table(name: str, columns: Iterable[str], rows: Sequence[Sequence[str]], more: str = "") -> Table:
    return Table(name, tuple(map(Column, columns)), rows, more)


def _checks(report: ParityReport) -> Section:
    rows = [(_check_name(check), check.result, check.summary) for check in report.checks]
    found = tuple(
        Folded(
            f"{_check_name(check)}: {number_of(check.count, 'finding')}",
            len(check.findings) <= FEW,
            texts=check.findings,
            more=_more(check.count, check.findings),
        )
        for check in report.checks
        if check.findings
    )
    found += tuple(
        Folded(
            f"{_check_name(check)}: {number_of(len(check.by_rows), 'list')} compared with rows of the target",
            open=False,
            texts=check.by_rows,
        )
        for check in report.checks
        if check.by_rows
    )
    content = _table("Checks", ("check", "result", "what was compared"), rows)
    return Section("Checks", content, "checks", found=found)


def _check_name(check: Check) -> str:
    return f"{check.id} {check.title}"


def _more(count: int, shown: Sequence[object]) -> str:
    return f"… and {count - len(shown):,} more." if count > len(shown) else ""


def _bar(entity: EntityReport) -> Bar:
    numbers: dict[str, int] = entity.counts.model_dump(include={"equal", *KINDS})
    parts = [(kind, numbers[kind], f"{numbers[kind]:,} {kind}") for kind in ("equal", *KINDS)]
    return Bar(entity.entity, entity.result, *pieces(parts, sum(count for _, count, _ in parts)))


def pieces(parts: Iterable[tuple[str, int, str]], whole: int) -> tuple[tuple[Piece, ...], int]:
    """Return the pieces of a bar and its width."""
    found: list[Piece] = []
    left = 0
    for kind, count, text in parts:
        if not count:
            continue
        width = max(BAR * count // whole, MIN_PIECE_WIDTH)
        found.append(Piece(kind, text, left, width))
        left += width
    return tuple(found), left or BAR


def _differences(report: ParityReport, entity: EntityReport) -> Differences:
    rows = [(kind, where, f"{documents:,}") for kind, where, documents in summary_rows(report, entity)]
    lists = list(lists_of(entity))
    shown = sum(len(listed.rows) for listed in lists) <= FEW
    summary = _table(f"Differences in {entity.entity}", ("kind", "field or place", "documents"), rows)
    folded = tuple(_keys(entity.entity, listed, is_open=shown) for listed in lists)
    return Differences(f"{entity.entity}: {named_counts(entity.counts)}", summary, folded)


def _keys(entity: str, listed: KindList, *, is_open: bool) -> Folded:
    rows = [(row.key, row.tenant, row.where) for row in listed.rows]
    some = "" if len(rows) == listed.count else f"{len(rows):,} of "
    title = f"Keys: {some}{listed.count:,} {listed.kind}"
    more = more_rows(listed.count, rows)
    table = _table(f"Keys in {entity}, {listed.kind}", ("key", "tenant", "where"), rows, more=more)
    return Folded(title, is_open, table)


def _tenants(report: ParityReport) -> Section:
    kinds = [kind for kind in KINDS if any(getattr(item.counts, kind) for item in report.entities)]
    expired = any(expired_rows(report))
    rows = [
        (
            entity.entity,
            tenant_text(tenant.tenant),
            f"{tenant.counts.equal:,}",
            *(f"{getattr(tenant.counts, kind):,}" for kind in kinds),
            *([f"{tenant.counts.expired_source:,} / {tenant.counts.expired_target:,}"] if expired else []),
        )
        # Those with differences first, where not all are shown.
        for named in (True, False)
        for entity in report.entities
        for tenant in entity.tenants
        if bool(tenant.counts.named) is named
    ]
    columns = ("entity", "tenant", "equal", *kinds, *(["expired"] if expired else []))
    note = "Expired rows (source / target) are due for removal and are not compared." if expired else ""
    return Section("Tenants", _capped("Tenants", columns, rows), note=note)


def _digests(report: ParityReport) -> Section:
    rows = [
        (
            entity.entity,
            tenant_text(tenant.tenant),
            f"{tenant.source.count:,}",
            f"{short(tenant.source.xor)} {short(tenant.source.sum)}",
            f"{short(tenant.target.xor)} {short(tenant.target.sum)}",
            "pass" if tenant.source == tenant.target else "fail",
        )
        for differing in (True, False)
        for entity in report.entities
        for tenant in entity.tenants
        if (tenant.source != tenant.target) is differing
    ]
    columns = ("entity", "tenant", "documents", "source (XOR, sum)", "target (XOR, sum)", "result")
    count = sum(len(entity.ranges) for entity in report.entities)
    return Section(
        "Digests",
        _capped("Digests", columns, rows),
        note="The first 64 of 128 bits of the XOR and of the sum of all document digests.",
        folded=_capped(
            "Ranges",
            ("entity", "from key", "to key", "documents", "result"),
            _ranges(report),
            count,
        ),
        folded_title=number_of(count, "range"),
    )


def _ranges(report: ParityReport) -> list[tuple[str, ...]]:
    return [
        (
            entity.entity,
            "…" if part.lower is None else key_text(part.lower),
            "…" if part.upper is None else key_text(part.upper),
            f"{part.source.count:,}",
            "pass" if part.equal else "fail",
        )
        for differing in (True, False)
        for entity in report.entities
        for part in RangeReports.of(entity.ranges).shown(MANY)
        if part.equal is not differing
    ]


def _capped(
    name: str, columns: Iterable[str], rows: Sequence[Sequence[str]], count: int | None = None
) -> Table:
    """Return a table of the first rows that says where all are, of which there may be more than are given."""
    left = (len(rows) if count is None else count) - MANY
    more = f"… and {left:,} more: see parity-report.json." if left > 0 else ""
    return _table(name, columns, rows[:MANY], more=more)
