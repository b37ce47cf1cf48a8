from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest
from hypothesis import Phase, find, given, settings
from hypothesis import strategies as st

from twinstore.models.canonical import CanonicalJsonSerializer, CanonicalModel
from twinstore.scheduler.catalog import TRIGGERS
from twinstore.scheduler.enums import RunState
from twinstore.scheduler.policy_jobs import PolicyRunJob
from twinstore.testing import scalars
from twinstore.testing.scheduler import builders, strategies
from twinstore.testing.scheduler.examples import SCHEDULER_EXAMPLES

# Whether there is one is asked, not which is the smallest.
found = partial(find, settings=settings(max_examples=2000, database=None, phases=[Phase.generate]))
EXAMPLES = SCHEDULER_EXAMPLES.examples
# A trigger is written with its schedule, which says nothing about what has fired so far.
RICH: list[Callable[[], CanonicalModel]] = [
    partial(item.rich, "t", "name") for item in EXAMPLES if item.entity is not TRIGGERS
]
# What a model with the others cannot have: a job that has failed is neither leased nor cancelled.
EXCLUSIVE: dict[type[CanonicalModel], set[str]] = {
    PolicyRunJob: {"lease_owner", "lease_expires_at", "cancelled_at"}
}
EVERY_MODEL: dict[str, st.SearchStrategy[CanonicalModel]] = {
    **{item.name: item.drawn("tenant", "key") for item in EXAMPLES if item.drawn is not None},
    "any run": strategies.runs(),
    "derived id": strategies.impact_sets(),
    "selector": strategies.selectors("tenant"),
}


@pytest.mark.parametrize("build", RICH)
def test_a_rich_model_has_a_value_in_every_field(build: Callable[[], CanonicalModel]) -> None:
    model = build()
    empty = {name for name in type(model).model_fields if getattr(model, name) in (None, (), {})}
    assert empty == EXCLUSIVE.get(type(model), set())


@pytest.mark.parametrize("build", RICH)
def test_a_builder_gives_the_same_bytes_every_time(build: Callable[[], CanonicalModel]) -> None:
    assert CanonicalJsonSerializer.serialize(build()) == CanonicalJsonSerializer.serialize(build())


@pytest.mark.parametrize("state", RunState)
@pytest.mark.parametrize("following", RunState)
def test_a_moved_run_is_valid_in_every_state(state: RunState, following: RunState) -> None:
    run = builders.make_run("t", "r", state=state)
    assert builders.moved(run, following).state is following


@pytest.mark.parametrize("name", EVERY_MODEL)
def test_a_generated_model_survives_its_canonical_form(name: str, *, long_form: bool) -> None:
    @settings(max_examples=15 if long_form else 5)
    @given(EVERY_MODEL[name])
    def survives(model: CanonicalModel) -> None:
        text = CanonicalJsonSerializer.serialize(model)
        again = CanonicalJsonSerializer.deserialize(type(model), text)
        assert again == model
        assert CanonicalJsonSerializer.serialize(again) == text

    survives()


def test_the_edge_texts_are_in_code_point_order_and_in_no_other() -> None:
    edges = list(scalars.EDGE_TEXTS)
    assert edges == sorted(edges)
    assert edges != sorted(edges, key=lambda text: text.encode("utf-16-be"))
    assert edges != sorted(edges, key=str.casefold)


def test_the_strategies_reach_the_limits() -> None:
    assert found(scalars.ids(), lambda text: len(text) == 256)
    assert found(scalars.tenant_ids(), lambda text: len(text) == 128)
    assert found(scalars.names(), lambda text: len(text) == 200 and ord(text[0]) > 0xFFFF)
    assert found(scalars.counts(), lambda number: number == 2**63 - 1)
    assert found(scalars.instants(), lambda instant: instant.year == 1).year == 1
    assert found(scalars.instants(), lambda instant: instant.year == 9999).year == 9999
    assert len(found(strategies.run_summaries(), lambda summary: len(summary.recent) == 20).recent) == 20
