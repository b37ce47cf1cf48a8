"""Places in documents, as trees that are laid out once and walked for every document."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

__all__ = ["PathTree"]


@dataclass(frozen=True, slots=True)
class PathTree:
    """Some paths: the fields that are meant here, and objects or lists of objects with more of them below."""

    leaves: tuple[str, ...]
    branches: tuple[tuple[str, PathTree], ...]

    @classmethod
    def of(cls, paths: Iterable[tuple[str, ...]]) -> PathTree:
        """Return the tree of some paths."""
        below: dict[str, list[tuple[str, ...]]] = {}
        leaves: list[str] = []
        for head, *rest in paths:
            if rest:
                below.setdefault(head, []).append(tuple(rest))
            else:
                leaves.append(head)
        return cls(tuple(leaves), tuple((name, cls.of(rest)) for name, rest in below.items()))

    def __bool__(self) -> bool:
        """Whether there is any path."""
        return bool(self.leaves or self.branches)
