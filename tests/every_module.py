"""One database for every module that comes with twinstore."""

from __future__ import annotations

from typing import TYPE_CHECKING

from docs.parts.entities import MODULES
from twinstore import open_storage
from twinstore.plugins.modules import module_plugin

if TYPE_CHECKING:
    from tests.servers import Settings

__all__ = ["for_every_module", "migrate"]


def for_every_module(config: Settings, driver: str) -> Settings:
    """Return settings in which the driver of a database answers for every module."""
    switches = {module_plugin(module.name).settings.section: driver for module in MODULES}
    section = config["Persistence"]
    assert isinstance(section, dict)
    return {"Persistence": {**section, **switches}}


def migrate(settings: Settings) -> None:
    """Make everything of every module."""
    with open_storage(settings) as storage:
        for module in MODULES:
            storage.module(module.name).initializer.ensure_migrations()
