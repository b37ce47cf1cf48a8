"""A migration from plan to proof, which stops at the first thing that a person must decide.

    plan -> dry run -> copy -> verify -> report

The ledger of the target knows what was copied, so the same steps again go on where they stopped.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING, ClassVar, Final

from twinstore.errors import TwinstoreError
from twinstore.plugins.modules import module_spec
from twinstore_backfill.copy.engine import present_job_id
from twinstore_backfill.copy.report import REPORT_FILE
from twinstore_backfill.outcome import Exit, PreflightError
from twinstore_backfill.reasons import CONFLICT, QUARANTINED, UNPROVED, accept_rule
from twinstore_backfill.report.texts import largest, number_of
from twinstore_backfill.report.trend import earlier_report
from twinstore_backfill.report.writing import REPORT_FILES, report_directory
from twinstore_backfill.rules.model import ANY
from twinstore_backfill.stores import has_ledger, select_entities
from twinstore_backfill.verify.acceptance import covers

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from contextlib import AbstractContextManager
    from pathlib import Path

    from twinstore_backfill.copy.options import CopyOptions
    from twinstore_backfill.copy.report import CopyReport
    from twinstore_backfill.migration import Migration
    from twinstore_backfill.plan import PlanReport
    from twinstore_backfill.process.stopping import StopSwitch
    from twinstore_backfill.progress.record import Progress
    from twinstore_backfill.report.model import CauseReport, ParityReport
    from twinstore_backfill.rules.model import JobRules
    from twinstore_backfill.verify.options import VerifyOptions

__all__ = ["DecisionNeededError", "Question", "Steps"]

# The place and the kind of an equivalence, as the reason of a cause has them.
EQUIVALENCE: Final = re.compile(r"(?P<path>.*) \((?P<kind>\w+)\)")


class Question(StrEnum):
    """What a person must decide."""

    CONSENT = "consent"
    ROWS = "rows"
    REFUSED = "refused"
    OPEN = "open"
    CONFLICT = "conflict"
    VERDICT = "verdict"


class DecisionNeededError(PreflightError):
    """A person must decide before a migration can go on; what is finished is saved."""

    code: ClassVar[str] = "decision_needed"

    def __init__(
        self,
        question: Question,
        message: str,
        causes: Sequence[CauseReport] = (),
        options: Sequence[str] = (),
        rules: Sequence[str] = (),
    ) -> None:
        """Take the message, open causes, options of ``migrate run``, and rules that accept a check."""
        super().__init__(message)
        self.question = question
        self.causes = tuple(causes)
        self.options = tuple(options)
        self.rules = tuple(rules)


@dataclass(frozen=True, slots=True, kw_only=True)
class Steps:
    """The steps of one migration.

    Attributes:
        migration: what is moved.
        copy: the options of plan, dry run and copy; without ``execute`` the dry run is the last step.
        verify: the options of the comparison.
        reports: the directory of all reports.
        accept_rows: whether the target may hold rows of the module that no copy of this job wrote.
        stop: stops the steps at a safe point.
        progress: opens the progress of a step by its name.
    """

    migration: Migration
    copy: CopyOptions
    verify: VerifyOptions
    reports: Path
    accept_rows: bool
    stop: StopSwitch
    progress: Callable[[str], AbstractContextManager[Progress]]

    def run(self) -> Iterator[PlanReport | CopyReport | ParityReport]:
        """Yield the report of each step when it ends; the last one says how far it came.

        Raises:
            DecisionNeededError: a person must decide; the step that found it was yielded before.
            InterruptedRunError: a signal asked for the stop.
            TwinstoreError: a step failed.
        """
        if not self.copy.execute:
            yield from self._before_writing()
            return
        earlier = earlier_report(self.reports / REPORT_FILES[0])
        # What stops before the comparison leaves no proof of an earlier run, but reports that say why.
        with report_directory(self.reports):
            yield from self._before_writing()
            copied = self._copy(execute=True)
            yield copied
            refuse_copy(copied)
            if not copied.complete:
                failed = number_of(copied.failed_ranges.count, "range")
                raise TwinstoreError(
                    f"The copy is not complete: {failed} failed; {REPORT_FILE} has the reasons."
                )
            with self.progress("verify") as progress:
                report = self.migration.verify(
                    self.verify, out=self.reports, earlier=earlier, cancel=self.stop, progress=progress
                ).result()
        yield report
        if report.verdict != "PASS":
            # Of a difference the commands say what to do.
            step = "" if report.verdict == "FAIL" and report.causes else f" {report.next_step}"
            message = f"The verdict is {report.verdict}.{step}"
            rules = accepting_checks(report)
            raise DecisionNeededError(Question.VERDICT, message, report.open_causes, rules=rules)

    def _before_writing(self) -> Iterator[PlanReport | CopyReport]:
        with self.progress("plan") as progress:
            plan = self.migration.plan(self.copy, cancel=self.stop, progress=progress).result()
        yield plan
        known = self._is_known()
        refuse_plan(plan, self.migration.rules, rows_are_ours=known or self.accept_rows)
        if not (known and self.copy.execute):
            dry = self._copy(execute=False)
            yield dry
            refuse_copy(dry)

    def _copy(self, *, execute: bool) -> CopyReport:
        options = replace(self.copy, execute=execute)
        with self.progress("copy" if execute else "dry run") as progress:
            return self.migration.copy(options, cancel=self.stop, progress=progress).result()

    def _is_known(self) -> bool:
        """Return whether the ledger of the target has the job, so that rows there are its own."""
        with self.migration.opened() as (left, right):
            if not has_ledger(right):
                return False
            entities = select_entities(left.bulk, self.copy.entities)
            return right.ledger.find(present_job_id(left, right, self.copy, entities)) is not None


def refuse_plan(plan: PlanReport, rules: JobRules, *, rows_are_ours: bool) -> None:
    """Raise ``DecisionNeededError`` for what a plan leaves to a person."""
    if plan.effects:
        texts = "; ".join(item.text for item in plan.effects)
        raise DecisionNeededError(
            Question.CONSENT,
            f"The migrations of the target need consent, because its server would {texts}.",
            options=[item.option for item in plan.effects],
        )
    there = {item.entity: item.rows_in_target for item in plan.entities}
    if any(there.values()) and not rows_are_ours:
        raise DecisionNeededError(
            Question.ROWS, f"The target has {largest(there)} that this job did not copy. Nothing was changed."
        )
    causes = [item for item in plan.causes if item.kind == UNPROVED and not _is_accepted(item, rules)]
    if causes:
        raise DecisionNeededError(
            Question.OPEN,
            "In a sample, the source has values in another form than a copy writes, and their meaning, a key "
            "or a list depends on it. Without a rule no verdict is PASS.",
            causes,
        )


def refuse_copy(report: CopyReport) -> None:
    """Raise ``DecisionNeededError`` for what a copy, or its dry run, leaves to a person."""
    if report.totals.conflicts:
        least = "at least " if report.stopped else ""
        found = f"{least}{number_of(report.totals.conflicts, 'row')}"
        raise DecisionNeededError(
            Question.CONFLICT,
            f"The target has {found} with other content than the source, which a copy leaves as they are.",
            [item for item in report.causes if item.kind == CONFLICT],
        )
    if report.exit_code == Exit.INCONCLUSIVE:
        raise DecisionNeededError(
            Question.REFUSED,
            f"{number_of(report.totals.quarantined, 'document')} of the source cannot be copied.",
            [item for item in report.causes if item.kind == QUARANTINED and not item.approved],
        )


def accepting_checks(report: ParityReport) -> Sequence[str]:
    """Return the rule of a job file that accepts what a check found of no single row, if there is one."""
    needed = module_spec(report.module).needed_rows
    if needed is None:
        return ()
    begin = f"{needed.entity.name} without {needed.other.name}"
    found = any(item.startswith(begin) for check in report.checks for item in check.findings)
    return (accept_rule(needed.kind, {"entity": needed.entity.name}),) if found else ()


def _is_accepted(cause: CauseReport, rules: JobRules) -> bool:
    """Return whether a rule accepts an equivalence."""
    found = EQUIVALENCE.fullmatch(cause.reason)
    return found is not None and any(
        rule.what == found["kind"] and rule.entity in {ANY, cause.entity} and covers(rule, found["path"])
        for rule in rules.accepted
    )
