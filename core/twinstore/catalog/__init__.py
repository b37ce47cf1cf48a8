"""The description of what is stored: entities, keys, indexes, owners.

An entity is described once, by an ``Entity``. Columns, documents, validators, lists, the cases of the
contract kit and the pages of the documentation follow from it.
"""

from __future__ import annotations

from twinstore.runtime.moved_modules import deprecated_getattr

__getattr__ = deprecated_getattr(__name__)
