"""What the contract tests of the two servers share."""

from __future__ import annotations

import pytest

from tests.support.recording import KitRun


@pytest.fixture(scope="session")
def kit_run(pytestconfig: pytest.Config) -> KitRun:
    """Return whether every test of the contract runs, and whether the statements are written again."""
    options = pytestconfig.option
    chosen = options.keyword or options.markexpr or options.deselect or getattr(options, "lf", False)
    whole = options.long and not chosen and not any("::" in argument for argument in pytestconfig.args)
    return KitRun(whole=whole, writes=bool(options.write_statements))
