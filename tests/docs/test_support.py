"""The support table is about the methods that there are; its data comes from a run of the suite."""

from __future__ import annotations

from docs.parts.support import DRIVERS, committed_support
from twinstore.plugins.modules import built_modules, module_spec
from twinstore.testing.methods import method_names


def test_every_driver_of_ours_supports_every_method_that_a_session_offers_and_no_other() -> None:
    methods = [name for module in built_modules() for name in method_names(module_spec(module))]
    advice = "run `make test-long`, `make verification-report ARGS=--update-docs` and `make docs`"
    assert [*committed_support().items()] == [(name, list(DRIVERS)) for name in methods], advice
