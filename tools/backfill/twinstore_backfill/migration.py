"""A migration as an object: what the command line does, for programs.

    migration = Migration("mongodb://db.example/ops", "postgresql://db.example/ops", "library")
    for event in (run := migration.copy(CopyOptions(execute=True))):
        print(event.part, event.done, event.total)
    assert run.result().complete
    assert migration.verify().result().verdict == "PASS"

Each method returns a :class:`~twinstore_backfill.progress.running.Run`. The stores are opened when it begins,
and closed when it ends.
"""

from __future__ import annotations

from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar

from twinstore.errors import ConfigurationError, ValidationError
from twinstore_backfill.copy.options import CopyOptions
from twinstore_backfill.process.files import json_text, wrap_write_errors
from twinstore_backfill.progress.running import Run
from twinstore_backfill.report.failures import Failure, report_failures
from twinstore_backfill.rules.model import NO_RULES, JobRules
from twinstore_backfill.verify.options import VerifyOptions

if TYPE_CHECKING:
    from collections.abc import Iterator

    from twinstore.config import Settings
    from twinstore_backfill.copy.report import CopyReport
    from twinstore_backfill.copy.workers import WorkReport
    from twinstore_backfill.plan import PlanReport
    from twinstore_backfill.process.stopping import StopSwitch
    from twinstore_backfill.progress.record import Progress
    from twinstore_backfill.repair.engine import RepairReport
    from twinstore_backfill.report.model import ParityReport
    from twinstore_backfill.stores import Store

__all__ = ["Migration", "Side"]

Options = TypeVar("Options", CopyOptions, VerifyOptions)
COPY: Final = CopyOptions()
COMPARISON: Final = VerifyOptions()


@dataclass(frozen=True, slots=True)
class Side:
    """One store of a migration.

    Attributes:
        backend: the driver, for example ``Mongo``.
        settings: its settings or their file; by default those that the environment names.
    """

    backend: str
    settings: Settings | Path | None = None


