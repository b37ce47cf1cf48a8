"""Every exported model returns its JSON schema, for API pages and generated clients."""

from __future__ import annotations

import json
import re
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal

import pytest
from fastapi import FastAPI

from docs.parts.samples import samples_of
from twinstore import tracking
from twinstore.models.canonical import CanonicalModel
from twinstore.models.enums import NumberedEnum
from twinstore.plugins.modules import built_modules, module_spec
from twinstore.scheduler import (
    ExecutionLogEntry,
    Run,
    RunState,
    RunTrigger,
    Schedule,
    ScheduleMode,
    SelectorScope,
    SeverityRank,
)
from twinstore.scheduler.enums import SEVERITY_ORDER
from twinstore.scheduler.module import MODULE

if TYPE_CHECKING:
    from collections.abc import Callable

Mode = Literal["validation", "serialization"]
MODES: Final[tuple[Mode, ...]] = ("validation", "serialization")
SAMPLES: Final = Path(__file__).parents[2] / "samples/api/scheduler"


def exported() -> dict[str, type[CanonicalModel]]:
    """Return the models that the packages of all modules export."""
    return {
        f"{name}.{public}": item
        for name in built_modules()
        for package in [import_module(module_spec(name).package)]
        for public in getattr(package, "__all__", ())
        if isinstance(item := getattr(package, public), type) and issubclass(item, CanonicalModel)
    }


MODELS: Final = exported()


def test_the_models_of_the_scheduler_are_among_them() -> None:
    assert len([name for name in MODELS if name.startswith("scheduler.")]) >= 35


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", MODELS)
def test_an_exported_model_has_a_schema(name: str, mode: Mode) -> None:
    schema = MODELS[name].model_json_schema(mode=mode)
    assert {"properties", "oneOf"} & schema.keys()


@pytest.mark.parametrize("separate", [True, False], ids=["a schema for each mode", "one schema"])
def test_the_page_of_an_api_has_every_model_as_body_and_as_answer(separate: bool) -> None:  # noqa: FBT001
    app = FastAPI(separate_input_output_schemas=separate)
    for name, model in MODELS.items():
        app.post(f"/{name}", response_model=model)(receiver(model))
    page = app.openapi()
    assert len(page["paths"]) == len(MODELS)
    wanted = set(re.findall(r'"#/components/schemas/([^"]+)"', json.dumps(page)))
    assert wanted <= page["components"]["schemas"].keys()


def receiver(model: type[CanonicalModel]) -> Callable[[CanonicalModel], CanonicalModel]:
    """Return a handler whose body is a model."""

    def receive(body: CanonicalModel) -> CanonicalModel:
        return body

    receive.__annotations__ = {"body": model, "return": model}
    return receive


@pytest.mark.parametrize("name", MODELS)
def test_what_is_read_has_the_schema_of_what_is_written(name: str) -> None:
    read, written = (MODELS[name].model_json_schema(mode=mode) for mode in MODES)
    assert read == written


@pytest.mark.parametrize("sample", samples_of(MODULE))
def test_a_sample_has_the_properties_of_its_schema(sample: str) -> None:
    schema = samples_of(MODULE)[sample].model_json_schema()
    properties = json.loads((SAMPLES / sample).read_bytes()).keys()
    assert set(schema["required"]) <= properties <= schema["properties"].keys()


def test_fields_that_a_function_checks_describe_their_form() -> None:
    run, entry = Run.model_json_schema()["properties"], ExecutionLogEntry.model_json_schema()["properties"]
    version = Schedule.model_json_schema()["properties"]["schemaVersion"]
    assert (version["type"], version["const"]) == ("string", "scheduler.schedule@1")
    assert (run["createdAt"]["type"], run["createdAt"]["format"]) == ("string", "date-time")
    assert entry["data"]["type"] == "object"
    assert entry["sequence"]["anyOf"][0] == {"type": "integer", "minimum": 1, "maximum": 2**63 - 1}


PINNED: dict[type[NumberedEnum], list[str]] = {
    ScheduleMode: ["analysis-only", "content-refresh"],
    RunTrigger: ["cron", "manual", "concelier", "excititor", "policy", "content-refresh"],
    RunState: ["planning", "queued", "running", "completed", "error", "cancelled"],
    SelectorScope: ["all-images", "by-namespace", "by-repo", "by-digest", "by-labels"],
    SeverityRank: ["none", "info", "low", "medium", "high", "critical", "unknown"],
}


@pytest.mark.parametrize("enum", PINNED)
def test_texts_and_numbers_are_pinned(enum: type[NumberedEnum]) -> None:
    assert [(member.number, member.value) for member in enum] == list(enumerate(PINNED[enum]))
    assert [enum.from_number(number).value for number in range(len(enum))] == PINNED[enum]


@pytest.mark.parametrize("number", [-1, 6])
def test_a_number_without_member_is_refused(number: int) -> None:
    with pytest.raises(ValueError, match=str(number)):
        RunState.from_number(number)


@pytest.mark.parametrize(
    ("alias", "member"),
    [
        ("conselier", RunTrigger.CONCELIER),
        ("feedser", RunTrigger.CONCELIER),
        ("excitor", RunTrigger.EXCITITOR),
        ("vexer", RunTrigger.EXCITITOR),
    ],
)
def test_historical_names_are_read(alias: str, member: RunTrigger) -> None:
    assert RunTrigger(alias) is member


def test_both_spellings_of_cancelled_are_read_and_one_is_written() -> None:
    assert RunState("canceled") is RunState.CANCELLED
    assert RunState.CANCELLED.value == "cancelled"


@pytest.mark.parametrize("text", ["CRON", " cron", "cron ", ""])
def test_only_the_exact_text_is_read(text: str) -> None:
    with pytest.raises(ValueError, match="RunTrigger"):
        RunTrigger(text)


def test_severities_are_ordered_from_critical_to_unknown() -> None:
    order = sorted(SEVERITY_ORDER, key=SEVERITY_ORDER.__getitem__)
    assert [item.value for item in order] == ["critical", "high", "medium", "low", "info", "none", "unknown"]


def test_the_enumerations_of_tracking_have_the_customers_members() -> None:
    told = {
        kind.__name__: {member.name: member.value for member in kind}
        for kind in (tracking.SessionStatus, tracking.TaskStatus, tracking.MachineStatus)
    }
    assert told == {
        "SessionStatus": {
            "ACTIVE": "active",
            "PAUSED": "paused",
            "COMPLETED": "completed",
            "FAILED": "failed",
            "STALLED": "stalled",
        },
        "TaskStatus": {
            "PENDING": "pending",
            "IN_PROGRESS": "in_progress",
            "COMPLETED": "completed",
            "FAILED": "failed",
            "BLOCKED": "blocked",
        },
        "MachineStatus": {"ONLINE": "online", "OFFLINE": "offline", "MAINTENANCE": "maintenance"},
    }
