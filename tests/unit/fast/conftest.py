"""What is here needs the library of the fast path, but for what is about programs alone."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pytest

HERE: Final = Path(__file__).parent
WITHOUT: Final = frozenset({"test_deriving.py", "test_programs.py"})


# Before the whole run leaves out what is marked.
@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what needs the library; the items are those of the whole run."""
    for item in items:
        if item.path.parent == HERE and item.path.name not in WITHOUT:
            item.add_marker(pytest.mark.native)
