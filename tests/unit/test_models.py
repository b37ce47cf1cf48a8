"""The models state their rules as data: each rule refuses what it should, and nothing else checks.

Field types answer like their plain reference. Type checkers find the mistakes at the end of this file: its
``type: ignore`` comments are the expectation, because both checkers refuse a comment that silences nothing.
"""

from __future__ import annotations

import copy
import dataclasses
import importlib
import pickle
import pkgutil
import re
import sys
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta, timezone
from typing import Any, Final, LiteralString, TypedDict, assert_type, cast, get_args, get_origin
from zoneinfo import ZoneInfo

import pydantic
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

import twinstore
from tests.support.library.books import Book
from tests.unit import reference_fields
from twinstore import scheduler
from twinstore.models import fields
from twinstore.models.canonical import CanonicalModel, describe_failure
from twinstore.models.collections import Ordered
from twinstore.models.enums import NumberedEnum
from twinstore.models.fields import Flag, Id, Timestamp, explain
from twinstore.models.rules import (
    AbsentIn,
    AllOrNone,
    EqualExactlyIn,
    EqualOrAbsent,
    FieldAtMost,
    FieldDerived,
    FieldTypes,
    FirstOf,
    LengthAtMost,
    ModelRule,
    NotBefore,
    PresentExactlyIn,
    PresentExactlyWhen,
    PresentIn,
    RequiresEntry,
    SumAtMost,
    first_broken,
)
from twinstore.scheduler import Run
from twinstore.scheduler.enums import GraphJobStatus, PolicyRunJobStatus, RunState, SelectorScope
from twinstore.scheduler.graph_job_store import GraphJobResponse
from twinstore.scheduler.run_summaries import RunSummaryCounters
from twinstore.scheduler.runs import DeltaSummary, RunReason, RunStats
from twinstore.testing.instants import at
from twinstore.testing.scalars import digest_text
from twinstore.testing.scheduler.builders import (
    as_dispatched,
    as_ended,
    as_submitted,
    make_impact_set,
    make_policy_job,
    make_run,
    make_run_summary,
    make_schedule,
    make_selector,
    make_trigger,
)
from twinstore.testing.scheduler.graph_jobs import (
    graph_job_event,
    graph_moved,
    make_graph_build_job,
    make_graph_overlay_job,
)
from twinstore.testing.taskrunner.builders import make_pack_run, rich_approval

