"""What a host opens: a storage on the driver that its settings name, and the modules in it."""

from __future__ import annotations

from twinstore.runtime.moved_modules import deprecated_getattr

__getattr__ = deprecated_getattr(__name__)
