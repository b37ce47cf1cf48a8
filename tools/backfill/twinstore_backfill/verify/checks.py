"""The checks of a verification and what they amount to."""

from __future__ import annotations

import json
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import TYPE_CHECKING, Final, Literal, cast

from twinstore.catalog.entity import CopyPolicy
from twinstore.catalog.tenancy import shown
from twinstore.config.files import read_file
from twinstore.config.keys import module_keys
from twinstore.errors import ConfigurationError
from twinstore.plugins.entry_points import did_you_mean
from twinstore.plugins.modules import module_spec
from twinstore_backfill.report.model import ApprovalReport, Check, IgnoredReport, RuleReport, SubsetReport
from twinstore_backfill.report.texts import NO_ROW, clipped, is_only_slow, number_of
from twinstore_backfill.rules.model import ANY, AcceptRule, DropRule, FunctionRule, path_text
from twinstore_backfill.verify.findings import UNREADABLE_TARGET, FindingKind

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from twinstore.catalog.entity import Entity
    from twinstore.plugins.checks import SmokeTest
    from twinstore_backfill.ignored import IgnoredPath
    from twinstore_backfill.progress.record import Progress
    from twinstore_backfill.report.model import (
        CauseReport,
        Differing,
        EntityReport,
        Result,
        TenantReport,
        Verdict,
    )
    from twinstore_backfill.rules.model import JobRules
    from twinstore_backfill.stores import Store
    from twinstore_backfill.verify.context import VerifyContext
    from twinstore_backfill.verify.lists import AnyStorage, ListFinding, ListResult
    from twinstore_backfill.verify.options import VerifyOptions

SHOWN: Final = 100
NOTHING: Final = (
    "nothing was compared, because neither side holds a document to compare; check the settings of both, "
    "or begin without old data with --start-clean"
)
NO_PART: Final = (
    "nothing was compared, because no row of either side belongs to the selected part; check its bounds"
)
SMOKE: Final = "lock smoke test"
ONLY_ROWS: Final = "only single rows were compared"
NO_LISTS: Final = "there is no list of this kind to compare"
NO_LOCKS: Final = "the module has no locks"
NO_REPOSITORIES: Final = "the module is one of data alone and has no repositories"
# From light to severe: a difference that was found weighs more than something that could not be checked.
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
    """Rows that were counted but not read, or the other way round: another client is writing."""
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
        which = "every requested document" if part else "every document"
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
    """Return a check that was skipped on purpose."""
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
class ListContext:
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


def absent(module: str, why: str) -> str:
    """Return why there is nothing to try: ``why``, unless the module has no repositories at all."""
    return why if module_spec(module).has_repositories else NO_REPOSITORIES


def list_check(
    identifier: str,
    title: str,
    findings: Sequence[ListFinding],
    list_context: ListContext,
) -> Check:
    """C4 and C5: lists that both sides answer alike.

    A store filters and sorts by what it holds. Where documents of an entity are stored in another spelling,
    lists of that entity may differ though nothing is lost, so such a difference leaves the proof open. So do
    documents in quarantine, which the service may read in the source all the same.

    Args:
        identifier: which check it is.
        title: its title.
        findings: what each list showed.
        list_context: what else is known of the entities and of the lists.
    """
    if not findings:
        return skipped(identifier, title, NO_LISTS)
    asked = [item for item in findings if list_context.approved.isdisjoint(item.unreadable_entities)]
    respelled = list_context.respelled
    judged = [item if respelled.isdisjoint(item.affected_entities) else _softened(item) for item in asked]
    result = worst(finding.result for finding in judged) if judged else "pass"
    rows = sum(finding.rows for finding in judged)
    problems = [f"{finding.query}: {finding.problem}" for finding in judged if finding.result != "pass"]
    left_out = len(findings) - len(asked)
    more = f"; {left_out} that the source cannot answer because of ignored properties" if left_out else ""
    lists = f"{number_of(len(judged), 'list')} with {number_of(rows, 'row')} compared"
    named = [item.query for item in judged if item.by_rows]
    if named:
        lists_by_rows = number_of(len(named), "list")
        more += f"; {lists_by_rows} with the rows of the target, because the source answers otherwise"
    if repeats := sum(item.by_repeats for item in judged):
        more += f"; {repeats} of several entities only searched for repeated rows for the same reason"
    check = listed_check(identifier, title, result, f"{lists}{list_context.chosen}{more}", problems)
    return check.model_copy(update={"by_rows": tuple(named[:SHOWN])})


