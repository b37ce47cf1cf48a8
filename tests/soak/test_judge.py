"""The judge of a soak names each violation that is planted, and nothing where there is none."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from datetime import timedelta
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

import pytest

from tests.soak.journal import Journal, read_journal
from tests.soak.judge import violations
from tests.soak.outages import HEALED_SECONDS, healed_after
from tests.soak.plan import BASE, NANOSECONDS, Fault, Plan, disturbances_of, kills_of, outages_of
from tests.soak.recovery import LONGEST_SECONDS, recoveries_of
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


LANE: Final = "7/5/1/thread-0"
SERVICE: Final = 20


def write(of: str, *parts: str) -> dict[str, Any]:
    """Return the intention of a service."""
    return {"what": "write", "kind": "unit", "tenant": "red", "parts": list(parts), "of": of, "lane": LANE}


GOOD: Final[list[tuple[float, dict[str, Any]]]] = [
    (0.0, {"what": "create", "job": "j", "of": "1"}),
    (0.1, {"what": "created", "job": "j", "of": "1"}),
    (0.2, leased("j", 1, 0.2, 0.9)),
    (0.21, {"what": "fire", "schedule": SCHEDULE, "of": "2"}),
    (0.3, {"what": "fired", "schedule": SCHEDULE, "run": run_at(0), "created": True, "of": "2"}),
    # Its answer never came, and the run is there.
    (0.31, {"what": "fire", "schedule": SCHEDULE, "of": "3"}),
    (0.4, {"what": "append", "run": run_at(0), "messages": ["a", "b"], "of": "4"}),
    (0.5, {"what": "appended", "run": run_at(0), "lines": [[1, "a"], [2, "b"]], "of": "4"}),
    (0.6, {"what": "added", "job": "g"}),
    (0.69, {"what": "move", "job": "g", "origin": "pending", "target": "running", "of": "5"}),
    (0.7, {"what": "moved", "job": "g", "origin": "pending", "target": "running", "of": "5"}),
    (0.8, held(1, 11, 0.79)),
    (0.9, {"what": "killed", "victim": 11, "by": 1}),
    (1.0, leased("j", 2, 1.0, 1.7)),
    (1.1, {"what": "submitted", "job": "j"}),
    (1.2, {"what": "completed", "job": "j"}),
    (1.9, held(2, 12, 1.0)),
    (2.0, {"what": "left", "key": "k", "fence": 2, "by": 12}),
    (2.1, write("s1", "run r", "line r red 1")),
    (2.2, {"what": "written", "of": "s1", "lane": LANE}),
    (2.3, write("s2", "count counter of red")),
    (2.4, {"what": "written", "of": "s2", "lane": LANE}),
    (2.5, {"what": "seen", "lane": LANE}),
]
STORED: Final = Stored(
    jobs={"j": JobState("completed", 2)},
    triggers={SCHEDULE: TriggerState(FIRST, FIRST + 3 * MINUTE, 2, 1, (run_at(0), run_at(2)))},
    graph_jobs={"g": GraphState("running", 1, ("pending", "running"))},
    logs={run_at(0): ((1, "a"), (2, "b"))},
    fences={"k": 2},
    parts={"run r": 1, "line r red 1": 1},
    counters={"counter of red": 1},
)


def journal(*more: tuple[float, dict[str, Any]], without: str = "") -> list[Line]:
    """Return the good journal with more lines, in order, without those of a kind."""
    lines = [item for item in [*GOOD, *more] if item[1]["what"] != without]
    return [
        {"by": SERVICE if "lane" in told else 11, "at": int(at * NANOSECONDS), **told}
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


def refusal(what: str, outcome: str, **told: object) -> tuple[tuple[float, dict[str, Any]], ...]:
    """Return an outage, an intention during it, and its refusal."""
    refused = {"what": "refused", "during": what, "error": "away", "outcome": outcome, "of": "9"}
    return (
        (0.10, {"what": "outage", "kind": "fast"}),
        (0.11, {"what": what, "of": "9", **told}),
        (0.12, {**refused, "began": int(0.11 * NANOSECONDS)}),
        (0.13, {"what": "back", "kind": "fast"}),
    )


MOVE: Final = {"job": "g", "origin": "pending", "target": "running"}
TWICE: Final = GraphState("running", 1, ("pending", "running"))
# What may be there after a call in doubt, and what the judge says where the call was told that it is not.
IN_DOUBT: Final[dict[str, tuple[str, dict[str, object], Callable[[], Stored]]]] = {
    "job x is stored although its creation was refused": (
        "create",
        {"job": "x"},
        lambda: changed(jobs={**STORED.jobs, "x": JobState("completed", 0)}),
    ),
    "graph job x is stored although its creation was refused": (
        "add",
        {"job": "x"},
        lambda: changed(graph_jobs={**STORED.graph_jobs, "x": GraphState("pending", 0, ("pending",))}),
    ),
    f"the log of run {run_at(2)} has lines whose append was refused": (
        "append",
        {"run": run_at(2), "messages": ["c"]},
        lambda: changed(logs={**STORED.logs, run_at(2): ((1, "c"),)}),
    ),
    f"schedule {SCHEDULE} has 2 runs that nobody fired, and 1 firings in doubt": (
        "fire",
        {"schedule": SCHEDULE},
        lambda: trigger(runs=(run_at(0), run_at(1), run_at(2)), fires=3, misfires=0),
    ),
    "job j counts 1 attempts that nobody leased, and 0 calls are in doubt": (
        "lease",
        {"limit": 7},
        lambda: changed(jobs={"j": JobState("completed", 3)}),
    ),
    "graph job h was moved from pending to running by nobody": (
        "move",
        {**MOVE, "job": "h"},
        lambda: changed(graph_jobs={**STORED.graph_jobs, "h": TWICE}),
    ),
    "lock k has the fence 3 after 2 holders and 0 calls in doubt": (
        "ask",
        {"key": "k"},
        lambda: changed(fences={"k": 3}),
    ),
}


@pytest.mark.parametrize("wrong", IN_DOUBT)
def test_what_was_refused_and_is_there_all_the_same_is_named(wrong: str) -> None:
    what, told, stored = IN_DOUBT[wrong]
    assert wrong in violations(journal(*refusal(what, "not_applied", **told)), stored())


@pytest.mark.parametrize("wrong", IN_DOUBT)
def test_what_was_refused_and_nobody_knows_may_be_there(wrong: str) -> None:
    what, told, stored = IN_DOUBT[wrong]
    found = violations(journal(*refusal(what, "unknown", **told)), stored())
    # A job that was created and nothing else is not done, which has another sentence.
    assert [sentence for sentence in found if "by nobody" not in sentence] == []


@pytest.mark.parametrize(("intent", "answer"), [("submit", "submitted"), ("complete", "completed")])
def test_a_job_that_nobody_ended_is_named_unless_a_call_is_in_doubt(intent: str, answer: str) -> None:
    lines = journal(without=answer)
    assert violations(lines, STORED) == [f"job j was {answer} by nobody"]
    doubt = refusal(intent, "unknown", jobs=["j"])
    assert violations(journal(*doubt, without=answer), STORED) == []
    told = refusal(intent, "not_applied", jobs=["j"])
    assert violations(journal(*told, without=answer), STORED) == [f"job j was {answer} by nobody"]


def test_more_attempts_than_calls_in_doubt_could_lease_are_named() -> None:
    jobs = {name: JobState("completed", 1) for name in "xyz"}
    intents = [(0.05, {"what": "create", "job": name, "of": f"c{name}"}) for name in "xyz"]
    ends = [(1.3, {"what": what, "job": name}) for name in "xyz" for what in ("submitted", "completed")]
    doubt = refusal("lease", "unknown", limit=2)
    found = violations(journal(*intents, *ends, *doubt), changed(jobs={**STORED.jobs, **jobs}))
    assert found == ["3 attempts were leased by nobody, and calls in doubt explain 2"]


def test_a_line_of_a_log_that_nobody_appended_is_named() -> None:
    stored = changed(logs={**STORED.logs, run_at(2): ((1, "z"),)})
    assert violations(journal(), stored) == [f"the log of run {run_at(2)} has z, which nobody appended"]


def test_a_refusal_while_the_server_is_there_is_named() -> None:
    outage = refusal("fire", "not_applied", schedule=SCHEDULE)
    assert violations(journal(*outage), STORED) == []
    late = 0.13 + HEALED_SECONDS + 1
    refused = {"what": "refused", "during": "claim", "error": "it broke", "outcome": "unknown"}
    found = violations(journal(*outage, (late, {**refused, "began": int(late * NANOSECONDS)})), STORED)
    assert found == ["claim was refused although the server was there: it broke"]
    # One that began during the outage may be told so whenever it ends.
    assert violations(journal(*outage, (late, {**refused, "began": int(0.12 * NANOSECONDS)})), STORED) == []
    assert violations(journal((0.5, {**refused, "began": 0})), STORED) == found


def test_a_lock_whose_holder_was_slower_than_its_lease_may_be_refused() -> None:
    slow = {"what": "refused", "during": "exclude", "error": "gone", "outcome": "unknown"}
    assert violations(journal((1.9, {**slow, "began": int(0.8 * NANOSECONDS)})), STORED) == []
    found = violations(journal((1.9, {**slow, "began": int(1.8 * NANOSECONDS)})), STORED)
    assert found == ["exclude was refused although the server was there: gone"]


def test_how_long_calls_were_refused_after_the_return_of_the_server_is_told() -> None:
    outage = refusal("fire", "not_applied", schedule=SCHEDULE)
    refused = {"what": "refused", "during": "claim", "error": "away", "outcome": "not_applied"}
    assert healed_after(journal(*outage)) == 0
    late = {**refused, "began": int(0.5 * NANOSECONDS)}
    assert healed_after(journal(*outage, (1.13, late))) == pytest.approx(1)
    assert healed_after(journal()) == 0


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
    kinds = ["fast", "killed"]
    assert outages_of(plan(7), kinds) == outages_of(plan(7), kinds) != outages_of(plan(8), kinds)
    assert {outage.kind for outage in outages_of(plan(7), kinds)} == set(kinds)
    assert outages_of(plan(7), []) == ()
    first, same, other = (list(islice(disturbances_of(plan(7), name), 20)) for name in ("a", "a", "b"))
    assert first == same != other
    assert {disturbance.kind for disturbance in first} == {Fault.FORK, Fault.POOL}
    times = [kill.after for kill in kills_of(plan(7))]
    assert times == sorted(times)
    assert {kill.worker for kill in kills_of(plan(7))} == {0, 1, 2, 3, 4}


def test_faults_that_nobody_asked_for_are_not_planned(tmp_path: Path) -> None:
    plan = Plan(settings={}, journal=tmp_path, seed=7, seconds=30, start=0, faults=frozenset({Fault.CUT}))
    assert kills_of(plan) == ()
    assert list(disturbances_of(plan, "a")) == []


def given_up(of: str, outcome: str) -> tuple[float, dict[str, Any]]:
    return (2.7, {"what": "given up", "during": "unit", "of": of, "outcome": outcome, "lane": LANE})


# What services wrote: more lines of the journal, what is stored besides, and what the judge says.
SERVED_WRONG: Final[dict[str, tuple[list[tuple[float, dict[str, Any]]], dict[str, int]]]] = {
    "unit s3 was confirmed, and ['run b'] is not stored": (
        [(2.6, write("s3", "run a", "run b")), (2.7, {"what": "written", "of": "s3", "lane": LANE})],
        {"run a": 1},
    ),
    "unit s3 was refused, and ['run a'] is stored": (
        [(2.6, write("s3", "run a", "run b")), given_up("s3", "not_applied")],
        {"run a": 1},
    ),
    "unit s3 is stored in part: ['run a'] of ['run a', 'run b']": (
        [(2.6, write("s3", "run a", "run b")), given_up("s3", "unknown")],
        {"run a": 1},
    ),
    "run z is stored, and nobody wrote it": ([], {"run z": 1}),
    "line r red 1 is stored 2 times": ([], {"line r red 1": 2}),
    f"{LANE} read as red a row of blue": (
        [(2.6, {"what": "foreign", "tenant": "red", "lane": LANE, "seen": "a row of blue"})],
        {},
    ),
    "kept: the thread pool-1": ([(2.6, {"what": "leaked", "seen": "the thread pool-1"})], {}),
}


@pytest.mark.parametrize("wrong", SERVED_WRONG)
def test_what_a_service_wrote_and_is_not_stored_as_it_was_told_is_named(wrong: str) -> None:
    more, parts = SERVED_WRONG[wrong]
    assert violations(journal(*more), changed(parts={**STORED.parts, **parts})) == [wrong]


def test_what_was_refused_once_and_done_later_is_no_violation() -> None:
    first, second = (2.6, write("s3", "queued r")), (2.8, write("s4", "queued r"))
    stored = changed(parts={**STORED.parts, "queued r": 1})
    assert violations(journal(first, given_up("s3", "not_applied"), second), stored) == []


@pytest.mark.parametrize("there", [(), ("run a", "run b")])
def test_what_a_service_gave_up_is_wholly_there_or_not_at_all(there: tuple[str, ...]) -> None:
    stored = changed(parts={**STORED.parts, **dict.fromkeys(there, 1)})
    intention = (2.6, write("s3", "run a", "run b"))
    assert violations(journal(intention, given_up("s3", "unknown")), stored) == []
    # Its process was killed before the answer.
    assert violations(journal(intention), stored) == []


@pytest.mark.parametrize(("value", "good"), [(0, False), (1, True), (2, True), (3, False)])
def test_a_counter_has_all_confirmed_steps_and_at_most_those_in_doubt(value: int, good: bool) -> None:  # noqa: FBT001  # a case
    step = (2.6, write("s3", "count counter of red"))
    found = violations(journal(step, given_up("s3", "unknown")), changed(counters={"counter of red": value}))
    assert found == ([] if good else [f"counter of red stands at {value}, and 1 to 2 steps were taken"])


def test_a_row_with_the_content_of_another_tenant_is_named() -> None:
    stored = changed(strange=["a row of red with 'blue 1'"])
    assert violations(journal(), stored) == [
        "a row that is of two tenants is stored: a row of red with 'blue 1'"
    ]


def answered_after(seconds: float) -> list[Line]:
    """Return a journal in which a lane has its next answer so long after an outage."""
    return journal(
        (3.0, {"what": "outage", "kind": "stalled network"}),
        (4.0, {"what": "back", "kind": "stalled network"}),
        (4.0 + seconds, {"what": "seen", "lane": LANE}),
    )


def test_how_soon_a_service_answers_after_a_fault_is_told_and_judged() -> None:
    soon, late = answered_after(1.5), answered_after(LONGEST_SECONDS + 1)
    assert recoveries_of(soon) == {"stalled network": pytest.approx(1.5)}
    assert violations(soon, STORED) == []
    assert violations(late, STORED) == [
        f"{LANE} had no answer for {LONGEST_SECONDS + 1:.1f} s after: stalled network"
    ]


def test_a_service_that_never_answers_again_is_named_unless_it_was_killed() -> None:
    silent = answered_after(0)[:-1]
    end = {"by": 1, "at": int(30 * NANOSECONDS), "what": "killed", "victim": 99}
    assert violations([*silent, end], STORED) == [f"{LANE} had no answer for 26.0 s after: stalled network"]
    killed = {**end, "victim": SERVICE, "at": int(5 * NANOSECONDS)}
    assert violations([*silent, killed, {**end, "at": int(31 * NANOSECONDS)}], STORED) == []
