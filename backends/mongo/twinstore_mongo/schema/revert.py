"""Takes a migration back: drops its collections and its row of the ledger.

No server can make a drop depend on the absence of concurrent writes. So each collection first gets a
validator that refuses every document, which waits for the writes that run. Then the documents are counted,
and none can be added after the count.
"""

from __future__ import annotations

import json
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from twinstore.migrations.revert import Reversal, check_consent, check_not_needed
from twinstore_mongo.client.errors import DRIVER
from twinstore_mongo.schema.comparison import STRICT
from twinstore_mongo.schema.validators import closing_validator, is_closed

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from collections.abc import Set as AbstractSet

    from pymongo.collection import Collection

    from twinstore.migrations.migration import Consent
    from twinstore.migrations.revert import RevertFile
    from twinstore_mongo.client.database import OpenDatabase
    from twinstore_mongo.client.types import Document
    from twinstore_mongo.schema.lock import MigrationLease
    from twinstore_mongo.schema.steps import Step


@dataclass(frozen=True, slots=True)
class Revert:
    """What taking back one step drops: its collections, parents first."""

    step: str
    collections: tuple[str, ...]

    @classmethod
    def of(cls, file: RevertFile, names: Mapping[str, str]) -> Revert:
        """Read a file that a module ships; ``names`` are those of collections that configuration changed."""
        listed: list[str] = json.loads(file.text)["collections"]
        return cls(file.name, tuple(names.get(name, name) for name in listed))


@dataclass(frozen=True, slots=True)
class Reverter:
    """Takes one step of a module back.

    Attributes:
        ledger: the collection with the applied steps.
        steps: those that are applied, of this module.
        validators: by collection, as they should be; empty where none are wanted.
    """

    store: OpenDatabase
    module: str
    ledger: Collection[Document]
    steps: Sequence[Step]
    revert: Revert
    validators: Mapping[str, Document]

    def reversal(self) -> Reversal:
        """Return what would be dropped; see :class:`~twinstore.migrations.revert.RevertsMigrations`."""
        applied = self._applied is not None
        if applied:
            check_not_needed(self.revert.step, self._users(), module=self.module, driver=DRIVER)
        return Reversal(
            module=self.module,
            backend=DRIVER,
            migration=self.revert.step,
            applied=applied,
            rows={name: self._count(name) for name in self._present()} if applied else {},
        )

    def run(self, lease: MigrationLease, accept: AbstractSet[Consent]) -> Reversal:
        """Drop the collections, then the row of the ledger, so that a killed process can be repeated."""
        # Before any writes are refused.
        present = self.reversal()
        check_consent(present, accept)
        if not present.applied:
            return present
        with self._closed():
            present = self.reversal()
            check_consent(present, accept)
            for name in reversed(tuple(present.rows)):
                lease.check()
                self.store.database.drop_collection(name)
        lease.check()
        recorded = self.revert.step if self._applied is None else self._applied.name
        self.ledger.delete_one({"_id": f"{self.module}:{recorded}"})
        return replace(present, done=True)

    @property
    def _applied(self) -> Step | None:
        """The step, if it is applied; the file that takes it back has the name of its file."""
        return next((step for step in self.steps if step.place == self.revert.step), None)

    def _users(self) -> list[str]:
        """Return the applied steps behind this one that name a collection of it."""
        ours = set(self.revert.collections)
        return [
            step.name
            for step in self.steps
            if step.place > self.revert.step and ours & {item.name for item in step.collections}
        ]

    def _present(self) -> list[str]:
        there = set(self.store.database.list_collection_names())
        return [name for name in self.revert.collections if name in there]

    def _count(self, name: str) -> int:
        with self.store.with_index_timeout():
            return self.store.collection(name).count_documents({})

    @contextmanager
    def _closed(self) -> Iterator[None]:
        """Let the server refuse every write of a document; afterwards the remaining ones are unchanged."""
        before = {
            item["name"]: item.get("options", {})
            for item in self.store.database.list_collections(filter={"name": {"$in": self._present()}})
        }
        try:
            for name in before:
                self._validate(name, closing_validator(self.revert.step), STRICT)
            yield
        finally:
            left = set(self._present())
            for name, options in before.items():
                if name in left:
                    self._reopen(name, options)

    def _reopen(self, name: str, options: Mapping[str, Any]) -> None:
        validator = options.get("validator", {})
        if is_closed(validator):  # by a process that was killed
            self._validate(name, self.validators.get(name, {}), STRICT)
        else:
            rest = {key: options.get(key, value) for key, value in STRICT.items()}
            self._validate(name, validator, rest)

    def _validate(self, name: str, validator: Mapping[str, Any], options: Mapping[str, str]) -> None:
        with self.store.with_index_timeout():
            self.store.database.command({"collMod": name, "validator": validator, **options})
