"""The smoke test of one store: it is inspected, tried in a separate tenant, and left as it was.

ready -> schema -> remains of earlier tests -> lists against rows (C4, C5) -> locks (C6) -> trial -> removed
"""

from __future__ import annotations

import os
import re
import socket
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial
from hashlib import sha256
from secrets import randbelow, token_hex
from time import monotonic, perf_counter
from typing import TYPE_CHECKING, Final, Self, cast

from typing_extensions import override

from twinstore.access.query import Query, key_order, query_of_key
from twinstore.catalog.tenancy import ALL_TENANTS, UNKNOWN_LABEL, Tenant, names_tenant
from twinstore.errors import ConfigurationError, TwinstoreError, UnavailableError
from twinstore.models.fields import SYSTEM_TENANT
from twinstore.plugins.checks import TrialStep, expect, never_committed
from twinstore.plugins.modules import module_spec
from twinstore_backfill.process.stopping import StopRequestedError
from twinstore_backfill.report.texts import number_of
from twinstore_backfill.stores import preflight
from twinstore_backfill.verify.checks import NO_LOCKS, SMOKE, ListContext, absent, list_checks, list_titles
from twinstore_backfill.verify.lists import LARGEST_PAGE, ListFinding, ListResult
from twinstore_backfill.verify.sampling import tenants_for_lists
from twinstore_backfill.verify.stored_lists import StoredRows, check_list

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from twinstore.access.protocol import Access
    from twinstore.catalog.entity import Entity
    from twinstore.catalog.keys import Key
    from twinstore.catalog.row import Row
    from twinstore.catalog.tenancy import Tenants
    from twinstore.plugins.checks import ListQuery, ModuleChecks, SmokeTest, Trial
    from twinstore_backfill.process.stopping import StopSwitch
    from twinstore_backfill.report.model import Check, Result
    from twinstore_backfill.stores import Store
    from twinstore_backfill.verify.lists import AnyStorage

    # A row below the ones that it belongs to.
    Line = Sequence[tuple[Entity, Row]]

SHOWN: Final = 20


class StepSkippedError(Exception):
    """A step cannot be taken, and why; nothing is known to be wrong."""


@dataclass(frozen=True, slots=True)
class Finding:
    """What a step found: its result in one line, and each problem as a sentence."""

    summary: str
    problems: tuple[str, ...] = ()
    result: Result | None = None

    @classmethod
    def of(cls, check: Check) -> Finding:
        """Return what a check of a verification found."""
        return cls(check.summary, tuple(check.findings), check.result)


@dataclass(frozen=True, slots=True)
class Step:
    """One step.

    Attributes:
        name: what was inspected or tried.
        result: the result; an inconclusive or skipped one is reported but does not fail the test.
        milliseconds: how long it took.
        summary: the result in one line.
        problems: what is wrong, each with what to do about it.
        unreachable: the store did not answer.
    """

    name: str
    result: Result
    milliseconds: int
    summary: str
    problems: tuple[str, ...] = ()
    unreachable: bool = False

    def document(self) -> dict[str, object]:
        """Return what a program reads."""
        return {
            "step": self.name,
            "result": self.result,
            "milliseconds": self.milliseconds,
            "summary": self.summary,
            "findings": list(self.problems[:SHOWN]),
            "count": len(self.problems),
        }


@dataclass(frozen=True, slots=True)
class SmokeReport:
    """What a smoke test found: its steps in order, and of which store."""

    module: str
    store: dict[str, str]
    tenant: str
    steps: tuple[Step, ...]

    @property
    def passed(self) -> bool:
        """Whether nothing is wrong."""
        return all(step.result != "fail" for step in self.steps)

    @property
    def unreachable(self) -> bool:
        """Whether the store did not answer at some step."""
        return any(step.unreachable for step in self.steps)

    def document(self) -> dict[str, object]:
        """Return what a program reads."""
        return {
            "verdict": "OK" if self.passed else "FAILED",
            "module": self.module,
            **self.store,
            "tenant": self.tenant,
            "steps": [step.document() for step in self.steps],
        }