def list_titles(module: str) -> tuple[tuple[str, str], ...]:
    """Return the checks of the lists of a module, in order."""
    due_order = module_spec(module).due_order
    lists = ("C5", "list order")
    return (lists,) if due_order is None else (("C4", due_order), lists)


def list_checks(found: ListResult, module: str, list_context: ListContext | None = None) -> tuple[Check, ...]:
    """Return C5, and C4 where the module has a name for the order in which rows are due."""
    known = list_context or ListContext()
    titles = list_titles(module)
    if not module_spec(module).has_repositories:
        return lists_skipped(module, NO_REPOSITORIES)
    if len(titles) == 1:
        return (list_check(*titles[0], [*found.due, *found.lists], known),)
    due, lists = titles
    return (list_check(*due, found.due, known), list_check(*lists, found.lists, known))


def _softened(finding: ListFinding) -> ListFinding:
    if finding.result != "fail":
        return finding
    cause = "some documents are stored in another spelling or quarantined, which may be the cause"
    problem = f"{finding.problem} ({cause})"
    return replace(finding, result="inconclusive", problem=problem)


def smoke_check(target: Store) -> Check:
    """C6: the target can do what its module tries on it."""
    # The description of a module names its smoke test and its storage together.
    test = cast("SmokeTest[AnyStorage] | None", module_spec(target.module).smoke_test)
    if test is None:
        return skipped("C6", SMOKE, absent(target.module, NO_LOCKS))
    problems = list(test.run(target.storage))
    # The users of a source have proved what it can do; a verification does not write there.
    summary = f"{test.does} in target; in source skipped: a source is only read"
    return listed_check("C6", test.title, "fail" if problems else "pass", summary, problems)


def held_warnings(target: Store) -> tuple[str, ...]:
    """Name what is held on the target, which a cut-over would have to wait for; nothing is acquired."""
    # The description of a module names its smoke test and its storage together.
    test = cast("SmokeTest[AnyStorage] | None", module_spec(target.module).smoke_test)
    return () if test is None or test.held is None else tuple(test.held(target.storage))


def expired_warnings(entities: Sequence[EntityReport], removed: AbstractSet[str]) -> tuple[str, ...]:
    """Say what the service shows of expired rows of the target; ``removed``: entities with a TTL there."""
    return tuple(
        f"expired rows of {item.entity} in the target: {item.counts.expired_target:,}{_surplus(item)}; the "
        f"service shows them until {BY_TTL if item.entity in removed else BY_PURGE} removes them"
        for item in entities
        if item.counts.expired_target
    )


BY_TTL: Final = "the TTL index of the target"
BY_PURGE: Final = "`twinstore purge --execute`"


def _surplus(entity: EntityReport) -> str:
    """Return which tenants have more expired rows in the target than in the source."""
    more = {
        shown(item.tenant): item.counts.expired_target - item.counts.expired_source
        for item in entity.tenants
        if item.counts.expired_target > item.counts.expired_source
    }
    named = [f"{tenant} {count:,}" for tenant, count in list(more.items())[:SHOWN]]
    return f", more than in the source for {', '.join(named)}" if named else ""


