"""The cases of the entities: each stage alone, the copy there, the verification, the copy back."""

from __future__ import annotations

from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from pymongo import MongoClient

from benchmarks.commands import Commands
from benchmarks.entities.filling import copied_entities, fill, section_of
from benchmarks.entities.names import BACK, STANDARD, THERE, VERIFY, case_name, stage_name
from benchmarks.entities.rows import ROWS
from benchmarks.entities.stages import MONGO, POSTGRES, Stages
from benchmarks.entities.tables import entity_lines
from benchmarks.modules.stores import Stores
from benchmarks.peers.servers import Meter
from benchmarks.schedule import Case, Group, Sample

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from benchmarks.databases import BenchmarkDatabases
    from benchmarks.options import Options
    from twinstore.catalog.entity import Entity

__all__ = ["entities"]

DATABASE: Final = "entities"
TEMPLATE: Final = "entities_migrated"


@dataclass(frozen=True, slots=True)
class EntityCases:
    """Runs commands about one entity in a process that is kept."""

    commands: Commands
    mongo: Meter
    postgres: Meter

    def run(self, stores: Stores, command: str, entity: Entity, source: str, target: str) -> Sample:
        """Run a command and return what it took, with the processor time of everyone."""
        order = stores.order(command, entity, section_of(entity.module), source, target)
        mongo, postgres = self.mongo.read(), self.postgres.read()
        used = self.commands.run(order.arguments)
        mongo, postgres = self.mongo.read() - mongo, self.postgres.read() - postgres
        return Sample(
            units=order.rows(),
            seconds=order.seconds(),
            client_seconds=used,
            server_seconds=mongo + postgres,
            mongo_seconds=mongo,
            fast=order.fast(),
        )


@contextmanager
def entities(databases: BenchmarkDatabases, options: Options) -> Iterator[Group]:
    """Every entity of every module, filled with about as many bytes each."""
    there = Stores(databases.servers, options.directory, DATABASE)
    back = replace(there, returning=True)
    prepare(there)
    fill(there, 1e6 * options.entity_megabytes)
    found = copied_entities()
    sizes = mean_sizes(there, found)
    with Commands() as commands:
        run = EntityCases(commands, Meter.of_mongo(databases), Meter.of_postgres(databases)).run
        moves = (
            (THERE, MONGO, partial(run, there, "copy", source=MONGO, target=POSTGRES)),
            (VERIFY, None, partial(run, there, "verify", source=MONGO, target=POSTGRES)),
            (BACK, POSTGRES, partial(run, back, "copy", source=POSTGRES, target=MONGO)),
        )
        begin: dict[str, Callable[[], object]] = {
            THERE: partial(there.create_postgres, TEMPLATE),
            VERIFY: there.vacuum,
            BACK: partial(empty_mongo, back),
        }
        cases: list[Case] = []
        for way, source, move in moves:
            first = begin[way]
            # The first command of the process imports what all need. Nothing else belongs to runs.
            first()
            move(entity=next(entity for entity in found if entity.name == STANDARD))
            for entity in found:
                cases.append(_case(entity, way, move, first))
                first = _nothing
                if source is not None:
                    cases += _stages(Stages(there, source), entity, way)
        title = "Every entity, both directions"
        lines = partial(entity_lines, sizes)
        yield Group(name="entities", title=title, unit="rows", cases=cases, facts=sizes, lines=lines)


def prepare(stores: Stores) -> None:
    """Make empty databases with the schema of every module, and a template of the one on PostgreSQL."""
    stores.empty()
    for module in ROWS:
        for driver in (MONGO, POSTGRES):
            stores.migrate(module, section_of(module), driver)
    replace(stores, database=TEMPLATE).create_postgres(DATABASE)


def empty_mongo(stores: Stores) -> None:
    """Recreate the target of the reverse migration, with its validators and indexes."""
    stores.drop_mongo()
    for module in ROWS:
        stores.migrate(module, section_of(module), MONGO)


def mean_sizes(stores: Stores, found: tuple[Entity, ...]) -> dict[str, float]:
    """Return the mean bytes of BSON of a row of each entity."""
    with closing(MongoClient[dict[str, Any]](stores.servers.mongo.url)) as client:
        database = client[stores.mongo_database]
        sizes = {entity.name: database.command("collStats", entity.collection) for entity in found}
        return {name: float(stats["avgObjSize"]) for name, stats in sizes.items()}


def _case(entity: Entity, way: str, move: Callable[..., Sample], begin: Callable[[], object]) -> Case:
    against = () if entity.name == STANDARD else (case_name(STANDARD, way),)
    name = case_name(entity.name, way)
    return Case(name=name, run=partial(move, entity=entity), prepare=begin, against=against)


def _stages(stages: Stages, entity: Entity, way: str) -> Iterator[Case]:
    read, packed = (stage_name(entity.name, way, packed=packed) for packed in (False, True))
    yield Case(name=read, run=partial(stages.read, entity))
    yield Case(name=packed, run=partial(stages.packed, entity))


def _nothing() -> None:
    """Leave everything as the case before left it."""
