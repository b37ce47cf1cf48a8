"""Every operation of the scheduler as a value that can be drawn, printed and performed on any driver."""

from __future__ import annotations

from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any, Final

from hypothesis import strategies as st

from tests.differential.generators import Dice
from twinstore.scheduler.audit import AuditQueryOptions
from twinstore.scheduler.enums import TERMINAL_STATES, RunState
from twinstore.scheduler.runs import RunQueryOptions, RunStats
from twinstore.scheduler.schedules import ScheduleQueryOptions
from twinstore.shapes import Kind
from twinstore.testing.scheduler.builders import moved
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


Operation = MethodCall | Move


def paged(dice: Dice) -> dict[str, object]:
    """Return the options of a list without filters."""
    return {"limit": dice.limit(), "page_token": dice.token()}


def keyed(path: str) -> Callable[[Dice], Operation]:
    """Return calls that name one row."""
    return lambda dice: MethodCall(path, (dice.tenant(), dice.id()))


def listed(path: str) -> Callable[[Dice], Operation]:
    """Return lists without filters."""
    return lambda dice: MethodCall(path, (dice.tenant(),), paged(dice))


def written(path: str, model: Callable[[Dice], object]) -> Callable[[Dice], Operation]:
    """Return writes of a model, or of something that is none."""
    return lambda dice: MethodCall(path, (dice.mostly((model(dice),), (None, "x")),))


def expecting(path: str, model: Callable[[Dice], object]) -> Callable[[Dice], Operation]:
    """Return writes of a model that expect a stored instant."""
    return lambda dice: MethodCall(path, (model(dice),), {"expected_updated_at": dice.moment()})


def looked_up(item: Example, lookup: Lookup) -> Callable[[Dice], Operation]:
    """Return look-ups of one row."""
    path = f"{item.repository}.{lookup.method.name}"

    def look_up(dice: Dice) -> Operation:
        owner = (dice.tenant(),) if lookup.method.names_tenant else ()
        return MethodCall(path, (*owner, *(dice.id() for _ in lookup.fields)))

    return look_up


def listed_by(item: Example, listed: ListMethod) -> Callable[[Dice], Operation]:
    """Return lists without the filters that may be left out."""
    path = f"{item.repository}.{listed.method.name}"

    def ask(dice: Dice) -> Operation:
        owner = (dice.tenant(),) if listed.method.names_tenant else ()
        args = (*owner, *(told(dice, item, name) for name in listed.fields))
        kind = listed.method.options
        if kind is not None:
            return MethodCall(path, (*args, kind(**paged(dice))))
        return MethodCall(path, args, paged(dice))

    return ask


def told(dice: Dice, item: Example, name: str) -> object:
    """Return a value for a field by which a list chooses its rows."""
    shape = item.entity.shapes.get(name)
    members = shape is not None and shape.value.kind in {Kind.NUMBERED, Kind.NAMED}
    return dice.choice(shape.value.members) if shape is not None and members else dice.id()


def purged(path: str) -> Callable[[Dice], Operation]:
    """Return purges of one tenant or of all."""

    def purge(dice: Dice) -> Operation:
        options: dict[str, object] = {"batch_size": dice.batch_size()}
        if dice.randrange(2):
            options["tenant_id"] = dice.tenant()
        return MethodCall(path, (dice.moment(),), options)

    return purge


def deletion(dice: Dice) -> Mapping[str, object]:
    """Return whether soft-deleted rows are asked for, or nothing about it."""
    return dice.choice(({}, {"include_deleted": True}, {"include_deleted": False}))


def list_schedules(dice: Dice) -> Operation:
    values: dict[str, Any] = {
        "include_deleted": dice.random() < 0.5,
        "include_disabled": dice.random() < 0.5,
        **paged(dice),
    }
    options = ScheduleQueryOptions(**values)
    return MethodCall("schedules.list", (dice.tenant(), dice.choice((None, options, options))))


def list_runs(dice: Dice) -> MethodCall:
    states = dice.sample(list(RunState), dice.randrange(4))
    values: dict[str, Any] = {
        "schedule_id": dice.rarely(dice.id),
        "states": dice.rarely(lambda: dice.mostly((states,), (("no state",),))),
        "created_after": dice.rarely(dice.moment),
        "created_before": dice.rarely(dice.moment),
        "ascending": dice.random() < 0.5,
        **paged(dice),
    }
    options = RunQueryOptions(**values)
    return MethodCall("runs.list", (dice.tenant(), dice.choice((None, options, options, options))))


