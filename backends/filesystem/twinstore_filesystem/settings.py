"""The settings of the filesystem driver."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from pydantic import Field

from twinstore.plugins.settings import BackendSettings


class FilesystemSettings(BackendSettings):
    """Settings of the filesystem driver.

    Attributes:
        root: the folder that holds everything; created when absent. A relative one is below the folder in
            which the process was started. It must be on a local, case-sensitive file system.
        lock_timeout_ms: how long a writer waits for another one of the same run, in milliseconds.
    """

    root: Path
    lock_timeout_ms: Annotated[int, Field(ge=1, le=600_000)] = 5000
