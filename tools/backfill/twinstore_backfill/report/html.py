"""The report for people: one page that needs nothing else."""

from __future__ import annotations

from html import escape as escape_markup
from importlib.resources import files
from typing import TYPE_CHECKING, Final

from twinstore_backfill.report.charts import bars, stacked
from twinstore_backfill.report.texts import (
    facts,
    findings,
    headline,
    key_text,
    number_of,
    short,
    tenant_text,
    visible,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from twinstore_backfill.report.model import Check, EntityReport, ParityReport

__all__ = ["html"]

KINDS: Final = ("missing", "extra", "different", "stale", "unproved", "undecodable", "quarantined")
NUMBERS: Final = frozenset({"documents", "equal", "expired", *KINDS})
TONES: Final[Mapping[str, str]] = {
    "PASS": "pass",
    "FAIL": "fail",
    "INCONCLUSIVE": "inconclusive",
    "PARTIAL": "inconclusive",
}
RESULTS: Final = frozenset({"pass", "fail", "inconclusive", "skipped"})
KEYS: Final = frozenset(
    {"key", "field", "source (XOR, sum)", "target (XOR, sum)", "from key", "to key", "where"}
)


def escape(text: str) -> str:
    """Return text that builds no markup and in which nothing is invisible."""
    return escape_markup(visible(text))


def html(report: ParityReport) -> str:
    """Return a self-contained HTML page; every text of the report is escaped."""
    title = f"Parity of {report.module}: {report.verdict}"
    # Inside the page, which is sent and archived as one file.
    style = files("twinstore_backfill.report").joinpath("page.css").read_text(encoding="utf-8")
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(title)}</title>\n<style>\n{style}</style>\n</head>\n<body>\n<main>\n"
        + "\n".join(_sections(report))
        + "\n</main>\n</body>\n</html>\n"
    )


def _sections(report: ParityReport) -> Iterator[str]:
    yield _header(report)
    sections = dict(_parts(report))
    yield _jumps(sections)
    for title, content in sections.items():
        yield f'<section id="{_anchor(title)}"><h2>{escape(title)}</h2>{content}</section>'
    yield _footer()


def _parts(report: ParityReport) -> Iterator[tuple[str, str]]:
    """Yield title and content of each section, the short ones first."""
    yield "Checks", _checks(report)
    yield from _charts(report)
    if found := _findings(report):
        yield "What differs", found
    if report.entities:
        yield "Entities and tenants", _tenants(report)
        yield "Digests", _digests(report)
    if report.equivalences:
        rows = [(item.name, f"{item.documents:,}") for item in report.equivalences]
        yield "Equal after normalisation", _table(("equivalence", "documents"), rows)
    yield "What was compared", _facts(report)


def _jumps(titles: Iterable[str]) -> str:
    links = "".join(f'<li><a href="#{_anchor(title)}">{escape(title)}</a></li>' for title in titles)
    return f'<nav aria-label="Sections"><ul>{links}</ul></nav>'


def _anchor(title: str) -> str:
    return title.lower().replace(" ", "-")


def _header(report: ParityReport) -> str:
    # The verdict of an approved clean start names the approval and has no tone of its own.
    tone = TONES.get(report.verdict, "pass")
    warnings = (f"Warning: {text}" for text in report.warnings)
    reasons = "".join(f"<li>{escape(text)}</li>" for text in (*report.reasons, *warnings))
    return (
        f'<header class="{tone}"><h1>Parity of {escape(report.module)}: '
        f'<span class="verdict">{escape(report.verdict)}</span></h1>'
        f"<p>{escape(headline(report))}</p>{f'<ul>{reasons}</ul>' if reasons else ''}"
        f"<p><strong>Next step:</strong> {escape(report.next_step)}</p>{_made(report)}</header>"
    )


def _charts(report: ParityReport) -> Iterator[tuple[str, str]]:
    if not report.entities:
        return
    equal = [(entity.entity, entity.counts.equal) for entity in report.entities]
    title = "Equal documents per entity"
    yield title, f"<figure>{bars(title, equal)}</figure>"
    wrong = [(entity.entity, _kinds(entity)) for entity in report.entities if entity.result != "pass"]
    if wrong:
        names = [kind for kind in KINDS if any(dict(parts)[kind] for _, parts in wrong)]
        legend = "".join(f'<li class="{kind}"><i></i>{kind}</li>' for kind in names)
        title = "Differences per entity and kind"
        yield title, f'<figure>{stacked(title, wrong)}<ul class="legend">{legend}</ul></figure>'


def _kinds(entity: EntityReport) -> list[tuple[str, int]]:
    counts: dict[str, int] = entity.counts.model_dump()
    return [(kind, counts[kind]) for kind in KINDS]