def timed(name: str, run: Callable[[], Finding]) -> Step:
    """Take a step and say what became of it; an error of the library is what it found."""
    began = perf_counter()
    unreachable = False
    try:
        found = run()
    except StepSkippedError as skipped:
        found = Finding(str(skipped), result="skipped")
    except TwinstoreError as error:
        unreachable = isinstance(error, UnavailableError)
        found = Finding("ended with an error", (error.message,))
    result = found.result or ("fail" if found.problems else "pass")
    spent = round(1000 * (perf_counter() - began))
    return Step(name, result, spent, found.summary, found.problems, unreachable)


READY: Final = "server, roles, row-level security"
SCHEMA: Final = "schema"
COUNTS: Final = "rows and rests"
OWN: Final = "a separate tenant"
LOCKS: Final = f"C6 {SMOKE}"
REMOVED: Final = "removed again"
# Enough to include every kind of tenant in time; each has a dozen lists of up to three pages.
TENANTS: Final = 20
LARGEST: Final = 10
SEEDS: Final = 1_000_000
FAILED: Final = "a step before failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class SmokeOptions:
    """The options of a smoke test.

    Attributes:
        timeout: no step begins after this time; written rows are removed all the same.
        tenants: the only ones whose lists are compared; if empty, the largest and some others.
        seed: chooses the others; ``None``: at random.
    """

    timeout: timedelta = timedelta(seconds=60)
    tenants: Sequence[str] = ()
    seed: int | None = None


def run_smoke(store: Store, options: SmokeOptions, stop: StopSwitch) -> SmokeReport:
    """Try a store; whatever happens, no traces are left.

    Raises:
        InterruptedRunError: a signal requested the stop; written rows have been removed.
    """
    smoke = Smoke(store, options, stop, store.described())
    with suppress(StopRequestedError):
        smoke.run()
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

    def run(self) -> None:
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

    def _take(self, name: str, run: Callable[[], Finding]) -> bool:
        """Take a step; return whether the next one can build on it."""
        self.stop.check()
        if monotonic() > self._deadline:
            self.steps.append(Step(name, "fail", 0, "not begun", (f"{name}: {self._timeout_text}",)))
            return False
        step = timed(name, run)
        self.steps.append(step)
        return step.result != "fail"

    @property
    def _timeout_text(self) -> str:
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
            # The service works without the rights of the schema owner, and so may its smoke test.
            raise StepSkippedError(f"the schema could not be inspected: {error.message}") from error
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
            removed, kept = remove_tenant_rows(self.store, found.name)
            problems += kept
            notes.append(f"{number_of(removed, 'row')} of {found} removed, which a test had left")
        rows = sum(sum(counts.values()) for counts in self.counts.values())
        real = sum(not is_smoke_tenant(name) for name in tenants - {SYSTEM_TENANT})
        total = f"{number_of(rows, 'row')} of {number_of(real, 'tenant')}"
        return Finding("; ".join((total, *notes)), tuple(problems))

    def _without_owner(self) -> Iterator[str]:
        for entity, counts in self.counts.items():
            if broken := counts.get(UNKNOWN_LABEL):
                yield (
                    f"{number_of(broken, 'row')} of {entity} hold no tenant id where it should be, so no "
                    "tenant sees them; repair or remove them"
                )

    def _lists(self) -> None:
        """C4 and C5: the lists that a service gets are those that follow from the stored rows."""
        result, chosen = ListResult([]), ""
        began = monotonic()

        def run() -> Finding:
            nonlocal chosen
            chosen = self._compare(result)
            return Finding("")

        step = timed("lists", run)
        checks = list_checks(result, self.store.module, ListContext(chosen=chosen))
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
                    raise TwinstoreError(self._timeout_text)
                (result.due if query.due else result.lists).append(check_list(query, self.store, rows))
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
            raise StepSkippedError(absent(self.store.module, NO_LOCKS))
        return Finding(test.does, tuple(test.run(self.store.storage)))

    def _try(self) -> None:
        """Do in a separate tenant what a service does, and remove it whatever happens."""
        trial = cast("Trial[AnyStorage] | None", module_spec(self.store.module).trial)
        if trial is None:
            self._skip(self._tried, absent(self.store.module, "the module describes none"))
            return
        if not self._take(OWN, self._create_tenant):
            self._skip(self._tried, FAILED)
            return
        self.is_removed = False
        try:
            self._trial(trial)
        finally:
            step = timed(REMOVED, self._remove)
            self.is_removed = step.result == "pass"
            self.steps.append(step)

    def _create_tenant(self) -> Finding:
        self.tenant = SmokeTenant.new(self.store.bulk.now(), self.options.timeout).name
        return Finding(self.tenant)

    def _trial(self, trial: Trial[AnyStorage]) -> None:
        going = True
        for step in self._trial_steps(trial):
            if going:
                going = self._take(step.name, partial(run_trial_step, step))
            else:
                self._skip((step.name,), FAILED)

    def _trial_steps(self, trial: Trial[AnyStorage]) -> Iterator[TrialStep]:
        if trial.rows is not None:
            yield from round_trips(self.store, trial.rows(self.tenant), self.tenant)
        if trial.steps is not None:
            yield from trial.steps(self.store.storage, self.tenant)

    def _remove(self) -> Finding:
        removed, problems = remove_tenant_rows(self.store, self.tenant)
        if problems:
            return Finding("rows are left", (*problems, self.left))
        return Finding(f"{number_of(removed, 'row')}, which is all that was left of it")