def decode_check(entities: Sequence[EntityReport], exceeded: Sequence[str] = ()) -> Check:
    """C7: every document can be read; what never reached the target leaves the proof open.

    Unless its cause is accepted. A cause of which there are more rows than are accepted is not.
    """
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
    kept = [*exceeded]
    kept += [
        f"{item.entity}: {left:,} in source cannot be copied and are not in target"
        for item in entities
        if (left := item.counts.quarantined - item.counts.quarantined_approved)
    ]
    approved = sum(item.counts.quarantined_approved for item in entities)
    result: Result = "fail" if bad else "inconclusive" if kept else "pass"
    summary = (
        "some documents cannot be decoded" if bad or kept else "every document can be decoded by the service"
    )
    if approved:
        summary = f"{approved:,} are quarantined for accepted causes; of the others, {summary}"
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


SLOW: Final = (
    "Look at the slow lists: is an index missing on the target, or are its statistics old? Then verify again."
)


def already_switched(options: VerifyOptions, context: VerifyContext) -> bool:
    """Whether the settings name the target, so that the service writes there and not to the source."""
    return options.switch == context.target.backend != context.source.backend


def direction_warnings(options: VerifyOptions, context: VerifyContext) -> tuple[str, ...]:
    """Say where a proof goes the wrong way."""
    if options.approval or not already_switched(options, context):
        return ()
    key, target = ":".join(module_keys(context.target.module).switch), context.target.backend
    source = context.source.backend
    back = (
        f"the way back is proved with --from {target} --to {source}"
        if context.source.storage.capabilities.bulk_target
        else f"nothing is copied back into {source}"
    )
    text = (
        f"{key} names {target} already, so the service writes to the target and the source no "
        f"longer changes; {back}."
    )
    return (text,)


def next_step(
    verdict: Verdict,
    options: VerifyOptions,
    context: VerifyContext,
    checks: Sequence[Check],
    *,
    append_only: Sequence[str] = (),
    causes: Sequence[CauseReport] = (),
) -> str:
    """Say what to do now; ``append_only`` are the entities of that kind with rows that are wrong."""
    match verdict:
        case "FAIL":
            return f"{_after_failure(options, checks)}{_append_only(append_only)}"
        case "INCONCLUSIVE":
            return _after_gaps(checks, causes)
        case "PARTIAL" if options.only is not None:
            asked = options.entities or options.only.counts
            if not any(options.only.counts.get(name) for name in asked):
                return "This proves nothing, because no row was compared; verify again in full."
            return "This is proved for the rows that differed before; verify again in full."
        case "PARTIAL":
            return f"This is proved for what was asked only; verify without {', '.join(options.narrowing)}."
        case _:
            return _after_proof(options, context)


def _after_failure(options: VerifyOptions, checks: Sequence[Check]) -> str:
    if is_only_slow(checks):
        return SLOW
    if options.approval:
        return "Empty the target, or verify without --start-clean."
    return (
        "Look at what differs. `twinstore backfill repair` rewrites the rows that differences.ndjson names "
        "and, with `--delete-extra`, removes those that the source does not have. Then verify again in full."
    )


# Of the causes of open rows; the table has all of them.
LARGEST: Final = 3
LONGEST_REASON: Final = 80


def _after_gaps(checks: Sequence[Check], causes: Sequence[CauseReport]) -> str:
    """Name the causes, or where no row is open, the checks."""
    if not causes:
        named = ", ".join(f"{item.id} ({item.title})" for item in checks if item.result == "inconclusive")
        return f"Resolve what {named} found, then verify again in full."
    largest = "; ".join(
        f"{item.documents:,} of {item.entity}: {clipped(item.reason, LONGEST_REASON)}"
        for item in causes[:LARGEST]
    )
    refused = any(item.kind == FindingKind.QUARANTINED for item in causes)
    command = (
        "; `twinstore backfill quarantine list` names the documents that a copy refused" if refused else ""
    )
    return (
        f"{number_of(len(causes), 'cause')} to solve, the largest first: {largest}. Put the rules of the "
        f"table of causes into the job file and copy again{command}. Then verify again in full."
    )


