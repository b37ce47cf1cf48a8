"""The values that operations are made of: few, so that ids, names and instants collide, and some are bad.

A whole operation follows from one seed. Hypothesis then draws and shrinks lists of seeds, which is far
cheaper than drawing every field, and leaves the time to the drivers.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from random import Random
from typing import TYPE_CHECKING, Final, TypeVar

from twinstore.errors import ValidationError
from twinstore.scheduler.enums import (
    PolicyRunJobStatus,
    PolicyRunMode,
    PolicyRunPriority,
    RunState,
    RunTrigger,
    SelectorScope,
)
from twinstore.scheduler.runs import RunStats
from twinstore.testing.instants import at
from twinstore.testing.scheduler.builders import (
    as_dispatched,
    as_ended,
    as_submitted,
    make_audit_event,
    make_audit_record,
    make_image,
    make_impact_set,
    make_policy_job,
    make_policy_request,
    make_run,
    make_run_summary,
    make_schedule,
    make_selector,
    rich_audit_record,
    rich_delta,
    rich_impact_set,
    rich_run,
    rich_schedule,
)
from twinstore.testing.scheduler.examples import make_log_entry

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from twinstore.scheduler.audit import AuditEvent, AuditRecord
    from twinstore.scheduler.execution_logs import ExecutionLogEntry
    from twinstore.scheduler.impact_snapshots import ImpactSet
    from twinstore.scheduler.policy_jobs import PolicyRunJob, PolicyRunRequest
    from twinstore.scheduler.run_summaries import RunSummary
    from twinstore.scheduler.runs import Run
    from twinstore.scheduler.schedules import Schedule
    from twinstore.scheduler.selectors import Selector

T = TypeVar("T")

# In code point order; UTF-16 swaps the last two, collations and case folding reorder the others.
IDS: Final = ("A", "a", "\u00e9", "\uffff", "\U00010000")
BAD_IDS: Final = (" a ", "", "x\x00", "nothing", None)
# Most of it happens in one tenant, so that there is something to find.
OWNERS: Final = ("ta", "ta", "ta", "ta", "tb")
BAD_TENANTS: Final = (" ta ", "system", "", "a:b", "nobody", None, 7)
# Runs are finished 60 seconds after they were created.
OFFSETS: Final = (0.0, 0.0, 0.001, 1.0, 60.0, 60.0, 3600.0)
BAD_LIMITS: Final = (0, -1, 10**9, 2**63, "2", True)
BAD_TOKENS: Final = ("", "x", "e30", "====", "\u00e9", "eyJlIjoicnVucyJ9", "not a token")
BEGUN: Final = (RunState.PLANNING, RunState.QUEUED)


class ValueGenerator(Random):
    """Picks values: methods named ``a_…`` or ``some_…`` return valid ones, all others may return bad ones."""

    def __init__(self, seed: int, home: str | None = None) -> None:
        """Take the seed, and the tenant of the open session, to which most calls then belong."""
        super().__init__(seed)
        self._owners = (*([home] * 15), *OWNERS) if home in OWNERS else OWNERS

    def rarely(self, value: Callable[[], T], *, one_in: int = 4) -> T | None:
        """Return ``None``, or a value now and then."""
        return value() if self.randrange(one_in) == 0 else None

    def mostly(self, good: Sequence[object], bad: Sequence[object], *, one_in: int = 20) -> object:
        """Return a good value, or a bad one now and then."""
        return self.choice(bad if self.randrange(one_in) == 0 else good)

    def a_tenant(self) -> str:
        return self.choice(self._owners)

    def tenant(self) -> object:
        return self.mostly(self._owners, BAD_TENANTS)

    def an_id(self) -> str:
        return self.choice(IDS)

    def id(self) -> object:
        return self.mostly(IDS, BAD_IDS)

    def actor(self) -> object:
        return self.mostly(("ada", "grace"), ("  eve  ", "", "\x00", None))

    def a_moment(self) -> datetime:
        return at(self.choice(OFFSETS))

    def moment(self) -> object:
        instant = self.a_moment()
        return self.mostly((instant,), unusual(instant))

    def time_of_day(self) -> object:
        """Late enough for every trigger to be due, most of the time."""
        return self.mostly((at(0), at(3600), at(90_000), at(90_000)), unusual(at(3600)))

    def limit(self) -> object:
        return self.mostly((1, 2, 3, 5), BAD_LIMITS)

    def batch_size(self) -> object:
        return self.mostly((1, 2, 3), (0, -1))

    def token(self) -> object:
        return self.mostly((None,), BAD_TOKENS)

    def a_state(self) -> RunState:
        return self.choice(list(RunState))

    def a_selector(self) -> Selector:
        return make_selector(
            scope=self.choice((SelectorScope.ALL_IMAGES, SelectorScope.BY_NAMESPACE)),
            namespaces=self.choice((("b", "a"), ("a", "b", "a"), ("c",))),
            tenant_id=self.choice((None, None, "ta")),
        )

    def a_schedule(self, tenant: str | None = None, key: str | None = None) -> Schedule:
        created = self.a_moment()
        build = self.choice((make_schedule, make_schedule, rich_schedule))
        return build(
            tenant or self.a_tenant(),
            key or self.an_id(),
            name=self.choice(IDS),
            enabled=self.random() < 0.7,
            when_cron=self.choice(("0 * * * *", "30 2 * * *")),
            created_at=created,
            created_by=self.choice(("ada", "grace")),
            updated_at=created + timedelta(seconds=self.choice(OFFSETS)),
        )

    def some_stats(self) -> RunStats:
        return RunStats(
            candidates=self.randint(1, 2), deduped=self.randint(0, 1), new_high=self.randint(0, 2)
        )

    def a_run(
        self, states: Sequence[RunState] = BEGUN, tenant: str | None = None, key: str | None = None
    ) -> Run:
        state = self.choice(states)
        tenant, key = tenant or self.a_tenant(), key or self.an_id()
        common = {
            "state": state,
            "schedule_id": self.choice((None, *IDS)),
            "trigger": self.choice((RunTrigger.CRON, RunTrigger.POLICY)),
            "stats": self.some_stats() if self.random() < 0.5 else RunStats(),
        }
        if self.randrange(5) == 0:
            begin = at(0.007) if state.rank > 1 else None
            end = at(61.5) if state.terminal else None
            error = "it broke" if state is RunState.ERROR else None
            return rich_run(tenant, key, **common, started_at=begin, finished_at=end, error=error)
        deltas = self.choice(((), (), (rich_delta(1),)))
        return make_run(tenant, key, created_at=self.a_moment(), deltas=deltas, **common)  # type: ignore[arg-type]  # the model checks the values

    def a_snapshot(self) -> ImpactSet:
        key = self.choice((None, *IDS))
        changes: dict[str, object] = {"generated_at": self.a_moment(), "snapshot_id": key}
        if self.randrange(4) == 0:
            return rich_impact_set(self.a_tenant(), **changes)
        images = tuple(make_image(number) for number in range(self.randrange(3)))
        return make_impact_set(selector=self.a_selector(), images=images, **changes)

    def a_record(self) -> AuditRecord:
        build = self.choice((make_audit_record, make_audit_record, rich_audit_record))
        return build(self.a_tenant(), self.an_id(), occurred_at=self.a_moment(), **self.a_subject())

    def a_job(self, statuses: Sequence[PolicyRunJobStatus] = (PolicyRunJobStatus.PENDING,)) -> PolicyRunJob:
        key = self.an_id()
        job = make_policy_job(
            self.a_tenant(),
            key,
            run_id=self.choice((key, key, None, self.an_id())),
            priority=self.choice(list(PolicyRunPriority)),
            available_at=self.a_moment(),
        )
        status = self.choice(statuses)
        if status is PolicyRunJobStatus.PENDING:
            return job
        job = as_dispatched(job, self.a_moment()).evolve(lease_owner=self.choice(("ada", "grace")))
        if status is PolicyRunJobStatus.DISPATCHING:
            return job
        job = as_submitted(job, self.a_moment())
        return job if status is PolicyRunJobStatus.SUBMITTED else as_ended(job, status, self.a_moment())

    def a_request(self) -> PolicyRunRequest:
        mode = self.choice((PolicyRunMode.FULL, PolicyRunMode.FULL, PolicyRunMode.SIMULATE))
        return make_policy_request(self.a_tenant(), self.an_id(), mode=mode)

    def an_entry(self) -> ExecutionLogEntry:
        return make_log_entry(
            self.a_tenant(),
            self.an_id(),
            sequence=self.choice((None, None, None, 1, 2, 7)),
            logged_at=self.a_moment(),
            message=self.choice(("m", "m", "n")),
            data=self.choice(({}, {}, {"b": [1.5, None], "a.b": {"$c": 1e-7}})),
        )

    def an_event(self) -> AuditEvent:
        """With an id, because a random one differs on each side."""
        occurred_at = self.choice((None, self.a_moment()))
        metadata = self.choice(({}, {"K": "v"}))
        values = {"id": self.an_id(), "occurred_at": occurred_at, "metadata": metadata}
        return make_audit_event(self.a_tenant(), **values, **self.a_subject())

    def a_subject(self) -> dict[str, object]:
        return {
            "category": self.choice(("run", "Schedule")),
            "schedule_id": self.choice((None, *IDS)),
            "run_id": self.choice((None, *IDS)),
        }

    def a_summary(self) -> RunSummary:
        tenant, key = self.a_tenant(), self.an_id()
        runs = [
            make_run(tenant, run_id, schedule_id=key, state=self.a_state())
            for run_id in self.sample(IDS, self.randrange(3))
        ]
        return make_run_summary(tenant, key, runs, updated_at=self.a_moment())

    def a_change(self) -> Change:
        kind = self.choice(("touch", "touch", "leave", "refuse"))
        return Change(self.a_tenant(), self.an_id(), kind)


@dataclass(frozen=True)
class Change:
    """What ``modify`` does to a summary: touch it, leave it, or refuse."""

    tenant: str
    schedule_id: str
    kind: str

    def __call__(self, stored: RunSummary | None) -> RunSummary | None:
        if self.kind == "refuse":
            raise ValidationError("refused by the caller")
        if self.kind == "leave":
            return None
        if stored is None:
            return make_run_summary(self.tenant, self.schedule_id)
        return stored.evolve(updated_at=stored.updated_at + timedelta(seconds=1))


def unusual(instant: datetime) -> tuple[object, ...]:
    """Return the instant in spellings that are converted, and values that are refused."""
    return (
        instant + timedelta(microseconds=999),
        instant.astimezone(timezone(timedelta(hours=5, minutes=30))),
        instant.replace(tzinfo=None),
        instant.isoformat(),
        "yesterday",
        0,
    )
