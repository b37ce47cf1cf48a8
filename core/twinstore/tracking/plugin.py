"""Describes tracking, of which this release knows the settings only."""

from __future__ import annotations

from typing import Final

from twinstore.modules import ModulePlugin
from twinstore.options import ModuleSettings
from twinstore.tracking.options import TrackingOptions

__all__ = ["PLUGIN"]

PLUGIN: Final = ModulePlugin(
    name="tracking",
    title="Tracking",
    position=2,
    settings=ModuleSettings(
        section="Tracking",
        options=TrackingOptions,
        option_paths={"stale_after_seconds": ("Tracking", "StaleAfterSeconds")},
    ),
)
