"""The judge of a soak names each violation that is planted, and nothing where there is none."""

from __future__ import annotations

import subprocess
import sys
from contextlib import closing
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

import pytest

from tests.support.server_supervisor import ROOT
from tools.soak.journal import Journal, read_journal
from tools.soak.outages import HEALED_SECONDS, LONGEST_SECONDS
from tools.soak.plan import BASE, NANOSECONDS, Plan, kills_of, outages_of
from tools.soak.service import open_transactions
from tools.soak.stored import GraphState, JobState, Stored, TriggerState
from tools.soak.violations import violations
from tools.soak.work import entries_of, foreign_rows, own_run
from twinstore.scheduler.triggers import fired_run_id
from twinstore.testing.scheduler.builders import make_run

if TYPE_CHECKING:
    from pathlib import Path

    from tools.soak.journal import Line
    from twinstore.scheduler import ExecutionLogEntry, Run

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
Steps = list[tuple[float, dict[str, Any]]]


def judged(more: Steps, stored: Stored = STORED, *, without: str = "") -> list[str]:
    """Return what the judge says of the good journal with more lines, without those of a kind."""
    lines = [item for item in [*GOOD, *more] if item[1]["what"] != without]
    journal: list[Line] = [
        {"by": SERVICE if "lane" in told else 11, "at": int(at * NANOSECONDS), **told}
        for at, told in sorted(lines, key=lambda item: item[0])
    ]
    return violations(journal, stored)


def changed(**parts: object) -> Stored:
    return replace(STORED, **parts)  # type: ignore[arg-type]  # each has its type


def trigger(**parts: object) -> Stored:
    return changed(triggers={SCHEDULE: replace(STORED.triggers[SCHEDULE], **parts)})  # type: ignore[arg-type]  # as above


def graph(status: str, attempts: int, *events: str, job: str = "g") -> Stored:
    return changed(graph_jobs={**STORED.graph_jobs, job: GraphState(status, attempts, events)})


def job(name: str, status: str, attempts: int) -> Stored:
    return changed(jobs={**STORED.jobs, name: JobState(status, attempts)})


def parts(*names: str) -> Stored:
    return changed(parts={**STORED.parts, **dict.fromkeys(names, 1)})


def fired(minutes: int) -> dict[str, Any]:
    return {"what": "fired", "schedule": SCHEDULE, "run": run_at(minutes), "created": True}


def refused(during: str, began: float, **told: object) -> dict[str, Any]:
    times = {"began": int(began * NANOSECONDS)}
    return {"what": "refused", "during": during, "error": "gone", "outcome": "not_applied", **times, **told}


def outage(begin: float, end: float) -> Steps:
    return [(begin, {"what": "outage", "kind": "fast"}), (end, {"what": "back", "kind": "fast"})]


def served(answer: str, *names: str) -> Steps:
    """Return what a service intends, and its answer; a killed one has none."""
    told = {"what": "written"} if answer == "written" else {"what": "given up", "outcome": answer}
    answers: Steps = [(2.7, {**told, "of": "s3", "lane": LANE})] if answer else []
    return [(2.6, write("s3", *names)), *answers]


