"""The checks of a verification and what they amount to."""

from __future__ import annotations

import json
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, cast

from twinstore.modules import module_spec
from twinstore.tenancy import shown
from twinstore_backfill.report.model import Check
from twinstore_backfill.report.texts import NO_ROW, number_of
from twinstore_backfill.verify.findings import UNREADABLE_TARGET

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from twinstore.checks import SmokeTest
    from twinstore_backfill.report.model import Differing, EntityReport, Result, TenantReport
    from twinstore_backfill.stores import Store
    from twinstore_backfill.verify.lists import AnyStorage, ListFinding
    from twinstore_backfill.verify.tasks import ListResult

__all__ = [
    "NO_LOCKS",
    "ONLY_ROWS",
    "SMOKE",
    "ListJudgement",
    "content_check",
    "count_check",
    "decode_check",
    "list_check",
    "list_checks",
    "list_titles",
    "listed_check",
    "mode_check",
    "recheck_mode",
    "skipped",
    "smoke_check",
    "worst",
]

SHOWN: Final = 100
NOTHING: Final = (
    "nothing was compared, because neither side holds a document to compare; check the settings of both, "
    "or begin without old data with --start-clean"
)
NO_PART: Final = (
    "nothing was compared, because no row of either side belongs to the part that was asked for; check its "
    "bounds"
)
SMOKE: Final = "lock smoke test"
ONLY_ROWS: Final = "only single rows were compared"
NO_LISTS: Final = "there is no list of this kind to compare"
NO_LOCKS: Final = "the module has no locks"
# From light to heavy: a difference that was found weighs more than what could not be looked at.
ORDER: Final[Sequence[Result]] = ("skipped", "pass", "inconclusive", "fail")


def worst(results: Iterable[Result]) -> Result:
    """Return the weightiest result."""
    found: Result = "skipped"
    for result in results:
        if ORDER.index(result) > ORDER.index(found):
            found = result
    return found


def count_check(entities: Sequence[EntityReport], *, sampled: bool) -> Check:
    """C1: as many documents on both sides, per entity and tenant; every counted row was also seen."""
    wrong = [text for entity in entities for text in _count_problems(entity)]
    unsure = [] if sampled else [text for entity in entities for text in _unseen(entity)]
    result: Result = "fail" if wrong else "inconclusive" if unsure else "pass"
    tenants = sum(len(entity.tenants) for entity in entities)
    summary = f"{number_of(tenants, 'count')} by entity and tenant compared"
    return listed_check("C1", "counts", result, summary, wrong + unsure)


def _count_problems(entity: EntityReport) -> Iterable[str]:
    for tenant in entity.tenants:
        counts = tenant.counts
        source = tenant.stored_source - counts.expired_source - counts.quarantined
        target = tenant.stored_target - counts.expired_target
        if source != target:
            yield f"{_place(entity, tenant)}: {source:,} in source, {target:,} in target"


def _place(entity: EntityReport, tenant: TenantReport) -> str:
    return f"{entity.entity}, tenant {shown(tenant.tenant)}"


def _unseen(entity: EntityReport) -> Iterable[str]:
    """Rows that were counted but not read, or the other way round: somebody is writing."""
    for tenant in entity.tenants:
        counts = tenant.counts
        seen = {
            "source": (
                tenant.stored_source,
                tenant.source.count + counts.expired_source + counts.quarantined,
            ),
            "target": (tenant.stored_target, tenant.target.count + counts.expired_target),
        }
        for side, (counted, read) in seen.items():
            if counted != read:
                yield (
                    f"{_place(entity, tenant)}: {counted:,} rows counted but {read:,} read in {side}; "
                    "was it written to meanwhile?"
                )


