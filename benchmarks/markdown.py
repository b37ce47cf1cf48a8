"""The results as Markdown: a line for each way of doing something, a column for each number of workers."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, Final

from benchmarks.machine import load_line

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from benchmarks.goals import GoalResult
    from benchmarks.schedule import Group, Samples, Spread

__all__ = ["head", "introduction_of", "line", "markdown", "rate_text", "ratio_text"]

# Before the number of workers, at the end of the name of a case that was measured with several.
SEPARATOR: Final = ", "


def markdown(
    introduction: str, measured: Mapping[str, tuple[Group, Samples]], goals: Iterable[GoalResult]
) -> str:
    """Return all tables, the goals first; figures are medians, in brackets the quartiles."""
    parts = ["\n".join(group_lines(group, samples)) for group, samples in measured.values()]
    return "\n\n".join([introduction, "\n".join(goal_lines(goals)), *parts]) + "\n"


def introduction_of(head: Mapping[str, Any], measured: Mapping[str, tuple[Group, Samples]]) -> str:
    """Return what the figures rest on, in a sentence or two."""
    machine, options, load = head["machine"], head["options"], head["load_before"][0]
    rounds = Counter(max(map(len, samples.by_case.values())) for _, samples in measured.values())
    rounds_text = ", ".join(f"{number} in {groups} groups" for number, groups in sorted(rounds.items()))
    return (
        f"{head['date'][:10]}, {machine['cores']} cores ({machine['cpu']}), {load_line(load)}; "
        f"MongoDB {machine['mongodb']}, PostgreSQL {machine['postgresql']}, Python {machine['python']}; "
        f"{options['documents']:,} runs; rounds: {rounds_text}."
    )


def group_lines(group: Group, samples: Samples) -> Iterable[str]:
    """Return the tables of a group."""
    if group.lines is not None:
        return group.lines(samples)
    return by_workers(group, samples) if has_workers(group) else by_case(group, samples)


def has_workers(group: Group) -> bool:
    """Whether every case of a group ends with a number of workers."""
    return all(case.name.rpartition(SEPARATOR)[2].isdigit() for case in group.cases)


def by_workers(group: Group, samples: Samples) -> Iterator[str]:
    """Yield a table of rates, waits and processor time, and one of ratios."""
    ways = list(dict.fromkeys(case.name.rpartition(SEPARATOR)[0] for case in group.cases))
    numbers = list(dict.fromkeys(case.name.rpartition(SEPARATOR)[2] for case in group.cases))
    yield from [f"**{group.title}**: {group.unit} per second, by the number of workers", ""]
    yield from head([group.unit, *numbers, f"ms with {numbers[-1]}", f"CPU µs with {numbers[0]}"])
    for way in ways:
        rates = [rate_text(samples.rate(f"{way}, {number}")) for number in numbers]
        waits, used = samples.waits(f"{way}, {numbers[-1]}"), samples.processor(f"{way}, {numbers[0]}")
        waits_text = "" if waits is None else f"{waits[0]:.1f} ({waits[1]:.1f})"
        yield line([way, *rates, waits_text, "" if used is None else f"{used[0]:,.0f} + {used[1]:,.0f}"])
    yield ""
    yield from head(["ratio", *numbers])
    against = {case.name: case.against for case in group.cases}
    for way in ways:
        others = [other.rpartition(SEPARATOR)[0] for other in against[f"{way}, {numbers[0]}"]]
        for other in others:
            ratios = [samples.ratio(f"{way}, {number}", f"{other}, {number}") for number in numbers]
            yield line([f"{way} / {other}", *map(ratio_text, ratios)])


def by_case(group: Group, samples: Samples) -> Iterator[str]:
    """Yield a table with a line for each case."""
    yield from [f"**{group.title}**: {group.unit} per second", ""]
    yield from head(["case", "rate", "of"])
    for case in group.cases:
        shares = (f"{ratio_text(samples.ratio(case.name, other))} {other}" for other in case.against)
        yield line([case.name, rate_text(samples.rate(case.name)), "; ".join(shares)])


def goal_lines(goals: Iterable[GoalResult]) -> Iterator[str]:
    """Yield the goals with what was measured."""
    yield from head(["goal", "measured", "wanted", ""])
    for goal in goals:
        figure, wanted = f"{goal.measured:.{goal.digits}f} {goal.unit}", f"{goal.wanted:.{goal.digits}f}"
        yield line([goal.text, figure, f"{goal.bound} {wanted}", goal.verdict])


def head(names: Sequence[str]) -> Iterator[str]:
    """Yield the first lines of a table."""
    yield line(names)
    yield line(["---"] * len(names))


def line(cells: Sequence[str]) -> str:
    """Return one line of a table."""
    return f"| {' | '.join(cells)} |"


def rate_text(rate: Spread) -> str:
    """Return a rate with its quartiles."""
    return f"{rate.middle:,.0f} ({rate.lower:,.0f} to {rate.upper:,.0f})"


def ratio_text(ratio: Spread) -> str:
    """Return a ratio with its quartiles."""
    return f"{ratio.middle:.2f} ({ratio.lower:.2f} to {ratio.upper:.2f})"
