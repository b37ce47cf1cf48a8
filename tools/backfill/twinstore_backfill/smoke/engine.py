"""The smoke test of one store: it is looked at, tried in a tenant of its own, and left as it was.

ready -> schema -> rests of earlier tests -> lists against rows (C4, C5) -> locks (C6) -> trial -> removed
"""

from __future__ import annotations

from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from secrets import randbelow
from time import monotonic
from typing import TYPE_CHECKING, Final, cast

from twinstore.errors import ConfigurationError, TwinstoreError, UnavailableError
from twinstore.modules import module_spec
from twinstore.scope import SYSTEM_TENANT
from twinstore.tenancy import UNKNOWN_LABEL, names_tenant
from twinstore_backfill.report.texts import number_of
from twinstore_backfill.smoke.lists import StoredRows, judged
from twinstore_backfill.smoke.rows import round_trips
from twinstore_backfill.smoke.steps import Finding, SmokeReport, Step, StepSkippedError, timed
from twinstore_backfill.smoke.tenants import SmokeTenant, emptied, is_smoke_tenant
from twinstore_backfill.stopping import StopRequestedError
from twinstore_backfill.stores import preflight
from twinstore_backfill.verify.beside import LARGEST_PAGE
from twinstore_backfill.verify.checks import NO_LOCKS, SMOKE, ListJudgement, list_checks, list_titles
from twinstore_backfill.verify.lists import ListFinding
from twinstore_backfill.verify.sampling import tenants_for_lists
from twinstore_backfill.verify.tasks import ListResult

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from twinstore.checks import ListQuery, ModuleChecks, SmokeTest, Trial, TrialStep
    from twinstore_backfill.stopping import StopSwitch
    from twinstore_backfill.stores import Store
    from twinstore_backfill.verify.lists import AnyStorage

__all__ = ["COUNTS", "READY", "REMOVED", "SCHEMA", "SmokeOptions", "refused", "run_smoke"]

READY: Final = "server, roles, row-level security"
SCHEMA: Final = "schema"
COUNTS: Final = "rows and rests"
OWN: Final = "a tenant of its own"
LOCKS: Final = f"C6 {SMOKE}"
REMOVED: Final = "removed again"
# Enough to meet every kind of tenant in time; each is asked a dozen lists of up to three pages.
TENANTS: Final = 20
LARGEST: Final = 10
SEEDS: Final = 1_000_000
FAILED: Final = "a step before failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class SmokeOptions:
    """What is asked of a smoke test.

    Attributes:
        timeout: no step begins after so long; what was written is removed all the same.
        tenants: the only ones whose lists are compared; none named: the largest and some others.
        seed: chooses the others; ``None``: at random.
    """

    timeout: timedelta = timedelta(seconds=60)
    tenants: Sequence[str] = ()
    seed: int | None = None


def run_smoke(store: Store, options: SmokeOptions, stop: StopSwitch) -> SmokeReport:
    """Try a store; whatever happens, nothing of it is left.

    Raises:
        InterruptedRunError: a signal asked for the stop; what was written has been removed.
    """
    smoke = Smoke(store, options, stop, store.described())
    with suppress(StopRequestedError):
        smoke.look()
    stop.raise_if_interrupted("What was written has been removed." if smoke.is_removed else smoke.left)
    return smoke.report()


def refused(module: str, backend: str, error: TwinstoreError) -> SmokeReport:
    """Return the report on a store that could be reached but not opened."""
    step = Step(READY, "fail", 0, "refused", (error.message,))
    return SmokeReport(module, {"backend": backend, "place": backend}, "", (step,))


