from __future__ import annotations

import copy
import dataclasses
import pickle
import re
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any, Final, LiteralString, TypedDict, cast

import pydantic
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from tests import reference_rules
from twinstore.models.canonical import CanonicalModel, describe_failure
from twinstore.models.enums import NumberedEnum
from twinstore.models.fields import Flag, Timestamp
from twinstore.models.rules import (
    AbsentIn,
    AllOrNone,
    EqualExactlyIn,
    EqualOrAbsent,
    FieldAtMost,
    FieldDerived,
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
from twinstore.scheduler import RunStats
from twinstore.testing.scheduler.builders import make_run


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
        keeps = reference_rules.keeps(rule, job)
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
    assert first_broken(tuple(rules))(job) == reference_rules.first_broken(rules, job)


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
