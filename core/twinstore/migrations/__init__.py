"""Migrations as every driver offers them: what is pending, what was applied, and the way back."""

from __future__ import annotations

from twinstore.runtime.moved_modules import deprecated_getattr

__getattr__ = deprecated_getattr(__name__)