def list_audit(dice: Dice) -> Operation:
    values: dict[str, Any] = {
        "category": dice.rarely(lambda: dice.choice(("run", " SCHEDULE ", ""))),
        "schedule_id": dice.rarely(dice.id),
        "run_id": dice.rarely(dice.id),
        "occurred_after": dice.rarely(dice.moment),
        "occurred_before": dice.rarely(dice.moment),
        **paged(dice),
    }
    options = AuditQueryOptions(**values)
    return MethodCall("audit.list", (dice.tenant(), dice.choice((None, options, options, options))))


def move_run(dice: Dice) -> Operation:
    return Move(
        dice.a_tenant(),
        dice.an_id(),
        dice.a_state(),
        stats=dice.choice((None, dice.some_stats())),
        expected=dice.rarely(dice.a_state),
        project=dice.random() < 0.5,
    )


def retry(dice: Dice) -> Operation:
    """Give the new id, because a random one differs on each side."""
    new_id = dice.mostly((dice.an_id(), f"retry-{dice.randrange(9)}"), ("", "\x00", " a "))
    args = (dice.tenant(), dice.id(), dice.actor(), dice.moment())
    return MethodCall("runs.retry", args, {"new_run_id": new_id})


def upsert_snapshot(dice: Dice) -> Operation:
    snapshot = dice.mostly((dice.a_snapshot(),), (None, "x"))
    options = {"run_id": dice.id()} if dice.randrange(2) else {}
    return MethodCall("impact_snapshots.upsert", (dice.tenant(), snapshot), options)


def modify_summary(dice: Dice) -> Operation:
    change = dice.a_change()
    return MethodCall("run_summaries.modify", (change.tenant, change.schedule_id, change))


def project(dice: Dice) -> Operation:
    run = dice.a_run(list(RunState))
    return MethodCall(
        "run_summary_service.project", (run,), {"now": dice.moment()} if dice.randrange(2) else {}
    )


# What is asked through filters, or in more ways than one, below.
WRITTEN_OUT: Final = frozenset(
    {"schedules.get", "schedules.get_required", "schedules.list", "runs.list", "audit.list"}
)


def derived() -> Iterator[tuple[str, tuple[int, Callable[[Dice], Operation]]]]:
    """Yield the look-ups, lists and purges of every repository, each with its weight."""
    for item in SCHEDULER_EXAMPLES.examples:
        for lookup in item.lookups:
            yield f"{item.repository}.{lookup.method.name}", (1, looked_up(item, lookup))
        for listed in item.lists:
            yield f"{item.repository}.{listed.method.name}", (1, listed_by(item, listed))
        for purge in item.purges:
            path = f"{item.repository}.{purge.method.name}"
            yield path, (2, purged(path))


