"""Judges what services wrote: what was confirmed is there, what was refused is not, and nothing is in part.

Beyond that no tenant was ever shown a row of another one, and nothing was kept.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from twinstore.errors import Outcome

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tools.soak.journal import Line
    from tools.soak.stored import Stored

COUNT: Final = "count "


def violations(lines: Sequence[Line], stored: Stored) -> Iterator[str]:
    """Say what is wrong."""
    answers = _answers(lines)
    yield from _writes(lines, stored.parts, answers)
    yield from _unintended(lines, stored.parts)
    yield from _counters(lines, stored.counters, answers)
    yield from (f"a row that is of two tenants is stored: {row}" for row in stored.foreign_rows)
    for line in lines:
        if line["what"] == "foreign":
            yield f"{line['lane']} read as {line['tenant']} {line['seen']}"
        elif line["what"] == "leaked":
            yield f"kept: {line['seen']}"


def _answers(lines: Sequence[Line]) -> Mapping[str, str]:
    """Return by intention what is known of it; nothing where it has no answer."""
    outcomes = {line["of"]: line["outcome"] for line in lines if "of" in line and "outcome" in line}
    return outcomes | {line["of"]: "written" for line in lines if line["what"] == "written"}


def _writes(lines: Sequence[Line], parts: Mapping[str, int], answers: Mapping[str, str]) -> Iterator[str]:
    for line in lines:
        own_parts = _intended_parts(line)
        there = [part for part in own_parts if parts.get(part)]
        answer, name = (
            answers.get(line.get("of", ""), Outcome.UNKNOWN),
            f"{line.get('kind')} {line.get('of')}",
        )
        if answer == "written" and len(there) < len(own_parts):
            yield f"{name} was confirmed, and {sorted(set(own_parts) - set(there))} is not stored"
        elif answer == Outcome.NOT_APPLIED and there:
            yield f"{name} was refused, and {there} is stored"
        elif 0 < len(there) < len(own_parts):
            yield f"{name} is stored in part: {there} of {own_parts}"


def _intended_parts(line: Line) -> list[str]:
    """Return the parts that a line intends to store."""
    parts = line["parts"] if line["what"] == "write" else ()
    return [part for part in parts if not part.startswith(COUNT)]


def _unintended(lines: Sequence[Line], parts: Mapping[str, int]) -> Iterator[str]:
    intended = {part for line in lines if line["what"] == "write" for part in line["parts"]}
    for part, number in parts.items():
        if part not in intended:
            yield f"{part} is stored, and nobody wrote it"
        if number > 1:
            yield f"{part} is stored {number} times"


def _counters(
    lines: Sequence[Line], counters: Mapping[str, int], answers: Mapping[str, str]
) -> Iterator[str]:
    """Each counter has every step that was confirmed, and at most those whose outcome is unknown."""
    attempted: dict[str, Counter[str]] = {key: Counter() for key in counters}
    for line in lines:
        for part in line["parts"] if line["what"] == "write" else ():
            if part.startswith(COUNT):
                attempted[part.removeprefix(COUNT)][answers.get(line["of"], Outcome.UNKNOWN)] += 1
    for key, value in counters.items():
        least = attempted[key]["written"]
        most = least + attempted[key][Outcome.UNKNOWN]
        if not least <= value <= most:
            yield f"{key} stands at {value}, and {least} to {most} steps were taken"