def content_check(entities: Sequence[EntityReport]) -> Check:
    """C2: the same documents with the same content."""
    kinds = ("missing", "extra", "different", "stale")
    problems = [
        f"{entity.entity}: {getattr(entity.counts, kind):,} {kind}"
        for entity in entities
        for kind in kinds
        if getattr(entity.counts, kind)
    ]
    unproved = [
        f"{entity.entity}: {entity.counts.unproved:,} are equal only after normalising or ignoring what "
        f"keys, filters or orders look at, such as {entity.unproved.shown[0].paths[0]} of "
        f"{key_text(entity.unproved.shown[0])}"
        for entity in entities
        if entity.counts.unproved
    ]
    equal = sum(entity.counts.equal for entity in entities)
    compared = equal + sum(entity.counts.named for entity in entities)
    result: Result = "fail" if problems else "inconclusive" if unproved else "pass"
    summary = f"{number_of(compared, 'document')} compared, {equal:,} equal"
    return listed_check("C2", "content", result, summary, problems + unproved)


def key_text(row: Differing) -> str:
    """Return a key as findings show it."""
    return json.dumps(row.key, ensure_ascii=True)


def mode_check(entities: Sequence[EntityReport], *, sampled: bool, part: bool = False) -> Check:
    """C3: everything was compared, or what a sample can say."""
    # A wrong name of a database on both sides looks the same.
    if not any(entity.counts.equal + entity.counts.named for entity in entities):
        return listed_check(
            "C3", "mode", "inconclusive", "no document was compared", [NO_PART if part else NOTHING]
        )
    if not sampled:
        which = "every document that was asked for" if part else "every document"
        return listed_check("C3", "mode", "pass", f"{which} was compared", [])
    bounds = [_bound(entity) for entity in entities if entity.counts.equal]
    return listed_check(
        "C3", "mode", "inconclusive", "a sample was compared; it never proves equality", bounds
    )


def recheck_mode(rows: int, keyless: int) -> Check:
    """C3 of a recheck: what differed was compared; what has no key could not be found again."""
    unseen = [f"{keyless} findings have no key by which to find their rows again"] if keyless else []
    result: Result = "inconclusive" if unseen else "pass"
    summary = f"{number_of(rows, 'row')} that differed compared again" if rows else NO_ROW
    return listed_check("C3", "mode", result, summary, unseen)


def skipped(identifier: str, title: str, why: str = ONLY_ROWS) -> Check:
    """Return a check that was left out on purpose."""
    return Check(id=identifier, title=title, result="skipped", summary=why)


def _bound(entity: EntityReport) -> str:
    smallest = min((tenant.counts.equal for tenant in entity.tenants if tenant.counts.equal), default=0)
    # The rule of three: of n documents without a difference, with 95 % confidence fewer than 3/n differ.
    share = 100 * 3 / smallest if smallest else 100
    return (
        f"{entity.entity}: {entity.counts.equal} documents sampled; with 95 % confidence fewer than "
        f"{_percent(min(share, 100))} % of the documents of any tenant differ"
    )


def _percent(share: float) -> str:
    """Return two significant digits, but never an exponent."""
    return f"{share:.0f}" if share >= 10 else f"{share:.2g}"  # noqa: PLR2004  # two digits


@dataclass(frozen=True, slots=True)
class ListJudgement:
    """What is known when lists are judged.

    Attributes:
        respelled: the entities with documents in another spelling, or in quarantine.
        approved: the entities that the source cannot list because of properties that were ignored with a
            reason, and which it has not been able to list before.
        chosen: how the tenants were chosen whose lists were compared, empty for all of them.
    """

    respelled: AbstractSet[str] = frozenset()
    approved: AbstractSet[str] = frozenset()
    chosen: str = ""


