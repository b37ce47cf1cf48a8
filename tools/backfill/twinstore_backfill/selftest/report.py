"""The report of a self-test, as JSON and Markdown: same inputs, same report, except its envelope."""

from __future__ import annotations

import socket
from collections import defaultdict
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from twinstore.models import json_text
from twinstore_backfill.outcome import Exit, tool_identity
from twinstore_backfill.report.markdown import escaped, table
from twinstore_backfill.rules.model import DropRule
from twinstore_backfill.selftest.corruptions import Kind

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from twinstore_backfill.selftest.engine import AppliedCorruption, Outcome, SelftestOptions, Side

FORMAT: Final = "twinstore.selftest-report@1"
Document = dict[str, Any]
METHOD: Final = (
    "Rows of the source were copied into empty scratch databases and corrupted there past the program, "
    "each in one place, in every way below. A corruption counts as found when the list of differences "
    "names its entity, key and field as what it is. Whatever else is named counts as a false alarm."
)
MADE: Final = (
    "Made are copies of these rows under keys of their own, with fields filled or omitted. Corruptions are "
    "planted in rounds, in each round at most one into a row."
)
OF_ABSENCE: Final = frozenset({Kind.NULL_FOR_MISSING.value, Kind.EMPTY_FOR_MISSING.value})
OF_PARTS: Final = {
    "index": Kind.INDEX,
    **dict.fromkeys(("policy", "row-level security", "forced row-level security"), Kind.POLICY),
}


def document_of(
    outcome: Outcome, options: SelftestOptions, source: Mapping[str, str], module: str
) -> Document:
    """Return the report.

    Args:
        outcome: what was found.
        options: the options of the run.
        source: the store of the sample, as reports describe stores.
        module: its module.
    """
    stores = [_store(side) for side in outcome.sides]
    planted, found = (sum(store[name] for store in stores) for name in ("planted", "found"))
    problems = [problem for store in stores for problem in store["problems"]]
    passed = found == planted and not problems and bool(planted)
    return {
        "format": FORMAT,
        "envelope": {
            "generated_at": json_text.format_timestamp(datetime.now(UTC).replace(microsecond=0)),
            "host": socket.gethostname(),
            "seconds": round(outcome.seconds, 3),
            "steps": [{"target": side.names[1], **side.seconds} for side in outcome.sides],
        },
        "tool": tool_identity(),
        "module": module,
        "source": dict(source),
        **{name: getattr(options, name) for name in ("sample", "seed", "thorough")},
        "entities_asked": list(options.entities),
        "ignored": [rule.text for rule in options.rules if isinstance(rule, DropRule)],
        "planted": planted,
        "found": found,
        **{name: sum(len(store[name]) for store in stores) for name in ("false_alarms", "refused")},
        "passed": passed,
        "exit_code": int(Exit.OK if passed else Exit.DIFFERENT),
        "problems": problems,
        "entities": [
            {
                "entity": name,
                "sampled": len(sample.records),
                "unreadable": sample.unreadable,
                "made": outcome.made[name],
                "tenants": dict(sorted(sample.tenants.items())),
            }
            for name, sample in outcome.samples.items()
        ],
        "untested": [name for name, sample in outcome.samples.items() if not sample.records],
        "stores": stores,
    }