PLANNED: Final = make_run("t-1", "r-1")
RUNNING: Final = make_run("t-1", "r-1", state=RunState.RUNNING)
FAILED: Final = make_run("t-1", "r-1", state=RunState.ERROR)
COMPLETED: Final = make_run("t-1", "r-1", state=RunState.COMPLETED)
SELECTOR: Final = make_selector()
SUMMARY: Final = make_run_summary("t-1", "s-1", [PLANNED])
BUILD: Final = make_graph_build_job("t-1", "j")
OVERLAY: Final = make_graph_overlay_job("t-1", "j")
EVENT: Final = graph_job_event(BUILD, "e")
APPROVED: Final = rich_approval("t-1", "p-1", "gate")
ENDS: Final = "completed, failed and canceled"
Case = tuple[CanonicalModel, dict[str, object], str]
JOB = make_policy_job("t-1", "j-1")
BROKEN: Final[list[Case]] = [
    (RunStats(), {"deduped": 1}, "deduped should not exceed candidates"),
    (RunStats(), {"completed": 1}, "completed should not exceed queued"),
    (
        RunReason(impact_window_from=at(1)),
        {"impact_window_to": at(0)},
        "impactWindowFrom should not be after impactWindowTo",
    ),
    (
        DeltaSummary(image_digest=digest_text(1), new_findings=3, new_high=1, new_medium=1, new_low=1),
        {"new_criticals": 1},
        "the counters by severity should sum to at most newFindings",
    ),
    (PLANNED, {"error": "broke"}, "error should be present exactly in state error"),
    (FAILED, {"error": None}, "error should be present exactly in state error"),
    (
        PLANNED,
        {"finished_at": at(1)},
        "finishedAt should be present exactly in the states completed, error and cancelled",
    ),
    (RUNNING, {"started_at": None}, "startedAt should be present in state running"),
    (PLANNED, {"started_at": at(1)}, "startedAt should be absent in the states planning and queued"),
    (RUNNING, {"started_at": at(-1)}, "startedAt should not be before createdAt"),
    (COMPLETED, {"finished_at": at(1)}, "finishedAt should not be before startedAt or createdAt"),
    (FAILED, {"finished_at": at(-1)}, "finishedAt should not be before startedAt or createdAt"),
    (make_schedule("t-1", "s-1"), {"updated_at": at(-1)}, "updatedAt should not be before createdAt"),
    (
        make_schedule("t-1", "s-1", selection=make_selector(tenant_id="t-1")),
        {"tenant_id": "t-2"},
        "selection.tenantId should equal tenantId or be absent",
    ),
    (
        SELECTOR,
        {"scope": SelectorScope.BY_NAMESPACE},
        "Scope 'by-namespace' needs at least one entry in namespaces",
    ),
    (
        SELECTOR,
        {"scope": SelectorScope.BY_REPOSITORY},
        "Scope 'by-repo' needs at least one entry in repositories",
    ),
    (SELECTOR, {"scope": SelectorScope.BY_DIGEST}, "Scope 'by-digest' needs at least one entry in digests"),
    (SELECTOR, {"scope": SelectorScope.BY_LABELS}, "Scope 'by-labels' needs at least one entry in labels"),
    (
        make_trigger("t-1", "s-1"),
        {"next_fire_at": None},
        "nextFireAt should be present exactly when enabled is true",
    ),
    (
        make_trigger("t-1", "s-1"),
        {"enabled": False},
        "nextFireAt should be present exactly when enabled is true",
    ),
    (JOB, {"lease_owner": "w"}, "leaseOwner and leaseExpiresAt should be present together or not at all"),
    (
        JOB,
        {"lease_owner": "w", "lease_expires_at": at(1)},
        "a lease should be present exactly in status dispatching",
    ),
    (as_dispatched(JOB), {"last_attempt_at": None}, "lastAttemptAt should be present in status dispatching"),
    (
        as_submitted(JOB),
        {"submitted_at": None},
        "submittedAt should be present in the statuses submitted and completed",
    ),
    (
        as_submitted(JOB),
        {"completed_at": at(1)},
        "completedAt should be present exactly in the statuses completed and failed",
    ),
    (
        as_ended(JOB, PolicyRunJobStatus.CANCELLED),
        {"cancelled_at": None},
        "cancelledAt should be present exactly in status cancelled",
    ),
    (
        as_ended(JOB, PolicyRunJobStatus.FAILED),
        {"last_error": None},
        "lastError should be present in status failed",
    ),
    (make_impact_set(), {"total": 0}, "total should be at least the number of images"),
    (SUMMARY, {"last_run": None}, "lastRun should be the newest entry of recent"),
    (SUMMARY, {"counters": RunSummaryCounters()}, "counters should be those of recent"),
    (BUILD, {"completed_at": at(9)}, f"completedAt should be present exactly in the statuses {ENDS}"),
    (OVERLAY, {"completed_at": at(9)}, f"completedAt should be present exactly in the statuses {ENDS}"),
    (graph_moved(BUILD, GraphJobStatus.FAILED), {"error": None}, "error should be present in status failed"),
    (graph_moved(OVERLAY, GraphJobStatus.FAILED), {"error": ""}, "error should be present in status failed"),
    (EVENT, {"tenant": "t-2"}, "tenant should be that of the job"),
    (EVENT.payload, {"job_type": "overlay"}, "jobType should be that of job"),
    (EVENT.payload, {"status": "pending"}, "status should be that of job"),
    (GraphJobResponse.of(BUILD), {"kind": "overlay"}, "kind should be that of payload"),
    (GraphJobResponse.of(BUILD), {"status": "pending"}, "status should be that of payload"),
    (make_pack_run("t-1", "p-1"), {"updated_at": at(-1)}, "updatedAt should not be before createdAt"),
    (APPROVED, {"actor_id": None}, "actorId should be present in the states approved and rejected"),
    (
        APPROVED,
        {"completed_at": None},
        "completedAt should be present exactly where the state is not pending",
    ),
]


