"""What the contract tests of the two servers share."""

from __future__ import annotations

import pytest

from tests.contract.recording.recorded import KitRun


@pytest.fixture(scope="session")
def kit_run(pytestconfig: pytest.Config) -> KitRun:
    """Return whether no test of the contract is left out, and whether the statements are written again."""
    options = pytestconfig.option
    chosen = options.keyword or options.markexpr or options.deselect or getattr(options, "lf", False)
    whole = options.long and not chosen and not any("::" in argument for argument in pytestconfig.args)
    return KitRun(whole=whole, writes=bool(options.write_statements))


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark as long what a file leaves to the full form, before what is long is left out."""
    for item in items:
        if isinstance(item, pytest.Function) and item.cls is not None:
            is_left = getattr(item.module, "is_left_to_the_full_form", None)
            case = item.callspec.id if hasattr(item, "callspec") else ""
            if is_left is not None and is_left(item.cls, item.originalname, case):
                item.add_marker(pytest.mark.long)
