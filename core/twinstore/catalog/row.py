"""A row: a model with the markers stored next to it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final, Generic

from typing_extensions import TypeVar

from twinstore.models.canonical import CanonicalJsonSerializer, CanonicalModel

__all__ = ["NO_STORAGE", "Row"]


R = TypeVar("R")
M_co = TypeVar("M_co", bound=CanonicalModel, covariant=True, default=CanonicalModel)

NO_STORAGE: Final[Mapping[str, object]] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Row(Generic[M_co]):
    """A model with its storage markers; absent markers are omitted."""

    model: M_co
    storage: Mapping[str, object] = field(default_factory=lambda: NO_STORAGE)
    _content: bytes | None = field(default=None, init=False, repr=False, compare=False)

    @property
    def content(self) -> bytes:
        """The canonical JSON of the model; made once, because a write needs its length, its digest and it."""
        found = self._content
        if found is None:
            found = CanonicalJsonSerializer.serialize(self.model)
            object.__setattr__(self, "_content", found)
        return found
