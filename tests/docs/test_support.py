"""The support table is about the methods that there are; its data comes from a run of the suite."""

from __future__ import annotations

from typing import Final

import pytest

from docs.parts.support import DRIVERS, committed_support
from twinstore.modules import built_modules, module_spec
from twinstore.testing.methods import method_names

ADVICE: Final = "run `make test-long`, `make verification-report ARGS=--update-docs` and `make docs`"
METHODS: Final = [name for module in built_modules() for name in method_names(module_spec(module))]


def test_it_names_every_method_that_a_session_offers_and_no_other() -> None:
    assert list(committed_support()) == METHODS, ADVICE


@pytest.mark.parametrize("method", METHODS)
def test_every_driver_of_ours_supports_every_method(method: str) -> None:
    assert committed_support().get(method) == list(DRIVERS), ADVICE