def _append_only(entities: Sequence[str]) -> str:
    if not entities:
        return ""
    return (
        f" Rows of {', '.join(entities)} are append-only: `repair` replaces them only while the role of the "
        "target may delete them."
    )


def _after_proof(options: VerifyOptions, context: VerifyContext) -> str:
    key, target = ":".join(module_keys(context.target.module).switch), context.target.backend
    if options.switch == target:
        return f"{key} already names {target}; there is nothing left to do."
    if not module_spec(context.target.module).has_repositories:
        return (
            "Lists and locks were not compared, because the module has no repositories; compare those of the "
            f"application. Keep the writers stopped, and let the application use {target}."
        )
    return f"Keep the writers stopped, set {key} to {target}, and start the service."


A_PART: Final = "only a part of the rows was compared"
CHECKS: Final = "checks"


def grouped(report: EntityReport, groups: Mapping[str, str]) -> EntityReport:
    """Return the report of an entity with the group that the user names."""
    group = groups.get(report.entity)
    return report if group is None else report.model_copy(update={"group": group})


def mode(options: VerifyOptions) -> Literal["full", "sample", "recheck", "start-clean"]:
    """Return how much was requested to be compared."""
    if options.approval:
        return "start-clean"
    return "recheck" if options.only is not None else options.mode


def approval(options: VerifyOptions) -> ApprovalReport | None:
    """Return the decision to begin without old data."""
    given = options.approval
    return ApprovalReport(reason=given.reason, approved_by=given.approved_by) if given else None


def ignored_reports(options: VerifyOptions) -> tuple[IgnoredReport, ...]:
    """Return the properties that were dropped and the fields that were not compared, with the reasons."""
    drops = sorted((rule for rule in options.rules if isinstance(rule, DropRule)), key=attrgetter("text"))
    kinds: tuple[tuple[Literal["unknown", "field"], Sequence[DropRule | IgnoredPath]], ...] = (
        ("unknown", drops),
        ("field", options.ignored_fields),
    )
    return tuple(
        IgnoredReport(entity=item.entity, path=path_text(item.path), reason=item.reason or None, kind=kind)
        for kind, ignored in kinds
        for item in ignored
    )


def rule_reports(
    rules: JobRules, rows: Mapping[int, int], changed: AbstractSet[str]
) -> tuple[RuleReport, ...]:
    """Return the rules that change documents, with the number of rows that each one changed.

    Args:
        rules: all rules.
        rows: by number of the rule.
        changed: the entities whose changed rows are counted.
    """
    return tuple(
        RuleReport(
            kind=rule.kind.value,
            path=rule.text,
            reason=rule.reason,
            rows=rows.get(rule.number, 0) if rule.entity in {ANY, *changed} and changed else None,
        )
        for rule in rules
        if isinstance(rule, FunctionRule) or (rule.line and not isinstance(rule, AcceptRule))
    )


def subset_report(options: VerifyOptions, entities: Sequence[Entity]) -> SubsetReport | None:
    """Return which rows were meant, ``None`` where all of them were."""
    if not options.subset:
        return None
    return SubsetReport.model_validate(options.subset.document(entities))


def reasons(checks: Sequence[Check]) -> tuple[str, ...]:
    """Return why a verdict is not better, a sentence for each check."""
    return tuple(
        f"{check.id} {check.title}: {check.findings[0] if check.findings else check.summary}"
        f"{f' (and {check.count - 1} more)' if check.count > 1 else ''}"
        for check in checks
        if check.result in {"fail", "inconclusive"}
    )


def check_target(target: Store, progress: Progress) -> tuple[Check, Check]:
    """Make the checks that ask the target alone, C6 and C8, which may take seconds."""
    progress.start(CHECKS, 2)
    smoke = smoke_check(target)
    progress.advance(CHECKS, 1)
    schema = schema_check(target)
    progress.advance(CHECKS, 1)
    progress.finish(CHECKS)
    return smoke, schema


