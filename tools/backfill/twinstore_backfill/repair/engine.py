"""Copying single rows again and removing those that the source does not have, in transactions of some rows.

    read the source by key -> judge each record as a copy does -> replace the row in the target
    read the source by key once more -> remove from the target what it still does not have

It may be stopped and repeated at any time: each step looks at the source anew.
"""

from __future__ import annotations

from collections import Counter
from contextlib import ExitStack
from dataclasses import dataclass, field
from logging import getLogger
from typing import TYPE_CHECKING, Final

from twinstore.errors import ConfigurationError
from twinstore.releasing import copy_writer
from twinstore_backfill.copy.dry import FirstLines
from twinstore_backfill.copy.forgiving import Forgiving
from twinstore_backfill.copy.reading import RangeReader
from twinstore_backfill.copy.retention import expiry_test
from twinstore_backfill.verify.findings import FindingKind

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from datetime import datetime

    from twinstore.bulk import Record
    from twinstore.catalog import Entity
    from twinstore.keys import Key
    from twinstore_backfill.ignoring import IgnoredPath
    from twinstore_backfill.repair.named import NamedRows
    from twinstore_backfill.stopping import StopSwitch
    from twinstore_backfill.stores import Store

__all__ = ["Repair", "Repaired"]

log = getLogger(__name__)

APPEND_ONLY: Final = (
    "{entity}: rows of an append-only entity were left as they are, because the role of the target may only "
    "append; grant it DELETE on the table for the repair, and revoke it afterwards"
)
# What a copy of the source row may put right.
COPIED: Final = tuple(kind for kind in FindingKind if kind is not FindingKind.EXTRA)


@dataclass(slots=True)
class Repaired:
    """What became of the named rows, by entity.

    Attributes:
        written: rows that are now as a copy stores them and were not before.
        unchanged: rows that were right already.
        refused: rows whose source no copy takes; ``reasons`` has the first ones.
        absent: rows that the source does not have any more, or that retention has due for removal.
        removed: rows of the target that the source does not have.
        kept: rows that were to be removed and that the source has by now.
    """

    written: Counter[str] = field(default_factory=Counter[str])
    unchanged: Counter[str] = field(default_factory=Counter[str])
    refused: Counter[str] = field(default_factory=Counter[str])
    absent: Counter[str] = field(default_factory=Counter[str])
    removed: Counter[str] = field(default_factory=Counter[str])
    kept: Counter[str] = field(default_factory=Counter[str])
    reasons: list[str] = field(default_factory=list[str])

    def counts(self) -> dict[str, Counter[str]]:
        """Return the numbers of rows by what became of them."""
        return {
            "written": self.written,
            "unchanged": self.unchanged,
            "refused": self.refused,
            "absent": self.absent,
            "removed": self.removed,
            "kept": self.kept,
        }

    def document(self) -> dict[str, object]:
        """Return it as reports show it."""
        counts = {word: dict(sorted(found.items())) for word, found in self.counts().items()}
        return {**counts, "reasons": self.reasons}


class Repair:
    """Puts named rows of a target right."""

    def __init__(  # both sides, and how rows are judged
        self,
        source: Store,
        target: Store,
        as_of: datetime,
        stop: StopSwitch,
        ignored: Sequence[IgnoredPath] = (),
    ) -> None:
        """Take both sides, the instant that retention is judged by, who may stop it, and what is dropped."""
        self._source, self._target, self._as_of, self._stop = source, target, as_of, stop
        self._forgiving = Forgiving(source.bulk, ignored)
        self.done = Repaired()

    def run(self, entities: Sequence[Entity], rows: NamedRows, *, remove: bool) -> Repaired:
        """Copy the named rows again, parents first; with ``remove`` also remove, children first.

        Raises:
            InterruptedRunError: a signal asked for the stop; what was done stays done.
        """
        for entity in entities:
            for keys in rows.portions(entity.name, *COPIED):
                self._permitted(entity, keys, self._rewrite)
        for entity in reversed(entities) if remove else ():
            for keys in rows.portions(entity.name, FindingKind.EXTRA):
                self._permitted(entity, keys, self._remove)
        return self.done

    def _permitted(
        self, entity: Entity, keys: Sequence[Key], step: Callable[[Entity, Sequence[Key]], None]
    ) -> None:
        """Take a step; where the role may only append, say so and go on."""
        try:
            step(entity, keys)
        except ConfigurationError as error:
            if not entity.append_only:
                raise
            log.info("rows of %s were left as they are: %s", entity.name, error)
            self.done.refused[entity.name] += len(keys)
            reason = APPEND_ONLY.format(entity=entity.name)
            if reason not in self.done.reasons:
                self.done.reasons.append(reason)

    def _rewrite(self, entity: Entity, keys: Sequence[Key]) -> None:
        self._stop.raise_if_interrupted("What was repaired stays repaired; run the same command again.")
        lines = FirstLines()
        expired = expiry_test(entity, self._target.options, self._as_of)
        reader = RangeReader(entity, expired=expired, lines=lines)
        with ExitStack() as stack:
            view = stack.enter_context(self._source.bulk.view())
            # In order, so that a second row of one key is seen as one.
            records = sorted(view.records_of(entity, keys), key=_key_of)
            records = self._forgiving.forgiven(entity, records)
            writer = stack.enter_context(copy_writer(self._target.bulk, entity, on_conflict="overwrite"))
            wanted = reader.wanted(records)
            if entity.append_only:
                # A copy never overwrites these; here somebody named the very rows.
                writer.remove([record.key for record in wanted if record.key is not None])
            writer.write(wanted)
            tally = reader.tally(writer.flush())
            writer.commit()
        name = entity.name
        self.done.written[name] += sum(tally.written.values())
        self.done.unchanged[name] += sum(tally.unchanged.values())
        self.done.refused[name] += sum(tally.quarantined.values())
        self.done.absent[name] += len(keys) - len(records) + sum(tally.expired.values())
        self.done.reasons += [f"{name} {line['key']}: {line['reason']}" for line in lines.bad]

    def _remove(self, entity: Entity, keys: Sequence[Key]) -> None:
        self._stop.raise_if_interrupted("What was repaired stays repaired; run the same command again.")
        with self._source.bulk.view() as view:
            # Judged anew: the list may be older than the row.
            there = {row.key for row in view.rows_of(entity, keys)}
        with self._target.bulk.writer(entity) as writer:
            writer.remove([key for key in keys if key not in there])
            self.done.removed[entity.name] += writer.flush().removed
            writer.commit()
        self.done.kept[entity.name] += len(there)


def _key_of(record: Record) -> Key:
    return record.key or ()
