"""When a server was away, by the journal, what is therefore in doubt, and how soon services answer again."""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Final

from tools.soak.plan import LEASE, NANOSECONDS, NETWORK

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from tools.soak.journal import Line

# How long after the server is back calls may still be refused; on a quiet machine pools heal within two.
HEALED_SECONDS: Final = 10.0
LEASE_NANOSECONDS: Final = int(LEASE.total_seconds() * NANOSECONDS)


@dataclass(frozen=True, slots=True)
class Downtime:
    """From when to when a server was away, in monotonic nanoseconds, and what had happened to it."""

    begin: int
    end: int
    kind: str


def downtimes_of(lines: Sequence[Line]) -> list[Downtime]:
    """Return when the server was away; what was not over at the end lasted up to the last line."""
    found: list[Downtime] = []
    begin: Line | None = None
    for line in lines:
        if line["what"] == "outage":
            begin = line
        elif line["what"] == "back" and begin is not None:
            found.append(Downtime(begin["at"], line["at"], begin["kind"]))
            begin = None
    return found if begin is None else [*found, Downtime(begin["at"], lines[-1]["at"], begin["kind"])]


def refusal_violations(lines: Sequence[Line]) -> Iterator[str]:
    """Say which calls were refused although the server was there all the time."""
    downtimes = downtimes_of(lines)
    grace = int(HEALED_SECONDS * NANOSECONDS)
    for line in lines:
        if line["what"] != "refused" or _outlived_its_lease(line):
            continue
        if not any(
            downtime.begin <= line["at"] and line["began"] <= downtime.end + grace for downtime in downtimes
        ):
            yield f"{line['during']} was refused although the server was there: {line['error']}"


def _outlived_its_lease(line: Line) -> bool:
    """Whether it was a lock whose holder was so slow that the server has ended its connection, as it must."""
    return line["during"] == "exclude" and int(line["at"]) - int(line["began"]) > LEASE_NANOSECONDS


def with_next(downtimes: Sequence[Downtime]) -> list[tuple[Downtime, float]]:
    """Return each with the beginning of the next one, the last one with infinity."""
    return [(downtime, float(following.begin)) for downtime, following in pairwise(downtimes)] + [
        (downtime, float("inf")) for downtime in downtimes[-1:]
    ]


def unconfirmed_lines(lines: Sequence[Line], what: str) -> list[Line]:
    """Return the intentions that were perhaps carried out.

    They have no answer, because their worker was killed, or the error said that the outcome is unknown.
    """
    settled = {
        line["of"]
        for line in lines
        if "of" in line and line["what"] != what and line.get("outcome") != "unknown"
    }
    return [line for line in lines if line["what"] == what and line.get("of") not in settled]


ANSWERS: Final = frozenset({"written", "seen"})
# Of the threads and tasks that do nothing else; the first of a process also forks and crowds.
LANES: Final = ("/thread-", "/task-")
# A service that does not answer for so long after a fault has not recovered by itself.
LONGEST_SECONDS: Final = 25.0
NETWORK_LONGEST_SECONDS: Final = 15.0


def late_answers(lines: Sequence[Line]) -> Iterator[str]:
    """Say who had no answer for long after the server was back."""
    for kind, lane, seconds in _waits(lines):
        if seconds > (NETWORK_LONGEST_SECONDS if kind.startswith(NETWORK) else LONGEST_SECONDS):
            yield f"{lane} had no answer for {seconds:.1f} s after: {kind}"


def _waits(lines: Sequence[Line]) -> Iterator[tuple[str, str, float]]:
    """Return kind, lane and wait of each lane that was there before a fault and lived on after it."""
    answers = _answers_of(lines)
    deaths = {line["victim"]: line["at"] for line in lines if line["what"] == "killed"}
    for downtime, following in with_next(downtimes_of(lines)):
        limit = min(following, lines[-1]["at"])
        for (process, lane), instants in answers.items():
            if instants[0] > downtime.begin:
                continue
            later = bisect_left(instants, downtime.end)
            first = instants[later] if later < len(instants) else None
            # A service that died or had the next fault meanwhile waited for something else.
            if first is None and deaths.get(process, limit) < limit:
                continue
            waited = (limit if first is None or first > limit else first) - downtime.end
            yield downtime.kind, lane, waited / NANOSECONDS


def _answers_of(lines: Sequence[Line]) -> Mapping[tuple[int, str], list[int]]:
    found: dict[tuple[int, str], list[int]] = defaultdict(list)
    for line in lines:
        if (
            line["what"] in ANSWERS
            and any(part in line["lane"] for part in LANES)
            and "child" not in line["lane"]
        ):
            found[line["by"], line["lane"]].append(line["at"])
    return found