@pytest.mark.parametrize(("model", "changes", "sentence"), BROKEN)
def test_a_model_that_contradicts_itself_is_refused(
    model: CanonicalModel, changes: dict[str, object], sentence: str
) -> None:
    with pytest.raises(pydantic.ValidationError) as caught:
        model.evolve(**changes)
    expected = f"{type(model).__name__} document: {sentence}"
    assert describe_failure(type(model), caught.value) == expected


def models(base: type[CanonicalModel] = CanonicalModel) -> set[type[CanonicalModel]]:
    """Return the models of the library."""
    for found in pkgutil.walk_packages(twinstore.__path__, "twinstore."):
        importlib.import_module(found.name)
    return {model for model in subclasses(base) if model.__module__.startswith("twinstore.")}


def subclasses(base: type[CanonicalModel]) -> Iterator[type[CanonicalModel]]:
    for found in base.__subclasses__():
        yield found
        yield from subclasses(found)


def test_each_rule_is_broken_by_a_document() -> None:
    broken = {(type(model), sentence) for model, _, sentence in BROKEN}
    for model in models():
        for rule in model.rules:
            if "{" in rule.message:  # with the words of the document
                assert any(case is model for case, _ in broken)
            else:
                assert (model, rule.message) in broken


def test_no_model_has_a_check_between_fields_outside_its_rules() -> None:
    assert {type(model) for model, _, _ in BROKEN} <= models()
    for model in models():
        validators = model.__pydantic_decorators__.model_validators
        after = [name for name, validator in validators.items() if validator.info.mode != "before"]
        assert after == (["_keep_rules"] if model.rules else []), model


def test_lists_of_models_are_ordered_by_data_only() -> None:
    ordered = 0
    for field in (field for model in models() for field in model.model_fields.values()):
        if get_origin(field.annotation) is tuple and FieldTypes(get_args(field.annotation)[:1]).models:
            assert all(isinstance(item, Ordered) for item in field.metadata), field
            ordered += len(field.metadata)
    assert ordered >= 5


class Words(TypedDict):
    code: LiteralString
    message: LiteralString


class Stage(NumberedEnum):
    NEW = "new"
    BUSY = "busy"
    DONE = "done"


class Kind(NumberedEnum):
    PLAIN = "plain"
    LAST = "last"


class Part(CanonicalModel):
    stage: Stage = Stage.NEW
    owner: str | None = None


def total(texts: tuple[str, ...]) -> int:
    """Return how many characters there are."""
    return sum(map(len, texts))


class Job(CanonicalModel):
    owner: str = "a"
    stage: Stage = Stage.NEW
    kind: Kind = Kind.PLAIN
    enabled: Flag = False
    done: int = 0
    failed: int = 0
    most: int = 0
    texts: tuple[str, ...] = ()
    others: tuple[str, ...] = ()
    first: str | None = None
    begun: Timestamp | None = None
    ended: Timestamp | None = None
    made: Timestamp = datetime(2025, 1, 1, tzinfo=UTC)
    part: Part | None = None
    whole: Part = Part()
    names: tuple[str, ...] | None = None
    sure: bool | None = None


WORDS: Final[Words] = {"code": "broken", "message": "should be otherwise"}
BUSY_OR_DONE: Final = (Stage.BUSY, Stage.DONE)
RULES: Final[list[ModelRule]] = [
    FieldAtMost("done", limit="most", **WORDS),
    SumAtMost(("done", "failed"), limit="most", **WORDS),
    LengthAtMost("texts", limit="most", **WORDS),
    NotBefore("begun", earlier=("made",), **WORDS),
    NotBefore("ended", earlier=("begun", "made"), **WORDS),
    PresentExactlyIn("begun", by="stage", members=BUSY_OR_DONE, **WORDS),
    PresentExactlyIn("part.owner", by="whole.stage", members=(Stage.DONE,), **WORDS),
    PresentIn("ended", by="stage", members=(Stage.DONE,), **WORDS),
    PresentIn("ended", by="part.stage", members=BUSY_OR_DONE, **WORDS),
    AbsentIn("ended", by="stage", members=(Stage.NEW, Stage.BUSY), **WORDS),
    PresentExactlyWhen("first", flag="enabled", **WORDS),
    AllOrNone(("begun", "ended"), **WORDS),
    AllOrNone(("begun", "ended", "first"), **WORDS),
    RequiresEntry(by="stage", entries=((Stage.BUSY, "texts"), (Stage.DONE, "others")), **WORDS),
    EqualOrAbsent("part.owner", other="owner", **WORDS),
    EqualOrAbsent("first", other="part.owner", **WORDS),
    EqualExactlyIn("kind", value=Kind.LAST, by="stage", members=(Stage.DONE,), **WORDS),
    FirstOf("first", items="texts", **WORDS),
    FieldDerived("most", source="texts", function=total, **WORDS),
]
numbers = st.integers(0, 3)
instants = st.integers(-1, 2).map(lambda hours: datetime(2025, 1, 1, tzinfo=UTC) + timedelta(hours=hours))
texts = st.sampled_from("ab")
parts = st.builds(Part, stage=st.sampled_from(Stage), owner=st.none() | texts)
jobs = st.builds(
    Job,
    owner=texts,
    stage=st.sampled_from(Stage),
    kind=st.sampled_from(Kind),
    enabled=st.booleans(),
    done=numbers,
    failed=numbers,
    most=numbers,
    texts=st.lists(texts, max_size=3).map(tuple),
    others=st.lists(texts, max_size=1).map(tuple),
    first=st.none() | texts,
    begun=st.none() | instants,
    ended=st.none() | instants,
    part=st.none() | parts,
    whole=parts,
)


