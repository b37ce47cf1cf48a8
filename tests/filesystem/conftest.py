from __future__ import annotations

from typing import TYPE_CHECKING, cast

import pytest

from twinstore.storage import open_module

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from twinstore.taskrunner.storage import TaskRunnerStorage


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "new" / "tree"


@pytest.fixture
def storage(root: Path) -> Iterator[TaskRunnerStorage]:
    settings = {"Persistence": {"Filesystem": {"Root": str(root), "LockTimeoutMs": 300}}}
    with open_module("taskrunner", "Filesystem", settings) as opened:
        yield cast("TaskRunnerStorage", opened)
