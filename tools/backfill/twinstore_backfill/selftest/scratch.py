"""Where the self-test works: two empty databases, named by settings or made for it."""

from __future__ import annotations

from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from twinstore.catalog import LifeInCopy
from twinstore.config import Settings, load_settings
from twinstore.errors import ConfigurationError, ValidationError
from twinstore.ledger import LEDGER_MODULE
from twinstore.modules import module_spec
from twinstore.plugins import load_backend
from twinstore.releasing import copied
from twinstore_backfill.outcome import PreflightError
from twinstore_backfill.stores import open_store, prepare_target

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from twinstore.catalog import Entity
    from twinstore.planting import Planter, RawRow
    from twinstore_backfill.stores import Store

__all__ = ["ScratchSide", "embedded_settings", "open_scratch", "planted_drivers"]


@dataclass(frozen=True, slots=True)
class ScratchSide:
    """One scratch database: as tools see it, and past its driver."""

    store: Store
    planter: Planter

    @property
    def entities(self) -> tuple[Entity, ...]:
        """The entities that a copy brings over."""
        return tuple(
            entity for entity in self.store.bulk.entities() if entity.life is not LifeInCopy.LEFT_OUT
        )

    def rows(self, entity: Entity) -> list[RawRow]:
        """Return the rows of an entity as they are stored, but for those that a store keeps to itself."""
        return copied(entity, self.planter.rows(entity))

    def clear(self) -> None:
        """Remove all rows, children first, and what the ledger knows of copies."""
        for entity in reversed((*LEDGER_MODULE.catalog.entities, *self.store.bulk.entities())):
            self.planter.clear(entity)


def planted_drivers(module: str, names: Sequence[str]) -> None:
    """Refuse drivers that the self-test cannot use.

    Raises:
        ValidationError: both sides have the same driver, or one cannot be written to past itself.
    """
    specs = [load_backend(name, module=module) for name in names]
    if specs[0].name == specs[1].name:
        raise ValidationError(
            "The self-test needs two drivers, because each is the corrupted target once; both are "
            f"{specs[0].name}."
        )
    for spec in specs:
        if spec.planter is None:
            raise ValidationError(
                f"The driver {spec.name} brings nothing that writes past it (planter in its BackendSpec), so "
                "no corruption can be planted there. Ask its author, or test between other drivers."
            )


@contextmanager
def embedded_settings() -> Iterator[Settings]:
    """Run servers in a temporary directory and yield the settings that name them.

    Raises:
        ConfigurationError: the embedded servers are not installed.
    """
    try:
        from twinstore_embedded import servers, write_appsettings  # noqa: PLC0415  # an extra
    except ModuleNotFoundError as error:
        raise _without_servers(error) from error
    with TemporaryDirectory(prefix="twinstore-selftest-") as directory:
        try:
            running = servers(Path(directory), durable=False)
        except ModuleNotFoundError as error:
            raise _without_servers(error) from error
        with running as both:
            # The environment may name servers of the user, which are no place for this.
            yield load_settings(write_appsettings(directory, both.mongo, both.postgres), environ={})


def _without_servers(error: ModuleNotFoundError) -> ConfigurationError:
    return ConfigurationError(
        f"The self-test needs {error.name!r} for servers of its own: pip install 'twinstore[all]'; or name "
        "empty databases with --scratch."
    )


@contextmanager
def open_scratch(module: str, backend: str, settings: Settings) -> Iterator[ScratchSide]:
    """Open an empty database, make its schema, and remove at the end what was written.

    Retention is off: rows of any age are copied, and no server removes one meanwhile.

    Raises:
        PreflightError: it holds rows of ours, or is not suitable.
    """
    spec = load_backend(backend, module=module)
    kept = settings.with_options({module: retention_off(module)})
    with ExitStack() as stack:
        store = stack.enter_context(open_store(module, spec.name, kept))
        require_empty(store)
        prepare_target(store)
        if spec.planter is None:
            raise LookupError(spec.name)  # refused before; met by programmers only
        entities = (*store.bulk.entities(), *LEDGER_MODULE.catalog.entities)
        planter = stack.enter_context(spec.planter(kept.backend_settings(module, spec), entities))
        side = ScratchSide(store, planter)
        stack.callback(side.clear)
        yield side


def retention_off(module: str) -> dict[str, object]:
    """Return the options that keep every row."""
    found = (entity.retention for entity in module_spec(module).catalog.entities)
    return {retention.option: 0 for retention in found if retention is not None}


def require_empty(store: Store) -> None:
    """Refuse a database in which a row of ours stands.

    Raises:
        PreflightError: names the entity and how many there are.
    """
    present = {survey.entity for survey in store.bulk.survey() if survey.present}
    for entity in store.bulk.entities():
        rows = sum(store.bulk.counts(entity).values()) if entity.name in present else 0
        if rows:
            raise PreflightError(
                f"The scratch database {store.bulk.place} holds {rows:,} rows of {entity.name}; the "
                "self-test corrupts and removes what it finds. Name an empty database.",
                driver=store.backend,
            )
