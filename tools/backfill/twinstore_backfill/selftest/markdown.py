"""The report of a self-test for people: what an engineer shows to an auditor."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import TYPE_CHECKING

from twinstore_backfill.report.markdown import escaped, table
from twinstore_backfill.selftest.kinds import Kind

if TYPE_CHECKING:
    from collections.abc import Iterator

    from twinstore_backfill.selftest.document import Document

__all__ = ["headline", "markdown"]


def markdown(report: Document) -> str:
    """Return GitHub-flavoured Markdown."""
    return "\n".join(_lines(report)) + "\n"


def headline(report: Document) -> str:
    """Return the result in one line."""
    alarms = report["false_alarms"] or "no"
    asked = report["entities_asked"]
    only = f" Only {', '.join(asked)} {'was' if len(asked) == 1 else 'were'} corrupted." if asked else ""
    return (
        f"Found {report['found']:,} of {report['planted']:,} planted corruptions; {alarms} false "
        f"alarm{'' if report['false_alarms'] == 1 else 's'}; {report['refused']:,} that a server refuses to "
        f"hold.{only}"
    )


def _lines(report: Document) -> Iterator[str]:
    yield f"# Self-test of the verification of {escaped(report['module'])}"
    yield ""
    yield f"**{escaped(headline(report))}**"
    yield ""
    yield (
        "Rows of the source were copied into empty scratch databases and corrupted there past the program, "
        "each in one place, in every way below. A corruption counts as found when the list of differences "
        "names its entity, key and field as what it is. Whatever else is named counts as a false alarm."
    )
    yield ""
    yield from (f"- {escaped(text)}" for text in report["problems"])
    yield ""
    yield from _rows(report)
    for store in report["stores"]:
        yield from _store(store)


def _rows(report: Document) -> Iterator[str]:
    yield "## Rows"
    yield ""
    source, tool = report["source"], report["tool"]
    yield escaped(
        f"Sample of up to {report['sample']} rows an entity, seed {report['seed']}, of "
        f"{source.get('place', '')}; {tool['name']} {tool['version']}, {tool['checksum']}."
    )
    yield ""
    yield (
        "Made are copies of these rows under keys of their own, with fields filled or left out, so that each "
        "corruption has a row of its own."
    )
    yield ""
    rows = [
        (
            item["entity"],
            str(item["sampled"]),
            str(item["unreadable"]),
            str(item["made"]),
            str(len(item["tenants"])),
        )
        for item in report["entities"]
    ]
    yield from table(("entity", "sampled", "unreadable", "made", "owners"), rows)
    for name in report["untested"]:
        yield f"- Not tested: {escaped(name)}, of which the source has no row."
    yield ""


def _store(store: Document) -> Iterator[str]:
    result = f"{store['found']:,} of {store['planted']:,}"
    yield f"## {escaped(store['source'])} to {escaped(store['target'])}: {result}"
    yield ""
    yield escaped(
        f"Before planting the verification ended with {store['verdict_before']}, with everything planted "
        f"with {store['verdict']}; it named {store['rows_named']:,} rows."
    )
    yield ""
    yield from _matrix(store)
    yield from _roles(store)
    yield from _missed(store)
    yield from _fields(store)
    yield from _never_filled(store)
    yield from _refused(store)
    yield from _free(store)
    yield from _alone(store)


def _matrix(store: Document) -> Iterator[str]:
    """Yield found of planted by kind and entity."""
    planted: Counter[tuple[str, str]] = Counter()
    found: Counter[tuple[str, str]] = Counter()
    for row in (*store["corruptions"], *store["schema"]):
        planted[row["kind"], row["entity"]] += 1
        found[row["kind"], row["entity"]] += row["found"]
    entities = sorted({entity for _, entity in planted})
    yield "### Found, by kind and entity"
    yield ""
    rows = [
        (kind.value, *(_share(found[kind.value, entity], planted[kind.value, entity]) for entity in entities))
        for kind in Kind
        if any(planted[kind.value, entity] for entity in entities)
    ]
    yield from table(("kind", *entities), rows)


def _share(found: int, planted: int) -> str:
    if not planted:
        return ""
    return str(planted) if found == planted else f"{found} of {planted}"


def _roles(store: Document) -> Iterator[str]:
    yield "### Found, by what the field is for"
    yield ""
    rows = [
        (role, str(item["found"]), str(item["planted"])) for role, item in sorted(store["by_role"].items())
    ]
    yield from table(("role", "found", "planted"), rows)


def _missed(store: Document) -> Iterator[str]:
    if not store["missed"] and not store["false_alarms"]:
        return
    yield "### Missed, and named without reason"
    yield ""
    rows = [(row["entity"], row["field"], row["kind"], row.get("instead", "")) for row in store["missed"]]
    rows += [
        (row["entity"], ", ".join(row["paths"]), "false alarm", row["kind"]) for row in store["false_alarms"]
    ]
    yield from table(("entity", "field", "kind", "what happened"), rows)


def _fields(store: Document) -> Iterator[str]:
    yield "### Every field"
    yield ""
    kinds: defaultdict[tuple[str, str, str], list[str]] = defaultdict(list)
    for row in store["corruptions"]:
        form = f" ({row['form']})" if row["form"] else ""
        kinds[row["entity"], row["field"], row["role"]].append(f"{row['kind']}{form}")
    rows = [(*name, str(len(found)), "; ".join(found)) for name, found in sorted(kinds.items())]
    yield from table(("entity", "field", "role", "planted", "kinds"), rows)
    parts = [(row["entity"], row["form"], row["field"], row["named"]) for row in store["schema"]]
    yield from table(("entity", "part", "name", "named as"), parts)


def _never_filled(store: Document) -> Iterator[str]:
    if not store["never_filled"]:
        return
    yield "### Fields that no row has"
    yield ""
    yield "Here only null and an empty value could stand where nothing is."
    yield ""
    yield from (f"- {escaped(field)}" for field in store["never_filled"])
    yield ""


def _refused(store: Document) -> Iterator[str]:
    if not store["refused"]:
        return
    yield "### Refused by the server, with what refuses it"
    yield ""
    rows = [(row["entity"], row["field"], row["kind"], row["constraint"]) for row in store["refused"]]
    yield from table(("entity", "field", "kind", "constraint"), rows)


def _free(store: Document) -> Iterator[str]:
    if not store["free"]:
        return
    yield "### Free by definition, planted and rightly not named"
    yield ""
    rows = [(row["entity"], row["field"], row["kind"], row["form"]) for row in store["free"]]
    yield from table(("entity", "field", "kind", "form"), rows)


def _alone(store: Document) -> Iterator[str]:
    yield "### Planted once more alone"
    yield ""
    rows = [
        (row["entity"], row["field"], row["kind"], row["verdict"], row["problem"] or "as it must be")
        for row in store["alone"]
    ]
    yield from table(("entity", "field", "kind", "verdict", ""), rows)
