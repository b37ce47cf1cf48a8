"""What ``backfill run`` prints: each step in a few lines, and what a person must decide with what to type."""

from __future__ import annotations

import shlex
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Final

from twinstore.errors import TwinstoreError
from twinstore_backfill.cli.options import Format, Sides
from twinstore_backfill.cli.output import (
    JSON_REPORT,
    cause_texts,
    emit,
    emit_lines,
    left_out_texts,
    toned,
    warning_texts,
)
from twinstore_backfill.copy.report import REPORT_FILE, CopyReport
from twinstore_backfill.outcome import Exit, exit_code
from twinstore_backfill.plan import PlanReport
from twinstore_backfill.report.model import ParityReport
from twinstore_backfill.report.texts import LONGEST_SENTENCE, about, clipped, headline, largest, number_of
from twinstore_backfill.steps import DecisionNeededError, Question, Steps

if TYPE_CHECKING:
    from rich.console import RenderableType

PROGRAM: Final = "twinstore"
PATHS: Final = {"config": "--config", "env_file": "--env-file", "secrets_dir": "--secrets-dir"}
# What `diff` and `repair` take too.
SHARED: Final = frozenset(
    {"source", "from_url", "target", "to_url", "module", "source_config", "target_config"}
    | {"ignore_unknown", "ignore_field"}
)
Report = PlanReport | CopyReport | ParityReport
Choice = tuple[str, str]


@dataclass(frozen=True, slots=True)
class CommandLines:
    """Commands about the same migration as the one that runs, ready to paste.

    Attributes:
        sides: where it is, with the context of the command.
        module: what is moved.
        given: the job file that the command names itself.
    """

    sides: Sides
    module: str
    given: Path | None

    @property
    def job_file(self) -> Path | None:
        """The job file, by whichever way it is named."""
        group = self.sides.context.parent
        return self.given or (None if group is None else group.params.get("job_file"))

    def run(self, *more: str) -> str:
        """Return the command itself, with more options."""
        file = [] if self.job_file is None else [str(self.job_file)]
        return self._line(*self._paths(), "backfill", "run", *file, *self._options(without=more), *more)

    def between(self, *words: str) -> str:
        """Return another command of ``backfill`` between both sides."""
        file = [] if self.job_file is None else ["--job-file", str(self.job_file)]
        command, *more = words
        return self._line(*self._paths(), "backfill", *file, command, *self._options(only=SHARED), *more)

    def on_target(self, *words: str) -> str:
        """Return a command that works on the target alone, and reads no job file."""
        common, place = self.sides.common, self.sides.right
        paths = {name: getattr(common, name) for name in PATHS} | {"config": place.file or common.config}
        files = [word for name, path in paths.items() if path for word in (PATHS[name], str(path))]
        where = ["--backend", place.driver or ""] if place.url is None else ["--url", place.url]
        return self._line(*files, *words, "--module", self.module, *where)

    @property
    def reports(self) -> str:
        """The directory of the reports."""
        return str(self.sides.context.params["reports"])

    def _line(self, *words: str) -> str:
        return shlex.join((PROGRAM, *words))

    def _paths(self) -> Iterator[str]:
        """Yield the options that every command takes, as far as the command line has them."""
        common = self.sides.common
        for name in sorted(common.command_line_names):
            yield from (PATHS[name], str(getattr(common, name)))

    def _options(self, *, only: Collection[str] = (), without: Collection[str] = ()) -> Iterator[str]:
        """Yield the options of the command line, except those of the job file."""
        context = self.sides.context
        for item in context.command.params:
            name, option = item.name or "", item.opts[0]
            source = context.get_parameter_source(name)
            if source is None or source.name != "COMMANDLINE" or name not in context.params:
                continue
            if name == "job_file" or option in without or (only and name not in only):
                continue
            value = context.params[name]
            if getattr(item, "is_flag", False):
                yield option
                continue
            for one in value if isinstance(value, (list, tuple)) else [value]:
                yield from (option, str(one))


def show_steps(steps: Steps, lines: CommandLines, output: Format) -> int:
    """Run the steps, print each when it ends and what to do then, and return the exit code."""
    reports: dict[str, Report] = {}
    decision: DecisionNeededError | None = None
    try:
        for report in steps.run():
            reports[_name(report)] = report
            if output is Format.TEXT:
                emit(output, None, *_step_texts(report, steps.reports))
    except DecisionNeededError as error:
        decision = error
    except TwinstoreError as error:
        if output is Format.TEXT and exit_code(error) != Exit.USAGE:
            emit_lines(["Continue:", f"  {lines.run()}"])
        raise
    code = Exit.OK if decision is None else Exit.PREFLIGHT_REFUSED
    proved = decision is None and "verify" in reports
    following = "" if proved else lines.run(*([] if decision else ["--execute"]))
    choices = list(_choices(decision, lines)) if decision else []
    if output is Format.JSON:
        document = {
            "steps": {name: report.model_dump(mode="json") for name, report in reports.items()},
            "decision": decision and _decision_document(decision, choices),
            "next": following,
            "exit_code": int(code),
        }
        emit(output, document)
    elif decision is not None:
        _show_decision(decision, choices, lines)
    elif not proved:
        emit_lines(["", "Nothing was written. To apply the migrations, copy and verify:", f"  {following}"])
    return code