class Migration:
    """Moves one module from one store to another, and proves that both hold the same.

    Rules with ``reverse`` write documents of the old service to ``target``. They are compared in the other
    direction: verify with another migration, whose ``source`` is the old store.

    Args:
        source: the store that the service writes; it is only read. A text is the name of a driver, a URL
            (``mongodb://…``, ``postgresql://…``), or ``env:NAME`` or ``file:PATH`` of what holds the URL.
        target: the store that is filled and judged, in the same form.
        module: its name; by default the only one that the settings of both sides name.
        rules: what changes on the way and what is accepted, or a job file, of which only this counts.
        title: the name of the migration, for reports.
        settings: those of a side without its own, also next to a URL, and of the service, whose switch a
            verification looks at. By default those that the environment names.

    Raises:
        ConfigurationError: settings or the job file cannot be read, or no such module is installed.
        ValidationError: no module is given, and there is none or more than one.
    """

    def __init__(
        self,
        source: Side | str,
        target: Side | str,
        module: str | None = None,
        rules: JobRules | Path | None = None,
        *,
        title: str = "",
        settings: Settings | Path | None = None,
    ) -> None:
        self.rules = _rules(rules)
        self.title = title
        self.settings = settings
        self.module = self._module(module, source, target)
        self.source, self.target = self._side(source), self._side(target)

    def plan(
        self,
        options: CopyOptions = COPY,
        *,
        full: bool = False,
        cancel: StopSwitch | None = None,
        progress: Progress | None = None,
    ) -> Run[PlanReport]:
        """Say what a copy would do, and what it would refuse or change and why. Writes nothing.

        Args:
            options: of the copy.
            full: read every document for the causes, not a sample of each entity.
            cancel: stops the run.
            progress: also receives the progress.
        """
        return Run(partial(self._plan, self._ruled(options), full=full), cancel=cancel, progress=progress)

    def copy(
        self,
        options: CopyOptions = COPY,
        *,
        delete_extra: bool = False,
        cancel: StopSwitch | None = None,
        progress: Progress | None = None,
    ) -> Run[CopyReport]:
        """Copy; without ``options.execute`` only read and compare.

        A copy that was stopped or killed goes on when the same one is started again, here or by the command.

        Args:
            options: what is copied and how.
            delete_extra: then compare both sides and remove the rows that only the target has; in a dry run
                they are counted.
            cancel: stops the run at a safe point; finished ranges are kept.
            progress: also receives the progress.
        """
        work = partial(self._copy, self._ruled(options), delete_extra=delete_extra)
        return Run(work, cancel=cancel, progress=progress)

    def work(
        self,
        job: str | None = None,
        *,
        slots: int = 4,
        drain: bool = False,
        execute: bool = False,
        cancel: StopSwitch | None = None,
        progress: Progress | None = None,
    ) -> Run[WorkReport]:
        """Join a copy that another process began, and copy ranges until none is left.

        Args:
            job: its id; by default the only copy between the two stores that is not complete.
            slots: ranges copied at the same time.
            drain: end when no range is free, instead of waiting for those of others.
            execute: copy; without it only say which job it would be.
            cancel: stops the run; the ranges in hand are given back.
            progress: also receives the progress.
        """
        work = partial(self._work, job, slots=slots, drain=drain, execute=execute)
        return Run(work, cancel=cancel, progress=progress)

    def verify(
        self,
        options: VerifyOptions = COMPARISON,
        *,
        out: Path | None = None,
        differences: Path | None = None,
        earlier: ParityReport | None = None,
        cancel: StopSwitch | None = None,
        progress: Progress | None = None,
    ) -> Run[ParityReport]:
        """Prove that both stores hold the same. Writes only a test lock, to the target. Stop writers first.

        Args:
            options: what is compared and how.
            out: the directory for the report in every format, for the findings and, until then, for what
                ``options.resume`` needs.
            differences: the directory of an earlier verification, of which only the findings are compared
                again; that proves nothing about other rows.
            earlier: the report with which the trend goes on; by default the one in ``out``.
            cancel: stops the run.
            progress: also receives the progress.
        """
        work = partial(self._verify, self._ruled(options), out, differences=differences, earlier=earlier)
        return Run(work, cancel=cancel, progress=progress)

    def repair(
        self,
        differences: Path,
        options: VerifyOptions = COMPARISON,
        *,
        execute: bool = False,
        delete_extra: bool = False,
        out: Path | None = None,
        cancel: StopSwitch | None = None,
        progress: Progress | None = None,
    ) -> Run[RepairReport]:
        """Copy the rows that a verification reported again, and compare them.

        Args:
            differences: the directory of the verification.
            options: of the comparison.
            execute: write; without it the rows are only counted.
            delete_extra: also remove the rows that the source does not have.
            out: the directory for the report of the comparison.
            cancel: stops the run; finished rows stay finished.
            progress: also receives the progress.
        """
        work = partial(
            self._repair,
            differences,
            self._ruled(options),
            out,
            execute=execute,
            delete_extra=delete_extra,
        )
        return Run(work, cancel=cancel, progress=progress)

    @contextmanager
    def opened(self) -> Iterator[tuple[Store, Store]]:
        """Open both stores. The source is only read, so a role that may read is enough.

        Raises:
            ConfigurationError: an unknown driver, or a wrong password.
            PreflightError: a server is not suitable.
            UnavailableError: a server cannot be reached.
        """
        from twinstore_backfill.stores import open_store, preflight

        with (
            open_store(self.module, self.source.backend, self.source.settings, read_only=True) as left,
            self._target() as right,
        ):
            # Before anything is read: a copy of hours must not end in a store that takes none.
            preflight(lambda: right.storage.capabilities.require("bulk_target"))
            yield left, right

    @contextmanager
    def _target(self) -> Iterator[Store]:
        from twinstore_backfill.stores import open_store

        with open_store(self.module, self.target.backend, self.target.settings) as store:
            yield store

    def _ruled(self, options: Options) -> Options:
        if NO_RULES not in (self.rules, options.rules) and self.rules != options.rules:
            raise ValidationError("The migration and the options have different rules; give one of them.")
        rules = options.rules if self.rules == NO_RULES else self.rules
        return replace(options, rules=rules, title=self.title or options.title)

    def _with_switch(self, options: VerifyOptions) -> VerifyOptions:
        """Return the options with the driver that the service uses; the proof of one that is used is late."""
        from twinstore.config import load_settings

        if options.switch is not None:
            return options
        settings = load_settings(self.settings)
        # A comparison needs no switch; the report then says that none is set.
        with suppress(ConfigurationError):
            return replace(options, switch=settings.backend_name(self.module))
        return options

    def _module(self, given: str | None, *sides: Side | str) -> str:
        from twinstore.config import load_settings
        from twinstore_backfill.stores import resolve_module

        named = (self._side(side).settings if isinstance(side, Side) else self.settings for side in sides)
        return resolve_module(given, *(load_settings(item) for item in named if given is None))

    def _side(self, given: Side | str) -> Side:
        from twinstore.config import load_settings
        from twinstore_backfill.stores import url_settings

        if isinstance(given, Side):
            return given if given.settings is not None else replace(given, settings=self.settings)
        # A driver has a plain name.
        if ":" not in given:
            return Side(given, self.settings)
        return Side(*url_settings(given, self.module, load_settings(self.settings)))

    def _plan(self, options: CopyOptions, progress: Progress, stop: StopSwitch, *, full: bool) -> PlanReport:
        from twinstore_backfill.plan import plan_copy

        del progress
        refuse_reverse(options.rules, "A plan", "run copy without --execute")
        with self.opened() as (left, right):
            return plan_copy(left, right, options, stop, full=full)

    def _copy(
        self, options: CopyOptions, progress: Progress, stop: StopSwitch, *, delete_extra: bool
    ) -> CopyReport:
        from twinstore_backfill.copy.engine import run_copy
        from twinstore_backfill.copy.report import copy_report, write_copy_report
        from twinstore_backfill.process.memory import cache_batch_memory
        from twinstore_backfill.stores import is_migrated

        with copy_directory(options.saved_in), ExitStack() as stack:
            if delete_extra:
                refuse_reverse(options.rules, "--delete-extra", "remove by hand what verify names as missing")
            left, right = stack.enter_context(self.opened())
            with cache_batch_memory():
                result = run_copy(left, right, options, progress, stop)
            report = copy_report(result)
            # A copy that was stopped leaves its own work for the next run.
            if delete_extra and report.complete and is_migrated(right):
                from twinstore_backfill.repair.engine import remove_extra  # compares, which few copies do

                extra = remove_extra(left, right, options, result.as_of, progress, stop)
                exits = report.exit_code or int(extra.exit)
                report = report.model_copy(update={"extra": extra.report(), "exit_code": exits})
                write_copy_report(report, options.saved_in)
            return report

    def _work(
        self,
        job: str | None,
        progress: Progress,
        stop: StopSwitch,
        *,
        slots: int,
        drain: bool,
        execute: bool,
    ) -> WorkReport:
        from twinstore_backfill.copy.workers import run_work

        if slots < 1:
            raise ValidationError(f"--slots should be at least 1, not {slots}.")
        with self.opened() as sides:
            return run_work(
                sides, job, slots=slots, drain=drain, execute=execute, progress=progress, stop=stop
            )

    def _verify(
        self,
        options: VerifyOptions,
        out: Path | None,
        progress: Progress,
        stop: StopSwitch,
        *,
        differences: Path | None,
        earlier: ParityReport | None,
    ) -> ParityReport:
        from twinstore_backfill.report.trend import earlier_report, with_trend
        from twinstore_backfill.report.writing import REPORT_FILES, report_directory, write_reports
        from twinstore_backfill.verify.kept import FILE

        options = self._with_switch(options)
        if earlier is None and out is not None:
            earlier = earlier_report(out / REPORT_FILES[0])
        with report_directory(directory_to_clear(out, differences)):
            if options.approval is not None:
                report = self._start_clean(options, stop)
            else:
                report = self._compared(options, out, differences, progress, stop)
            if differences is None:
                report = with_trend(report, earlier)
            if out is not None:
                write_reports(report, out)
                if differences is None:
                    (out / FILE).unlink(missing_ok=True)
        return report

    def _start_clean(self, options: VerifyOptions, stop: StopSwitch) -> ParityReport:
        """A fresh start needs no source, so it is not opened."""
        from twinstore_backfill.verify.engine import run_start_clean

        with self._target() as store:
            return run_start_clean(source_name(self.source.backend), store, options, stop)

    def _compared(
        self,
        options: VerifyOptions,
        out: Path | None,
        differences: Path | None,
        progress: Progress,
        stop: StopSwitch,
    ) -> ParityReport:
        from twinstore_backfill.repair.engine import reported_rows
        from twinstore_backfill.report.writing import reports_in
        from twinstore_backfill.verify.engine import run_verify

        with self.opened() as (left, right), ExitStack() as stack:
            if differences is not None:
                # Read before the reports of this run take its place.
                options = replace(options, only=stack.enter_context(reported_rows(differences, left, right)))
            write = stack.enter_context(reports_in(out))
            keep_in = out if differences is None else None
            return run_verify(left, right, options, progress, stop, write, keep_in)

    def _repair(
        self,
        differences: Path,
        options: VerifyOptions,
        out: Path | None,
        progress: Progress,
        stop: StopSwitch,
        *,
        execute: bool,
        delete_extra: bool,
    ) -> RepairReport:
        from twinstore_backfill.repair.engine import run_repair
        from twinstore_backfill.report.writing import report_directory, reports_in, write_reports

        refuse_reverse(options.rules, "A repair", "copy again with --on-conflict overwrite")
        # Without --execute the reports of an earlier run stay.
        written, options = out if execute else None, self._with_switch(options)
        with report_directory(directory_to_clear(written, differences)), self.opened() as (left, right):
            with reports_in(written) as write:
                report = run_repair(
                    left,
                    right,
                    differences,
                    options,
                    progress,
                    stop,
                    write,
                    execute=execute,
                    delete_extra=delete_extra,
                )
            if written is not None and report.recheck is not None:
                write_reports(report.recheck, written)
        return report


