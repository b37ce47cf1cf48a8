"""Fills MongoDB with rows of every entity, as the driver itself writes them, by one process for each core."""

from __future__ import annotations

import os
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from datetime import datetime
from multiprocessing import get_context
from typing import TYPE_CHECKING, Any, Final, cast

from benchmarks.entities.rows import BELOW, ROWS
from benchmarks.modules.data import start
from twinstore.bulk.port import Record
from twinstore.catalog.entity import CopyPolicy, Entity
from twinstore.models.canonical import CanonicalJsonSerializer
from twinstore.plugins.modules import module_plugin, module_spec
from twinstore.storage.open import open_module

if TYPE_CHECKING:
    from benchmarks.modules.stores import Stores
    from twinstore.tracking.storage import TrackingStorage

__all__ = ["copied_entities", "fill", "section_of"]

BATCH: Final = 1000
SAMPLE: Final = 50


@dataclass(frozen=True, slots=True)
class Part:
    """The rows of one entity that one process writes."""

    module: str
    entity: str
    numbers: range
    first: datetime
    settings: dict[str, Any]


def copied_entities() -> tuple[Entity, ...]:
    """Return the entities of all modules that a copy takes with it, parents first."""
    modules = (module_spec(module).catalog.entities for module in ROWS)
    return tuple(entity for found in modules for entity in found if entity.copy_policy is CopyPolicy.COPIED)


def section_of(module: str) -> str:
    """Return how the settings spell a module."""
    return module_plugin(module).settings.section


def fill(stores: Stores, size: float) -> None:
    """Write about ``size`` bytes of JSON of every entity, of children at most as many as parents have."""
    first, parts, counts = start(), list[Part](), dict[Entity, int]()
    workers = os.cpu_count() or 1
    for entity in copied_entities():
        count = counts[entity] = _count(entity, size, first, counts)
        settings = stores.settings(section_of(entity.module), "Mongo")
        for worker in range(workers):
            numbers = range(worker * count // workers, (worker + 1) * count // workers)
            parts.append(Part(entity.module, entity.name, numbers, first, settings))
    with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool:
        list(pool.map(_write, parts))


def _count(entity: Entity, size: float, first: datetime, counts: dict[Entity, int]) -> int:
    make = ROWS[entity.module][entity.name]
    sample = sum(len(CanonicalJsonSerializer.serialize(make(n, first).model)) for n in range(SAMPLE))
    count = int(size * SAMPLE / sample)
    if entity.parent is None:
        return count
    return min(count, int(counts[entity.parent.entity] * BELOW.get(entity.name, 1)))


def _write(part: Part) -> None:
    entity = module_spec(part.module).catalog.entity(part.entity)
    with open_module(part.module, config=part.settings) as storage:
        # Every storage has this; the type of the module does not matter here.
        bulk = cast("TrackingStorage", storage).bulk
        for at in range(0, len(part.numbers), BATCH):
            with bulk.writer(entity) as writer:
                writer.write(list(_records(entity, part, part.numbers[at : at + BATCH])))
                if writer.flush().rejected:
                    raise RuntimeError(f"{entity.name}: the store does not take what the benchmark makes")
                writer.commit()


def _records(entity: Entity, part: Part, numbers: range) -> Iterator[Record]:
    make = ROWS[part.module][part.entity]
    for number in numbers:
        row = make(number, part.first)
        owner = entity.owner_of(row.model, row.storage)
        yield Record(entity.key_of(row.model, row.storage), owner, row.model, row.storage)
