"""Whole entities on MongoDB."""

from __future__ import annotations


class MongoBulk:
    def __init__(self, connection) -> None:
        self.connection = connection
