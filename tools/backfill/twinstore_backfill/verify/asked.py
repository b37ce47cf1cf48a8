"""What a report says of the question: the mode, what was left out of it on purpose, and by whose decision."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal

from twinstore_backfill.report.model import ApprovalReport, Check, IgnoredReport, SubsetReport
from twinstore_backfill.verify.checks import list_titles, skipped, smoke_check, worst
from twinstore_backfill.verify.schema import schema_check

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from twinstore.catalog import Entity
    from twinstore_backfill.ignoring import IgnoredPath
    from twinstore_backfill.progress import Progress
    from twinstore_backfill.report.model import EntityReport, Verdict
    from twinstore_backfill.stores import Store
    from twinstore_backfill.verify.options import VerifyOptions

__all__ = [
    "A_PART",
    "approval",
    "asked_of_target",
    "grouped",
    "ignored_reports",
    "lists_skipped",
    "mode",
    "reasons",
    "subset_report",
    "verdict_of",
]

A_PART: Final = "only a part of the rows was compared"
CHECKS: Final = "checks"


def grouped(report: EntityReport, groups: Mapping[str, str]) -> EntityReport:
    """Return the report of an entity with the group that the user names."""
    group = groups.get(report.entity)
    return report if group is None else report.model_copy(update={"group": group})


def mode(options: VerifyOptions) -> Literal["full", "sample", "recheck", "start-clean"]:
    """Return how much was asked to be compared."""
    if options.approval:
        return "start-clean"
    return "recheck" if options.only is not None else options.mode


def approval(options: VerifyOptions) -> ApprovalReport | None:
    """Return the decision to begin without old data."""
    given = options.approval
    return ApprovalReport(reason=given.reason, approved_by=given.approved_by) if given else None


def ignored_reports(options: VerifyOptions) -> tuple[IgnoredReport, ...]:
    """Return the properties that were dropped and the fields that were not compared, with the reasons."""
    kinds: tuple[tuple[Literal["unknown", "field"], Sequence[IgnoredPath]], ...] = (
        ("unknown", options.ignored),
        ("field", options.ignored_fields),
    )
    return tuple(
        IgnoredReport(entity=item.entity, path=".".join(item.path), reason=item.reason, kind=kind)
        for kind, ignored in kinds
        for item in ignored
    )


def subset_report(options: VerifyOptions, entities: Sequence[Entity]) -> SubsetReport | None:
    """Return which rows were meant, ``None`` where all of them were."""
    if not options.subset:
        return None
    return SubsetReport.model_validate(options.subset.document(entities))


def reasons(checks: Sequence[Check]) -> tuple[str, ...]:
    """Return why a verdict is not better, a sentence for each check."""
    return tuple(
        f"{check.id} {check.title}: {check.findings[0] if check.findings else check.summary}"
        f"{f' (and {check.count - 1} more)' if check.count > 1 else ''}"
        for check in checks
        if check.result in {"fail", "inconclusive"}
    )


def asked_of_target(target: Store, progress: Progress) -> tuple[Check, Check]:
    """Make the checks that ask the target alone, C6 and C8, which may take seconds."""
    progress.start(CHECKS, 2)
    smoke = smoke_check(target)
    progress.advance(CHECKS, 1)
    schema = schema_check(target)
    progress.advance(CHECKS, 1)
    progress.finish(CHECKS)
    return smoke, schema


def verdict_of(checks: Sequence[Check], options: VerifyOptions) -> Verdict:
    """Return what the checks amount to."""
    result = worst(check.result for check in checks)
    if result == "fail":
        return "FAIL"
    if result == "inconclusive":
        return "INCONCLUSIVE"
    if options.approval:
        return "START-CLEAN (approved)"
    return "PARTIAL" if options.narrowed else "PASS"


def lists_skipped(module: str, why: str = A_PART) -> tuple[Check, ...]:
    """Return C4 and C5 of a comparison that sees no list whole."""
    return tuple(skipped(name, title, why) for name, title in list_titles(module))
