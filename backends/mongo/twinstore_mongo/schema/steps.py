"""The numbered migration steps, read from the package: which collections and indexes a module has."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields, replace
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Final

from twinstore.migrations.migration import MigrationState, MigrationStatus
from twinstore_mongo.mapping.layout import CollectionSpec, IndexSpec

if TYPE_CHECKING:
    from datetime import datetime
    from importlib.resources.abc import Traversable

    from twinstore_mongo.special import CarryOver

FILE_NAME: Final = re.compile(r"\d{3}_[a-z0-9_]+\.json")
# As text: names begin with three digits, which sort as the numbers do.
FIRST_RELEASE: Final = "100"
RELEASE: Final = "release"


@dataclass(frozen=True, slots=True)
class Step:
    """One migration step; the checksum is that of its file with plain line ends.

    Attributes:
        name: what the ledger calls it: its file without suffix, or the name that the file gives it.
        carry_overs: in their order, after everything else of the step is there.
        file: the name of its file without suffix, whose number places it; empty where it is the name.
    """

    name: str
    checksum: str
    collections: tuple[CollectionSpec, ...]
    carry_overs: tuple[CarryOver, ...] = ()
    file: str = ""

    def renamed(self, names: Mapping[str, str]) -> Step:
        """Return the same step for collections of other names."""
        collections = (replace(item, name=names.get(item.name, item.name)) for item in self.collections)
        return replace(self, collections=tuple(collections))

    @property
    def place(self) -> str:
        """What orders the steps of a module."""
        return self.file or self.name

    @property
    def category(self) -> str:
        """``schema`` for 001-099; ``release`` for 100-199, which run only on request."""
        return RELEASE if self.place >= FIRST_RELEASE else "schema"

    @property
    def status(self) -> MigrationStatus:
        """What is shipped, as pending."""
        return MigrationStatus(
            name=self.name, category=self.category, checksum=self.checksum, state=MigrationState.PENDING
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class AppliedStep:
    """What the ledger of migrations says of a step, field by field as every release writes it."""

    migration_name: str
    category: str = ""
    checksum: str = ""
    applied_at: datetime | None = None
    applied_by: str = ""
    duration_ms: int = 0

    @classmethod
    def of(cls, row: Mapping[str, Any]) -> AppliedStep:
        """Return a row of the ledger."""
        return cls(**{item.name: row[item.name] for item in fields(cls) if item.name in row})

    @property
    def status(self) -> MigrationStatus:
        """What is applied, as missing."""
        return MigrationStatus(
            name=self.migration_name,
            category=self.category,
            checksum=self.checksum,
            state=MigrationState.MISSING,
            applied_at=self.applied_at,
        )


def load_steps(folder: Traversable) -> tuple[Step, ...]:
    """Return the steps that a module ships in a folder, by number; none where there is no folder."""
    names = [file.name for file in folder.iterdir()] if folder.is_dir() else []
    files = sorted(name for name in names if FILE_NAME.fullmatch(name))
    return tuple(parse_step(name.removesuffix(".json"), (folder / name).read_bytes()) for name in files)


def parse_step(name: str, text: bytes) -> Step:
    """Return the step of a file."""
    # A checkout on Windows must not change the checksum that a database has recorded.
    plain = text.replace(b"\r\n", b"\n")
    content = json.loads(plain)
    collections = tuple(
        CollectionSpec(item["name"], tuple(IndexSpec.of(index) for index in item["indexes"]))
        for item in content["collections"]
    )
    # A name that administrators knew before the file had a number.
    recorded = content.get("recordedAs")
    checksum = f"sha256:{sha256(plain).hexdigest()}"
    return Step(recorded or name, checksum, collections, file=name if recorded else "")


def whole_collections(steps: Iterable[Step]) -> tuple[CollectionSpec, ...]:
    """Return the collections of some steps, each with the indexes that all of them give it."""
    indexes: dict[str, tuple[IndexSpec, ...]] = {}
    for item in (item for step in steps for item in step.collections):
        indexes[item.name] = (*indexes.get(item.name, ()), *item.indexes)
    return tuple(CollectionSpec(name, found) for name, found in indexes.items())
