"""Describes tracking without importing what it stores."""

from __future__ import annotations

from typing import Final

from twinstore.plugins.module_spec import ModuleSpec
from twinstore.plugins.modules import ModulePlugin
from twinstore.plugins.options import ModuleSettings
from twinstore.tracking.options import TrackingOptions


def spec() -> ModuleSpec[object]:
    """Return the module; its models are imported here and nowhere earlier."""
    from twinstore.tracking.module import MODULE  # noqa: PLC0415  # the plug-in is read by every host

    return MODULE


PLUGIN: Final = ModulePlugin(
    name="tracking",
    title="Tracking",
    position=2,
    settings=ModuleSettings(
        section="Tracking",
        options=TrackingOptions,
        option_paths={
            "stale_after_seconds": ("Tracking", "StaleAfterSeconds"),
            "retention_days": ("Tracking", "Storage", "RetentionDays"),
        },
    ),
    spec=spec,
    # The model of a session has the name that this class has elsewhere.
    session="TrackingUnit",
)
