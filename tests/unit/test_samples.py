"""There is a sample of every entity, and the invalid ones are refused for the stated reason."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from docs.parts.samples import samples_of
from twinstore import scheduler
from twinstore.canonical import CanonicalJsonSerializer, CanonicalModel
from twinstore.errors import TwinstoreError
from twinstore.scheduler.catalog import SCHEDULER
from twinstore.scheduler.module import MODULE
from twinstore.variants import variants_of

SAMPLES = Path(__file__).parents[2] / "samples"
MODELS = samples_of(MODULE)
EXPECTED: dict[str, dict[str, str]] = json.loads((SAMPLES / "invalid" / "expected.json").read_text())


def test_there_is_a_sample_of_every_entity_and_each_invalid_one_is_explained() -> None:
    stored = {model for item in SCHEDULER.entities for model in variants_of(item.model) or (item.model,)}
    assert stored <= set(MODELS.values())
    assert {path.name for path in (SAMPLES / "invalid").iterdir()} == {*EXPECTED, "expected.json"}


@pytest.mark.parametrize("name", EXPECTED)
def test_invalid_sample_is_refused_for_the_stated_reason(name: str) -> None:
    expected = EXPECTED[name]
    model: type[CanonicalModel] = getattr(scheduler, expected["model"])
    with pytest.raises(TwinstoreError) as caught:
        CanonicalJsonSerializer.deserialize(model, (SAMPLES / "invalid" / name).read_bytes())
    assert caught.value.code == expected["code"]
    assert expected["mentions"] in str(caught.value)
    assert "\n" not in str(caught.value)
