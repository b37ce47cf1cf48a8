"""The mapping file of logical groups: logical name -> collection -> table."""

from __future__ import annotations

from typing import TYPE_CHECKING

from twinstore.catalog import LifeInCopy
from twinstore.config.files import read_file
from twinstore.entrypoints import did_you_mean
from twinstore.errors import ConfigurationError
from twinstore.modules import module_spec

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from twinstore.catalog import Entity

__all__ = ["read_groups"]


def read_groups(path: Path, module: str) -> dict[str, str]:
    """Return the group of each entity, as a file of JSON, YAML or TOML names them.

    Args:
        path: the file: an object per group, from name of collection to name of table.
        module: the module; a table may be written with its schema, ``library.books``.

    Raises:
        ConfigurationError: the file cannot be read; a group is none; a table is unknown, named twice or
            beside another collection than its own; an entity that is compared has no group.
    """
    entities = module_spec(module).catalog.entities
    places = {entity.name: entity for entity in entities}
    places |= {f"{module}.{entity.name}": entity for entity in entities}
    found: dict[str, str] = {}
    for group, collection, table in _lines(path):
        entity = places.get(table)
        if entity is None:
            near = did_you_mean(table.removeprefix(f"{module}."), [item.name for item in entities])
            raise _error(path, f"group {group!r} names the unknown table {table!r}.{near}")
        _check_collection(path, group, collection, entity)
        if entity.name in found:
            raise _error(
                path,
                f"table {table!r} stands in the groups {found[entity.name]!r} and {group!r}; keep it in one.",
            )
        found[entity.name] = group
    _check_complete(path, entities, found)
    return found


def _lines(path: Path) -> Iterator[tuple[str, str, str]]:
    """Yield group, collection and table of each line."""
    for group, tables in read_file(path, "--groups").items():
        if not group.strip() or not isinstance(tables, dict) or not tables:
            raise _error(path, _example(group))
        for collection, table in tables.items():
            if not isinstance(collection, str) or not isinstance(table, str):
                raise _error(path, _example(group))
            yield group.strip(), collection, table


def _example(group: str) -> str:
    return f"group {group!r} should map collections to tables, such as books to library.books."


def _check_collection(path: Path, group: str, collection: str, entity: Entity) -> None:
    # Where a setting may rename the collection, its name is that of the installation.
    if collection != entity.collection and entity.collection_setting is None:
        raise _error(
            path,
            f"group {group!r} names the collection {collection!r} for the table {entity.name!r}, whose "
            f"collection is {entity.collection!r}.",
        )


def _check_complete(path: Path, entities: Sequence[Entity], found: Mapping[str, str]) -> None:
    missing = [
        entity.name
        for entity in entities
        if entity.life is not LifeInCopy.LEFT_OUT and entity.name not in found
    ]
    if missing:
        raise _error(path, f"no group names {', '.join(missing)}; every table that is compared needs one.")


def _error(path: Path, problem: str) -> ConfigurationError:
    return ConfigurationError(f"The mapping file {path} of --groups: {problem}")
