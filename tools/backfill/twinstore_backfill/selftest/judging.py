"""Comparing what the verification named with what was planted."""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import orjson

from twinstore.stored import MARK
from twinstore_backfill.verify.differences import member

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

    from twinstore.keys import Key
    from twinstore_backfill.selftest.planting import Expected, Planted

__all__ = ["Judgement", "Line", "judge", "lines_in"]

# What a comparison says of a path, behind it.
REMARK: Final = re.compile(r" \([^()]*\)$")
# What is said of the row as a whole, beside the paths: nobody reads it, or it is stored as no client would.
WHOLE: Final = frozenset({"doc", member("doc", f"{MARK}bson")})


@dataclass(frozen=True, slots=True)
class Line:
    """One row that the verification named."""

    entity: str
    key: Key | None
    kind: str
    paths: tuple[str, ...] = ()

    @property
    def places(self) -> frozenset[str]:
        """The paths without remarks."""
        return frozenset(REMARK.sub("", path) for path in self.paths)


def lines_in(path: Path) -> Iterator[Line]:
    """Yield the rows that a verification named in its file of differences."""
    with path.open("rb") as file:
        for text in file:
            line = orjson.loads(text)
            key = None if line["key"] is None else tuple(line["key"])
            yield Line(line["entity"], key, line["kind"], tuple(line["paths"]))


@dataclass(slots=True)
class Judgement:
    """What a verification found of what was planted.

    Attributes:
        found: those that were named as they must be.
        missed: those that were not, each with what was named instead.
        false_alarms: what was named and not planted.
    """

    found: list[Planted] = field(default_factory=list["Planted"])
    missed: list[tuple[Planted, str]] = field(default_factory=list[tuple["Planted", str]])
    false_alarms: list[Line] = field(default_factory=list[Line])


def judge(planted: Sequence[Planted], lines: Iterable[Line]) -> Judgement:
    """Tell what was found, what was missed, and what nobody planted."""
    named: defaultdict[tuple[str, str, Key | None], list[Line]] = defaultdict(list)
    for line in lines:
        named[line.entity, line.kind, line.key].append(line)
    result = Judgement()
    for item in planted:
        problems = [text for wanted in item.expected if (text := _problem(item, wanted, named)) is not None]
        if problems:
            result.missed.append((item, "; ".join(problems)))
        elif item.expected:
            result.found.append(item)
    result.false_alarms = [line for rest in named.values() for line in rest]
    return result


def _problem(
    item: Planted, wanted: Expected, named: dict[tuple[str, str, Key | None], list[Line]]
) -> str | None:
    """Take the line that was expected and return what is wrong with it."""
    found = named.get((item.entity.name, wanted.kind, wanted.key))
    if not found:
        return f"{wanted.kind} is not named"
    line = found.pop()
    if not wanted.paths:
        return None
    places = line.places - (WHOLE - set(wanted.paths))
    if not any(_lies_in(place, path) for place in places for path in wanted.paths):
        return f"the field is not named: {', '.join(line.paths)}"
    allowed = (*wanted.paths, *wanted.also)
    wrong = sorted(place for place in places if not any(_lies_in(place, path) for path in allowed))
    return f"other fields are named: {', '.join(wrong)}" if wrong else None


def _lies_in(place: str, path: str) -> bool:
    """Whether a path is another one, or lies below it."""
    return place == path or (place.startswith(path) and place[len(path)] in ".[")
