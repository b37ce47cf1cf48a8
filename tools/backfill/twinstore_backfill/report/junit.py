"""The report for CI: a suite per entity, a case per tenant and check."""

from __future__ import annotations

from typing import TYPE_CHECKING
from xml.etree import ElementTree as ET

from twinstore_backfill.report.texts import (
    ALL_ROWS,
    EXCEPTIONS,
    exception_rows,
    exceptions_text,
    facts,
    headline,
    lists_of,
    named_counts,
    proved_text,
    summary_rows,
    tenant_text,
    xml_text,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from twinstore_backfill.report.model import Check, EntityReport, ParityReport, Result, TenantReport


def junit(report: ParityReport) -> bytes:
    """Return JUnit XML. An inconclusive result is an error, so that no pipeline shows it green."""
    name = xml_text(f"twinstore parity {report.module}: {report.verdict}")
    root = ET.Element("testsuites", name=name)
    for entity in report.entities:
        _suite(root, f"{report.module}.{entity.entity}", _entity_cases(report, entity))
    cases = [_check_case(report.module, check) for check in report.checks]
    if report.cutover_ready_required:
        cases.append(_ready_case(report))
    if report.no_exceptions_required:
        cases.append(_exceptions_case(report))
    _suite(root, f"{report.module}.checks", cases)
    # Of the suite that is always there; the root has no place for them.
    root[-1].insert(0, _properties(report))
    accepted = [f"{EXCEPTIONS}: {', '.join(row)}" for row in exception_rows(report)]
    detail = [f"{report.verdict}: {headline(report)}", *accepted, *report.warnings, report.next_step]
    ET.SubElement(root[-1], "system-out").text = xml_text("\n".join(detail))
    _add_totals(root)
    _add_times(root, report)
    ET.indent(root)
    content: bytes = ET.tostring(root, encoding="utf-8", xml_declaration=True)
    return content + b"\n"


def _suite(root: ET.Element, name: str, cases: Iterable[ET.Element]) -> None:
    suite = ET.SubElement(root, "testsuite", name=xml_text(name))
    suite.extend(list(cases))
    _count(suite)


def _entity_cases(report: ParityReport, entity: EntityReport) -> Iterable[ET.Element]:
    name = f"{report.module}.{entity.entity}"
    # What many rows have in common, before the first rows.
    common = [
        f"all tenants: {kind}, {where}: {documents:,}"
        for kind, where, documents in summary_rows(report, entity)
    ]
    if not entity.tenants:
        yield _case(name, "no documents", "pass", "", [])
    lines: dict[str, list[str]] = {}
    for listed in lists_of(entity):
        for row in listed.rows:
            lines.setdefault(row.owner, []).append(f"{listed.kind} {row.key}: {row.where}")
    for tenant in entity.tenants:
        yield _counts_case(name, tenant)
        yield _content_case(name, tenant, common, lines.get(tenant.tenant, []))


def _counts_case(name: str, tenant: TenantReport) -> ET.Element:
    counts = tenant.counts
    source = tenant.stored_source - counts.expired_source - counts.quarantined
    target = tenant.stored_target - counts.expired_target
    message = f"{source:,} documents in source, {target:,} in target"
    result: Result = "pass" if source == target else "fail"
    return _case(name, f"tenant {tenant_text(tenant.tenant)}: counts", result, message, [])


def _content_case(name: str, tenant: TenantReport, common: list[str], rows: list[str]) -> ET.Element:
    left = tenant.counts.named - len(rows)
    more = [f"… and {left:,} more: see {ALL_ROWS}."] if left > 0 else []
    label = f"tenant {tenant_text(tenant.tenant)}: content"
    message = named_counts(tenant.counts)
    return _case(name, label, tenant.counts.result, message, [*common, *rows, *more])


def _check_case(module: str, check: Check) -> ET.Element:
    # The problem, and not what was compared: many viewers show only the message.
    message = check.findings[0] if check.findings else check.summary
    more = f" (and {check.count - 1:,} more)" if check.count > 1 else ""
    name = f"{check.id} {check.title}"
    return _case(f"{module}.checks", name, check.result, f"{message}{more}", check.findings)


def _ready_case(report: ParityReport) -> ET.Element:
    result: Result = "pass" if report.cutover_ready else "inconclusive"
    message = f"the verdict {report.verdict} is not ready for a cut-over: {report.next_step}"
    return _case(f"{report.module}.checks", "ready for cut-over", result, message, [])


def _exceptions_case(report: ParityReport) -> ET.Element:
    result: Result = "inconclusive" if report.approved_exceptions else "pass"
    rows = [", ".join(row) for row in exception_rows(report)]
    return _case(f"{report.module}.checks", "no approved exceptions", result, exceptions_text(report), rows)


def _properties(report: ParityReport) -> ET.Element:
    """Return what was compared with what, and how: first under names for programs."""
    options = {
        "verdict": report.verdict,
        "exit_code": str(report.exit_code),
        "approved_exceptions": str(report.approved_exceptions),
        "from": report.source.backend,
        "to": report.target.backend,
        "mode": report.mode,
        "seed": None if report.seed is None else str(report.seed),
        "as_of": report.envelope.as_of,
        "tool_version": report.tool.version,
        "ranges": proved_text(report) or None,
        "fast_path": None if report.envelope.fast_path is None else str(report.envelope.fast_path),
    }
    given = [(name, value) for name, value in options.items() if value is not None]
    made = ET.Element("properties")
    for name, value in (*given, *facts(report)):
        ET.SubElement(made, "property", name=xml_text(name), value=xml_text(value))
    return made


def _add_times(root: ET.Element, report: ParityReport) -> None:
    """Write when and where the report was made, and how long everything took."""
    seconds = f"{report.envelope.seconds:.3f}"
    root.set("time", seconds)
    for suite in root:
        # The form of the format has no offset; it is UTC.
        suite.set("timestamp", xml_text(report.envelope.generated_at.removesuffix("+00:00")))
        suite.set("hostname", xml_text(report.envelope.host))
    # Entities are compared in turns and by several processes, so none has its own time.
    root[-1].set("time", seconds)


def _case(suite: str, name: str, result: Result, message: str, lines: Iterable[str]) -> ET.Element:
    case = ET.Element("testcase", classname=xml_text(suite), name=xml_text(name))
    tag = {"fail": "failure", "inconclusive": "error", "skipped": "skipped"}.get(result)
    if tag is not None:
        problem = ET.SubElement(case, tag, message=xml_text(message))
        problem.text = xml_text("\n".join(lines)) or None
        if tag != "skipped":
            problem.set("type", result)
    return case


def _count(suite: ET.Element) -> None:
    """Write the number of cases and of each outcome."""
    suite.set("tests", str(len(suite.findall("testcase"))))
    for attribute, tag in (("failures", "failure"), ("errors", "error"), ("skipped", "skipped")):
        suite.set(attribute, str(len(suite.findall(f"testcase/{tag}"))))


def _add_totals(root: ET.Element) -> None:
    for attribute in ("tests", "failures", "errors", "skipped"):
        root.set(attribute, str(sum(int(suite.get(attribute, "0")) for suite in root)))
