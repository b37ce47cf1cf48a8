"""Every operation of the scheduler as a value that can be drawn, printed and performed on any driver."""

from __future__ import annotations

from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any, Final

from hypothesis import strategies as st

from tools.differential.generators import ValueGenerator
from tools.differential.graph_operations import GRAPH_CALLS, Call, EventsOf, MoveGraphJob
from twinstore.models.shapes import Kind
from twinstore.scheduler.audit import AuditQueryOptions
from twinstore.scheduler.enums import TERMINAL_STATES, PolicyRunJobStatus, RunState
from twinstore.scheduler.policy_jobs import PolicyJobQueryOptions
from twinstore.scheduler.runs import RunQueryOptions, RunStats
from twinstore.scheduler.schedules import ScheduleQueryOptions
from twinstore.testing.instants import at
from twinstore.testing.scheduler.builders import as_dispatched, as_ended, as_submitted, make_policy_job, moved
from twinstore.testing.scheduler.examples import SCHEDULER_EXAMPLES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from twinstore.scheduler.storage import SchedulerSession, SchedulerStorage
    from twinstore.testing.examples import Example
    from twinstore.testing.signatures import ListMethod, Lookup

# The lists that take their filters, limit and token in one object.
OPTIONS: Final[dict[str, Callable[..., object]]] = {
    f"{item.repository}.{listed.method.name}": listed.method.options
    for item in SCHEDULER_EXAMPLES.examples
    for listed in item.lists
    if listed.method.options is not None
}
PENDING, DISPATCHING, SUBMITTED, COMPLETED, FAILED, CANCELLED = PolicyRunJobStatus
LATEST_SEED: Final = 2**32 - 1


@dataclass(frozen=True)
class MethodCall:
    """One call of a method of a repository or service, for example ``runs.create``."""

    path: str
    args: tuple[object, ...] = ()
    options: Mapping[str, object] = field(default_factory=dict)

    def __call__(self, session: SchedulerSession | SchedulerStorage) -> object:
        """Perform the call."""
        repository, method = self.path.split(".")
        return getattr(getattr(session, repository), method)(*self.args, **self.options)

    def after(self, token: str) -> MethodCall:
        """Return the same list from a page token on."""
        if kind := OPTIONS.get(self.path):
            tenant, options = self.args
            values = {} if options is None else vars_of(options)
            return replace(self, args=(tenant, kind(**{**values, "page_token": token})))
        return replace(self, options={**self.options, "page_token": token})


def vars_of(options: object) -> dict[str, Any]:
    """Return the values of an option class."""
    return {item.name: getattr(options, item.name) for item in fields(options)}  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]  # a dataclass


@dataclass(frozen=True)
class ClaimDue:
    """Claim due schedules and fire some of them: a firing needs the claim that was answered."""

    owner: object
    now: object
    limit: object
    later: object
    fires: int

    def __call__(self, session: SchedulerSession | SchedulerStorage) -> object:
        """Claim, and fire at a later instant."""
        call: Any = session  # given what generators make, also what is refused
        claims = call.schedules.claim_due(self.owner, self.now, limit=self.limit)
        return claims, [
            call.triggers.fire(claim.schedule.tenant_id, claim.schedule.id, self.later, claim=claim)
            for claim in claims[: self.fires]
        ]


@dataclass(frozen=True)
class Move:
    """Update a run from what is stored: the only way to get far in its life."""

    tenant: str
    run_id: str
    state: RunState
    stats: RunStats | None = None
    expected: RunState | None = None
    project: bool = False

    def __call__(self, session: SchedulerSession | SchedulerStorage) -> object:
        """Read, move, write, and project as a host does."""
        stored = session.runs.get(self.tenant, self.run_id)
        if stored is None:
            return "no such run"
        run = moved(stored, self.state, **({} if self.stats is None else {"stats": self.stats}))
        updated = session.runs.update(run, expected_state=self.expected)
        return (updated, session.run_summary_service.project(run) if self.project else None)


