"""Every exported model tells its JSON schema, on which the page of an API and generated clients rest."""

from __future__ import annotations

import json
import re
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal

import pytest
from fastapi import FastAPI

from docs.parts.samples import samples_of
from twinstore.models.canonical import CanonicalModel
from twinstore.plugins.modules import built_modules, module_spec
from twinstore.scheduler import ExecutionLogEntry, Run, Schedule
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


def test_fields_that_a_function_checks_tell_their_form() -> None:
    run, entry = Run.model_json_schema()["properties"], ExecutionLogEntry.model_json_schema()["properties"]
    version = Schedule.model_json_schema()["properties"]["schemaVersion"]
    assert (version["type"], version["const"]) == ("string", "scheduler.schedule@1")
    assert (run["createdAt"]["type"], run["createdAt"]["format"]) == ("string", "date-time")
    assert entry["data"]["type"] == "object"
    assert entry["sequence"]["anyOf"][0] == {"type": "integer", "minimum": 1, "maximum": 2**63 - 1}
