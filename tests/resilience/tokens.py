"""How often the token of a call is stored: 0, 1, or what it must not be."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tests.resilience.callers import LOG, TENANT, graph_job_id, made_by, parts_of
from twinstore.scheduler import GraphJobStatus, PolicyJobQueryOptions, RunQueryOptions, RunState
from twinstore.testing.workspace import all_pages

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from twinstore.scheduler.storage import SchedulerStorage

PAGE: Final = 200
# Neither once nor never: only a part of what belongs together is there.
TORN: Final = -1


def whole(found: int, parts: int) -> int:
    """Return how often something of this many parts is stored, ``TORN`` for a part of it."""
    return TORN if found % parts else found // parts


class Tokens:
    """What a store holds after the last call, by kind of call."""

    def __init__(self, storage: SchedulerStorage, leased: Mapping[str, tuple[str, ...]]) -> None:
        """Read what is listed; ``leased`` are the jobs that a call was given, by its token."""
        self._storage = storage
        self._leased = leased
        self._lines = [line.message for line in storage.execution_logs.list(TENANT, LOG, limit=5000)]
        jobs = all_pages(
            lambda token: storage.policy_jobs.list(
                TENANT, PolicyJobQueryOptions(limit=PAGE, page_token=token)
            )
        )
        self._jobs = {job.id: (job.lease_owner, job.attempt_count) for job in jobs}

    @property
    def counters(self) -> Mapping[str, Callable[[str], int]]:
        """What counts the tokens of a kind."""
        return {
            "insert": self._run,
            "aio insert": self._run,
            "session write": self._run,
            "change": self._change,
            "upsert": self._schedule,
            "fire": self._fired,
            "job": lambda token: int(token in self._jobs),
            "lease": self._lease,
            "append": self._appended,
            "add": lambda token: self._graph_job(token, ["pending"]),
            "move": lambda token: self._moved(made_by(token)),
            "unit": self._unit,
            "aio unit": self._unit,
            "transact": self._unit,
        }

    def twice_leased(self) -> list[str]:
        """Return the jobs that were leased more than once, although no lease has ended."""
        return [name for name, (_, attempts) in self._jobs.items() if attempts > 1]

    def torn_log(self) -> bool:
        """Whether the numbers of the log have a gap."""
        lines = self._storage.execution_logs.list(TENANT, LOG, limit=5000)
        return [line.sequence for line in lines] != list(range(1, len(lines) + 1))

    def _run(self, token: str) -> int:
        return int(self._storage.runs.get(TENANT, token) is not None)

    def _change(self, token: str) -> int:
        run = self._storage.runs.get_required(TENANT, made_by(token))
        return int(run.state is RunState.QUEUED)

    def _schedule(self, token: str) -> int:
        """Count a schedule with its trigger."""
        found = self._storage.schedules.get(TENANT, token), self._storage.triggers.get(TENANT, token)
        return whole(sum(part is not None for part in found), len(found))

    def _fired(self, token: str) -> int:
        """Count the runs of a schedule, which its trigger has to count alike."""
        name = made_by(token)
        runs = self._storage.runs.list(TENANT, RunQueryOptions(schedule_id=name)).items
        return (
            len(runs) if len(runs) == self._storage.triggers.get_required(TENANT, name).fire_count else TORN
        )

    def _lease(self, token: str) -> int:
        """Count a lease: who was given jobs has them, and all that he has."""
        owned = {name for name, (owner, _) in self._jobs.items() if owner == token}
        given = self._leased.get(token)
        return int(bool(owned)) if given is None else int(owned == set(given))

    def _appended(self, token: str) -> int:
        return whole(sum(self._lines.count(part) for part in parts_of(token)), 2)

    def _graph_job(self, token: str, events: list[str]) -> int:
        """Count a graph job with exactly these events, the last one first."""
        job = self._storage.graph_jobs.get_build_job(TENANT, graph_job_id(token))
        if job is None:
            return 0
        told = self._storage.graph_jobs.list_events(TENANT, job.id).items
        statuses = [event.payload.status.value for event in told]
        return 1 if statuses[-len(events) :] == events and len(statuses) <= 2 else TORN

    def _moved(self, token: str) -> int:
        job = self._storage.graph_jobs.get_build_job_required(TENANT, graph_job_id(token))
        if job.status is GraphJobStatus.PENDING:
            return 0 if self._graph_job(token, ["pending"]) == 1 else TORN
        return self._graph_job(token, ["running", "pending"])

    def _unit(self, token: str) -> int:
        parts = parts_of(token)
        lines = self._storage.execution_logs.list(TENANT, parts[0])
        return whole(sum(map(self._run, parts)) + len(lines), 2 * len(parts))
