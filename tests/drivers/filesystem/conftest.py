from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, cast

import pytest

from tests.drivers.filesystem.deployment import MEMORY
from twinstore.storage.open import open_module

if TYPE_CHECKING:
    from collections.abc import Iterator

    from twinstore.taskrunner.storage import TaskRunnerStorage


@pytest.fixture
def root() -> Iterator[Path]:
    """Return a root that does not exist, where it is cheap to flush."""
    with TemporaryDirectory(dir=MEMORY if MEMORY.is_dir() else None) as folder:
        yield Path(folder) / "new" / "tree"


@pytest.fixture
def storage(root: Path) -> Iterator[TaskRunnerStorage]:
    settings = {"Persistence": {"Filesystem": {"Root": str(root), "LockTimeoutMs": 300}}}
    with open_module("taskrunner", "Filesystem", settings) as opened:
        yield cast("TaskRunnerStorage", opened)
