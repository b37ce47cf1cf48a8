"""The settings of the memory driver."""

from __future__ import annotations

from twinstore.plugins.settings import BackendSettings


class MemorySettings(BackendSettings):
    """Settings of the memory driver.

    Attributes:
        store: name of a store that every storage of this process with the same name shares; without a name
            each opened storage has a separate store, which vanishes with it.
    """

    store: str | None = None