def label(value: object) -> str | None:
    """Name a case by its kind of rule; the address in the text of a function differs between processes."""
    return type(value).__name__ if isinstance(value, ModelRule) else None


def ruled(*chosen: ModelRule) -> type[Job]:
    """Return the job with some rules."""

    class Ruled(Job):
        rules = chosen

    return Ruled


@pytest.fixture(scope="module")
def drawn() -> list[Job]:
    """Return some jobs, the same for every rule: to draw them takes longer than to judge them."""
    pool: list[Job] = []

    @given(job=jobs)
    @settings(max_examples=400, database=None, phases=[Phase.generate])
    def draw(job: Job) -> None:
        pool.append(job)

    draw()
    return pool


@pytest.mark.parametrize("rule", RULES, ids=label)
def test_a_rule_means_to_the_validator_what_its_data_says(rule: ModelRule, drawn: list[Job]) -> None:
    model, seen = ruled(rule), set[bool]()
    for job in drawn:
        keeps = reference_fields.keeps(rule, job)
        seen.add(keeps)
        assert first_broken((rule,))(job) == (None if keeps else rule)
        assert problems(model, job) == ([] if keeps else [(rule.code, rule.message, ())])
    assert seen == {True, False}


def problems(model: type[Job], job: Job) -> list[tuple[str, str, tuple[int | str, ...]]]:
    try:
        model.model_validate(job.__dict__)
    except pydantic.ValidationError as error:
        return [(problem["type"], problem["msg"], problem["loc"]) for problem in error.errors()]
    return []


@given(job=jobs, rules=st.lists(st.sampled_from(RULES), min_size=2, max_size=5, unique=True))
def test_the_first_broken_rule_is_the_one_that_is_found(job: Job, rules: list[ModelRule]) -> None:
    assert first_broken(tuple(rules))(job) == reference_fields.first_broken(rules, job)


KINDS = {
    name
    for name, kind in vars(sys.modules[ModelRule.__module__]).items()
    if isinstance(kind, type) and issubclass(kind, ModelRule)
} - {"ModelRule"}


def test_every_kind_of_rule_is_tried() -> None:
    assert {type(rule).__name__ for rule in RULES} == KINDS


def test_a_missing_entry_is_named_with_the_member_that_needs_it() -> None:
    rule = RequiresEntry(
        by="stage",
        entries=((Stage.BUSY, "texts"), (Stage.DONE, "others")),
        code="stage_entries",
        message="Stage '{stage}' needs at least one entry in {field}",
    )
    model = ruled(rule)
    with pytest.raises(pydantic.ValidationError) as caught:
        model.model_validate({"stage": "done", "texts": ("a",)})
    said = "Ruled document: Stage 'done' needs at least one entry in others"
    assert describe_failure(model, caught.value) == said


def misspelt(rule: ModelRule) -> Iterator[ModelRule]:
    """Yield the rule once for each name in it, with that name misspelt."""
    for field in dataclasses.fields(rule)[2:]:  # after code and message
        value = getattr(rule, field.name)
        for wrong in wrong_names(value):
            changes: dict[str, Any] = {field.name: wrong}
            yield dataclasses.replace(rule, **changes)


