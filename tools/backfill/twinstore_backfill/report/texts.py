"""The texts that all renderings share."""

from __future__ import annotations

import re
import unicodedata
from collections import defaultdict
from dataclasses import dataclass
from functools import lru_cache
from math import inf
from typing import TYPE_CHECKING, Final

from twinstore.catalog.tenancy import shown

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from twinstore.catalog.keys import Key
    from twinstore_backfill.report.model import (
        Check,
        Counts,
        Differing,
        EntityReport,
        Envelope,
        Named,
        ParityReport,
        SideReport,
    )

# The value of --from if a clean start has no source at all.
NO_SOURCE: Final = "none"
NO_ROW: Final = "the list of differences names no row to compare"
# What is a difference, in the order in which people ask for it.
WRONG: Final = ("missing", "extra", "different", "stale", "undecodable")
UNPROVED: Final = ("quarantined", "unproved")
NAMED_ENTITIES: Final = 4
FUNCTION: Final = "function"
SPEED_CHECK: Final = "B1"
# Among equivalences: documents that differ in nothing else.
IGNORED_FIELD: Final = "ignored_field"
EXCEPTIONS: Final = "Approved exceptions"
EXCEPTION_COLUMNS: Final = ("kind", "path", "documents", "reason", "approved by")
NOT_COMPARED: Final = "Fields that were not compared"
NOT_COMPARED_NOTE: Final = "These documents are equal but for the fields that --ignore-field names."
# In the order of the bar.
SHARES: Final = ("proved", "approved", "open", "refused")
SPEED: Final = "lists take longer there than --max-ratio allows"
SPEED_COLUMNS: Final = ("list", "source median", "source 95 %", "target median", "target 95 %")
UNITS: Final = ((60, "minute", 3600), (3600, "hour", 86_400), (86_400, "day", inf))
FIVES_FROM: Final = 12
# A key may have any length; the files for programs hold it in full.
LONGEST: Final = 160
LONGEST_SENTENCE: Final = 600
LAST_SHORT: Final = 0xFFFF
# Control characters, invisible marks such as those that turn the direction of text, halves of pairs, and
# line ends: on a terminal or a page they would act instead of being seen.
INVISIBLE: Final = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})
INSTANT: Final = re.compile(r"^(\d{4}-\d\d-\d\d)T(\d\d:\d\d:\d\d)(?:\.\d+)?\+00:00$")
# In one line.
ENTITIES_NAMED: Final = 3
# XML 1.0 has no way to write these, not even escaped.
FORBIDDEN: Final = re.compile(r"[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def clipped(text: str, longest: int = LONGEST) -> str:
    """Return text, of a long one its beginning and its end: long keys often begin alike."""
    if len(text) <= longest:
        return text
    end = longest // 4
    return f"{text[: longest - end]}…{text[-end:]}"


def visible(text: str) -> str:
    """Return text in which every invisible character shows as its number, as in a JSON escape."""
    # Nearly every text; the way by characters is slow, and a report has thousands of keys.
    if text.isascii() and text.isprintable():
        return text
    return "".join(_shown(character) for character in text)


@lru_cache(maxsize=1024)
def _shown(character: str) -> str:
    if unicodedata.category(character) not in INVISIBLE:
        return character
    number = ord(character)
    return f"\\u{number:04x}" if number <= LAST_SHORT else f"\\U{number:08x}"


def xml_text(text: str) -> str:
    """Return text as XML can hold it; its own line ends stay."""
    lines = (visible(clipped(line, LONGEST_SENTENCE)) for line in text.split("\n"))
    return FORBIDDEN.sub("\ufffd", "\n".join(lines))


def headline(report: ParityReport) -> str:
    """Return the first sentence of a report."""
    texts = (_verdict_sentence(report), functions_text(report), exceptions_text(report), expired_text(report))
    return " ".join(filter(None, texts))


def functions_text(report: ParityReport) -> str:
    """Say what code of the module changed that no verification checks; an empty text if there is none."""
    found = [
        f"{clipped(item.path)}: {number_of(item.rows or 0, 'document')} "
        f"({clipped(item.reason, LONGEST_SENTENCE)})"
        for item in report.rules
        if item.kind == FUNCTION
    ]
    if not found:
        return ""
    return (
        "A copy and this verification called the same functions of the module, so their faults are not "
        f"found. They changed {'; '.join(found)}."
    )


def exceptions_text(report: ParityReport) -> str:
    """Say on how many documents that are accepted the verdict rests; an empty text if there are none."""
    count = report.approved_exceptions
    return f"{number_of(count, 'approved exception')}." if count else ""


def exception_rows(report: ParityReport) -> list[tuple[str, str, str, str, str]]:
    """Return what is accepted, with who decided it and why."""
    return [
        (
            clipped(item.kind),
            clipped(item.path),
            f"{item.rows:,}" if item.most is None else f"{item.rows:,} of at most {item.most:,}",
            clipped(item.reason, LONGEST_SENTENCE),
            clipped(item.approved_by),
        )
        for item in report.exceptions
    ]


def _verdict_sentence(report: ParityReport) -> str:
    source, target = _names(report)
    match report.verdict:
        case "PASS":
            return f"{number_of(report.documents_equal, 'document')} equal in {source} and {target}."
        case "PARTIAL" if report.mode == "recheck" and not report.entities:
            return f"Nothing was compared: {NO_ROW}."
        case "PARTIAL":
            return (
                f"No difference between {source} and {target} was seen: "
                f"{number_of(report.documents_equal, 'document')} equal, but not everything was compared."
            )
        case "FAIL":
            return _failure(report, source, target)
        case "INCONCLUSIVE":
            return f"{_gaps(report)} No difference between {source} and {target} was seen."
        case _:
            return f"{_capital(target)} starts without old data, as approved."


def _gaps(report: ParityReport) -> str:
    """Return what keeps the verdict from PASS though nothing differs."""
    rows = _rows_by_entity(report, UNPROVED)
    return f"The proof has gaps: {'; '.join(filter(None, (rows, _failed_checks(report))))}."


def _failure(report: ParityReport, source: str, target: str) -> str:
    if report.mode == "start-clean":
        return f"{_capital(target)} is not ready for a fresh start: {_failed_checks(report)}."
    if is_only_slow(report.checks):
        return f"{_capital(source)} and {target} hold the same, but {target} is slow: {SPEED}."
    equal = f"{number_of(report.documents_equal, 'document')} equal"
    return f"{_capital(source)} and {target} differ: {_differences(report)}. {equal}."


def is_only_slow(checks: Iterable[Check]) -> bool:
    """Whether the speed of the lists is all that failed."""
    return {item.id for item in checks if item.result == "fail"} == {SPEED_CHECK}


def number_of(count: int, noun: str) -> str:
    """Return a number with its noun."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def largest(rows: Mapping[str, int]) -> str:
    """Return numbers of rows by entity in words."""
    found = sorted(((count, name) for name, count in rows.items() if count), reverse=True)
    named = ", ".join(f"{name} {count:,}" for count, name in found[:ENTITIES_NAMED])
    more = f", and {len(found) - ENTITIES_NAMED} more" if len(found) > ENTITIES_NAMED else ""
    return f"{number_of(sum(rows.values()), 'row')}{f' ({named}{more})' if named else ''}"


def about(seconds: float) -> str:
    """Return a duration that is only estimated, as exact as a person would say it."""
    for unit, noun, next_unit in UNITS:
        if seconds < unit / 2:
            return "less than a minute"
        count = _rounded(seconds / unit)
        if count * unit < next_unit:
            return f"about {number_of(count, noun)}"
    raise OverflowError(seconds)


def _rounded(number: float) -> int:
    """Return a number of units: small ones as they are, larger ones in fives."""
    return max(round(number), 1) if number < FIVES_FROM else 5 * round(number / 5)


def between(low: int, high: int) -> str:
    """Return bounds of a number that was estimated, with two digits each."""
    if low == high:
        return f"{low:,}"
    return " to ".join(f"{float(f'{number:.1e}'):,.0f}" for number in (low, high))


def folded_warnings(warnings: Sequence[str], speed_only: int) -> Iterator[str]:
    """Yield what a terminal shows of warnings: those about speed, which are the last ones, as a number."""
    others = warnings[: len(warnings) - speed_only]
    yield from (f"Warning: {clipped(text, LONGEST_SENTENCE)}" for text in others)
    if speed_only:
        yield f"{number_of(speed_only, 'warning')} (speed only); --log-level info shows the cost of each."


def _differences(report: ParityReport) -> str:
    """Return what is wrong by entity, or where no row is, which checks say so."""
    return _rows_by_entity(report, WRONG) or _failed_checks(report)


def _rows_by_entity(report: ParityReport, kinds: Sequence[str]) -> str:
    """Return how many documents of these kinds there are, by entity."""
    named = [text for entity in report.entities if (text := _rows(entity, kinds))]
    more = len(named) - NAMED_ENTITIES
    return "; ".join(named[:NAMED_ENTITIES]) + (f"; and in {more} more entities" if more > 0 else "")


def _rows(entity: EntityReport, kinds: Sequence[str]) -> str:
    numbers = {kind: getattr(entity.counts, kind) for kind in kinds}
    if "quarantined" in numbers:
        numbers["quarantined"] -= entity.counts.quarantined_approved
    text = ", ".join(f"{count:,} {kind}" for kind, count in numbers.items() if count)
    return f"{text} in {entity.entity}" if text else ""


def _failed_checks(report: ParityReport) -> str:
    """Return the checks that keep the verdict from PASS."""
    named = [f"{item.id} {item.title}" for item in report.checks if item.result in {"fail", "inconclusive"}]
    return ", ".join(named)


def shares_of(report: ParityReport) -> dict[str, int]:
    """Return how many documents are proved, approved, open and refused."""
    counts = [item.counts for item in report.entities]
    return {
        "proved": sum(item.equal - item.equal_approved for item in counts),
        "approved": sum(item.approved for item in counts),
        "open": sum(item.unproved + item.wrong for item in counts),
        "refused": sum(item.quarantined - item.quarantined_approved + item.undecodable for item in counts),
    }


def expired_rows(report: ParityReport) -> tuple[int, int]:
    """Return how many rows of source and target retention has due for removal."""
    counts = [entity.counts for entity in report.entities]
    return sum(item.expired_source for item in counts), sum(item.expired_target for item in counts)


def expired_text(report: ParityReport) -> str:
    """Return how many rows were skipped because they have expired; an empty text if there are none."""
    source, target = expired_rows(report)
    if not source and not target:
        return ""
    sides = f"{source:,} in source, {target:,} in target"
    return f"Skipped expired rows: {sides}."


def _names(report: ParityReport) -> tuple[str, str]:
    """Return what to call the two sides."""
    source, target = report.source.backend, report.target.backend
    return ("the source", "the target") if source == target else (source, target)


def facts(report: ParityReport) -> list[tuple[str, str]]:
    """Return what identifies a verification."""
    rows = [
        ("Source", _source(report)),
        ("Target", _side(report.target)),
        ("Module", report.module),
        ("Mode", _mode(report)),
        ("Retention as of", report.as_of or "the start of the run"),
        ("Entities", ", ".join(report.entities_asked) or "all"),
        ("Tenants", ", ".join(report.tenants_asked) or "all"),
        ("Switch", report.switch or "not set"),
        ("Ready for cut-over", "yes" if report.cutover_ready else "no"),
        ("Approved exceptions", f"{report.approved_exceptions:,}"),
        ("Tool", f"{report.tool.name} {report.tool.version} ({report.tool.checksum})"),
    ]
    if report.subset is not None:
        from twinstore_backfill.subset import described  # noqa: PLC0415  # what prints a table needs no keys

        rows.append(("Only", described(report.subset.model_dump())))
    rows += [("Skipped", text) for text in left_out_texts(report)]
    rows += [
        (
            "Not compared" if item.kind == "field" else "Ignored",
            f"{item.entity}.{item.path}: {item.reason or 'no reason given'}",
        )
        for item in report.ignored
    ]
    if report.approval is not None:
        rows.append(("Approved by", f"{report.approval.approved_by}: {report.approval.reason}"))
    return rows


def made_text(report: ParityReport) -> str:
    """Return when, where and how fast a report was made."""
    envelope = report.envelope
    made = (
        f"Made {instant_text(envelope.generated_at)} on {clipped(envelope.host)} in {envelope.seconds:,} s; "
        f"retention judged as of {instant_text(envelope.as_of)}{_fast_path(envelope)}."
    )
    return f"{made} {proved_text(report)}".strip()


def proved_text(report: ParityReport) -> str:
    """Say how much digests proved, and where none were used; nothing where not every row was compared."""
    found = report.envelope.ranges
    if found is None:
        return ""
    proved = (
        f"Ranges proved by 128-bit digests of every row: {found.by_digests:,}; "
        f"row by row: {found.row_by_row:,}."
    )
    begun = report.envelope.continued
    continued = "" if begun is None else f"Continued: rows were compared from {instant_text(begun)} on."
    return " ".join(filter(None, (proved, _without_digests(report), continued)))


def _without_digests(report: ParityReport) -> str:
    """Say which entities were compared without digests, and why."""
    entities = defaultdict[str, list[str]](list)
    for name, reason in report.envelope.without_digests.items():
        entities[reason].append(name)
    if not entities:
        return ""
    if len(entities) == 1 and len(report.entities) == len(report.envelope.without_digests):
        return f"No digests were used: {clipped(next(iter(entities)))}."
    each = (f"{', '.join(map(clipped, names))} ({clipped(reason)})" for reason, names in entities.items())
    return f"No digests were used for {'; '.join(each)}."


def _fast_path(envelope: Envelope) -> str:
    return "" if envelope.fast_path is None else f"; {clipped(str(envelope.fast_path))}"


def instant_text(text: str) -> str:
    """Return an instant for people, which is written in the form for programs."""
    return INSTANT.sub(r"\1 \2 UTC", clipped(text))


def left_out_texts(report: ParityReport) -> Iterator[str]:
    """Say of each entity that is not compared how many rows it has."""
    for item in report.left_out:
        source, target = sum(item.source.values()), sum(item.target.values())
        # The source of a fresh start was not opened.
        sides = f"{number_of(target, 'row')} in target"
        if report.mode != "start-clean":
            sides = f"{number_of(source, 'row')} in source, {target:,} in target"
        yield f"{item.entity}: skipped; {sides}"


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def _source(report: ParityReport) -> str:
    if report.mode != "start-clean" or report.source.identity:
        return _side(report.source)
    return "none" if report.source.backend == NO_SOURCE else f"{report.source.backend} (not opened)"


def _side(side: SideReport) -> str:
    """Return where a store is; reports of 0.1.0 named the place as its identity."""
    place = side.place or side.identity
    return f"{place} (server {side.server_version})" if side.server_version else place


def _mode(report: ParityReport) -> str:
    if report.mode == "sample":
        return f"sample of {report.sample_size} documents per entity, seed {report.seed}"
    named = {"start-clean": "fresh start", "recheck": "recheck of the rows that differed"}
    return named.get(report.mode, report.mode)


def key_text(key: Key | str | None) -> str:
    """Return a key for people; a text is what is stored in its place."""
    if isinstance(key, str):
        return clipped(key)
    return clipped(" / ".join(map(str, key))) if key is not None else "(no usable key)"


def tenant_text(label: str) -> str:
    """Return the owner of rows for people."""
    return clipped(shown(label))


def short(digest: str) -> str:
    """Return the beginning of a digest."""
    return digest.removeprefix("sha256:")[:16]


def group_rows(report: ParityReport) -> list[tuple[str, str, str]]:
    """Return the logical groups with their entities and what these amount to."""
    return [(group.name, ", ".join(group.entities), group.result) for group in report.groups]


def equivalence_rows(report: ParityReport, *, ignored: bool) -> list[tuple[str, str]]:
    """Return which differences count as none and in how many documents: ignored ones, or the others."""
    return [
        (item.name, f"{item.documents:,}")
        for item in report.equivalences
        if (item.name == IGNORED_FIELD) is ignored
    ]


RULE_COLUMNS: Final = ("rule", "path", "rows", "reason")


def rule_rows(report: ParityReport) -> list[tuple[str, str, str, str]]:
    """Return the rules that change documents: kind, path, changed rows, reason."""
    return [
        (item.kind, item.path, "not counted" if item.rows is None else f"{item.rows:,}", item.reason)
        for item in report.rules
    ]


def speed_rows(report: ParityReport) -> list[tuple[str, str, str, str, str]]:
    """Return how long each list takes, in milliseconds; nothing without measurements."""
    return [
        (
            clipped(item.query),
            f"{item.source_median:,.1f}",
            f"{item.source_p95:,.1f}",
            f"{item.target_median:,.1f}",
            f"{item.target_p95:,.1f}",
        )
        for item in report.envelope.benchmark
    ]


# The rows that a verification names, as every rendering lists them: what many have in common comes first.


# In the order in which people ask for it.
KINDS: Final = ("missing", "extra", "different", "stale", "unproved", "undecodable", "quarantined")
ALL_ROWS: Final = "differences.ndjson"
MEANINGS: Final[Mapping[str, str]] = {
    "missing": "in source only",
    "extra": "in target only",
    "undecodable": "cannot be decoded on either side",
    "quarantined": "in source, cannot be decoded; not in target",
}


@dataclass(frozen=True, slots=True)
class Listed:
    """One row. ``owner`` is the label of its tenant, ``where`` is for people."""

    named: Key | str | None
    owner: str
    where: str

    @property
    def key(self) -> str:
        """Its key for people."""
        return key_text(self.named)

    @property
    def tenant(self) -> str:
        """Its tenant for people."""
        return tenant_text(self.owner)


@dataclass(frozen=True, slots=True)
class KindList:
    """The first rows of one kind, and how many there are."""

    kind: str
    count: int
    rows: tuple[Listed, ...]


def lists_of(entity: EntityReport) -> Iterator[KindList]:
    """Yield what an entity has of each kind, in order."""
    plain = {
        "missing": entity.missing,
        "extra": entity.extra,
        "undecodable": entity.undecodable,
        "quarantined": entity.quarantined,
    }
    differing = {"different": entity.different, "stale": entity.stale, "unproved": entity.unproved}
    for kind in KINDS:
        if kind in plain:
            rows = tuple(_named(kind, item) for item in plain[kind].shown)
            count = plain[kind].count
        else:
            rows = tuple(_differing(kind, item) for item in differing[kind].shown)
            count = differing[kind].count
        if count:
            yield KindList(kind, count, rows)


def summary_rows(report: ParityReport, entity: EntityReport) -> list[tuple[str, str, int]]:
    """Return kind, place and number of documents: a thousand that differ in one field are one row."""
    rows: list[tuple[str, str, int]] = []
    for listed in lists_of(entity):
        kind = listed.kind
        fields = [(kind, item.path, item.documents) for item in entity.fields if item.kind == kind]
        counted = [
            (kind, _meaning(kind, item.reason), item.documents)
            for item in report.causes
            if item.entity == entity.entity and item.kind == kind
        ]
        # A report of an earlier release has no causes.
        rows += fields or counted or [(kind, MEANINGS.get(kind, ""), listed.count)]
    return rows


def _meaning(kind: str, reason: str | None) -> str:
    """Return what is the matter with rows of a kind, and why."""
    meaning = MEANINGS.get(kind, "")
    return meaning if reason in {None, "", meaning} else clipped(f"{meaning}: {reason}", LONGEST_SENTENCE)


def named_counts(counts: Counts) -> str:
    """Return the number of documents of each kind, without kinds that have none."""
    numbers: dict[str, int] = counts.model_dump(include=set(KINDS))
    return ", ".join(f"{numbers[kind]:,} {kind}" for kind in KINDS if numbers[kind])


def more_rows(count: int, shown: Sequence[object]) -> str:
    """Say how many rows are not listed and where they are; nothing where all are."""
    left = count - len(shown)
    return f"… and {left:,} more: see {ALL_ROWS}." if left > 0 else ""


def _named(kind: str, item: Named) -> Listed:
    return Listed(item.key, item.tenant, _meaning(kind, item.reason))


def _differing(kind: str, item: Differing) -> Listed:
    where = _paths(item)
    if kind == "stale":
        why = "cannot be copied" if item.reason is None else f"cannot be copied ({item.reason})"
        where = f"of no copy: its source {why}; {where}"
    elif kind == "unproved":
        where = f"equal once normalised: {where}"
    return Listed(item.key, item.tenant, clipped(where, LONGEST_SENTENCE))


def _paths(item: Differing) -> str:
    more = item.path_count - len(item.paths)
    return ", ".join(map(clipped, item.paths)) + (f" and {more} more" if more > 0 else "")
