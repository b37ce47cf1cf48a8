"""The report of a self-test as a document: the same inputs give the same, apart from its envelope."""

from __future__ import annotations

import socket
from collections import Counter, defaultdict
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from twinstore import jsontext
from twinstore_backfill.outcome import Exit
from twinstore_backfill.provenance import tool_identity
from twinstore_backfill.selftest.kinds import Kind

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from twinstore_backfill.selftest.alone import Single
    from twinstore_backfill.selftest.engine import Outcome, SideOutcome
    from twinstore_backfill.selftest.judging import Line
    from twinstore_backfill.selftest.mutations import Mutation
    from twinstore_backfill.selftest.options import SelftestOptions
    from twinstore_backfill.selftest.planting import Planted, Refused
    from twinstore_backfill.selftest.schema import DroppedPart

__all__ = ["FORMAT", "Document", "document_of"]

FORMAT: Final = "twinstore.selftest-report@1"
Document = dict[str, Any]
NOT_NAMED: Final = "not named"
OF_ABSENCE: Final = frozenset({Kind.NULL_FOR_MISSING.value, Kind.EMPTY_FOR_MISSING.value})


def document_of(
    outcome: Outcome, options: SelftestOptions, source: Mapping[str, str], module: str
) -> Document:
    """Return the report.

    Args:
        outcome: what was found.
        options: what was asked.
        source: the store of the sample, as reports tell stores.
        module: its module.
    """
    stores = [_store(side) for side in outcome.sides]
    totals = {name: sum(store[name] for store in stores) for name in ("planted", "found")}
    alarms = sum(len(store["false_alarms"]) for store in stores)
    problems = [problem for store in stores for problem in store["problems"]]
    passed = totals["found"] == totals["planted"] and not problems and bool(totals["planted"])
    return {
        "format": FORMAT,
        "envelope": {
            "generated_at": jsontext.format_timestamp(datetime.now(UTC).replace(microsecond=0)),
            "host": socket.gethostname(),
            "seconds": round(outcome.seconds, 3),
            "steps": [{"target": side.target, **side.seconds} for side in outcome.sides],
        },
        "tool": tool_identity(),
        "module": module,
        "source": dict(source),
        "sample": options.sample,
        "seed": options.seed,
        "thorough": options.thorough,
        "entities_asked": list(options.entities),
        "ignored": [item.text for item in options.ignored],
        **totals,
        "false_alarms": alarms,
        "refused": sum(len(store["refused"]) for store in stores),
        "passed": passed,
        "exit_code": int(Exit.OK if passed else Exit.DIFFERENT),
        "problems": problems,
        "entities": [
            {
                "entity": name,
                "sampled": len(sample.records),
                "unreadable": sample.unreadable,
                "made": outcome.added.get(name, 0),
                "tenants": dict(sorted(sample.tenants.items())),
            }
            for name, sample in outcome.samples.items()
        ],
        "untested": [name for name, sample in outcome.samples.items() if not sample.records],
        "stores": stores,
    }


def _store(side: SideOutcome) -> Document:
    missed = {id(item): text for item, text in side.judgement.missed}
    rows = [_corruption(item, missed.get(id(item), "")) for item in (*side.judgement.found, *_items(side))]
    rows += [_corruption(single.planted, single.problem, alone=True) for single in side.apart]
    rows.sort(key=_order)
    parts = [_part(item) for item in side.schema if not item.refused]
    counted = [*rows, *parts]
    return {
        "source": side.source,
        "target": side.target,
        "planted": len(counted),
        "found": sum(row["found"] for row in counted),
        "verdict_before": side.clean.report.verdict,
        "verdict": side.everything.report.verdict,
        "rows_named": len(side.everything.lines),
        "problems": list(_problems(side)),
        "missed": [row for row in counted if not row["found"]],
        "false_alarms": [_line(line) for line in side.judgement.false_alarms],
        "never_filled": _never_filled(rows),
        "by_kind": _counts(counted, "kind"),
        "by_entity": _counts(counted, "entity"),
        "by_role": _counts(counted, "role"),
        "refused": [_refused(item) for item in side.refused]
        + [_part(item) | {"constraint": item.refused} for item in side.schema if item.refused],
        "free": [_named(item.entity.name, item.mutation) for item in side.free],
        "alone": [_single(item) for item in side.singles],
        "corruptions": rows,
        "schema": parts,
    }


