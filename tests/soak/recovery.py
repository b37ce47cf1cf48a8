"""How soon services answer again after each thing that happened to their server."""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from typing import TYPE_CHECKING, Final

from tests.soak.outages import aways_of, with_next
from tests.soak.plan import NANOSECONDS

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from tests.soak.journal import Line

__all__ = ["LONGEST_SECONDS", "late_answers"]

ANSWERS: Final = frozenset({"written", "seen"})
# Of the threads and tasks that do nothing else; the first of a process also forks and crowds.
LANES: Final = ("/thread-", "/task-")
# Whoever does not answer for so long after a fault has not recovered by himself.
LONGEST_SECONDS: Final = 25.0


def late_answers(lines: Sequence[Line]) -> Iterator[str]:
    """Say who had no answer for long after the server was back."""
    for kind, lane, seconds in _waits(lines):
        if seconds > LONGEST_SECONDS:
            yield f"{lane} had no answer for {seconds:.1f} s after: {kind}"


def _waits(lines: Sequence[Line]) -> Iterator[tuple[str, str, float]]:
    """Return kind, lane and wait of each lane that was there before a fault and lived on after it."""
    answers = _answers_of(lines)
    deaths = {line["victim"]: line["at"] for line in lines if line["what"] == "killed"}
    for away, following in with_next(aways_of(lines)):
        limit = min(following, lines[-1]["at"])
        for (process, lane), instants in answers.items():
            if instants[0] > away.begin:
                continue
            later = bisect_left(instants, away.end)
            first = instants[later] if later < len(instants) else None
            # Who died or met the next fault meanwhile waited for something else.
            if first is None and deaths.get(process, limit) < limit:
                continue
            waited = (limit if first is None or first > limit else first) - away.end
            yield away.kind, lane, waited / NANOSECONDS


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