def run_trial_step(step: TrialStep) -> Finding:
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
    """Whether a label is that of a tenant whose lists are queried."""
    return names_tenant(name) and name != SYSTEM_TENANT and not is_smoke_tenant(name)


PREFIX: Final = "twinstore-smoke-"
INSTANT: Final = "%Y%m%dT%H%M%SZ"
FORM: Final = re.compile(rf"{PREFIX}(\d{{8}}T\d{{6}}Z)-([0-9a-f]{{12}})-(\d+)-[0-9a-f]{{8}}")
# A call that was begun in time may end later: by default a server ends a statement after 30 s.
GRACE: Final = timedelta(seconds=60)
BATCH: Final = 500


@dataclass(frozen=True, slots=True)
class SmokeTenant:
    """A tenant that one smoke test made up.

    Attributes:
        name: the id of the tenant, which contains the rest.
        until: when that test has ended in any case, by the clock of the store.
        machine: the machine on which the number of the process is valid.
        process: the number of the process.
    """

    name: str
    until: datetime
    machine: str
    process: int

    @classmethod
    def new(cls, now: datetime, timeout: timedelta) -> Self:
        """Make up a tenant for a test that begins now, by the clock of the store."""
        until = (now + timeout + GRACE).replace(microsecond=0)
        machine, process = this_machine(), os.getpid()
        name = f"{PREFIX}{until.strftime(INSTANT)}-{machine}-{process}-{token_hex(4)}"
        return cls(name, until, machine, process)

    @classmethod
    def of(cls, name: str) -> Self | None:
        """Return the content of a name, ``None`` for the name of any other tenant."""
        found = FORM.fullmatch(name)
        if found is None:
            return None
        instant, machine, process = found.groups()
        try:
            until = datetime.strptime(instant, INSTANT).replace(tzinfo=UTC)
        except ValueError:
            return None
        return cls(name, until, machine, int(process))

    def is_left_over(self, now: datetime) -> bool:
        """Whether the test that made it up is certainly over: its process is gone, or its time is."""
        gone = self.machine == this_machine() and not is_running(self.process)
        return gone or now > self.until

    @override
    def __str__(self) -> str:
        return self.name


def is_smoke_tenant(name: str) -> bool:
    """Whether a smoke test made up a tenant."""
    return SmokeTenant.of(name) is not None


def this_machine() -> str:
    """Return a text that is the same for processes which see each other's numbers."""
    try:
        # Containers may share a host name; each has its own numbers.
        numbers = os.readlink("/proc/self/ns/pid")  # noqa: PTH115  # it names no file
    except OSError:
        numbers = ""
    return sha256(f"{socket.gethostname()}\n{numbers}".encode()).hexdigest()[:12]