def _store(side: Side) -> Document:
    (clean, lines), alone = side.clean, [trial for trial in side.alone if trial.planted]
    blocked = [(trial.planted[0][0], trial.problem) for trial in side.blocked if trial.planted]
    together = [item for trial in side.rounds for item in trial.planted]
    false_alarms = [
        line for trial in (*side.rounds, *side.blocked, *side.alone) for line in trial.false_alarms
    ]
    rows = [
        {
            **item.item.named,
            "key": list(item.item.point.key),
            "alone": one,
            "found": not text,
            "instead": text,
        }
        for several, one in ((together, False), (blocked, True))
        for item, text in several
        if item.expected
    ]
    rows.sort(key=lambda row: (row["entity"], row["field"], row["kind"], row["form"]))
    parts = [
        {
            "entity": entity.name,
            "field": f"({part.kind} {part.name})",
            "role": "schema",
            "kind": OF_PARTS.get(part.kind, Kind.KEY).value,
            "form": part.kind,
            "found": bool(named),
            "named": named or "not named",
        }
        for entity, part, named in side.schema
    ]
    counted = [*rows, *parts]
    # Another row may have been in the way of one of a round, which was planted apart then.
    refused = [item for trial in side.rounds for item in trial.refused if not item[1].unique]
    refused += [item for trial in side.blocked for item in trial.refused]
    verdict = next((trial.report.verdict for trial in side.rounds if trial.verdict_problem), "FAIL")
    return {
        "source": side.names[0],
        "target": side.names[1],
        "planted": len(counted),
        "found": sum(row["found"] for row in counted),
        "verdict_before": clean.verdict,
        "verdict": verdict,
        "rows_named": sum(trial.named for trial in side.rounds),
        "problems": [
            f"{' to '.join(side.names)}{text}."
            for several in (
                [f": the verification before planting ended with {clean.verdict}"]
                * (clean.verdict != "PASS"),
                (
                    f": in round {number}, {trial.verdict_problem}"
                    for number, trial in enumerate(side.rounds, 1)
                    if trial.verdict_problem
                ),
                (
                    f": {line['entity']} {line['key']} was named as {line['kind']} but was not planted"
                    for line in (*lines, *false_alarms)
                ),
                (f": {_label(item)}: {text}" for item, text in together if text),
                (f", alone: {_label(item)}: {text}" for item, text in blocked if text),
                (
                    f", alone: {_label(trial.planted[0][0])}: {trial.problem}"
                    for trial in alone
                    if trial.problem
                ),
                (
                    f": the {part.kind} {part.name} of {entity.name} was dropped and not named"
                    for entity, part, named in side.schema
                    if not named
                ),
            )
            for text in several
        ],
        "missed": [row for row in counted if not row["found"]],
        "false_alarms": [
            {name: line[name] for name in ("entity", "key", "kind", "paths")} for line in false_alarms
        ],
        "never_filled": _never_filled(rows),
        **{f"by_{name}": _counts(counted, name) for name in ("kind", "entity", "role")},
        "refused": [{**item.named, "constraint": error.constraint} for item, error in refused],
        "free": [planted.item.named for planted, _ in (*together, *blocked) if not planted.expected],
        "alone": [
            {
                **trial.planted[0][0].item.named,
                "verdict": trial.report.verdict,
                "cutover_ready": trial.report.cutover_ready,
                "problem": trial.problem,
            }
            for trial in alone
        ],
        "corruptions": rows,
        "schema": parts,
    }


def _label(planted: AppliedCorruption) -> str:
    return ", ".join(planted.item.identity[:3])


def _never_filled(rows: Iterable[Document]) -> list[str]:
    """Return the fields that no row has, so that only a missing value could be corrupted there."""
    kinds: defaultdict[str, set[str]] = defaultdict(set)
    for row in rows:
        kinds[f"{row['entity']}: {row['field']}"].add(row["kind"])
    return [field for field, found in kinds.items() if found <= OF_ABSENCE]


def _counts(rows: Iterable[Document], name: str) -> dict[str, Document]:
    counts: dict[str, Document] = {}
    for row in rows:
        count = counts.setdefault(row[name], {"planted": 0, "found": 0})
        count["planted"] += 1
        count["found"] += row["found"]
    return counts


def headline(report: Document) -> str:
    """Return the result in one line."""
    alarms = report["false_alarms"] or "no"
    requested = report["entities_asked"]
    only = (
        f" Only {', '.join(requested)} {'was' if len(requested) == 1 else 'were'} corrupted."
        if requested
        else ""
    )
    return (
        f"Found {report['found']:,} of {report['planted']:,} planted corruptions; {alarms} false "
        f"alarm{'' if report['false_alarms'] == 1 else 's'}; {report['refused']:,} that a server refuses to "
        f"hold.{only}"
    )