def wrong_names(value: object) -> Iterator[object]:
    if isinstance(value, tuple):
        parts = cast("tuple[object, ...]", value)
        for place, part in enumerate(parts):
            yield from ((*parts[:place], wrong, *parts[place + 1 :]) for wrong in wrong_names(part))
    elif isinstance(value, str) and not isinstance(value, NumberedEnum):
        yield value + "x"


@pytest.mark.parametrize("rule", [wrong for rule in RULES for wrong in misspelt(rule)], ids=label)
def test_a_misspelt_field_is_refused_where_the_class_is_defined(rule: ModelRule) -> None:
    with pytest.raises(
        TypeError, match=r"Ruled: rule 'broken' \(\w+\) names '[\w.]+x', but \w+ has no field"
    ):
        ruled(rule)


@pytest.mark.parametrize(
    ("rule", "problem"),
    [
        (
            FieldAtMost("done", limit="begun", **WORDS),
            "'begun', which should be a field that is never absent",
        ),
        (
            SumAtMost(("done",), limit="part.stage", **WORDS),
            "'part.stage', which should be a field that is never absent",
        ),
        (LengthAtMost("done", limit="most", **WORDS), "'done', which should be a tuple that is never absent"),
        (FirstOf("first", items="part", **WORDS), "'part', which should be a tuple that is never absent"),
        (AllOrNone(("begun", "made"), **WORDS), "'made', which should be a field that may be absent"),
        (PresentIn("owner", by="stage", members=BUSY_OR_DONE, **WORDS), "'owner', which should be a field"),
        (PresentIn("first", by="stage", members=(Kind.LAST,), **WORDS), "'stage', which should be Kind;"),
        (PresentIn("first", by="stage", members=(), **WORDS), "'stage', which should be given members;"),
        (AbsentIn("first", by="owner", members=BUSY_OR_DONE, **WORDS), "'owner', which should be Stage;"),
        (FirstOf("first", items="names", **WORDS), "'names', which should be a tuple that is never absent"),
        (PresentExactlyWhen("first", flag="sure", **WORDS), "'sure', which should be a bool that is never"),
        (
            PresentExactlyWhen("first", flag="done", **WORDS),
            "'done', which should be a bool that is never absent",
        ),
        (
            EqualOrAbsent("owner.name", other="owner", **WORDS),
            "but 'name' is looked for in something that is",
        ),
    ],
    ids=label,
)
def test_a_rule_that_does_not_fit_its_fields_is_refused_where_the_class_is_defined(
    rule: ModelRule, problem: str
) -> None:
    with pytest.raises(TypeError, match=re.escape(problem)):
        ruled(rule)


LIMITED: Final = FieldAtMost("done", limit="most", **WORDS)
OWNED: Final = EqualOrAbsent("first", other="owner", **WORDS)


def test_the_rules_of_a_base_class_hold_in_a_class_without_own_rules() -> None:
    class Heir(ruled(LIMITED)):  # type: ignore[misc]  # a base made for the test
        pass

    assert problems(Heir, Job(done=1)) == [("broken", "should be otherwise", ())]


def test_a_class_with_own_rules_repeats_those_of_its_base() -> None:
    base = ruled(LIMITED)

    class Heir(base):  # type: ignore[misc, valid-type]  # a base made for the test
        rules = (*base.rules, OWNED)

    assert problems(Heir, Job(done=1)) == problems(Heir, Job(first="b")) != []
    with pytest.raises(TypeError, match=r"Forgetful\.rules leaves out rules of a base class"):

        class Forgetful(base):  # type: ignore[misc, valid-type]  # a base made for the test
            rules = (OWNED,)


def test_a_field_of_several_models_is_read_from_the_one_that_is_there() -> None:
    class Other(CanonicalModel):
        stage: Stage
        number: int

    class Holder(CanonicalModel):
        rules = (EqualOrAbsent("part.stage", other="stage", **WORDS),)
        stage: Stage
        part: Part | Other

    Holder.model_validate({"stage": "done", "part": {"stage": "done", "number": 1}})
    for part in ({"stage": "new", "number": 1}, {"stage": "new"}):
        with pytest.raises(pydantic.ValidationError, match="should be otherwise"):
            Holder.model_validate({"stage": "done", "part": part})


