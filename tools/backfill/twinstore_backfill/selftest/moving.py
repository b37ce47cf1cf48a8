"""Copying and comparing between the scratch databases, with the program's own copy and verification."""

from __future__ import annotations

import logging
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from twinstore.bulk import KeyRange
from twinstore.releasing import copied
from twinstore_backfill.copy.engine import run_copy
from twinstore_backfill.copy.options import CopyOptions
from twinstore_backfill.progress import SilentProgress
from twinstore_backfill.report.writing import DIFFERENCES, reports_in
from twinstore_backfill.selftest.judging import lines_in
from twinstore_backfill.verify.engine import run_verify
from twinstore_backfill.verify.options import VerifyOptions

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from twinstore.bulk import BulkPort
    from twinstore.catalog import Entity
    from twinstore.keys import Key
    from twinstore_backfill.report.model import ParityReport
    from twinstore_backfill.selftest.herd import Herd
    from twinstore_backfill.selftest.judging import Line
    from twinstore_backfill.selftest.scratch import ScratchSide
    from twinstore_backfill.stopping import StopSwitch

__all__ = ["Verified", "copy_all", "settle", "verified"]


@dataclass(frozen=True, slots=True)
class Verified:
    """A report and every row that it names."""

    report: ParityReport
    lines: tuple[Line, ...]


def copy_all(source: ScratchSide, target: ScratchSide, stop: StopSwitch) -> None:
    """Copy everything."""
    with TemporaryDirectory(prefix="twinstore-selftest-copy-") as directory:
        options = CopyOptions(execute=True, out=Path(directory), jobs=1)
        run_copy(source.store, target.store, options, SilentProgress(), stop)


def verified(
    source: ScratchSide,
    target: ScratchSide,
    stop: StopSwitch,
    *,
    entities: Sequence[str] = (),
    tenants: Sequence[str] = (),
) -> Verified:
    """Compare everything, or some entities and tenants."""
    options = VerifyOptions(entities=entities, tenants=tenants)
    with TemporaryDirectory(prefix="twinstore-selftest-verify-") as directory:
        with planted_rows_unlogged(), reports_in(Path(directory)) as write:
            report = run_verify(source.store, target.store, options, SilentProgress(), stop, write)
        return Verified(report, tuple(lines_in(Path(directory) / DIFFERENCES)))


@contextmanager
def planted_rows_unlogged() -> Iterator[None]:
    """Log no row that a list passes over: those that no service can read were planted."""
    logger = logging.getLogger("twinstore.undecodable")
    before, logger.disabled = logger.disabled, True
    try:
        yield
    finally:
        logger.disabled = before


def settle(herd: Herd, source: ScratchSide, target: ScratchSide, stop: StopSwitch) -> None:
    """Bring the made rows to both sides; one that either store refuses is taken back."""
    herd.write(source.store.bulk)
    copy_all(source, target, stop)
    for entity in reversed(source.entities):
        lost = sorted(stored_keys(source.store.bulk, entity) - stored_keys(target.store.bulk, entity))
        if lost:
            herd.forget(entity, lost)
            with source.store.bulk.writer(entity) as writer:
                writer.remove(lost)
                writer.flush()
                writer.commit()


def stored_keys(port: BulkPort, entity: Entity) -> set[Key]:
    """Return the keys of an entity in a store."""
    with port.view() as view:
        batches = (copied(entity, batch) for batch in view.rows(entity, KeyRange()))
        return {row.key for batch in batches for row in batch if row.key is not None}
