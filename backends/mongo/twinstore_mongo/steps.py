"""The numbered migration steps, read from the package: which collections and indexes a module has."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from importlib import resources
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from twinstore.options import ModuleOptions
    from twinstore_mongo.connection import Document

__all__ = ["RELEASE", "CollectionSpec", "IndexSpec", "Step", "load_steps"]

FILE_NAME: Final = re.compile(r"\d{3}_[a-z0-9_]+\.json")
FIRST_RELEASE: Final = "100"
RELEASE: Final = "release"
SECONDS_PER_DAY: Final = 86_400


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexSpec:
    """One index as the steps want it.

    Attributes:
        retention: the option of the module that says after how many days rows expire, where one does.
    """

    name: str
    key: tuple[tuple[str, int], ...]
    unique: bool = False
    partial: Mapping[str, Any] = field(default_factory=dict)
    retention: str | None = None

    @classmethod
    def of(cls, content: Mapping[str, Any]) -> IndexSpec:
        """Read an index of a step."""
        return cls(
            name=content["name"],
            key=tuple((name, direction) for name, direction in content["key"]),
            unique=content.get("unique", False),
            partial=content.get("partialFilterExpression", {}),
            retention=content.get("retention"),
        )

    def options(self, module: ModuleOptions, *, server_ttl: bool = True) -> Document:
        """Return what ``createIndex`` gets beside the key, with the present retention."""
        options: Document = {"name": self.name}
        if self.unique:
            options["unique"] = True
        if self.partial:
            options["partialFilterExpression"] = dict(self.partial)
        days = getattr(module, self.retention) if self.retention else 0
        if days and server_ttl:
            options["expireAfterSeconds"] = days * SECONDS_PER_DAY
        return options


@dataclass(frozen=True, slots=True)
class CollectionSpec:
    """One collection with its indexes in the order of creation."""

    name: str
    indexes: tuple[IndexSpec, ...]


@dataclass(frozen=True, slots=True)
class Step:
    """One migration step; the checksum is that of its file with plain line ends."""

    name: str
    checksum: str
    collections: tuple[CollectionSpec, ...]

    @property
    def category(self) -> str:
        """``schema`` for 001-099; ``release`` for 100-199, which run only on request."""
        return RELEASE if self.name >= FIRST_RELEASE else "schema"


def load_steps(module: str) -> tuple[Step, ...]:
    """Return the shipped steps of a module by number."""
    folder = resources.files("twinstore_mongo.migrations") / module
    files = sorted(file.name for file in folder.iterdir() if FILE_NAME.fullmatch(file.name))
    return tuple(parse_step(name.removesuffix(".json"), (folder / name).read_bytes()) for name in files)


def parse_step(name: str, text: bytes) -> Step:
    """Return the step of a file."""
    plain = text.replace(b"\r\n", b"\n")
    collections = tuple(
        CollectionSpec(item["name"], tuple(IndexSpec.of(index) for index in item["indexes"]))
        for item in json.loads(plain)["collections"]
    )
    return Step(name, f"sha256:{sha256(plain).hexdigest()}", collections)