def test_a_nested_model_is_judged_once_by_its_own_rules() -> None:
    judged: list[object] = []

    def length(items: tuple[str, ...]) -> int:
        judged.append(items)
        return len(items)

    class Inner(CanonicalModel):
        rules = (FieldDerived("most", source="texts", function=length, **WORDS),)
        most: int
        texts: tuple[str, ...]

    class Outer(CanonicalModel):
        rules = (LIMITED,)
        done: int = 0
        most: int = 0
        inners: tuple[Inner, ...]

    class Outermost(CanonicalModel):
        outer: Outer

    Outermost.model_validate({"outer": {"inners": [{"most": 1, "texts": ["a"]}]}})
    assert judged == [("a",)]


def test_a_model_without_rules_has_no_validator_for_them() -> None:
    assert Part.__pydantic_core_schema__["type"] == "model"
    assert RunStats.__pydantic_core_schema__["type"] == "function-after"


def test_a_copy_is_judged_where_it_is_changed() -> None:
    run = make_run("t-1", "r-1")
    assert pickle.loads(pickle.dumps(run)) == copy.deepcopy(run) == run.model_copy() == run  # noqa: S301  # our own
    with pytest.raises(pydantic.ValidationError, match="error should be present exactly in state error"):
        run.evolve(error="broke")


Document = dict[str, Any]
T0 = datetime(2025, 10, 26, 14, 5, tzinfo=UTC)
DIGESTS: Final = [f"sha256:{letter * 64}" for letter in "abc"]


class BigInt(int):
    """An integer of a driver: a subclass, as the ones of BSON are."""


class AwareDatetime(datetime):
    """An instant of a driver."""


FINDING: Document = {"purl": "pkg:a/b@1", "vulnerabilityId": "CVE-1", "severity": "low", "link": "x"}
INSTANTS: Final = [
    T0,
    T0 + timedelta(milliseconds=1500),
    T0.replace(tzinfo=None),
    T0.replace(microsecond=123999),
    T0.replace(fold=1),
    T0.astimezone(ZoneInfo("Europe/Berlin")),
    T0.replace(tzinfo=ZoneInfo("UTC")),
    T0.astimezone(timezone(timedelta(minutes=-90))),
    datetime.min.replace(tzinfo=timezone(timedelta(hours=1))),
    datetime.max.replace(tzinfo=UTC),
    AwareDatetime(2025, 10, 26, 14, 5, tzinfo=UTC),
    date(2025, 10, 26),
]
INSTANT_TEXTS: Final = [
    "2025-10-26T14:05:00+00:00",
    "2025-10-26T14:05:00.123+00:00",
    "2025-10-26T14:05:00,123+00:00",
    "2025-10-26T14:05:00.123456789Z",
    "2025-10-26t14:05:00z",
    "2025-10-26 14:05:00+00:00",
    "2025-10-26T14:05:00",
    "2025-10-26T14:05:00-00:00",
    "2025-10-26T14:05:00.12+00:00",
    "20251026T140500.000+00:00",
    "2025-W43-7T14:05:00+00:00",
    "2025-W4-7T114:05:00+00:00",
    "2025-13-26T14:05:00+00:00",
    "2025-10-26T24:00:00+00:00",
    "2025-10-26T14:05:60+00:00",
    "2025-10-26T14:05:Z\x00+00:00",
    "2025-10-26T14:05:00.1Z\x00+00:00",
    "0001-01-01T00:00:00+23:59",
    "٢٠٢٥-10-26T14:05:00+00:00",
]
TEXTS: Final = [
    *("", " ", "x", " x ", "a\x00b", "a\nb", "é", "\ud800", "a:b", "System", "SYSTEM-1", "canceled", "vexer"),
    *("system", " system ", "error", "completed", "running", "planning", "all-images", "unknown", "3"),
    *("x" * 128, "x" * 129, "x" * 200, "x" * 201, "x" * 256, "x" * 257, *DIGESTS, DIGESTS[0].upper()),
    *("scheduler.run@2", "scheduler.impact-set@1", *INSTANT_TEXTS),
]
NUMBERS: Final = [0, 1, 3, 9, -1, 3.0, 3.5, -0.0, 1e19, 2**63 - 1, 2**63, -(2**63), float(2**63), BigInt(4)]
ODD: Final = [None, True, False, float("nan"), float("inf"), b"x", [], {}, (), ["x"], {"x": "y"}, [None]]
VALUES: Final[list[object]] = [*INSTANTS, *TEXTS, *NUMBERS, *ODD, *scheduler.RunState, FINDING]
near_instants = st.sampled_from(INSTANT_TEXTS).flatmap(
    lambda text: st.builds(
        lambda place, character: text[:place] + character + text[place + 1 :],
        st.integers(0, len(text)),
        st.sampled_from([*"0123456789-+:.,TtZzW \n٢", ""]),
    )
)
values = st.one_of(
    st.sampled_from(VALUES), st.integers(), st.floats(), st.text(max_size=4), near_instants, st.datetimes()
)
TYPES: Final = (
    *("Actor", "Count", "DigestSet", "DigestText", "Flag", "Id", "Int64", "LowerKeyMap", "Name"),
    *("OptionalReference", "OptionalText", "PositiveInt", "SimpleIdentifier", "StringSet", "TenantId"),
    *("Text", "TextMap", "Timestamp", "Trimmed"),
)