@contextmanager
def copy_directory(out: Path | None) -> Iterator[None]:
    """Let the report in a directory agree with how a copy ends, whatever happens meanwhile.

    The report of an earlier run is removed first. If there is no result, the report says why.
    """
    from twinstore_backfill.copy.dry_run import DUPLICATES
    from twinstore_backfill.copy.report import REPORT_FILE, failure_document

    def failure_file(failure: Failure) -> dict[str, bytes]:
        return {REPORT_FILE: json_text(failure_document(failure))}

    with report_failures(out, (REPORT_FILE, DUPLICATES), failure_file), wrap_write_errors(out):
        yield


def directory_to_clear(out: Path | None, differences: Path | None) -> Path | None:
    """Return the directory of the reports, ``None`` if it holds the list that is read first.

    The list that a retry needs must not be lost because a server is down.
    """
    if out is None or differences is None:
        return out
    folder = differences if differences.is_dir() else differences.parent
    return None if out.resolve() == folder.resolve() else out


def source_name(given: str) -> str:
    """Return the proper name of a driver that is not opened, or ``none``.

    Raises:
        ConfigurationError: there is no such driver.
    """
    from twinstore.plugins.drivers import installed_backend_names, load_backend
    from twinstore_backfill.report.texts import NO_SOURCE

    known = {name.casefold(): name for name in (*installed_backend_names(), NO_SOURCE)}
    # The spelling only: a fresh start does not need the client library of its source either.
    return known.get(given.casefold()) or load_backend(given).name


def refuse_reverse(rules: JobRules, what: str, instead: str) -> None:
    """Refuse what cannot be done backwards.

    Raises:
        ValidationError: the rules are used backwards.
    """
    if rules.reverse:
        raise ValidationError(f"{what} is not possible with reverse = true in the job file; {instead}.")


def _rules(given: JobRules | Path | None) -> JobRules:
    if isinstance(given, Path):
        from twinstore_backfill.rules.job_file import read_job_file

        return read_job_file(given).rules
    if given is not None and not isinstance(given, JobRules):
        raise ValidationError(
            f"Argument rules should be rules or the Path of a job file, not {type(given).__name__}."
        )
    return NO_RULES if given is None else given
