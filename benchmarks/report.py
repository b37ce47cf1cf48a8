"""Shows the results on a terminal and writes them as JSON."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING

from rich.table import Table

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from benchmarks.goals import GoalResult
    from benchmarks.schedule import Case, Group, Samples, Spread

__all__ = ["document", "goal_table", "group_table", "to_json"]


def group_table(group: Group, samples: Samples) -> Table:
    """Return medians with their smallest and largest value, and the ratios of the candidates."""
    table = Table(title=group.title, title_justify="left", pad_edge=False)
    table.add_column("case")
    for name in (f"{group.unit}/s", "least", "most", "peak MB", "wait ms (1 in 20)", "CPU µs"):
        table.add_column(name, justify="right")
    table.add_column("of a reference, round by round: median (least to most)")
    for case in group.cases:
        rate = samples.rate(case.name)
        peak = samples.peak(case.name)
        numbers = [f"{value:,.0f}" for value in (rate.middle, rate.least, rate.most)]
        shares = "\n".join(_share(samples, case, name) for name in case.against)
        waits = samples.waits(case.name)
        waits_text = "" if waits is None else f"{waits[0]:.1f} ({waits[1]:.1f})"
        used = samples.processor(case.name)
        processor = "" if used is None else f"{used[0]:,.0f} + {used[1]:,.0f}"
        memory = "" if peak is None else f"{peak:.0f}"
        table.add_row(case.name, *numbers, memory, waits_text, processor, shares)
    return table


def _share(samples: Samples, case: Case, reference: str) -> str:
    ratio = samples.ratio(case.name, reference)
    return f"{ratio.middle:.2f} ({ratio.least:.2f} to {ratio.most:.2f}) of {reference}"


def goal_table(goals: Iterable[GoalResult]) -> Table:
    """Return the goals with what was measured."""
    table = Table(title="Goals", title_justify="left", pad_edge=False)
    table.add_column("goal")
    table.add_column("measured", justify="right")
    table.add_column("wanted", justify="right")
    table.add_column("")
    for goal in goals:
        verdict = f"[{'green' if goal.reached else 'red'}]{goal.verdict}[/]"
        measured = f"{goal.measured:.{goal.digits}f} {goal.unit}"
        table.add_row(goal.text, measured, f"{goal.bound} {goal.wanted:.{goal.digits}f}", verdict)
    return table


def document(
    head: Mapping[str, object], measured: Mapping[str, tuple[Group, Samples]], goals: Iterable[GoalResult]
) -> dict[str, object]:
    """Return everything for the results file."""
    return {
        **head,
        "groups": {name: _group(group, samples) for name, (group, samples) in measured.items()},
        "goals": [{**asdict(goal), "reached": goal.reached} for goal in goals],
    }


def _group(group: Group, samples: Samples) -> dict[str, object]:
    return {
        "title": group.title,
        "unit": group.unit,
        "facts": dict(group.facts),
        "cases": {case.name: _case(case, samples) for case in group.cases},
    }


def _case(case: Case, samples: Samples) -> dict[str, object]:
    whole: Spread | None = samples.whole_rate(case.name)
    return {
        "per_second": samples.rate(case.name).document(),
        "per_second_with_start": None if whole is None else whole.document(),
        "peak_mb": samples.peak(case.name),
        "watcher_of_a_core": samples.watched(case.name),
        "wait_ms": samples.waits(case.name),
        "processor_us": samples.processor(case.name),
        "of": {name: samples.ratio(case.name, name).document() for name in case.against},
        "samples": [asdict(sample) for sample in samples.by_case[case.name]],
    }


def to_json(results: Mapping[str, object]) -> str:
    """Return the results file."""
    return json.dumps(results, indent=2, ensure_ascii=False, default=str) + "\n"
