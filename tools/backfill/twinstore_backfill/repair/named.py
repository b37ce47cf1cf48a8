"""The rows that a file of differences names, kept on disk: they may be as many as the rows of a store."""

from __future__ import annotations

import json
from collections import Counter
from contextlib import contextmanager
from itertools import islice
from tempfile import TemporaryFile
from typing import IO, TYPE_CHECKING, Any, Final

from twinstore.errors import ValidationError
from twinstore_backfill.report.model import parse_report
from twinstore_backfill.report.writing import DIFFERENCES
from twinstore_backfill.verify.findings import FindingKind

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from pathlib import Path

    from twinstore.catalog import Entity
    from twinstore.keys import Key
    from twinstore_backfill.stores import Store

__all__ = ["NamedRows", "named_rows", "no_rows", "require_same_stores"]

REPORT: Final = "parity-report.json"
# Rows of one transaction or one task. All of them are in memory, of both sides, and each may be as large as a
# document may be.
ROWS_AT_ONCE: Final = 10


class NamedRows:
    """Keys by entity.

    Attributes:
        to_copy: by entity, how many rows a copy of the source row may put right.
        to_remove: by entity, how many rows the source does not have.
        keyless: by entity, how many findings have no key by which to find their row again.
    """

    def __init__(self, entities: Iterable[Entity], spool: IO[bytes]) -> None:
        """Take the entities that may be named, and an empty file for the findings."""
        self.to_copy: Counter[str] = Counter()
        self.to_remove: Counter[str] = Counter()
        self.keyless: Counter[str] = Counter()
        self._known = {entity.name: entity for entity in entities}
        self._spool = spool

    def take(self, lines: Iterable[bytes], place: str = "the verification") -> None:
        """Take findings as lines.

        Raises:
            ValidationError: a line is no finding of one of the entities.
        """
        for number, line in enumerate(lines, 1):
            entity, key, kind = self._finding(line, f"{place}, line {number}")
            counts = self.to_remove if kind is FindingKind.EXTRA else self.to_copy
            (self.keyless if key is None else counts)[entity] += 1
            self._spool.write(line)

    def take_extra(self, lines: Iterable[bytes]) -> None:
        """Take of a verification the rows that only the target has."""
        self.take(line for line in lines if json.loads(line)["kind"] == FindingKind.EXTRA)

    @property
    def counts(self) -> Mapping[str, int]:
        """How many rows of each entity can be found again."""
        return self.to_copy + self.to_remove

    def portions(self, entity: str, *kinds: FindingKind) -> Iterator[tuple[Key, ...]]:
        """Yield the keys of an entity, some at a time, in the order of the file; of some kinds or of all."""
        found = self._keys(entity, kinds or tuple(FindingKind))
        while some := tuple(islice(found, ROWS_AT_ONCE)):
            yield some

    def _keys(self, entity: str, kinds: tuple[FindingKind, ...]) -> Iterator[Key]:
        self._spool.seek(0)
        for line in self._spool:
            name, key, kind = self._finding(line, "a finding")
            if name == entity and kind in kinds and key is not None:
                yield key

    def _finding(self, line: bytes, place: str) -> tuple[str, Key | None, FindingKind]:
        try:
            item: dict[str, Any] = json.loads(line)
            entity, kind = self._known[item["entity"]], FindingKind(item["kind"])
            key = _listed(item["key"])
        except (ValueError, KeyError, TypeError, RecursionError):
            raise ValidationError(
                f"{place} is no finding of this module; give the {DIFFERENCES} of a verification as it is."
            ) from None
        if key is not None and not is_nameable(entity, key):
            raise ValidationError(f"{place}: the key is none of {entity.name}; give the file as it is.")
        return entity.name, key, kind


def is_nameable(entity: Entity, key: tuple[object, ...]) -> bool:
    """Whether what somebody typed can be the key of a row; no server takes a text with a lone surrogate."""
    texts = (part for part in key if isinstance(part, str))
    return entity.admits_key(key) and all(part.encode(errors="ignore").decode() == part for part in texts)


def _listed(key: Any) -> tuple[Any, ...] | None:  # noqa: ANN401  # as JSON has it
    """Return a key as a finding lists it; a text is none, although its letters could be parts."""
    if isinstance(key, str):
        raise TypeError
    return None if key is None else tuple(key)


@contextmanager
def no_rows(entities: Iterable[Entity]) -> Iterator[NamedRows]:
    """Yield a list that names nothing yet."""
    # Without a name on disk: it holds keys, and is gone whatever happens.
    with TemporaryFile() as spool:
        yield NamedRows(entities, spool)


@contextmanager
def named_rows(path: Path, entities: Iterable[Entity]) -> Iterator[NamedRows]:
    """Yield the rows that ``differences.ndjson``, or the one in a directory, names.

    They are read at once, so that the file may be replaced meanwhile.

    Raises:
        ValidationError: the file cannot be read, or a line is no finding of one of the entities.
    """
    file = path / DIFFERENCES if path.is_dir() else path
    with no_rows(entities) as rows:
        try:
            with file.open("rb") as lines:
                rows.take(lines, str(file))
        except OSError as error:
            advice = "Name with --in the --out directory of a verification."
            raise ValidationError(f"{file} cannot be read: {error.strerror}. {advice}") from error
        yield rows


def require_same_stores(path: Path, source: Store, target: Store) -> None:
    """Refuse differences of other stores, where the report beside them tells which they were.

    Raises:
        ValidationError: the report is of another pair of stores.
    """
    report = (path if path.is_dir() else path.parent) / REPORT
    if not report.exists():
        return
    before = parse_report(report.read_bytes(), str(report))
    for name, side, store in (("source", before.source, source), ("target", before.target, target)):
        if side.identity != store.bulk.identity:
            raise ValidationError(
                f"{report} is of another {name}: {side.place or side.identity}, not {store.bulk.place}. Name "
                "the stores that were verified."
            )