# Each with its weight.
OPERATIONS: Final[dict[str, tuple[int, Callable[[Dice], Operation]]]] = {
    **{path: operation for path, operation in derived() if path not in WRITTEN_OUT},
    "upsert_schedule": (4, written("schedules.upsert", Dice.a_schedule)),
    "upsert_expected": (1, expecting("schedules.upsert", Dice.a_schedule)),
    "get_schedule": (2, lambda dice: MethodCall("schedules.get", (dice.tenant(), dice.id()), deletion(dice))),
    "get_required_schedule": (
        1,
        lambda dice: MethodCall("schedules.get_required", (dice.tenant(), dice.id()), deletion(dice)),
    ),
    "get_deletion": (1, keyed("schedules.get_deletion")),
    "list_schedules": (2, list_schedules),
    "soft_delete": (
        2,
        lambda dice: MethodCall(
            "schedules.soft_delete", (dice.tenant(), dice.id(), dice.actor(), dice.moment())
        ),
    ),
    "restore": (
        2,
        lambda dice: MethodCall(
            "schedules.restore",
            (dice.tenant(), dice.id(), dice.actor(), dice.moment()),
            dice.choice(({}, {"enabled": True})),
        ),
    ),
    "get_due_schedules": (
        2,
        lambda dice: MethodCall(
            "schedules.get_due_schedules", (dice.time_of_day(),), {"limit": dice.limit()}
        ),
    ),
    "recalculate": (
        2,
        lambda dice: MethodCall("triggers.recalculate", (dice.tenant(), dice.id(), dice.moment())),
    ),
    "create_run": (4, written("runs.create", Dice.a_run)),
    "create_any_run": (1, lambda dice: MethodCall("runs.create", (dice.a_run(list(RunState)),))),
    "update_run": (
        1,
        lambda dice: MethodCall(
            "runs.update", (dice.a_run(list(RunState)),), {"expected_state": dice.rarely(dice.a_state)}
        ),
    ),
    "move_run": (5, move_run),
    "list_runs": (3, list_runs),
    "retry": (2, retry),
    "upsert_snapshot": (4, upsert_snapshot),
    "get_latest_snapshot": (
        1,
        lambda dice: MethodCall(
            "impact_snapshots.get_latest_by_selector",
            (dice.tenant(), dice.mostly((dice.a_selector(),), (None,))),
        ),
    ),
    "delete_snapshot": (1, keyed("impact_snapshots.delete")),
    "append_audit": (3, written("audit.append", Dice.a_record)),
    "write_audit": (2, written("audit_service.write", Dice.an_event)),
    "list_audit": (2, list_audit),
    "upsert_summary": (2, written("run_summaries.upsert", Dice.a_summary)),
    "upsert_expected_summary": (1, expecting("run_summaries.upsert", Dice.a_summary)),
    "modify_summary": (2, modify_summary),
    "project": (3, project),
    "rebuild": (
        1,
        lambda dice: MethodCall(
            "run_summary_service.rebuild", (dice.tenant(), dice.id()), {"now": dice.moment()}
        ),
    ),
    "get_projected": (1, keyed("run_summary_service.get")),
    "list_projected": (1, listed("run_summary_service.list")),
}
MAKERS: Final = [make for _, make in OPERATIONS.values()]
WEIGHTS: Final = [weight for weight, _ in OPERATIONS.values()]


def any_operation(dice: Dice) -> list[Operation]:
    """Return one operation, or the life of one row up to some point."""
    if dice.randrange(5) == 0:
        return dice.choice((schedule_life, run_life))(dice)
    return [dice.choices(MAKERS, WEIGHTS)[0](dice)]


def schedule_life(dice: Dice) -> list[Operation]:
    """Return the life of a schedule: made, deleted, restored."""
    tenant, key, moment = dice.a_tenant(), dice.an_id(), dice.a_moment()
    steps: Sequence[Operation] = (
        MethodCall("schedules.upsert", (dice.a_schedule(tenant, key),)),
        MethodCall("schedules.soft_delete", (tenant, key, "eve", moment)),
        MethodCall("schedules.restore", (tenant, key, "eve", moment)),
    )
    return list(steps[: dice.randint(1, 3)])


def run_life(dice: Dice) -> list[Operation]:
    """Return the life of a run: planned, queued, running, ended."""
    tenant, key = dice.a_tenant(), dice.an_id()
    end = dice.choice(sorted(TERMINAL_STATES))
    run = dice.a_run((RunState.PLANNING,), tenant, key)
    states = (RunState.QUEUED, RunState.RUNNING, end)[: dice.choice((0, 1, 2, 3, 3, 3))]
    return [MethodCall("runs.create", (run,)), *(Move(tenant, key, state, project=True) for state in states)]


seeds: Final = st.integers(0, LATEST_SEED)
histories: Final = st.lists(seeds, min_size=5, max_size=25)


def operations(history: Sequence[int], home: str | None) -> list[Operation]:
    """Return the operations that follow from some seeds, most of them of one tenant."""
    return [operation for seed in history for operation in any_operation(Dice(seed, home))]


def a_list(seed: int) -> MethodCall:
    """Return a list of runs."""
    return list_runs(Dice(seed))


def a_look(seed: int, home: str | None) -> Operation:
    """Return a read that would see what a unit of work has not committed yet."""
    dice = Dice(seed, home)
    return dice.choice((list_runs, list_schedules, list_audit, listed("triggers.list")))(dice)
