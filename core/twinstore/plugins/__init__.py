"""Drivers and modules as plug-ins: found by entry point, described by light objects, loaded by name."""

from __future__ import annotations

from twinstore.runtime.moved_modules import deprecated_getattr

__getattr__ = deprecated_getattr(__name__)
