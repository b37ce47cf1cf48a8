"""The report for a pull request."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from twinstore_backfill.report.texts import (
    EXCEPTION_COLUMNS,
    EXCEPTIONS,
    LONGEST_SENTENCE,
    NOT_COMPARED,
    NOT_COMPARED_NOTE,
    RULE_COLUMNS,
    SPEED_COLUMNS,
    clipped,
    equivalence_rows,
    exception_rows,
    facts,
    group_rows,
    headline,
    key_text,
    lists_of,
    made_text,
    more_rows,
    named_counts,
    rule_rows,
    short,
    speed_rows,
    summary_rows,
    tenant_text,
    visible,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from twinstore_backfill.report.failures import Failure
    from twinstore_backfill.report.model import ParityReport

# Also "@": the text of a pull request would notify the user whose name follows.
# The others make a link of an address, or the beginning of a line an item of a list.
SPECIAL: Final = re.compile(r"([\\`*_{}\[\]<>#|~!&@]|:(?=//)|(?<=www)\.|^[-+=])", re.IGNORECASE)
# Words of this program show a command between backticks.
COMMAND: Final = re.compile(r"\\`([a-z -]+)\\`")
# Comments on a pull request have a limit; differences.ndjson and the JSON report have every row.
KEYS: Final = 20
CAUSES: Final = 50
TENANTS: Final = 200
RIGHT: Final = {
    *SPEED_COLUMNS[1:],
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


def markdown_failure(failure: Failure) -> str:
    """Return the same of a verification without a verdict."""
    reason = escaped(failure.message, len(failure.message))
    return f"# {failure.state.upper()}: parity not judged\n\n{reason}\n\n**Next step:** {failure.next_step}\n"


def _lines(report: ParityReport) -> Iterator[str]:
    yield f"# {escaped(report.verdict)}: {escaped(report.title) or f'parity of {escaped(report.module)}'}"
    yield ""
    yield escaped(headline(report))
    yield ""
    if rows := exception_rows(report):
        yield f"## {EXCEPTIONS}"
        yield ""
        yield from table(EXCEPTION_COLUMNS, rows)
    if report.reasons:
        yield from (f"- {escaped(reason)}" for reason in report.reasons)
        yield ""
    yield "**Next step:** " + COMMAND.sub(r"`\1`", escaped(report.next_step))
    yield ""
    yield escaped(made_text(report))
    yield ""
    yield from _causes(report)
    yield "## Checks"
    yield ""
    yield from table(
        ("check", "result", "what was compared"),
        [(f"{check.id} {check.title}", check.result, check.summary) for check in report.checks],
    )
    yield from _entities(report)
    yield from _findings(report)
    if report.groups:
        yield "## Groups"
        yield ""
        yield from table(("group", "entities", "result"), group_rows(report))
    yield from _digests(report)
    yield from _equivalences(report)
    if rows := speed_rows(report):
        yield "## Speed of lists (milliseconds)"
        yield ""
        yield from table(SPEED_COLUMNS, rows)
    yield "## What was compared"
    yield ""
    yield from table(("what", "which"), facts(report))
    if report.warnings:
        yield "## Warnings"
        yield ""
        yield from (f"- {escaped(text)}" for text in report.warnings)


def _causes(report: ParityReport) -> Iterator[str]:
    causes = report.open_causes
    if not causes:
        return
    yield "## Causes"
    yield ""
    rows = [
        (item.entity, f"{item.documents:,}", item.kind, item.reason, key_text(item.example))
        for item in causes[:CAUSES]
    ]
    yield from table(("entity", "documents", "kind", "reason", "example"), rows)
    for remedy in dict.fromkeys(item.remedy for item in causes[:CAUSES] if item.remedy):
        # Indented, because a name of the source could end a fence.
        yield from (f"    {visible(line)}" for line in remedy.splitlines())
        yield ""
    if len(causes) > CAUSES:
        yield f"… and {len(causes) - CAUSES:,} more: see parity-report.json."
        yield ""


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
        if not entity.counts.named:
            continue
        yield f"## {escaped(entity.entity)}: {named_counts(entity.counts)}"
        yield ""
        rows = [(kind, where, f"{documents:,}") for kind, where, documents in summary_rows(report, entity)]
        yield from table(("kind", "field or place", "documents"), rows)
        lists = [(listed, listed.rows[:KEYS]) for listed in lists_of(entity)]
        keys = [(listed.kind, row.key, row.tenant, row.where) for listed, first in lists for row in first]
        yield from table(("kind", "key", "tenant", "where"), keys)
        if more := more_rows(entity.counts.named, keys):
            yield more
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
        for differing in (True, False)
        for entity in report.entities
        for tenant in entity.tenants
        if (tenant.source != tenant.target) is differing
    ]
    if rows:
        yield "## Digests"
        yield ""
        yield from table(("entity", "tenant", "documents", "source (XOR, sum)", "target"), rows[:TENANTS])
        if len(rows) > TENANTS:
            yield f"… and {len(rows) - TENANTS:,} more: see parity-report.json."
            yield ""


def _equivalences(report: ParityReport) -> Iterator[str]:
    if rules := rule_rows(report):
        yield "## Rules"
        yield ""
        yield from table(RULE_COLUMNS, rules)
    if rows := equivalence_rows(report, ignored=False):
        yield "## Equal after normalisation"
        yield ""
        yield from table(("equivalence", "documents"), rows)
    if rows := equivalence_rows(report, ignored=True):
        yield f"## {NOT_COMPARED}"
        yield ""
        yield NOT_COMPARED_NOTE
        yield ""
        yield from table(("skipped", "documents"), rows)


def table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    """Yield the lines of a table and an empty one; columns of numbers are known by their names."""
    yield _row(columns)
    yield "|" + "|".join("---:" if column in RIGHT else "---" for column in columns) + "|"
    for row in rows:
        yield _row(row)
    yield ""


def _row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(escaped(cell) for cell in cells) + " |"


def escaped(text: str, longest: int = LONGEST_SENTENCE) -> str:
    """Return text that shows as itself; a line break or a stray symbol must not build anything."""
    return SPECIAL.sub(r"\\\1", " ".join(visible(clipped(text, longest)).split()))
