"""Migrations as every driver offers them: what is pending, what was applied, and the way back."""

from __future__ import annotations

from twinstore.runtime.moved_modules import handed_on

__getattr__ = handed_on(__name__)
