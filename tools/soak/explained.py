"""Judges what is stored without a confirmation: a call in doubt must explain it.

Only this check finds a write that the store did twice, or did without a request.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import pairwise
from typing import TYPE_CHECKING

from tools.soak.outages import unconfirmed_lines

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tools.soak.journal import Line
    from tools.soak.stored import Stored


def violations(lines: Sequence[Line], stored: Stored) -> Iterator[str]:
    """Say what nothing explains."""
    yield from _runs(lines, stored)
    yield from _leases(lines, stored)
    yield from _ends(lines, stored)
    yield from _moves(lines, stored)
    yield from _messages(lines, stored)
    yield from _fences(lines, stored)


def _runs(lines: Sequence[Line], stored: Stored) -> Iterator[str]:
    """Each run that was reported to no caller may come from one firing in doubt."""
    reported = {line["run"] for line in lines if line["what"] == "fired"}
    unconfirmed = Counter(line["schedule"] for line in unconfirmed_lines(lines, "fire"))
    for name, trigger in stored.triggers.items():
        unknown = len(set(trigger.runs) - reported)
        if unknown > unconfirmed[name]:
            doubt = unconfirmed[name]
            yield f"schedule {name} has {unknown} runs without firing, and {doubt} firings in doubt"


def _leases(lines: Sequence[Line], stored: Stored) -> Iterator[str]:
    """Each attempt that was reported to no caller may come from a call in doubt, which leases a job once."""
    reported = Counter(line["job"] for line in lines if line["what"] == "leased")
    unconfirmed = unconfirmed_lines(lines, "lease")
    gaps = {name: job.attempts - reported[name] for name, job in stored.jobs.items()}
    for name, gap in gaps.items():
        if gap > len(unconfirmed):
            yield f"job {name} counts {gap} attempts without lease, and {len(unconfirmed)} calls are in doubt"
    most = sum(line["limit"] for line in unconfirmed)
    if sum(gaps.values()) > most:
        yield f"{sum(gaps.values())} attempts were leased by nobody, and calls in doubt explain {most}"


def _ends(lines: Sequence[Line], stored: Stored) -> Iterator[str]:
    """Each job whose submission or completion was not confirmed may come from a call in doubt."""
    for intent, answer in (("submit", "submitted"), ("complete", "completed")):
        reported = {line["job"] for line in lines if line["what"] == answer}
        unconfirmed = {name for line in unconfirmed_lines(lines, intent) for name in line["jobs"]}
        for name in sorted(set(stored.jobs) - reported - unconfirmed):
            if stored.jobs[name].status == "completed":
                yield f"job {name} was {answer} by nobody"


def _moves(lines: Sequence[Line], stored: Stored) -> Iterator[str]:
    """Each step of a graph job is one that was answered, or one in doubt."""
    keys = ("job", "origin", "target")
    known = [line for line in lines if line["what"] == "moved"] + unconfirmed_lines(lines, "move")
    most = Counter(tuple(line[key] for key in keys) for line in known)
    for name, job in stored.graph_jobs.items():
        for (origin, target), number in Counter(pairwise(job.events)).items():
            if number > most[name, origin, target]:
                yield f"graph job {name} was moved from {origin} to {target} by nobody"


def _messages(lines: Sequence[Line], stored: Stored) -> Iterator[str]:
    """Each line of a log was intended for it."""
    intended = {
        (line["run"], message) for line in lines if line["what"] == "append" for message in line["messages"]
    }
    for run, entries in stored.logs.items():
        for _, message in entries:
            if (run, message) not in intended:
                yield f"the log of run {run} has {message}, which nobody appended"


def _fences(lines: Sequence[Line], stored: Stored) -> Iterator[str]:
    """Each fence was given to a holder, or to a call in doubt."""
    given = Counter(line["key"] for line in lines if line["what"] == "entered")
    unconfirmed = Counter(line["key"] for line in unconfirmed_lines(lines, "ask"))
    for key, fence in stored.fences.items():
        if fence > given[key] + unconfirmed[key]:
            known = f"{given[key]} holders and {unconfirmed[key]} calls in doubt"
            yield f"lock {key} has the fence {fence} after {known}"
