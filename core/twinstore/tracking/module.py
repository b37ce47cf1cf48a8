"""Tracking as a module: what drivers and tools get to know of it."""

from __future__ import annotations

from typing import Final

from twinstore.plugins.module_spec import ModuleSpec
from twinstore.tracking.catalog import TRACKING
from twinstore.tracking.checks import TrackingLists
from twinstore.tracking.repositories import Repositories
from twinstore.tracking.storage import TrackingStorage, TrackingUnit
from twinstore.tracking.trial import TRACKING_TRIAL

MODULE: Final = ModuleSpec(
    catalog=TRACKING,
    repositories=Repositories.over,
    title="Tracking",
    package="twinstore.tracking",
    storage=TrackingStorage,
    session=TrackingUnit,
    checks=TrackingLists,
    trial=TRACKING_TRIAL,
    kit="twinstore.testing.tracking:TrackingContract",
)