Operation = MethodCall | ClaimDue | Move | MoveGraphJob | EventsOf


def paged(generator: ValueGenerator) -> dict[str, object]:
    """Return the options of a list without filters."""
    return {"limit": generator.limit(), "page_token": generator.token()}


def keyed(path: str) -> Callable[[ValueGenerator], Operation]:
    """Return calls that name one row."""
    return lambda generator: MethodCall(path, (generator.tenant(), generator.id()))


def listed(path: str) -> Callable[[ValueGenerator], Operation]:
    """Return lists without filters."""
    return lambda generator: MethodCall(path, (generator.tenant(),), paged(generator))


def written(path: str, model: Callable[[ValueGenerator], object]) -> Callable[[ValueGenerator], Operation]:
    """Return writes of a model, or of an object that is not a model."""
    return lambda generator: MethodCall(path, (generator.mostly((model(generator),), (None, "x")),))


def expecting(path: str, model: Callable[[ValueGenerator], object]) -> Callable[[ValueGenerator], Operation]:
    """Return writes of a model that expect a stored instant."""
    return lambda generator: MethodCall(
        path, (model(generator),), {"expected_updated_at": generator.moment()}
    )


def looked_up(item: Example, lookup: Lookup) -> Callable[[ValueGenerator], Operation]:
    """Return look-ups of one row."""
    path = f"{item.repository}.{lookup.method.name}"

    def look_up(generator: ValueGenerator) -> Operation:
        owner = (generator.tenant(),) if lookup.method.names_tenant else ()
        return MethodCall(path, (*owner, *(generator.id() for _ in lookup.fields)))

    return look_up


def listed_by(item: Example, listed: ListMethod) -> Callable[[ValueGenerator], Operation]:
    """Return lists without the optional filters."""
    path = f"{item.repository}.{listed.method.name}"

    def call_list(generator: ValueGenerator) -> Operation:
        owner = (generator.tenant(),) if listed.method.names_tenant else ()
        args = (*owner, *(parameter_values(generator, item, name) for name in listed.fields))
        kind = listed.method.options
        if kind is not None:
            return MethodCall(path, (*args, kind(**paged(generator))))
        return MethodCall(path, args, paged(generator))

    return call_list


def parameter_values(generator: ValueGenerator, item: Example, name: str) -> object:
    """Return a value for a field by which a list chooses its rows."""
    shape = item.entity.shapes.get(name)
    members = shape is not None and shape.value.kind in {Kind.NUMBERED, Kind.NAMED}
    return generator.choice(shape.value.members) if shape is not None and members else generator.id()


def purged(path: str) -> Callable[[ValueGenerator], Operation]:
    """Return purges of one tenant or of all."""

    def purge(generator: ValueGenerator) -> Operation:
        options: dict[str, object] = {"batch_size": generator.batch_size()}
        if generator.randrange(2):
            options["tenant_id"] = generator.tenant()
        return MethodCall(path, (generator.moment(),), options)

    return purge


def deletion(generator: ValueGenerator) -> Mapping[str, object]:
    """Return whether soft-deleted rows are requested, or nothing about it."""
    return generator.choice(({}, {"include_deleted": True}, {"include_deleted": False}))


def list_schedules(generator: ValueGenerator) -> Operation:
    values: dict[str, Any] = {
        "include_deleted": generator.random() < 0.5,
        "include_disabled": generator.random() < 0.5,
        **paged(generator),
    }
    options = ScheduleQueryOptions(**values)
    return MethodCall("schedules.list", (generator.tenant(), generator.choice((None, options, options))))


def list_runs(generator: ValueGenerator) -> MethodCall:
    states = generator.sample(list(RunState), generator.randrange(4))
    values: dict[str, Any] = {
        "schedule_id": generator.rarely(generator.id),
        "states": generator.rarely(lambda: generator.mostly((states,), (("no state",),))),
        "created_after": generator.rarely(generator.moment),
        "created_before": generator.rarely(generator.moment),
        "ascending": generator.random() < 0.5,
        **paged(generator),
    }
    options = RunQueryOptions(**values)
    return MethodCall("runs.list", (generator.tenant(), generator.choice((None, options, options, options))))