def _name(report: Report) -> str:
    if isinstance(report, CopyReport):
        return "copy" if report.executed else "dry_run"
    return "plan" if isinstance(report, PlanReport) else "verify"


def _decision_document(decision: DecisionNeededError, choices: Sequence[Choice]) -> dict[str, object]:
    return {
        "question": decision.question.value,
        "text": decision.message,
        "causes": [item.model_dump(mode="json") for item in decision.causes],
        "choices": [{"text": text, "command": command} for text, command in choices],
    }


def _show_decision(decision: DecisionNeededError, choices: Sequence[Choice], lines: CommandLines) -> None:
    emit_lines([""])
    # A command of the table would know neither the job file nor the sides.
    causes = [item for item in decision.causes if item.remedy.startswith("[[") or not choices]
    causes = [item if "[[" in item.remedy else item.model_copy(update={"remedy": ""}) for item in causes]
    shown = cause_texts(causes, str(Path(lines.reports, JSON_REPORT)))
    emit(Format.TEXT, None, toned(f"Decide: {decision.message}", "inconclusive"), *shown)
    for text, command in (*choices, (_continuing(decision, lines), lines.run())):
        emit_lines([text, f"  {command}"])


def _choices(decision: DecisionNeededError, lines: CommandLines) -> Iterator[Choice]:
    """Yield what a person can do before the command goes on, in words and as a command."""
    match decision.question:
        case Question.CONSENT:
            options = [word for option in decision.options for word in option.split(" ", 1)]
            yield "To consent:", lines.on_target("migrate", "run", *options)
        case Question.ROWS:
            yield "To keep them, and copy into the same tables:", lines.run("--accept-rows")
        case Question.CONFLICT:
            named = (item for item in decision.causes if isinstance(item.example, tuple))
            for item in islice(named, 1):
                key = [word for part in item.example or () for word in ("--key", str(part))]
                yield "To see where one differs:", lines.between("diff", "--entity", item.entity, *key)
            yield "If the source is right:", lines.run("--on-conflict", "overwrite")
        case Question.VERDICT if kinds := {item.kind for item in decision.causes} & {"different", "extra"}:
            extra = ["--delete-extra"] if "extra" in kinds else []
            yield (
                "If the source is right:",
                lines.between("repair", "--in", lines.reports, *extra, "--execute"),
            )


def _continuing(decision: DecisionNeededError, lines: CommandLines) -> str:
    """Say what else can be done before the same command goes on."""
    place = lines.job_file or "a job file (backfill run FILE)"
    rules = f"Put a rule for each cause into {place}, or correct the source"
    match decision.question:
        case Question.ROWS:
            return "Or remove them, or name another database, and continue:"
        case Question.CONFLICT:
            return "Or correct them in the target, and continue:"
        case Question.REFUSED | Question.OPEN:
            return f"{rules}, and continue:"
        case Question.VERDICT if decision.rules or any("[[" in item.remedy for item in decision.causes):
            return "\n".join((*decision.rules, f"{rules}, and continue:"))
        case _:
            return "Then continue:"


def _step_texts(report: Report, out: Path) -> Iterator[RenderableType]:
    if isinstance(report, PlanReport):
        return _plan_texts(report)
    return _copy_texts(report) if isinstance(report, CopyReport) else _verify_texts(report, out)


def _plan_texts(plan: PlanReport) -> Iterator[RenderableType]:
    yield f"From {plan.source.place}"
    yield f"to   {plan.target.place}"
    time = f", {about(plan.estimate.seconds)} to copy" if plan.rows else ""
    rows = largest({item.entity: item.rows for item in plan.entities})
    yield f"Plan: {'~' if plan.estimated else ''}{rows}{time}."
    if plan.pending_migrations:
        yield f"Plan: {number_of(len(plan.pending_migrations), 'migration')} of the target to apply."
    yield from warning_texts(plan.warnings, plan.speed_only)
    yield from left_out_texts(item for item in plan.left_out if any(item.source.values()))


def _copy_texts(report: CopyReport) -> Iterator[RenderableType]:
    totals = report.totals
    counts = {
        "written" if report.executed else "to write": totals.written,
        "equal already": totals.unchanged,
        "in conflict": totals.conflicts,
        "refused": totals.quarantined,
        "expired": totals.expired,
    }
    found = ", ".join(f"{count:,} {name}" for name, count in counts.items() if count)
    yield f"{'Copy' if report.executed else 'Dry run'}: {totals.read:,} read; {found or 'nothing to do'}."
    for item in report.source_changes:
        yield f"Warning: {item.entity} changed in the source meanwhile. Stop all writers, then run again."


def _verify_texts(report: ParityReport, out: Path) -> Iterator[RenderableType]:
    yield toned(f"{report.verdict}: {clipped(headline(report), LONGEST_SENTENCE)}", report.verdict)
    yield from (f"- {clipped(reason, LONGEST_SENTENCE)}" for reason in report.reasons)
    yield f"Reports: {out}/{JSON_REPORT}, .xml, .md and .html; {out}/{REPORT_FILE}."
    if report.verdict == "PASS":
        yield f"Next: {report.next_step}"
