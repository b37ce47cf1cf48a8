"""The judge of a soak names each violation that is planted, and nothing where there is none."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

import pytest

from tests.soak.journal import Journal, read_journal
from tests.soak.judge import violations
from tests.soak.plan import BASE, NANOSECONDS, Plan, kills_of
from tests.soak.sections import takeovers_of
from tests.soak.stored import GraphState, JobState, Stored, TriggerState
from twinstore.scheduler.triggers import fired_run_id

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.soak.journal import Line

MINUTE: Final = timedelta(minutes=1)
FIRST: Final = BASE + MINUTE
SCHEDULE: Final = "every-minute"


def run_at(minutes: int) -> str:
    """Return the id of the run of an instant."""
    return fired_run_id("ta", SCHEDULE, FIRST + minutes * MINUTE)


def leased(job: str, attempt: int, begin: float, end: float) -> dict[str, Any]:
    second = timedelta(seconds=1)
    now, until = BASE + begin * second, BASE + end * second
    return {"what": "leased", "job": job, "attempt": attempt, "now": str(now), "until": until.isoformat()}


def held(fence: int, by: int, asked: float) -> dict[str, Any]:
    return {"what": "entered", "key": "k", "fence": fence, "by": by, "asked": int(asked * NANOSECONDS)}


GOOD: Final[list[tuple[float, dict[str, Any]]]] = [
    (0.0, {"what": "create", "job": "j"}),
    (0.1, {"what": "created", "job": "j"}),
    (0.2, leased("j", 1, 0.2, 0.9)),
    (0.3, {"what": "fired", "schedule": SCHEDULE, "run": run_at(0), "created": True}),
    (0.4, {"what": "append", "run": run_at(0), "messages": ["a", "b"]}),
    (0.5, {"what": "appended", "run": run_at(0), "lines": [[1, "a"], [2, "b"]]}),
    (0.6, {"what": "added", "job": "g"}),
    (0.7, {"what": "moved", "job": "g", "origin": "pending", "target": "running"}),
    (0.8, held(1, 11, 0.79)),
    (0.9, {"what": "killed", "victim": 11, "by": 1}),
    (1.0, leased("j", 2, 1.0, 1.7)),
    (1.1, {"what": "submitted", "job": "j"}),
    (1.2, {"what": "completed", "job": "j"}),
    (1.9, held(2, 12, 1.0)),
    (2.0, {"what": "left", "key": "k", "fence": 2, "by": 12}),
]
STORED: Final = Stored(
    jobs={"j": JobState("completed", 2)},
    triggers={SCHEDULE: TriggerState(FIRST, FIRST + 3 * MINUTE, 2, 1, (run_at(0), run_at(2)))},
    graph_jobs={"g": GraphState("running", 1, ("pending", "running"))},
    logs={run_at(0): ((1, "a"), (2, "b"))},
    fences={"k": 2},
)


def journal(*more: tuple[float, dict[str, Any]], without: str = "") -> list[Line]:
    """Return the good journal with more lines, in order, without those of a kind."""
    lines = [item for item in [*GOOD, *more] if item[1]["what"] != without]
    return [
        {"by": 11, "at": int(at * NANOSECONDS), **told}
        for at, told in sorted(lines, key=lambda item: item[0])
    ]


def test_a_good_journal_has_no_violation() -> None:
    lines = journal()
    assert violations(lines, STORED) == []
    assert takeovers_of(lines) == 1


PLANTED: Final[dict[str, tuple[float, dict[str, Any]]]] = {
    "error during fire: it broke": (1.0, {"what": "error", "during": "fire", "error": "it broke"}),
    "job j was submitted twice": (1.15, {"what": "submitted", "job": "j"}),
    "job j was completed twice": (1.3, {"what": "completed", "job": "j"}),
    "job lost is lost: its creation was confirmed": (0.1, {"what": "created", "job": "lost"}),
    "job j was leased twice in attempt 2": (1.05, leased("j", 2, 1.7, 2.4)),
    "job j counts 2 attempts, but one was number 3": (2.0, leased("j", 3, 2.0, 2.7)),
    f"run {run_at(0)} was created twice": (
        0.35,
        {"what": "fired", "schedule": SCHEDULE, "run": run_at(0), "created": True},
    ),
    f"run {run_at(1)} is lost: its firing was confirmed": (
        0.35,
        {"what": "fired", "schedule": SCHEDULE, "run": run_at(1), "created": True},
    ),
    "graph job h is lost: its creation was confirmed": (0.6, {"what": "added", "job": "h"}),
    "graph job g has 1 events of 2 moves pending to running": (
        0.75,
        {"what": "moved", "job": "g", "origin": "pending", "target": "running"},
    ),
    f"the log of run {run_at(0)} has lost lines that were confirmed": (
        0.6,
        {"what": "appended", "run": run_at(0), "lines": [[3, "c"]]},
    ),
    f"the log of run {run_at(0)} has a part of what was appended at once": (
        0.6,
        {"what": "append", "run": run_at(0), "messages": ["b", "c"]},
    ),
    "lock k had two holders at once, with the fences 2 and 3": (1.95, held(3, 13, 1.94)),
    "lock k gave the fence 1 after 2": (3.0, held(1, 13, 2.5)),
    "lock k gave the fence 2 twice": (3.0, held(2, 13, 2.5)),
    "lock k has the fence 2, but 3 was given": (3.0, held(3, 13, 2.5)),
}


@pytest.mark.parametrize("wrong", PLANTED)
def test_a_line_that_tells_a_violation_is_named(wrong: str) -> None:
    assert wrong in violations(journal(PLANTED[wrong]), STORED)


def test_a_lease_that_begins_before_the_one_before_has_ended_is_named() -> None:
    lines = journal((0.25, leased("j", 3, 1.5, 2.2)))
    found = violations(lines, replace(STORED, jobs={"j": JobState("completed", 3)}))
    assert found == ["job j was leased in attempt 3 before the lease before had ended"]


def changed(**parts: object) -> Stored:
    return replace(STORED, **parts)  # type: ignore[arg-type]  # each of its own kind


def trigger(**parts: object) -> Stored:
    return changed(triggers={SCHEDULE: replace(STORED.triggers[SCHEDULE], **parts)})  # type: ignore[arg-type]  # as above


def graph(status: str, attempts: int, *events: str) -> Stored:
    return changed(graph_jobs={"g": GraphState(status, attempts, events)})


STORED_WRONG: Final[dict[str, Callable[[], Stored]]] = {
    "job j is not done: it stands as submitted": lambda: changed(jobs={"j": JobState("submitted", 2)}),
    "job x was never created": lambda: changed(jobs={**STORED.jobs, "x": JobState("completed", 1)}),
    f"schedule {SCHEDULE} has two runs of one instant": lambda: trigger(runs=(run_at(0), run_at(0)), fires=2),
    f"schedule {SCHEDULE} counts 2 instants that fired and has 1 runs": lambda: trigger(runs=(run_at(0),)),
    f"schedule {SCHEDULE} counts 2 fired and 0 missed of 3 instants": lambda: trigger(misfires=0),
    f"schedule {SCHEDULE} has a run of an instant that was not due": lambda: trigger(
        runs=(run_at(0), run_at(3))
    ),
    "graph job g has no event of its creation": lambda: graph("running", 1, "running"),
    "graph job g has a gap in its events: pending is followed by completed": lambda: graph(
        "completed", 0, "pending", "completed"
    ),
    "graph job g stands as completed, but its last event says running": lambda: graph(
        "completed", 1, "pending", "running"
    ),
    "graph job g counts 2 attempts in 1 events": lambda: graph("running", 2, "pending", "running"),
    f"the log of run {run_at(0)} has a gap": lambda: changed(logs={run_at(0): ((1, "a"), (3, "b"))}),
    f"the log of run {run_at(0)} has b twice": lambda: changed(
        logs={run_at(0): ((1, "a"), (2, "b"), (3, "b"))}
    ),
}


@pytest.mark.parametrize("wrong", STORED_WRONG)
def test_what_is_stored_and_follows_from_nothing_is_named(wrong: str) -> None:
    assert wrong in violations(journal(), STORED_WRONG[wrong]())


def test_a_holder_that_goes_on_after_its_lease_meets_nobody() -> None:
    """What fences are for, and no violation: the second asked after a lease of the first."""
    late = journal(
        (2.0, held(3, 13, 2.0)), (3.5, held(4, 14, 3.2)), (3.6, {"what": "left", **held(3, 13, 2.0)})
    )
    lines = [{**line, "what": "left"} if line["at"] == int(3.6 * NANOSECONDS) else line for line in late]
    assert violations(lines, changed(fences={"k": 4})) == []


def test_a_renewal_makes_a_holder_safe_for_longer(tmp_path: Path) -> None:
    del tmp_path
    renewed = {**held(3, 13, 2.9), "what": "renewed"}
    lines = journal((2.0, held(3, 13, 2.0)), (2.95, renewed), (3.5, held(4, 14, 3.2)))
    assert violations(lines, changed(fences={"k": 4})) == [
        "lock k had two holders at once, with the fences 3 and 4"
    ]


def test_a_line_that_a_killed_worker_has_begun_says_nothing(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    with closing(Journal(path)) as book:
        book.add("created", job="a")
        with path.open("ab") as file:
            file.write(b'\n{"at": 1, "by": 2, "what": "crea')
        with pytest.raises(ValueError, match="1 lines of the journal are broken, but 0 workers were killed"):
            read_journal(path)
        book.add("killed", victim=2)
    assert [line["what"] for line in read_journal(path)] == ["created", "killed"]


def test_a_seed_gives_the_same_kills(tmp_path: Path) -> None:
    def plan(seed: int) -> Plan:
        return Plan(settings={}, journal=tmp_path, seed=seed, seconds=30, start=0)

    assert kills_of(plan(7)) == kills_of(plan(7)) != kills_of(plan(8))
    times = [kill.after for kill in kills_of(plan(7))]
    assert times == sorted(times)
    assert {kill.worker for kill in kills_of(plan(7))} == {0, 1, 2, 3}