def list_audit(generator: ValueGenerator) -> Operation:
    values: dict[str, Any] = {
        "category": generator.rarely(lambda: generator.choice(("run", " SCHEDULE ", ""))),
        "schedule_id": generator.rarely(generator.id),
        "run_id": generator.rarely(generator.id),
        "occurred_after": generator.rarely(generator.moment),
        "occurred_before": generator.rarely(generator.moment),
        **paged(generator),
    }
    options = AuditQueryOptions(**values)
    return MethodCall("audit.list", (generator.tenant(), generator.choice((None, options, options, options))))


def move_run(generator: ValueGenerator) -> Operation:
    return Move(
        generator.a_tenant(),
        generator.an_id(),
        generator.a_state(),
        stats=generator.choice((None, generator.some_stats())),
        expected=generator.rarely(generator.a_state),
        project=generator.random() < 0.5,
    )


def run_at(generator: ValueGenerator) -> tuple[object, ...]:
    """Return the arguments of a move: a run, and an instant that is seldom before it was created."""
    return generator.tenant(), generator.id(), generator.mostly((at(90_000),), (generator.moment(),))


def complete_run(generator: ValueGenerator) -> Operation:
    stats = generator.mostly((None, generator.some_stats()), ("x",))
    return MethodCall("runs.complete", run_at(generator), {"stats": stats})


def retry(generator: ValueGenerator) -> Operation:
    """Give the new id, because a random one differs on each side."""
    new_id = generator.mostly((generator.an_id(), f"retry-{generator.randrange(9)}"), ("", "\x00", " a "))
    args = (generator.tenant(), generator.id(), generator.actor(), generator.moment())
    return MethodCall("runs.retry", args, {"new_run_id": new_id})


def append_log(generator: ValueGenerator) -> Operation:
    entries = [generator.an_entry() for _ in range(generator.choice((0, 1, 1, 2, 3)))]
    return MethodCall("execution_logs.append", (generator.mostly((entries,), (["x"],)),))


def list_log(generator: ValueGenerator) -> Operation:
    after = generator.mostly((0, 0, 1, 2), (-1, "1", 2**63))
    options = {"after_sequence": after, "limit": generator.limit()}
    return MethodCall("execution_logs.list", (generator.tenant(), generator.id()), options)


def replace_job(generator: ValueGenerator) -> Operation:
    options: dict[str, object] = {}
    if generator.randrange(2):
        options["now"] = generator.moment()
    if generator.randrange(3) == 0:
        options["lease_owner"] = generator.actor()
    args = (generator.a_job(list(PolicyRunJobStatus)), generator.choice(list(PolicyRunJobStatus)))
    return MethodCall("policy_jobs.try_replace", args, options)


def complete_jobs(generator: ValueGenerator) -> Operation:
    jobs = [generator.a_job(list(PolicyRunJobStatus)) for _ in range(generator.randrange(4))]
    options = {"lease_owner": generator.choice((None, "ada", "ada")), "now": generator.moment()}
    expected = generator.choice(list(PolicyRunJobStatus))
    return MethodCall("policy_jobs.complete_many", (jobs, expected), options)


def lease_jobs(generator: ValueGenerator) -> Operation:
    options: dict[str, object] = {"tenant_id": generator.tenant()} if generator.randrange(3) else {}
    args = (generator.actor(), generator.moment())
    if generator.randrange(2):
        return MethodCall("policy_jobs.lease_next", args, options)
    return MethodCall("policy_jobs.lease_many", args, {**options, "limit": generator.limit()})


