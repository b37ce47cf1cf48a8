"""What the journal tells of a server that came and went: when it was away, and what is therefore in doubt."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Final

from tests.soak.plan import LEASE, NANOSECONDS

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tests.soak.journal import Line

__all__ = ["HEALED_SECONDS", "Away", "aways_of", "doubtful", "refusal_violations", "with_next"]

# How long after the server is back calls may still be refused; on a quiet machine pools heal within two.
HEALED_SECONDS: Final = 10.0
LEASE_NANOSECONDS: Final = int(LEASE.total_seconds() * NANOSECONDS)


@dataclass(frozen=True, slots=True)
class Away:
    """From when to when a server was away, in monotonic nanoseconds, and what had happened to it."""

    begin: int
    end: int
    kind: str


def aways_of(lines: Sequence[Line]) -> list[Away]:
    """Return when the server was away; what was not over at the end lasted up to the last line."""
    found: list[Away] = []
    begin: Line | None = None
    for line in lines:
        if line["what"] == "outage":
            begin = line
        elif line["what"] == "back" and begin is not None:
            found.append(Away(begin["at"], line["at"], begin["kind"]))
            begin = None
    return found if begin is None else [*found, Away(begin["at"], lines[-1]["at"], begin["kind"])]


def refusal_violations(lines: Sequence[Line]) -> Iterator[str]:
    """Say which calls were refused although the server was there all the time."""
    aways = aways_of(lines)
    grace = int(HEALED_SECONDS * NANOSECONDS)
    for line in lines:
        if line["what"] != "refused" or _outlived_its_lease(line):
            continue
        if not any(away.begin <= line["at"] and line["began"] <= away.end + grace for away in aways):
            yield f"{line['during']} was refused although the server was there: {line['error']}"


def _outlived_its_lease(line: Line) -> bool:
    """Whether it was a lock whose holder was so slow that the server has ended its connection, as it must."""
    return line["during"] == "exclude" and int(line["at"]) - int(line["began"]) > LEASE_NANOSECONDS


def with_next(aways: Sequence[Away]) -> list[tuple[Away, float]]:
    """Return each with the beginning of the next one, the last one with infinity."""
    return [(away, float(following.begin)) for away, following in pairwise(aways)] + [
        (away, float("inf")) for away in aways[-1:]
    ]


def doubtful(lines: Sequence[Line], what: str) -> list[Line]:
    """Return the intentions that were perhaps carried out.

    They have no answer, because their worker was killed, or the error said that nobody knows.
    """
    settled = {
        line["of"]
        for line in lines
        if "of" in line and line["what"] != what and line.get("outcome") != "unknown"
    }
    return [line for line in lines if line["what"] == what and line.get("of") not in settled]