def list_check(
    identifier: str,
    title: str,
    findings: Sequence[ListFinding],
    judgement: ListJudgement,
) -> Check:
    """C4 and C5: lists that both sides answer alike.

    A store filters and sorts by what it holds. Where documents of an entity are stored in another spelling,
    lists of that entity may differ though nothing is lost, so such a difference leaves the proof open. The
    same where documents are in quarantine, which the service may read in the source all the same.

    Args:
        identifier: which check it is.
        title: its title.
        findings: what each list showed.
        judgement: what else is known of the entities and of the lists.
    """
    if not findings:
        return skipped(identifier, title, NO_LISTS)
    asked = [item for item in findings if judgement.approved.isdisjoint(item.unread)]
    respelled = judgement.respelled
    judged = [item if respelled.isdisjoint(item.made_of) else _softened(item) for item in asked]
    result = worst(finding.result for finding in judged) if judged else "pass"
    rows = sum(finding.rows for finding in judged)
    problems = [f"{finding.query}: {finding.problem}" for finding in judged if finding.result != "pass"]
    left_out = len(findings) - len(asked)
    more = f"; {left_out} that the source cannot answer because of ignored properties" if left_out else ""
    lists = f"{number_of(len(judged), 'list')} with {number_of(rows, 'row')} compared"
    return listed_check(identifier, title, result, f"{lists}{judgement.chosen}{more}", problems)


def list_titles(module: str) -> tuple[tuple[str, str], ...]:
    """Return the checks of the lists of a module, in order."""
    due_order = module_spec(module).due_order
    lists = ("C5", "list order")
    return (lists,) if due_order is None else (("C4", due_order), lists)


def list_checks(found: ListResult, module: str, judgement: ListJudgement | None = None) -> tuple[Check, ...]:
    """Return C5, and C4 where the module has a name for the order in which rows are due."""
    known = judgement or ListJudgement()
    titles = list_titles(module)
    if len(titles) == 1:
        return (list_check(*titles[0], [*found.due, *found.lists], known),)
    due, lists = titles
    return (list_check(*due, found.due, known), list_check(*lists, found.lists, known))


def _softened(finding: ListFinding) -> ListFinding:
    if finding.result != "fail":
        return finding
    cause = "some documents are stored in another spelling or kept back, which may be the cause"
    problem = f"{finding.problem} ({cause})"
    return replace(finding, result="inconclusive", problem=problem)


def smoke_check(target: Store) -> Check:
    """C6: the target can do what its module tries on it."""
    # The description of a module names its smoke test and its storage together.
    test = cast("SmokeTest[AnyStorage] | None", module_spec(target.module).smoke_test)
    if test is None:
        return skipped("C6", SMOKE, NO_LOCKS)
    problems = list(test.run(target.storage))
    # What a source can do was proved by whoever uses it; a verification writes nothing there.
    summary = f"{test.does} in target; in source skipped: a source is only read"
    return listed_check("C6", test.title, "fail" if problems else "pass", summary, problems)


def decode_check(entities: Sequence[EntityReport]) -> Check:
    """C7: every document can be read; what never reached the target leaves the proof open."""
    bad = [
        f"{item.entity}: {item.undecodable.count:,} undecodable on both sides"
        for item in entities
        if item.undecodable.count
    ]
    bad += [
        f"{item.entity}: {field.documents:,} cannot be decoded in target (counted as {field.kind})"
        for item in entities
        for field in item.fields
        if field.path == UNREADABLE_TARGET
    ]
    kept = [
        f"{item.entity}: {item.quarantined.count:,} in source cannot be copied and are not in target"
        for item in entities
        if item.quarantined.count
    ]
    result: Result = "fail" if bad else "inconclusive" if kept else "pass"
    summary = (
        "some documents cannot be decoded" if bad or kept else "every document can be decoded by the service"
    )
    return listed_check("C7", "undecodable", result, summary, bad + kept)


def listed_check(identifier: str, title: str, result: Result, summary: str, findings: Sequence[str]) -> Check:
    """Return a check with the first of its findings, and how many there are."""
    return Check(
        id=identifier,
        title=title,
        result=result,
        summary=summary,
        count=len(findings),
        findings=tuple(findings[:SHOWN]),
    )