def list_jobs(generator: ValueGenerator) -> Operation:
    statuses = generator.sample(list(PolicyRunJobStatus), generator.randrange(4))
    values: dict[str, Any] = {
        "statuses": generator.rarely(lambda: generator.mostly((statuses,), (("no status",),))),
        "policy_id": generator.rarely(lambda: "policy-1"),
        **paged(generator),
    }
    options = PolicyJobQueryOptions(**values)
    return MethodCall("policy_jobs.list", (generator.tenant(), generator.choice((None, options, options))))


def on_run(method: str, *more: Callable[[ValueGenerator], object]) -> Callable[[ValueGenerator], Operation]:
    """Return calls of the service about one run."""
    return lambda generator: MethodCall(
        f"policy_run_service.{method}",
        (generator.tenant(), generator.id(), *(value(generator) for value in more)),
        {"now": generator.moment()},
    )


def upsert_snapshot(generator: ValueGenerator) -> Operation:
    snapshot = generator.mostly((generator.a_snapshot(),), (None, "x"))
    options = {"run_id": generator.id()} if generator.randrange(2) else {}
    return MethodCall("impact_snapshots.upsert", (generator.tenant(), snapshot), options)


def modify_summary(generator: ValueGenerator) -> Operation:
    change = generator.a_change()
    return MethodCall("run_summaries.modify", (change.tenant, change.schedule_id, change))


def project(generator: ValueGenerator) -> Operation:
    run = generator.a_run(list(RunState))
    return MethodCall(
        "run_summary_service.project", (run,), {"now": generator.moment()} if generator.randrange(2) else {}
    )


# Queries through filters, or in more ways than one, are below.
WRITTEN_OUT: Final = frozenset(
    {
        "schedules.get",
        "schedules.get_required",
        "schedules.list",
        "runs.list",
        "audit.list",
        "policy_jobs.list",
        "policy_jobs.get_by_run",
    }
)


def derived() -> Iterator[tuple[str, tuple[int, Callable[[ValueGenerator], Operation]]]]:
    """Yield the look-ups, lists and purges of every repository, each with its weight."""
    for item in SCHEDULER_EXAMPLES.examples:
        if item.parameter_values:
            continue  # only the example knows what its parameters mean, so its calls are written out
        for lookup in item.lookups:
            yield f"{item.repository}.{lookup.method.name}", (1, looked_up(item, lookup))
        for listed in item.lists:
            yield f"{item.repository}.{listed.method.name}", (1, listed_by(item, listed))
        for purge in item.purges:
            path = f"{item.repository}.{purge.method.name}"
            yield path, (2, purged(path))


def made(
    call: Callable[[ValueGenerator], Call | MoveGraphJob | EventsOf],
) -> Callable[[ValueGenerator], Operation]:
    """Return calls of methods that are given by path and arguments."""

    def make(generator: ValueGenerator) -> Operation:
        given = call(generator)
        return MethodCall(*given) if isinstance(given, tuple) else given

    return make