def _findings(report: ParityReport) -> str:
    parts: list[str] = []
    for entity in report.entities:
        rows = [(kind, key, tenant_text(owner), meaning) for kind, key, owner, meaning in findings(entity)]
        if rows:
            there = sum(count for _, count in _kinds(entity))
            caption = f"{len(rows):,} of {there:,} listed" if there > len(rows) else f"{there:,} listed"
            columns = ("kind", "key", "tenant", "where")
            listed = _table(columns, rows, caption)
            parts.append(f"<h3>{escape(entity.entity)}</h3>{_fields(entity)}{listed}")
    return "".join(parts)


def _fields(entity: EntityReport) -> str:
    rows = [(item.kind, item.path, f"{item.documents:,}") for item in entity.fields]
    return _table(("kind", "field", "documents"), rows) if rows else ""


def _checks(report: ParityReport) -> str:
    rows = [(_check_name(check), check.result, check.summary) for check in report.checks]
    found = "".join(
        f"<details open><summary>{escape(_check_name(check))}: {number_of(check.count, 'finding')}</summary>"
        "<ul>" + "".join(f"<li>{escape(text)}</li>" for text in check.findings) + "</ul></details>"
        for check in report.checks
        if check.findings
    )
    return _table(("check", "result", "what was compared"), rows) + found


def _check_name(check: Check) -> str:
    return f"{check.id} {check.title}"


def _tenants(report: ParityReport) -> str:
    rows = [
        (
            entity.entity,
            tenant_text(tenant.tenant),
            f"{tenant.counts.equal:,}",
            *(f"{count:,}" for count in tenant.counts.model_dump(include=set(KINDS)).values()),
            f"{tenant.counts.expired_source:,} / {tenant.counts.expired_target:,}",
        )
        for entity in report.entities
        for tenant in entity.tenants
    ]
    columns = ("entity", "tenant", "equal", *KINDS, "expired")
    return _table(columns, rows, "Expired rows (source / target) are due for removal and are not compared.")


def _digests(report: ParityReport) -> str:
    rows = [
        (
            entity.entity,
            tenant_text(tenant.tenant),
            f"{tenant.source.count:,}",
            f"{short(tenant.source.xor)} {short(tenant.source.sum)}",
            f"{short(tenant.target.xor)} {short(tenant.target.sum)}",
            "pass" if tenant.source == tenant.target else "fail",
        )
        for entity in report.entities
        for tenant in entity.tenants
    ]
    caption = "The first 64 of 128 bits of the XOR and of the sum of all document digests."
    columns = ("entity", "tenant", "documents", "source (XOR, sum)", "target (XOR, sum)", "result")
    return _table(columns, rows, caption) + _ranges(report)


def _ranges(report: ParityReport) -> str:
    rows = [
        (
            entity.entity,
            "…" if part.lower is None else key_text(part.lower),
            "…" if part.upper is None else key_text(part.upper),
            f"{part.source.count:,}",
            "pass" if part.equal else "fail",
        )
        for entity in report.entities
        for part in entity.ranges
    ]
    columns = ("entity", "from key", "to key", "documents", "result")
    return f"<details><summary>{number_of(len(rows), 'range')}</summary>{_table(columns, rows)}</details>"


def _facts(report: ParityReport) -> str:
    rows = "".join(f"<dt>{escape(name)}</dt><dd>{escape(value)}</dd>" for name, value in facts(report))
    return f"<dl>{rows}</dl>"


def _made(report: ParityReport) -> str:
    envelope = report.envelope
    return (
        f'<p class="made">Made {escape(envelope.generated_at)} on {escape(envelope.host)} in '
        f"{envelope.seconds:,} s; retention judged as of {escape(envelope.as_of)}.</p>"
    )


def _footer() -> str:
    return "<footer>When, where and how long differ from run to run; nothing else does.</footer>"


def _table(columns: Sequence[str], rows: Iterable[Sequence[str]], caption: str = "") -> str:
    head = "".join(f'<th scope="col"{_class(column, "")}>{escape(column)}</th>' for column in columns)
    body = "".join(
        "<tr>"
        + "".join(
            f"<td{_class(column, cell)}>{escape(cell)}</td>"
            for column, cell in zip(columns, row, strict=True)
        )
        + "</tr>"
        for row in rows
    )
    shown = f"<caption>{escape(caption)}</caption>" if caption else ""
    return (
        f'<div class="scroll"><table>{shown}<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'
    )


def _class(column: str, cell: str) -> str:
    if column in NUMBERS:
        return ' class="number"'
    if column == "result" and cell in RESULTS:
        return f' class="{cell}"'
    return ' class="key"' if column in KEYS and cell else ""