def is_running(process: int) -> bool:
    """Whether there is a process of that number; true if that is unknown."""
    try:
        os.kill(process, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except OSError:
        return True
    return True


def remove_tenant_rows(store: Store, tenant: str) -> tuple[int, tuple[str, ...]]:
    """Remove every row of a tenant, children first; return how many, and what kept others from going."""
    removed, problems = 0, list[str]()
    for entity in tenant_entities(reversed(store.bulk.entities())):
        try:
            removed += _remove_tenant_rows(store, entity, tenant)
        except TwinstoreError as error:
            problems.append(f"rows of {entity.name} of tenant {tenant} are left: {error.message}")
    return removed, tuple(problems)


def tenant_entities(entities: Iterable[Entity]) -> Iterator[Entity]:
    """Yield the entities whose rows name their tenant."""
    return (entity for entity in entities if entity.tenant_field is not None)


def _remove_tenant_rows(store: Store, entity: Entity, tenant: str) -> int:
    # Counted first: removing nothing must not need the right to remove rows.
    wanted = sum(store.bulk.counts(entity, tenant_id=tenant).values())
    query = Query(entity=entity.name, scope=Tenant(tenant), where=(), order=key_order(entity), limit=BATCH)
    removed = 0
    while removed < wanted and (batch := store.bulk.access().remove(entity, query)):
        removed += batch
    return removed


def round_trips(store: Store, rows: Iterable[tuple[Entity, Row]], tenant: str) -> Iterator[TrialStep]:
    """Yield a step for each row, which stores the rows that it belongs to as well.

    A row that could not be found by its tenant afterwards, or not be removed, is never committed; without
    transactions such a row is skipped.
    """
    lines: dict[tuple[str, Key], Line] = {}
    for entity, row in rows:
        *above, _ = line = line_of(entity, row, lines)
        lines[entity.name, entity.key_of(row.model, row.storage)] = line
        if all(each.tenant_field is not None and not each.append_only for each, _ in line):
            run = partial(check_committed, store, entity, Tenant(tenant), row, above)
            yield TrialStep(f"row of {entity.name}", run)
        elif store.storage.capabilities.transactions:
            scope: Tenants = ALL_TENANTS if entity.tenant_field is None else Tenant(tenant)
            rolled_back = partial(check_rolled_back, store, entity, scope, row, above)
            yield TrialStep(f"row of {entity.name}, rolled back", rolled_back)


def line_of(entity: Entity, row: Row, lines: Mapping[tuple[str, Key], Line]) -> Line:
    """Return a row below the ones that it belongs to, as far as they were given, the highest first."""
    if entity.parent is None:
        return ((entity, row),)
    key = entity.value(row.model, row.storage, entity.parent.field)
    return (*lines.get((entity.parent.entity.name, (cast("str | int", key),)), ()), (entity, row))


def check_committed(store: Store, entity: Entity, scope: Tenants, row: Row, above: Line) -> Iterator[str]:
    """Insert a row below those above it, find it, and remove all of them again."""
    access = store.bulk.access()
    insert_all(access, scope, above)
    yield from check_stored(access, entity, scope, row)
    key = entity.key_of(row.model, row.storage)
    removed = access.remove(entity, query_of_key(entity, scope, key))
    yield from expect(f"the number of removed rows of {entity.name}", found=removed, wanted=1)
    (gone,) = access.find(entity, scope, [key])
    yield from expect(f"the removed {entity.singular}", found=gone, wanted=None)
    for parent, parent_row in reversed(above):
        access.remove(
            parent, query_of_key(parent, scope, parent.key_of(parent_row.model, parent_row.storage))
        )


def check_rolled_back(store: Store, entity: Entity, scope: Tenants, row: Row, above: Line) -> Iterable[str]:
    """Insert a row below those above it and find it, in a unit that is not committed."""
    access = store.bulk.access()
    with never_committed(access.unit(scope)) as unit:
        insert_all(unit, scope, above)
        found = [*check_stored(unit, entity, scope, row)]
    (left,) = access.find(entity, scope, [entity.key_of(row.model, row.storage)])
    return [*found, *expect(f"the {entity.singular} after rolling back", found=left, wanted=None)]


def insert_all(access: Access, scope: Tenants, rows: Line) -> None:
    """Insert rows, parents first."""
    for entity, row in rows:
        access.insert(entity, scope, row)


def check_stored(access: Access, entity: Entity, scope: Tenants, row: Row) -> Iterator[str]:
    """Insert a row; it is found by its key and in a list of it, with the same content."""
    access.insert(entity, scope, row)
    key = entity.key_of(row.model, row.storage)
    (stored,) = access.find(entity, scope, [key])
    yield from expect(f"the stored {entity.singular}", found=stored, wanted=row)
    listed = access.page(entity, query_of_key(entity, scope, key)).items
    yield from expect(f"the list of {entity.name} with this key", found=listed, wanted=(row,))
