"""The report for a pull request."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from twinstore_backfill.report.texts import facts, findings, headline, short, tenant_text, visible

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from twinstore_backfill.report.model import ParityReport

__all__ = ["escaped", "markdown", "table"]

# Also "@": the text of a pull request would notify whoever has the name that follows.
SPECIAL: Final = re.compile(r"([\\`*_{}\[\]<>#|~!&@])")
RIGHT: Final = {
    "equal",
    "planted",
    "found",
    "sampled",
    "made",
    "unreadable",
    "owners",
    "missing",
    "extra",
    "different",
    "undecodable",
    "expired",
    "documents",
}


def markdown(report: ParityReport) -> str:
    """Return GitHub-flavoured Markdown."""
    return "\n".join(_lines(report)) + "\n"


def _lines(report: ParityReport) -> Iterator[str]:
    yield f"# Parity of {escaped(report.module)}: {escaped(report.verdict)}"
    yield ""
    yield escaped(headline(report))
    yield ""
    if report.reasons:
        yield from (f"- {escaped(reason)}" for reason in report.reasons)
        yield ""
    yield f"**Next step:** {escaped(report.next_step)}"
    yield ""
    if report.warnings:
        yield from (f"- Warning: {escaped(text)}" for text in report.warnings)
        yield ""
    yield from table(("", ""), facts(report))
    yield "## Checks"
    yield ""
    yield from table(
        ("check", "result", "what was compared"),
        [(f"{check.id} {check.title}", check.result, check.summary) for check in report.checks],
    )
    yield from _entities(report)
    yield from _findings(report)
    yield from _digests(report)
    yield from _equivalences(report)


def _entities(report: ParityReport) -> Iterator[str]:
    if not report.entities:
        return
    yield "## Entities"
    yield ""
    rows = [
        (
            entity.entity,
            entity.result,
            f"{entity.counts.equal:,}",
            f"{entity.counts.missing:,}",
            f"{entity.counts.extra:,}",
            f"{entity.counts.different + entity.counts.stale:,}",
            f"{entity.counts.undecodable + entity.counts.quarantined:,}",
            f"{entity.counts.expired_source:,} / {entity.counts.expired_target:,}",
        )
        for entity in report.entities
    ]
    columns = ("entity", "result", "equal", "missing", "extra", "different", "undecodable", "expired")
    yield from table(columns, rows)


def _findings(report: ParityReport) -> Iterator[str]:
    for entity in report.entities:
        rows = list(findings(entity))
        if not rows:
            continue
        yield f"## {escaped(entity.entity)}: what differs"
        yield ""
        fields = [(item.kind, item.path, f"{item.documents:,}") for item in entity.fields]
        if fields:
            yield from table(("kind", "field", "documents"), fields)
        shown = [(kind, key, tenant_text(tenant), meaning) for kind, key, tenant, meaning in rows]
        yield from table(("kind", "key", "tenant", "where"), shown)
        named = entity.counts.named
        if named > len(rows):
            yield f"{len(rows):,} of {named:,} are listed."
            yield ""


def _digests(report: ParityReport) -> Iterator[str]:
    rows = [
        (
            entity.entity,
            tenant_text(tenant.tenant),
            f"{tenant.source.count:,}",
            f"{short(tenant.source.xor)} {short(tenant.source.sum)}",
            "the same"
            if tenant.source == tenant.target
            else f"{short(tenant.target.xor)} {short(tenant.target.sum)}",
        )
        for entity in report.entities
        for tenant in entity.tenants
    ]
    if rows:
        yield "## Digests"
        yield ""
        yield from table(("entity", "tenant", "documents", "source (XOR, sum)", "target"), rows)


def _equivalences(report: ParityReport) -> Iterator[str]:
    if report.equivalences:
        yield "## Equal after normalisation"
        yield ""
        rows = [(item.name, f"{item.documents:,}") for item in report.equivalences]
        yield from table(("equivalence", "documents"), rows)


def table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    """Yield the lines of a table and an empty one; columns of numbers are known by their names."""
    yield _row(columns)
    yield "|" + "|".join("---:" if column in RIGHT else "---" for column in columns) + "|"
    for row in rows:
        yield _row(row)
    yield ""


def _row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(escaped(cell) for cell in cells) + " |"


def escaped(text: str) -> str:
    """Return text that shows as itself; a line break or a stray symbol must not build anything."""
    return SPECIAL.sub(r"\\\1", " ".join(visible(text).split()))