def verdict_of(checks: Sequence[Check], options: VerifyOptions) -> Verdict:
    """Return what the checks amount to."""
    result = worst(check.result for check in checks)
    if result == "fail":
        return "FAIL"
    if result == "inconclusive":
        return "INCONCLUSIVE"
    if options.approval:
        return "START-CLEAN (approved)"
    return "PARTIAL" if options.narrowed else "PASS"


def lists_skipped(module: str, why: str = A_PART) -> tuple[Check, ...]:
    """Return C4 and C5 of a comparison that sees no list whole."""
    return tuple(skipped(name, title, why) for name, title in list_titles(module))


# C8: whether the target would go on as the migrations made it: tables, keys, indexes, policies, settings.


SCHEMA: Final = "target schema"


def schema_check(target: Store) -> Check:
    """Compare the schema of the target with the wanted one.

    Equal rows behind a missing key or policy are equal today only: the next write, or the next tenant, is
    judged by another schema, or by an unsafe setting of the database. So a difference leaves the proof open;
    what merely is there in addition, such as an index for speed, does not.
    """
    found = target.storage.initializer.verify(additions=False)
    return listed_check(
        "C8",
        SCHEMA,
        "inconclusive" if found else "pass",
        "tables, keys, indexes and policies compared with the migrations",
        found,
    )


# The mapping file of logical groups: logical name -> collection -> table.


def read_groups(path: Path, module: str) -> dict[str, str]:
    """Return the group of each entity, as a file of JSON, YAML or TOML names them.

    Args:
        path: the file: an object per group, from name of collection to name of table.
        module: the module; a table may be written with its schema, ``library.books``.

    Raises:
        ConfigurationError: the file cannot be read; a group is not an object; a table is unknown, named twice
            or with another collection than its own; an entity that is compared has no group.
    """
    entities = module_spec(module).catalog.entities
    places = {entity.name: entity for entity in entities}
    places |= {f"{module}.{entity.name}": entity for entity in entities}
    found: dict[str, str] = {}
    for group, collection, table in _lines(path):
        entity = places.get(table)
        if entity is None:
            near = did_you_mean(table.removeprefix(f"{module}."), [item.name for item in entities])
            raise _error(path, f"group {group!r} names the unknown table {table!r}.{near}")
        _check_collection(path, group, collection, entity)
        if entity.name in found:
            raise _error(
                path,
                f"table {table!r} stands in the groups {found[entity.name]!r} and {group!r}; keep it in one.",
            )
        found[entity.name] = group
    _check_complete(path, entities, found)
    return found


def _lines(path: Path) -> Iterator[tuple[str, str, str]]:
    """Yield group, collection and table of each line."""
    for group, tables in read_file(path, "--groups").items():
        if not group.strip() or not isinstance(tables, dict) or not tables:
            raise _error(path, _example(group))
        for collection, table in tables.items():
            if not isinstance(collection, str) or not isinstance(table, str):
                raise _error(path, _example(group))
            yield group.strip(), collection, table


def _example(group: str) -> str:
    return f"group {group!r} should map collections to tables, such as books to library.books."


def _check_collection(path: Path, group: str, collection: str, entity: Entity) -> None:
    # Where a setting may rename the collection, its name is that of the installation.
    if collection != entity.collection and entity.collection_setting is None:
        raise _error(
            path,
            f"group {group!r} names the collection {collection!r} for the table {entity.name!r}, whose "
            f"collection is {entity.collection!r}.",
        )


def _check_complete(path: Path, entities: Sequence[Entity], found: Mapping[str, str]) -> None:
    missing = [
        entity.name
        for entity in entities
        if entity.copy_policy is not CopyPolicy.LEFT_OUT and entity.name not in found
    ]
    if missing:
        raise _error(path, f"no group names {', '.join(missing)}; every table that is compared needs one.")


def _error(path: Path, problem: str) -> ConfigurationError:
    return ConfigurationError(f"The mapping file {path} of --groups: {problem}")