def markdown(report: Document) -> str:
    """Return GitHub-flavoured Markdown: what an engineer shows to an auditor."""
    source, tool = report["source"], report["tool"]
    rows = [
        (*(str(row[name]) for name in ("entity", "sampled", "unreadable", "made")), str(len(row["tenants"])))
        for row in report["entities"]
    ]
    lines = [
        f"# Self-test of the verification of {escaped(report['module'])}",
        "",
        f"**{escaped(headline(report))}**",
        "",
        METHOD,
        "",
        *(f"- {escaped(text)}" for text in report["problems"]),
        "",
        "## Rows",
        "",
        escaped(
            f"Sample of up to {report['sample']} rows an entity, seed {report['seed']}, of "
            f"{source.get('place', '')}; {tool['name']} {tool['version']}, {tool['checksum']}."
        ),
        "",
        MADE,
        "",
        *table(("entity", "sampled", "unreadable", "made", "owners"), rows),
        *(f"- Not tested: {escaped(name)} (no rows in the source)." for name in report["untested"]),
        "",
        *(line for store in report["stores"] for line in _of_store(store)),
    ]
    return "\n".join(lines) + "\n"


def _of_store(store: Document) -> Iterator[str]:
    result = f"{store['found']:,} of {store['planted']:,}"
    yield from (f"## {escaped(store['source'])} to {escaped(store['target'])}: {result}", "")
    yield escaped(
        f"The verification before planting ended with {store['verdict_before']}. Those of the rounds named "
        f"{store['rows_named']:,} rows together."
    )
    yield ""
    rows = [*store["corruptions"], *store["schema"]]
    entities = sorted({row["entity"] for row in rows})
    shares = {name: _counts((row for row in rows if row["entity"] == name), "kind") for name in entities}
    kinds = [kind.value for kind in Kind if kind.value in store["by_kind"]]
    matrix = [(kind, *(_share(shares[name].get(kind)) for name in entities)) for kind in kinds]
    yield from _section("Found, by kind and entity", ("kind", *entities), matrix)
    roles = sorted(store["by_role"].items())
    by_role = [(role, str(item["found"]), str(item["planted"])) for role, item in roles]
    yield from _section("Found, by what the field is for", ("role", "found", "planted"), by_role)
    missed = [{"instead": "", **row} for row in store["missed"]] + [
        {**row, "field": ", ".join(row["paths"]), "kind": "false alarm", "instead": row["kind"]}
        for row in store["false_alarms"]
    ]
    yield from _rows_of("Missed, and named without reason", missed, instead="what happened")
    fields: defaultdict[tuple[str, str, str], list[str]] = defaultdict(list)
    for row in store["corruptions"]:
        form = f" ({row['form']})" if row["form"] else ""
        fields[row["entity"], row["field"], row["role"]].append(f"{row['kind']}{form}")
    every = [(*name, str(len(found)), "; ".join(found)) for name, found in sorted(fields.items())]
    yield from _section("Every field", ("entity", "field", "role", "planted", "kinds"), every)
    parts = [(row["entity"], row["form"], row["field"], row["named"]) for row in store["schema"]]
    yield from table(("entity", "part", "name", "named as"), parts)
    if store["never_filled"]:
        yield from ("### Fields that no row has", "")
        yield from ("Only null or an empty value could be planted there.", "")
        yield from (*(f"- {escaped(field)}" for field in store["never_filled"]), "")
    yield from _rows_of(
        "Refused by the server, with what refuses it", store["refused"], constraint="constraint"
    )
    yield from _rows_of("Free by definition, planted and rightly not named", store["free"], form="form")
    alone = [{**row, "problem": row["problem"] or "as it must be"} for row in store["alone"]]
    yield from _rows_of("Planted again alone", alone, verdict="verdict", problem="")


def _share(count: Mapping[str, int] | None) -> str:
    if count is None:
        return ""
    found, planted = count["found"], count["planted"]
    return str(planted) if found == planted else f"{found} of {planted}"


def _rows_of(title: str, rows: Sequence[Document], **columns: str) -> Iterator[str]:
    """Yield a table of corruptions with more columns of the report, each by its title."""
    names = ("entity", "field", "kind", *columns)
    found = [tuple(row[name] for name in names) for row in rows]
    yield from _section(title, (*names[:3], *columns.values()), found)


def _section(title: str, columns: Sequence[str], rows: Sequence[tuple[str, ...]]) -> Iterator[str]:
    """Yield a table with its title, nothing where it has no rows."""
    if rows:
        yield from (f"### {title}", "", *table(columns, rows))
