"""Free JSON is stored as it was given, as deep as it may be, and refused where a store would change it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pydantic
import pytest

import twinstore
from tests.support.databases import DRIVERS, fresh_settings
from twinstore.models.canonical import CanonicalJsonSerializer
from twinstore.models.json_text import DEEPEST
from twinstore.scheduler import PolicyRunInputs
from twinstore.testing.scheduler.builders import make_policy_job, make_run
from twinstore.testing.scheduler.examples import make_log_entry

if TYPE_CHECKING:
    from pydantic import JsonValue


def nested(levels: int) -> dict[str, Any]:
    """Return an object of this many levels, alternating lists and objects."""
    value: JsonValue = "deep"
    for level in range(levels - 1, 0, -1):
        value = {"k": value} if level % 2 else [value]
    return {"k": value}


@pytest.mark.parametrize("driver", DRIVERS)
def test_the_deepest_objects_come_back_from_every_store(driver: str, request: pytest.FixtureRequest) -> None:
    entry = make_log_entry("t", "r", data=nested(DEEPEST))
    inputs = PolicyRunInputs(environment={"a": nested(DEEPEST - 1), "$b.c": -1e-7})
    job = make_policy_job("t", "j", inputs=inputs)
    with fresh_settings(driver, request) as settings, twinstore.open_storage(settings) as storage:
        scheduler = storage.scheduler
        scheduler.initializer.ensure_migrations()
        scheduler.runs.create(make_run("t", "r"))
        scheduler.execution_logs.append([entry])
        scheduler.policy_jobs.create(job)
        (found,) = scheduler.execution_logs.list("t", "r")
        for read, written in ((found, entry), (scheduler.policy_jobs.get_required("t", "j"), job)):
            assert read == written
            assert CanonicalJsonSerializer.serialize(read) == CanonicalJsonSerializer.serialize(written)


@pytest.mark.parametrize(
    "data",
    [
        nested(DEEPEST + 1),
        {"a": 2**63},
        {"a": 1e300},
        {"a": float("nan")},
        {"a": "\x00"},
        {"\x00": 1},
        {"a": "\ud800"},
        {"a": b"bytes"},
        {"a": (1, 2)},
        {1: "a"},
        [],
        "text",
        None,
    ],
)
def test_what_a_store_would_change_is_refused_without_its_value(data: object) -> None:
    with pytest.raises(pydantic.ValidationError) as refusal:
        make_log_entry("t", "r", data=data)
    assert [error["loc"][0] for error in refusal.value.errors()] == ["data"]
    assert "bytes'" not in str(refusal.value)


def test_names_are_sorted_at_every_level_and_those_of_an_environment_are_lower_case() -> None:
    inputs = PolicyRunInputs(
        environment={"Zone": {"B": 1, "A": 2.0}, "zone": 3, "\u00c9": [{"b": 1, "a": -0.0}]}
    )
    text = CanonicalJsonSerializer.serialize(inputs).decode()
    assert '"environment":{"zone":3,"\u00e9":[{"a":0,"b":1}]}' in text
