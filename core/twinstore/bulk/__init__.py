"""Whole entities for tools: the port that a driver offers for copies and for verification.

:mod:`port` states it. A view reads one state of the store, a writer writes one range of keys in one
transaction, and :mod:`corruption` plants faults for the self-test.
"""

from __future__ import annotations

from twinstore.runtime.moved_modules import deprecated_getattr

__getattr__ = deprecated_getattr(__name__)