LATE: Final = 0.2 + HEALED_SECONDS + 1
SILENT: Final = 4.0 + LONGEST_SECONDS + 1
LOG: Final = f"the log of run {run_at(0)}"
# One for each rule: what the judge says, the lines that show it, and what is stored with them.
WRONG: Final[dict[str, tuple[Steps, Stored]]] = {
    "error during fire: it broke": (
        [(1.0, {"what": "error", "during": "fire", "error": "it broke"})],
        STORED,
    ),
    "job j was submitted twice": ([(1.15, {"what": "submitted", "job": "j"})], STORED),
    "job lost is lost: its creation was confirmed": ([(0.1, {"what": "created", "job": "lost"})], STORED),
    "job x was never created": ([], job("x", "completed", 0)),
    "job j is not done: it stands as submitted": ([], job("j", "submitted", 2)),
    "job j was leased twice in attempt 2": ([(1.05, leased("j", 2, 1.7, 2.4))], STORED),
    "job j was leased in attempt 3 before the lease before had ended": (
        [(0.25, leased("j", 3, 1.5, 2.2))],
        job("j", "completed", 3),
    ),
    "job j counts 2 attempts, but one was number 3": ([(2.0, leased("j", 3, 2.0, 2.7))], STORED),
    "3 attempts were leased by nobody, and calls in doubt explain 0": ([], job("j", "completed", 5)),
    f"run {run_at(0)} was created twice": ([(0.35, fired(0))], STORED),
    f"run {run_at(1)} is lost: its firing was confirmed": ([(0.35, fired(1))], STORED),
    f"schedule {SCHEDULE} has two runs of one instant": ([], trigger(runs=(run_at(0), run_at(0)))),
    f"schedule {SCHEDULE} counts 2 instants that fired and has 1 runs": ([], trigger(runs=(run_at(0),))),
    f"schedule {SCHEDULE} counts 2 fired and 0 missed of 3 instants": ([], trigger(misfires=0)),
    f"schedule {SCHEDULE} has a run of an instant that was not due": (
        [],
        trigger(runs=(run_at(0), run_at(3))),
    ),
    "graph job h is lost: its creation was confirmed": ([(0.6, {"what": "added", "job": "h"})], STORED),
    "graph job g has 1 events of 2 moves pending to running": ([(0.75, dict(GOOD)[0.7])], STORED),
    "graph job g has no event of its creation": ([], graph("running", 1, "running")),
    "graph job g has a gap in its events: pending is followed by completed": (
        [],
        graph("completed", 0, "pending", "completed"),
    ),
    "graph job g stands as completed, but its last event says running": (
        [],
        graph("completed", 1, "pending", "running"),
    ),
    "graph job g counts 2 attempts in 1 events": ([], graph("running", 2, "pending", "running")),
    f"{LOG} has lost lines that were confirmed": (
        [(0.6, {"what": "appended", "run": run_at(0), "lines": [[3, "c"]]})],
        STORED,
    ),
    f"{LOG} has a part of what was appended at once": (
        [(0.6, {"what": "append", "run": run_at(0), "messages": ["b", "c"]})],
        STORED,
    ),
    f"{LOG} has a gap": ([], changed(logs={run_at(0): ((1, "a"), (3, "b"))})),
    f"{LOG} has b twice": ([], changed(logs={run_at(0): ((1, "a"), (2, "b"), (3, "b"))})),
    f"{LOG} has z, which nobody appended": ([], changed(logs={run_at(0): ((1, "a"), (2, "b"), (3, "z"))})),
    "lock k had two holders at once, with the fences 2 and 3": ([(1.95, held(3, 13, 1.94))], STORED),
    "lock k gave the fence 1 after 2": ([(3.0, held(1, 13, 2.5))], STORED),
    "lock k gave the fence 2 twice": ([(3.0, held(2, 13, 2.5))], STORED),
    "lock k has the fence 2, but 3 was given": ([(3.0, held(3, 13, 2.5))], STORED),
    "claim was refused although the server was there: gone": (
        [*outage(0.1, 0.2), (LATE, refused("claim", LATE))],
        STORED,
    ),
    "exclude was refused although the server was there: gone": ([(1.9, refused("exclude", 1.8))], STORED),
    f"{LANE} had no answer for {LONGEST_SECONDS + 1:.1f} s after: fast": (
        [*outage(3.0, 4.0), (SILENT, {"what": "seen", "lane": LANE})],
        STORED,
    ),
    "unit s3 was confirmed, and ['run b'] is not stored": (
        served("written", "run a", "run b"),
        parts("run a"),
    ),
    "unit s3 was refused, and ['run a'] is stored": (served("not_applied", "run a"), parts("run a")),
    "unit s3 is stored in part: ['run a'] of ['run a', 'run b']": (
        served("unknown", "run a", "run b"),
        parts("run a"),
    ),
    "run z is stored, and nobody wrote it": ([], parts("run z")),
    "run r is stored 2 times": ([], changed(parts={**STORED.parts, "run r": 2})),
    "counter of red stands at 0, and 1 to 2 steps were taken": (
        served("unknown", "count counter of red"),
        changed(counters={"counter of red": 0}),
    ),
    "counter of red stands at 2, and 1 to 1 steps were taken": ([], changed(counters={"counter of red": 2})),
    "a row that is of two tenants is stored: one of red": ([], changed(foreign_rows=["one of red"])),
    f"{LANE} read as red a row of blue": (
        [(2.6, {"what": "foreign", "tenant": "red", "lane": LANE, "seen": "a row of blue"})],
        STORED,
    ),
    "kept: the thread pool-1": ([(2.6, {"what": "leaked", "seen": "the thread pool-1"})], STORED),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_what_is_wrong_is_named(wrong: str) -> None:
    assert wrong in judged(*WRONG[wrong])


GOOD_BESIDES: Final[dict[str, tuple[Steps, Stored]]] = {
    "nothing more": ([], STORED),
    "a holder that goes on after its lease, which fences are for": (
        [(2.0, held(3, 13, 2.0)), (3.5, held(4, 14, 3.2)), (3.6, {**held(3, 13, 2.0), "what": "left"})],
        changed(fences={"k": 4}),
    ),
    "a refusal of a call that began in an outage": (
        [*outage(0.1, 0.2), (LATE, refused("claim", 0.15))],
        STORED,
    ),
    "a refusal of a holder that was slower than its lease": ([(1.9, refused("exclude", 0.8))], STORED),
    "a call that was given up, and is there": (served("unknown", "run a", "run b"), parts("run a", "run b")),
    "a call of a killed service, which is not there": (served("", "run a", "run b"), STORED),
    "a service that was killed before it could answer again": (
        [
            *outage(3.0, 4.0),
            (5.0, {"what": "killed", "victim": SERVICE}),
            (40.0, {"what": "killed", "victim": 99}),
        ],
        STORED,
    ),
}


@pytest.mark.parametrize("case", GOOD_BESIDES)
def test_what_is_not_wrong_is_not_named(case: str) -> None:
    assert judged(*GOOD_BESIDES[case]) == []


MOVE: Final[dict[str, object]] = {"job": "h", "origin": "pending", "target": "running"}
# What may be stored after a call in doubt, and what the judge says if the call was answered that it is not.
IN_DOUBT: Final[dict[str, tuple[str, dict[str, object], Stored]]] = {
    "job x is stored although its creation was refused": ("create", {"job": "x"}, job("x", "completed", 0)),
    "graph job x is stored although its creation was refused": (
        "add",
        {"job": "x"},
        graph("pending", 0, "pending", job="x"),
    ),
    f"the log of run {run_at(2)} has lines whose append was refused": (
        "append",
        {"run": run_at(2), "messages": ["c"]},
        changed(logs={**STORED.logs, run_at(2): ((1, "c"),)}),
    ),
    f"schedule {SCHEDULE} has 2 runs without firing, and 1 firings in doubt": (
        "fire",
        {"schedule": SCHEDULE},
        trigger(runs=(run_at(0), run_at(1), run_at(2)), fires=3, misfires=0),
    ),
    "job j counts 1 attempts without lease, and 0 calls are in doubt": (
        "lease",
        {"limit": 7},
        job("j", "completed", 3),
    ),
    "graph job h was moved from pending to running by nobody": (
        "move",
        MOVE,
        graph("running", 1, "pending", "running", job="h"),
    ),
    "lock k has the fence 3 after 2 holders and 0 calls in doubt": (
        "ask",
        {"key": "k"},
        changed(fences={"k": 3}),
    ),
    "job j was submitted by nobody": ("submit", {"jobs": ["j"]}, STORED),
    "job j was completed by nobody": ("complete", {"jobs": ["j"]}, STORED),
}


@pytest.mark.parametrize("wrong", IN_DOUBT)
def test_what_was_refused_is_not_stored_and_what_is_unknown_may_be(wrong: str) -> None:
    what, told, stored = IN_DOUBT[wrong]
    without = "completed" if what == "complete" else "submitted" if what == "submit" else ""

    def after(outcome: str) -> list[str]:
        asked = (0.11, {"what": what, "of": "9", **told})
        refusal = (0.12, refused(what, 0.11, of="9", outcome=outcome))
        return judged([*outage(0.1, 0.2), asked, refusal], stored, without=without)

    assert wrong in after("not_applied")
    # A job that was created and nothing else is not done.
    assert [said for said in after("unknown") if not said.startswith("job x was")] == []


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


def test_a_seed_gives_the_same_kills_and_outages(tmp_path: Path) -> None:
    def planned(seed: int) -> tuple[object, object]:
        plan = Plan(settings={}, journal=tmp_path, seed=seed, seconds=30, start=0)
        return kills_of(plan), outages_of(plan, ["fast", "killed"])

    assert planned(7) == planned(7) != planned(8)


# In a separate process: threads and files that other tests have left in this one come and go.
LEAVING: Final = """
import sys
from threading import Event, Thread
from tools.soak.stored import ProcessResources
before, ends = ProcessResources.now(), Event()
print(before.leaked())
thread = Thread(target=ends.wait, name="forgotten")
thread.start()
with open(sys.argv[1], "w"):
    print(*ProcessResources.now().added_since(before), sep="\\n")
ends.set()
thread.join()
"""


def test_threads_and_files_that_were_not_there_before_are_named(tmp_path: Path) -> None:
    command = [sys.executable, "-c", LEAVING, str(tmp_path / "kept")]
    told = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    nothing, thread, file = told.splitlines()
    assert nothing == "[]"
    assert thread.startswith("the thread forgotten")
    assert file.endswith(f"({tmp_path / 'kept'})")


def test_rows_of_another_tenant_are_seen_by_their_column_and_by_their_content() -> None:
    mine: list[Run | ExecutionLogEntry] = [own_run("red", "1"), *entries_of("red", "1", ("a",))]
    assert foreign_rows("red", mine) == []
    assert foreign_rows("blue", mine) == ["a row of red with 'red 1'", "a row of red with 'red a'"]
    mixed = [entry.evolve(tenant_id="red") for entry in entries_of("blue", "1", ("a",))]
    assert foreign_rows("red", [*mixed, make_run("red", "1")]) == [
        "a row of red with 'blue a'",
        "a row of red with 'nothing'",
    ]


def test_transactions_of_clients_that_live_are_distinguished_from_those_of_the_dead() -> None:
    def idle(connection: int) -> dict[str, Any]:
        client = f"127.0.0.1:{connection}"
        return {"type": "idleSession", "transaction": {}, "connectionId": connection, "client": client}

    lives: list[dict[str, Any]] = [{"type": "op", "connectionId": 7}]
    assert open_transactions([*lives, idle(7), idle(8)]) == ["a transaction of 127.0.0.1:7 (None)"]