# Each with its weight.
OPERATIONS: Final[dict[str, tuple[int, Callable[[ValueGenerator], Operation]]]] = {
    **{path: operation for path, operation in derived() if path not in WRITTEN_OUT},
    "upsert_schedule": (4, written("schedules.upsert", ValueGenerator.a_schedule)),
    "upsert_expected": (1, expecting("schedules.upsert", ValueGenerator.a_schedule)),
    "get_schedule": (
        2,
        lambda generator: MethodCall(
            "schedules.get", (generator.tenant(), generator.id()), deletion(generator)
        ),
    ),
    "get_required_schedule": (
        1,
        lambda generator: MethodCall(
            "schedules.get_required", (generator.tenant(), generator.id()), deletion(generator)
        ),
    ),
    "get_deletion": (1, keyed("schedules.get_deletion")),
    "list_schedules": (2, list_schedules),
    "soft_delete": (
        2,
        lambda generator: MethodCall(
            "schedules.soft_delete",
            (generator.tenant(), generator.id(), generator.actor(), generator.moment()),
        ),
    ),
    "restore": (
        2,
        lambda generator: MethodCall(
            "schedules.restore",
            (generator.tenant(), generator.id(), generator.actor(), generator.moment()),
            generator.choice(({}, {"enabled": True})),
        ),
    ),
    "get_due_schedules": (
        2,
        lambda generator: MethodCall(
            "schedules.get_due_schedules", (generator.time_of_day(),), {"limit": generator.limit()}
        ),
    ),
    "claim_due": (
        3,
        lambda generator: ClaimDue(
            generator.actor(),
            generator.time_of_day(),
            generator.limit(),
            generator.time_of_day(),
            generator.randrange(4),
        ),
    ),
    "recalculate": (
        2,
        lambda generator: MethodCall(
            "triggers.recalculate", (generator.tenant(), generator.id(), generator.moment())
        ),
    ),
    "fire": (
        2,
        lambda generator: MethodCall(
            "triggers.fire", (generator.tenant(), generator.id(), generator.moment())
        ),
    ),
    "create_run": (4, written("runs.create", ValueGenerator.a_run)),
    "create_any_run": (1, lambda generator: MethodCall("runs.create", (generator.a_run(list(RunState)),))),
    "update_run": (
        1,
        lambda generator: MethodCall(
            "runs.update",
            (generator.a_run(list(RunState)),),
            {"expected_state": generator.rarely(generator.a_state)},
        ),
    ),
    "move_run": (5, move_run),
    "start_run": (2, lambda generator: MethodCall("runs.start", run_at(generator))),
    "complete_run": (2, complete_run),
    "fail_run": (
        1,
        lambda generator: MethodCall(
            "runs.fail", (*run_at(generator), generator.mostly(("boom", " x "), ("", None)))
        ),
    ),
    "cancel_run": (1, lambda generator: MethodCall("runs.cancel", run_at(generator))),
    "delete_run": (1, keyed("runs.delete")),
    "count_runs": (1, lambda generator: replace(list_runs(generator), path="runs.count")),
    "list_runs": (3, list_runs),
    "retry": (2, retry),
    "append_log": (4, append_log),
    "list_log": (2, list_log),
    "create_job": (4, written("policy_jobs.create", ValueGenerator.a_job)),
    "replace_job": (3, replace_job),
    "complete_jobs": (3, complete_jobs),
    "lease_jobs": (4, lease_jobs),
    "list_jobs": (2, list_jobs),
    "get_job_by_run": (1, keyed("policy_jobs.get_by_run")),
    "delete_job": (1, keyed("policy_jobs.delete")),
    "count_jobs": (1, lambda generator: MethodCall("policy_jobs.count_by_status", (generator.tenant(),))),
    "release_expired": (
        2,
        lambda generator: MethodCall(
            "policy_jobs.release_expired", (generator.moment(),), {"limit": generator.limit()}
        ),
    ),
    "enqueue": (
        3,
        lambda generator: MethodCall(
            "policy_run_service.enqueue", (generator.a_request(),), {"now": generator.moment()}
        ),
    ),
    "cancel_policy_run": (
        2,
        on_run("request_cancellation", lambda generator: generator.choice((None, " why "))),
    ),
    "retry_run": (2, on_run("retry")),
    "get_run_status": (1, keyed("policy_run_service.get")),
    "list_run_statuses": (1, lambda generator: MethodCall("policy_run_service.list", (generator.tenant(),))),
    "upsert_snapshot": (4, upsert_snapshot),
    "get_latest_snapshot": (
        1,
        lambda generator: MethodCall(
            "impact_snapshots.get_latest_by_selector",
            (generator.tenant(), generator.mostly((generator.a_selector(),), (None,))),
        ),
    ),
    "delete_snapshot": (1, keyed("impact_snapshots.delete")),
    "append_audit": (3, written("audit.append", ValueGenerator.a_record)),
    "write_audit": (2, written("audit_service.write", ValueGenerator.an_event)),
    "list_audit": (2, list_audit),
    "delete_summary": (1, keyed("run_summaries.delete")),
    "upsert_summary": (2, written("run_summaries.upsert", ValueGenerator.a_summary)),
    "upsert_expected_summary": (1, expecting("run_summaries.upsert", ValueGenerator.a_summary)),
    "modify_summary": (2, modify_summary),
    "project": (3, project),
    "rebuild": (
        1,
        lambda generator: MethodCall(
            "run_summary_service.rebuild", (generator.tenant(), generator.id()), {"now": generator.moment()}
        ),
    ),
    **{name: (weight, made(call)) for name, (weight, call) in GRAPH_CALLS.items()},
    "get_projected": (1, keyed("run_summary_service.get")),
    "list_projected": (1, listed("run_summary_service.list")),
}
MAKERS: Final = [make for _, make in OPERATIONS.values()]
WEIGHTS: Final = [weight for weight, _ in OPERATIONS.values()]