@dataclass(slots=True)
class Smoke:
    """One smoke test."""

    store: Store
    options: SmokeOptions
    stop: StopSwitch
    described: dict[str, str]
    steps: list[Step] = field(default_factory=list[Step])
    counts: dict[str, Mapping[str, int]] = field(default_factory=dict[str, "Mapping[str, int]"])
    tenant: str = ""
    is_removed: bool = True
    _deadline: float = 0.0

    def look(self) -> None:
        """Take every step."""
        self._deadline = monotonic() + self.options.timeout.total_seconds()
        ready = self._take(READY, self._ready)
        self._take(SCHEMA, self._schema)
        if not ready:
            self._skip((COUNTS, *self._checked, *self._tried), "the store is not ready")
            return
        self._take(COUNTS, self._count)
        # Also where rows are broken: the others are listed all the same.
        if self.counts:
            self._lists()
        else:
            self._skip(self._listed, FAILED)
        self._take(LOCKS, self._locks)
        self._try()

    @property
    def left(self) -> str:
        """What to do when something could not be removed."""
        return f"Rows of tenant {self.tenant} are left; the next smoke test removes them."

    def report(self) -> SmokeReport:
        """Return what was found."""
        return SmokeReport(self.store.module, self.described, self.tenant, tuple(self.steps))

    @property
    def _listed(self) -> tuple[str, ...]:
        return tuple(f"{name} {title}" for name, title in list_titles(self.store.module))

    @property
    def _checked(self) -> tuple[str, ...]:
        return (*self._listed, LOCKS)

    @property
    def _tried(self) -> tuple[str, ...]:
        return ("trial",)

    def _take(self, name: str, look: Callable[[], Finding]) -> bool:
        """Take a step; return whether the next one can build on it."""
        self.stop.check()
        if monotonic() > self._deadline:
            self.steps.append(Step(name, "fail", 0, "not begun", (f"{name}: {self._late}",)))
            return False
        step = timed(name, look)
        self.steps.append(step)
        return step.result != "fail"

    @property
    def _late(self) -> str:
        seconds = self.options.timeout.total_seconds()
        return (
            f"the time is over ({seconds:g} s); give more with --timeout, or name fewer tenants with --tenant"
        )

    def _skip(self, names: Iterable[str], why: str) -> None:
        self.steps += (Step(name, "skipped", 0, why) for name in names)

    def _ready(self) -> Finding:
        preflight(self.store.storage.check_ready)
        version = self.store.storage.capabilities.server_version
        return Finding(f"version {version}; every migration is applied" if version else "ready")

    def _schema(self) -> Finding:
        try:
            found = self.store.storage.initializer.verify(additions=False)
        except ConfigurationError as error:
            # The service does without the rights of whoever owns the schema, and so may its smoke test.
            raise StepSkippedError(f"the schema could not be looked at: {error.message}") from error
        return Finding("compared with the migrations", tuple(found))

    def _count(self) -> Finding:
        """Count the rows, and remove what tests have left that did not get to their end."""
        bulk = self.store.bulk
        now = bulk.now()
        self.counts |= {entity.name: bulk.counts(entity) for entity in bulk.entities()}
        tenants = {label for counts in self.counts.values() for label in counts if names_tenant(label)}
        problems = list(self._without_owner())
        notes: list[str] = []
        for found in sorted(filter(None, map(SmokeTenant.of, tenants)), key=str):
            if not found.is_left_over(now):
                notes.append(f"{found} may belong to a test that runs")
                continue
            removed, kept = emptied(self.store, found.name)
            problems += kept
            notes.append(f"{number_of(removed, 'row')} of {found} removed, which a test had left")
        rows = sum(sum(counts.values()) for counts in self.counts.values())
        real = sum(not is_smoke_tenant(name) for name in tenants - {SYSTEM_TENANT})
        told = f"{number_of(rows, 'row')} of {number_of(real, 'tenant')}"
        return Finding("; ".join((told, *notes)), tuple(problems))

    def _without_owner(self) -> Iterator[str]:
        for entity, counts in self.counts.items():
            if broken := counts.get(UNKNOWN_LABEL):
                yield (
                    f"{number_of(broken, 'row')} of {entity} hold no tenant id where it should stand, so no "
                    "tenant sees them; repair or remove them"
                )

    def _lists(self) -> None:
        """C4 and C5: the lists that a service gets are those that the stored rows make."""
        result, chosen = ListResult([]), ""
        began = monotonic()

        def look() -> Finding:
            nonlocal chosen
            chosen = self._compare(result)
            return Finding("")

        step = timed("lists", look)
        checks = list_checks(result, self.store.module, ListJudgement(chosen=chosen))
        spent = round(1000 * (monotonic() - began))
        for check in checks:
            found = Finding.of(check)
            if step.result == "fail":
                found = Finding(step.summary, (*found.problems, *step.problems), "fail")
            self.steps.append(
                Step(
                    f"{check.id} {check.title}",
                    found.result or "pass",
                    spent,
                    found.summary.replace(" compared", " compared with the stored rows", 1),
                    found.problems,
                    step.unreachable,
                )
            )

    def _compare(self, result: ListResult) -> str:
        rows = StoredRows(self.store, self.counts)
        sizes = Counter[str]()
        for counts in self.counts.values():
            sizes.update({name: count for name, count in counts.items() if is_listed(name)})
        chosen = tenants_for_lists(sizes, self._seed, most=TENANTS, largest=LARGEST)
        for tenant in (*(self.options.tenants or chosen.tenants), None):
            for query in self._queries(tenant):
                self.stop.check()
                if monotonic() > self._deadline:
                    raise TwinstoreError(self._late)
                (result.due if query.due else result.lists).append(judged(query, self.store, rows))
            rows.forget()
        for name, problem in rows.undecodable.items():
            result.lists.append(ListFinding(name, "fail", 0, problem))
        return "" if self.options.tenants else chosen.note

    @property
    def _seed(self) -> int:
        return randbelow(SEEDS) if self.options.seed is None else self.options.seed

    def _queries(self, tenant: str | None) -> Iterable[ListQuery[AnyStorage]]:
        make = module_spec(self.store.module).checks
        if make is None:
            return ()
        # The description of a module names its checks and its storage together.
        checks = cast("ModuleChecks[AnyStorage]", make({}, LARGEST_PAGE))
        return checks.over_all() if tenant is None else checks.of_tenant(tenant, self.store.storage)

    def _locks(self) -> Finding:
        """C6: what a verification tries on a target."""
        test = cast("SmokeTest[AnyStorage] | None", module_spec(self.store.module).smoke_test)
        if test is None:
            raise StepSkippedError(NO_LOCKS)
        return Finding(test.does, tuple(test.run(self.store.storage)))

    def _try(self) -> None:
        """Do in a tenant of its own what a service does, and remove it whatever happens."""
        trial = cast("Trial[AnyStorage] | None", module_spec(self.store.module).trial)
        if trial is None:
            self._skip(self._tried, "the module describes none")
            return
        if not self._take(OWN, self._make_up):
            self._skip(self._tried, FAILED)
            return
        self.is_removed = False
        try:
            self._trial(trial)
        finally:
            step = timed(REMOVED, self._remove)
            self.is_removed = step.result == "pass"
            self.steps.append(step)

    def _make_up(self) -> Finding:
        self.tenant = SmokeTenant.new(self.store.bulk.now(), self.options.timeout).name
        return Finding(self.tenant)

    def _trial(self, trial: Trial[AnyStorage]) -> None:
        going = True
        for step in self._trial_steps(trial):
            if going:
                going = self._take(step.name, partial(tried, step))
            else:
                self._skip((step.name,), FAILED)

    def _trial_steps(self, trial: Trial[AnyStorage]) -> Iterator[TrialStep]:
        if trial.rows is not None:
            yield from round_trips(self.store, trial.rows(self.tenant), self.tenant)
        if trial.steps is not None:
            yield from trial.steps(self.store.storage, self.tenant)

    def _remove(self) -> Finding:
        removed, problems = emptied(self.store, self.tenant)
        if problems:
            return Finding("rows are left", (*problems, self.left))
        return Finding(f"{number_of(removed, 'row')}, which is all that was left of it")


def tried(step: TrialStep) -> Finding:
    """Return what a step of a trial found: what it yields, and the error that ended it."""
    problems: list[str] = []
    try:
        problems.extend(step.run())
    except UnavailableError:
        raise
    except TwinstoreError as error:
        problems.append(error.message)
    return Finding("otherwise than it must be" if problems else "as it must be", tuple(problems))


def is_listed(name: str) -> bool:
    """Whether a label is that of a tenant whose lists are asked for."""
    return names_tenant(name) and name != SYSTEM_TENANT and not is_smoke_tenant(name)
