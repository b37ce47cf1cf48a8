"""Judges the result of a soak: the journal of its workers against the stored data.

A line with an answer is a fact, even if the answer is that nothing was applied. A missing line proves
nothing: the worker may have been killed between the answer and the line, or the error said that the outcome
is unknown. So a confirmed write must be stored, a refused one must not, and everything stored must follow
from an intention without another answer (:mod:`tools.soak.explained`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from itertools import pairwise
from typing import TYPE_CHECKING, Final

from tools.soak import explained, whole
from tools.soak.outages import late_answers, refusal_violations
from tools.soak.sections import lock_violations
from twinstore.errors import Outcome
from twinstore.scheduler import GraphJobStatus
from twinstore.scheduler.states import graph_job_move_allowed

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from tools.soak.journal import Line
    from tools.soak.stored import GraphState, Stored

DONE: Final = "completed"
MINUTE: Final = timedelta(minutes=1)
PENDING: Final = GraphJobStatus.PENDING.value
RUNNING: Final = GraphJobStatus.RUNNING.value


def violations(lines: Sequence[Line], stored: Stored) -> list[str]:
    """Return what is wrong, each in one sentence; nothing is the only good answer."""
    checks: tuple[Callable[[Sequence[Line], Stored], Iterator[str]], ...] = (
        _errors,
        lambda journal, _: refusal_violations(journal),
        _refused,
        _jobs,
        _leases,
        _firing,
        _graph_jobs,
        _logs,
        lambda journal, rows: lock_violations(journal, rows.fences),
        explained.violations,
        whole.violations,
        lambda journal, _: late_answers(journal),
    )
    return [found for check in checks for found in check(lines, stored)]


def _of(lines: Iterable[Line], what: str) -> list[Line]:
    return [line for line in lines if line["what"] == what]


def _twice(names: Iterable[str]) -> list[str]:
    return [name for name, number in Counter(names).items() if number > 1]


def _errors(lines: Sequence[Line], stored: Stored) -> Iterator[str]:
    """No worker saw an error that a retry does not fix."""
    del stored
    yield from (f"error during {line['during']}: {line['error']}" for line in _of(lines, "error"))


def _refused(lines: Sequence[Line], stored: Stored) -> Iterator[str]:
    """Writes that were refused as not applied are not stored."""
    refused = {
        line["of"]
        for line in _of(lines, "refused")
        if "of" in line and line["outcome"] == Outcome.NOT_APPLIED
    }
    for line in lines:
        if line.get("of") not in refused:
            continue
        if line["what"] == "create" and line["job"] in stored.jobs:
            yield f"job {line['job']} is stored although its creation was refused"
        if line["what"] == "add" and line["job"] in stored.graph_jobs:
            yield f"graph job {line['job']} is stored although its creation was refused"
        if line["what"] == "append":
            there = {message for _, message in stored.logs.get(line["run"], ())}
            if there & set(line["messages"]):
                yield f"the log of run {line['run']} has lines whose append was refused"


def _jobs(lines: Sequence[Line], stored: Stored) -> Iterator[str]:
    """Each policy job is submitted and completed once, and none is lost or made of nothing."""
    for what in ("submitted", "completed"):
        for name in _twice(line["job"] for line in _of(lines, what)):
            yield f"job {name} was {what} twice"
    for line in _of(lines, "created"):
        if line["job"] not in stored.jobs:
            yield f"job {line['job']} is lost: its creation was confirmed"
    intended = {line["job"] for line in _of(lines, "create")}
    for name, job in stored.jobs.items():
        if name not in intended:
            yield f"job {name} was never created"
        if job.status != DONE:
            yield f"job {name} is not done: it stands as {job.status}"


def _leases(lines: Sequence[Line], stored: Stored) -> Iterator[str]:
    """Leases of one job follow each other, each with its own attempt that the job has counted."""
    leases: dict[str, list[Line]] = {}
    for line in _of(lines, "leased"):
        leases.setdefault(line["job"], []).append(line)
    for name, found in leases.items():
        ordered = sorted(found, key=lambda line: (line["attempt"], line["at"]))
        for before, after in pairwise(ordered):
            if before["attempt"] == after["attempt"]:
                yield f"job {name} was leased twice in attempt {after['attempt']}"
            elif datetime.fromisoformat(before["until"]) > datetime.fromisoformat(after["now"]):
                yield f"job {name} was leased in attempt {after['attempt']} before the lease before had ended"
        counted = stored.jobs[name].attempts if name in stored.jobs else 0
        if ordered[-1]["attempt"] > counted:
            yield f"job {name} counts {counted} attempts, but one was number {ordered[-1]['attempt']}"


def _firing(lines: Sequence[Line], stored: Stored) -> Iterator[str]:
    """Each instant has one run with the id that follows from it, and every instant is accounted for."""
    fired = _of(lines, "fired")
    for run in _twice(line["run"] for line in fired if line["created"]):
        yield f"run {run} was created twice"
    for line in fired:
        if line["run"] not in stored.triggers[line["schedule"]].runs:
            yield f"run {line['run']} is lost: its firing was confirmed"
    for name, trigger in stored.triggers.items():
        instants = [instant_of(run) for run in trigger.runs]
        if len(set(instants)) != len(instants):
            yield f"schedule {name} has two runs of one instant"
        if len(instants) != trigger.fires:
            yield f"schedule {name} counts {trigger.fires} instants that fired and has {len(instants)} runs"
        passed = (trigger.next - trigger.first) // MINUTE
        if trigger.fires + trigger.misfires != passed:
            counted = f"{trigger.fires} fired and {trigger.misfires} missed"
            yield f"schedule {name} counts {counted} of {passed} instants"
        if any(not trigger.first <= instant < trigger.next for instant in instants):
            yield f"schedule {name} has a run of an instant that was not due"


def instant_of(run: str) -> datetime:
    """Return the instant that the derived id of a run contains."""
    return datetime.strptime(run.rpartition(":")[2], "%Y%m%dT%H%M%S%z")


def _graph_jobs(lines: Sequence[Line], stored: Stored) -> Iterator[str]:
    """Each graph job went one way, step by step, and its events record exactly that way."""
    for line in _of(lines, "added"):
        if line["job"] not in stored.graph_jobs:
            yield f"graph job {line['job']} is lost: its creation was confirmed"
    moves = Counter((line["job"], line["origin"], line["target"]) for line in _of(lines, "moved"))
    for (name, origin, target), number in moves.items():
        steps = list(pairwise(stored.graph_jobs[name].events)) if name in stored.graph_jobs else []
        reported = steps.count((origin, target))
        if reported < number:
            yield f"graph job {name} has {reported} events of {number} moves {origin} to {target}"
    for name, job in stored.graph_jobs.items():
        yield from (f"graph job {name} {wrong}" for wrong in _way(job))


def _way(job: GraphState) -> Iterator[str]:
    """Return what is wrong with the way that the events of a job record."""
    if not job.events or job.events[0] != PENDING:
        yield "has no event of its creation"
        return
    for origin, target in pairwise(job.events):
        if origin == target or not graph_job_move_allowed(GraphJobStatus(origin), GraphJobStatus(target)):
            yield f"has a gap in its events: {origin} is followed by {target}"
    if job.events[-1] != job.status:
        yield f"stands as {job.status}, but its last event says {job.events[-1]}"
    if job.events.count(RUNNING) != job.attempts:
        yield f"counts {job.attempts} attempts in {job.events.count(RUNNING)} events"


def _logs(lines: Sequence[Line], stored: Stored) -> Iterator[str]:
    """The log of each run is numbered without gaps, and has what was appended once, in its order."""
    for run, entries in stored.logs.items():
        if [sequence for sequence, _ in entries] != list(range(1, len(entries) + 1)):
            yield f"the log of run {run} has a gap"
        for message in _twice(message for _, message in entries):
            yield f"the log of run {run} has {message} twice"
    for line in _of(lines, "appended"):
        if not {(sequence, message) for sequence, message in line["lines"]} <= set(
            stored.logs.get(line["run"], ())
        ):
            yield f"the log of run {line['run']} has lost lines that were confirmed"
    for line in _of(lines, "append"):
        there = {message for _, message in stored.logs.get(line["run"], ())}
        if 0 < len(there & set(line["messages"])) < len(line["messages"]):
            yield f"the log of run {line['run']} has a part of what was appended at once"
