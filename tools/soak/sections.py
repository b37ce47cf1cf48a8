"""Judges locks: the work done while a lock was held, and the fences under which it was held.

All instants are from the monotonic clock of the machine, which is the same for every process. A holder is
safe from its entry until it leaves, dies, or its lease ends, whichever comes first; the lease counts from
before the request for it. A holder that continues after that is not a violation: fences exist for this case.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from itertools import groupby
from typing import TYPE_CHECKING, Final

from tools.soak.plan import LEASE

if TYPE_CHECKING:
    from tools.soak.journal import Line

LEASE_NANOSECONDS: Final = LEASE // timedelta(microseconds=1) * 1000


@dataclass(frozen=True, slots=True)
class Section:
    """The times of one holder: when it requested, entered and was no longer safe, in nanoseconds."""

    key: str
    fence: int
    requested: int
    entered: int
    end: int


def sections_of(lines: Sequence[Line]) -> list[Section]:
    """Return the sections in the order in which they were entered."""
    deaths = {line["victim"]: line["at"] for line in lines if line["what"] == "killed"}
    steps_by_holder: dict[tuple[object, ...], list[Line]] = {}
    for line in lines:
        if line["what"] in {"entered", "left"}:
            steps_by_holder.setdefault((line["key"], line["fence"], line["by"]), []).append(line)
    found = [_section(steps, deaths.get(steps[0]["by"])) for steps in steps_by_holder.values()]
    return sorted(found, key=lambda section: section.entered)


def _section(steps: Sequence[Line], death: int | None) -> Section:
    """Follow one holder from its entry."""
    entry, *later = steps
    ends = [line["at"] for line in later] + ([] if death is None else [death])
    end = min([*ends, entry["asked"] + LEASE_NANOSECONDS])
    return Section(entry["key"], entry["fence"], entry["asked"], entry["at"], end)


def lock_violations(lines: Sequence[Line], fences: Mapping[str, int]) -> Iterator[str]:
    """Yield where two holders overlapped, or a fence did not grow; ``fences`` are the stored ones."""
    sections = sections_of(lines)
    for key in sorted({section.key for section in sections}):
        mine = [section for section in sections if section.key == key]
        yield from _overlaps(mine)
        yield from _fences(mine)
        highest = max(section.fence for section in mine)
        if fences.get(key, 0) < highest:
            yield f"lock {key} has the fence {fences.get(key, 0)}, but {highest} was given"


def _overlaps(sections: Sequence[Section]) -> Iterator[str]:
    ordered = sorted(sections, key=lambda section: section.entered)
    latest: Section | None = None
    for section in ordered:
        if latest is not None and section.entered < latest.end and section.entered < section.end:
            both = f"{latest.fence} and {section.fence}"
            yield f"lock {section.key} had two holders at once, with the fences {both}"
        if latest is None or section.end > latest.end:
            latest = section


def _fences(sections: Sequence[Section]) -> Iterator[str]:
    ordered = sorted(sections, key=lambda section: section.fence, reverse=True)
    # Of all with a higher fence: who was there first.
    first: Section | None = None
    for fence, group in groupby(ordered, key=lambda section: section.fence):
        same = list(group)
        if len(same) > 1:
            yield f"lock {same[0].key} gave the fence {fence} twice"
        for section in same:
            if first is not None and section.requested > first.entered:
                yield f"lock {section.key} gave the fence {fence} after {first.fence}"
        known = same if first is None else [*same, first]
        first = min(known, key=lambda section: section.entered)
