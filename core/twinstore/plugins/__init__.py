"""Drivers and modules as plug-ins: found by entry point, described by light objects, loaded by name."""

from __future__ import annotations

from twinstore.runtime.moved_modules import handed_on

__getattr__ = handed_on(__name__)