def field_answer(adapter: pydantic.TypeAdapter[Any], value: object) -> str:
    try:
        return repr(adapter.validate_python(value))
    except pydantic.ValidationError as error:
        problems = error.errors(include_url=False, include_input=False)
        return str([(problem["loc"], explain(problem)) for problem in problems])


@pytest.mark.parametrize("name", TYPES)
def test_every_field_type_answers_like_the_plain_one(name: str) -> None:
    fast = pydantic.TypeAdapter[Any](getattr(fields, name))
    plain = pydantic.TypeAdapter[Any](getattr(reference_fields, name))

    @given(
        value=st.one_of(
            values, st.lists(values, max_size=3), st.dictionaries(st.sampled_from(TEXTS), values, max_size=3)
        )
    )
    def compare(value: object) -> None:
        assert field_answer(fast, value) == field_answer(plain, value)

    compare()
    for value in VALUES:
        assert field_answer(fast, value) == field_answer(plain, value)


@given(text=near_instants)
def test_an_instant_in_text_is_read_like_the_plain_one(text: str) -> None:
    fast, plain = (pydantic.TypeAdapter[Any](kind.Timestamp) for kind in (fields, reference_fields))
    assert field_answer(fast, text) == field_answer(plain, text)


RUN: Final = make_run("acme", "run-1")


class Note(CanonicalModel):
    """A third-party model."""

    id: Id
    lines: int = 0


def test_a_field_is_not_assigned() -> None:
    with pytest.raises(ValidationError, match="frozen"):
        RUN.state = RunState.QUEUED  # type: ignore[misc]  # pyright: ignore[reportAttributeAccessIssue]
    note = Note(id="a")
    with pytest.raises(ValidationError, match="frozen"):
        note.lines = 3  # type: ignore[misc]  # pyright: ignore[reportAttributeAccessIssue]


def test_evolve_takes_fields_that_there_are() -> None:
    with pytest.raises(ValidationError, match="stat"):
        RUN.evolve(stat=RunState.QUEUED)


def test_evolve_takes_values_that_fit() -> None:
    with pytest.raises(ValidationError, match="state"):
        RUN.evolve(state="banana")
    with pytest.raises(ValidationError, match="tenantId"):
        RUN.evolve(tenant_id=7)


def test_evolve_answers_the_same_model() -> None:
    queued = RUN.evolve(state=RunState.QUEUED)
    assert_type(queued, Run)
    assert queued.state is RunState.QUEUED


def test_changes_that_come_from_elsewhere_are_taken_as_they_are() -> None:
    # As model_dump(exclude_unset=True) of a request body is typed.
    changes: dict[str, Any] = {"state": "queued"}
    assert RUN.evolve(**changes).state is RunState.QUEUED


def test_a_model_of_another_package_evolves_too() -> None:
    note = Note(id="a").evolve(lines=2)
    assert_type(note, Note)
    assert note.lines == 2
    assert_type(Book(id="b", tenant_id="acme", title="On stores").evolve(title="On shelves"), Book)


def test_models_are_hashable_where_their_values_are() -> None:
    assert len({Note(id="a"), Note(id="a"), Note(id="b")}) == 2
