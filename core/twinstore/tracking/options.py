"""Options of tracking."""

from __future__ import annotations

from twinstore.options import ModuleOptions, Seconds

__all__ = ["TrackingOptions"]


class TrackingOptions(ModuleOptions):
    """Options of tracking.

    Attributes:
        stale_after_seconds: silence in seconds after which a session counts as stale.
    """

    stale_after_seconds: Seconds = 300