def _items(side: SideOutcome) -> Iterable[Planted]:
    return (item for item, _ in side.judgement.missed)


def _problems(side: SideOutcome) -> Iterable[str]:
    """Yield what keeps the self-test from passing."""
    place = f"{side.source} to {side.target}"
    if side.clean.report.verdict != "PASS":
        yield f"{place}: the verification before planting ended with {side.clean.report.verdict}."
    if side.everything.report.verdict != "FAIL" or side.everything.report.cutover_ready:
        verdict = side.everything.report.verdict
        yield f"{place}: the verification with everything planted ended with {verdict}."
    for line in (*side.clean.lines, *side.judgement.false_alarms):
        yield f"{place}: {line.entity} {line.key} was named as {line.kind} and nobody planted it."
    for item, text in side.judgement.missed:
        yield f"{place}: {_told(item)}: {text}."
    for single in (*side.apart, *side.singles):
        if single.problem:
            yield f"{place}, alone: {_told(single.planted)}: {single.problem}."
    for part in side.schema:
        if not part.named and not part.refused:
            told = f"the {part.part.kind} {part.part.name} of {part.entity.name}"
            yield f"{place}: {told} was dropped and not named."
    for left in side.unplaced:
        yield f"{place}: no row could be made for {left.entity}, {left.identity[0]}, {left.identity[1]}."


def _told(item: Planted) -> str:
    return f"{item.entity.name}, {item.mutation.pattern}, {item.mutation.kind}"


def _corruption(item: Planted, problem: str, *, alone: bool = False) -> Document:
    return {
        **_named(item.entity.name, item.mutation),
        "key": list(item.key),
        "alone": alone,
        "found": not problem,
        "instead": problem,
    }


def _named(entity: str, mutation: Mutation) -> Document:
    return {
        "entity": entity,
        "field": mutation.pattern,
        "role": mutation.role.value,
        "kind": mutation.kind.value,
        "form": mutation.form,
    }


def _refused(item: Refused) -> Document:
    return {**_named(item.entity, item.mutation), "constraint": item.constraint}


def _single(item: Single) -> Document:
    return {
        **_named(item.planted.entity.name, item.planted.mutation),
        "verdict": item.verdict,
        "cutover_ready": item.ready,
        "problem": item.problem,
    }


def _part(item: DroppedPart) -> Document:
    return {
        "entity": item.entity.name,
        "field": f"({item.part.kind} {item.part.name})",
        "role": "schema",
        "kind": item.kind.value,
        "form": item.part.kind,
        "found": bool(item.named),
        "named": item.named or NOT_NAMED,
    }


def _line(line: Line) -> Document:
    key = None if line.key is None else list(line.key)
    return {"entity": line.entity, "key": key, "kind": line.kind, "paths": list(line.paths)}


def _never_filled(rows: Iterable[Document]) -> list[str]:
    """Return the fields that no row has, so that nothing but a missing value could be corrupted there."""
    kinds: defaultdict[str, set[str]] = defaultdict(set)
    for row in rows:
        kinds[f"{row['entity']}: {row['field']}"].add(row["kind"])
    return [field for field, found in kinds.items() if found <= OF_ABSENCE]


def _counts(rows: Iterable[Document], name: str) -> dict[str, Document]:
    planted: Counter[str] = Counter()
    found: Counter[str] = Counter()
    for row in rows:
        planted[row[name]] += 1
        found[row[name]] += row["found"]
    return {key: {"planted": planted[key], "found": found[key]} for key in planted}


def _order(row: Document) -> tuple[str, str, str, str]:
    return row["entity"], row["field"], row["kind"], row["form"]