def any_operation(generator: ValueGenerator) -> list[Operation]:
    """Return one operation, or the life of one row up to some point."""
    if generator.randrange(5) == 0:
        return generator.choice((schedule_life, run_life, job_life))(generator)
    return [generator.choices(MAKERS, WEIGHTS)[0](generator)]


def schedule_life(generator: ValueGenerator) -> list[Operation]:
    """Return the life of a schedule: made, deleted, restored."""
    tenant, key, moment = generator.a_tenant(), generator.an_id(), generator.a_moment()
    steps: Sequence[Operation] = (
        MethodCall("schedules.upsert", (generator.a_schedule(tenant, key),)),
        MethodCall("schedules.soft_delete", (tenant, key, "eve", moment)),
        MethodCall("schedules.restore", (tenant, key, "eve", moment)),
    )
    return list(steps[: generator.randint(1, 3)])


def run_life(generator: ValueGenerator) -> list[Operation]:
    """Return the life of a run: planned, queued, running, ended."""
    tenant, key = generator.a_tenant(), generator.an_id()
    end = generator.choice(sorted(TERMINAL_STATES))
    run = generator.a_run((RunState.PLANNING,), tenant, key)
    states = (RunState.QUEUED, RunState.RUNNING, end)[: generator.choice((0, 1, 2, 3, 3, 3))]
    return [MethodCall("runs.create", (run,)), *(Move(tenant, key, state, project=True) for state in states)]


def job_life(generator: ValueGenerator) -> list[Operation]:
    """Return the life of a policy job: created, leased, submitted, ended."""
    tenant, key = generator.a_tenant(), generator.an_id()
    job = make_policy_job(tenant, key, run_id=key)
    leased = as_dispatched(job, at(0)).evolve(lease_owner="ada")
    submitted = as_submitted(leased, at(1))
    ended = as_ended(submitted, generator.choice((COMPLETED, FAILED, CANCELLED)), at(1))
    held = {"lease_owner": "ada", "now": at(1)}
    steps: Sequence[Operation] = (
        MethodCall("policy_jobs.create", (job,)),
        MethodCall("policy_jobs.lease_many", ("ada", at(0)), {"tenant_id": tenant}),
        MethodCall("policy_jobs.complete_many", ([submitted], DISPATCHING), held),
        MethodCall("policy_jobs.try_replace", (ended, SUBMITTED)),
    )
    return list(steps[: generator.randint(1, 4)])


seeds: Final = st.integers(0, LATEST_SEED)
histories: Final = st.lists(seeds, min_size=5, max_size=25)


def operations(history: Sequence[int], home: str | None) -> list[Operation]:
    """Return the operations that follow from some seeds, most of them of one tenant, if there is one."""
    return [operation for seed in history for operation in any_operation(ValueGenerator(seed, home))]


def a_list(seed: int) -> MethodCall:
    """Return a list of runs."""
    return list_runs(ValueGenerator(seed))


def any_read(seed: int, home: str | None) -> Operation:
    """Return a read that would see what a unit of work has not committed yet."""
    generator = ValueGenerator(seed, home)
    return generator.choice((list_runs, list_schedules, list_audit, listed("triggers.list")))(generator)
