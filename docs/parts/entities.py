"""The entities of a module: the table of them, and a section for each with what the stores hold."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from docs.parts.samples import SAMPLES, folder_of, samples_of
from docs.parts.tables import NONE, code, codes, prose, table
from twinstore.codegen.stubs import shipped_modules
from twinstore.config.keys import module_keys
from twinstore.plugins.modules import module_spec
from twinstore_mongo.mapping.layout import ID, VERSION, derived_fields, key_index, stored_names

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from twinstore.catalog.entity import Entity
    from twinstore.plugins.module_spec import ModuleSpec

__all__ = ["MODULES", "document_id_table", "entities_part", "internal_fields_table", "retention"]

MODULES: Final[tuple[ModuleSpec[object], ...]] = tuple(map(module_spec, shipped_modules()))


def entities_part(module: ModuleSpec[object], number: str, held: Callable[[Entity], str]) -> str:
    """Return the table of the entities of a module and their sections, in the order of the catalog.

    Args:
        module: the module.
        number: the number of the section of the module, such as ``3.1``; those of the entities continue it.
        held: returns what the stores hold for an entity.
    """
    titles = {entity: f"{number}.{n} {entity.name}" for n, entity in enumerate(module.catalog.entities, 1)}
    samples = samples_of(module)
    head = ("Entity", "Model", "Key", "Retention", "Samples")
    rows = (
        (
            f"[{entity.name}](#{_anchor(title)})",
            _models(entity),
            codes(entity.key),
            retention(entity),
            _links(module, [name for name, model in samples.items() if issubclass(model, entity.model)]),
        )
        for entity, title in titles.items()
    )
    sections = (
        f"#### {title}\n\nModel: {_models(entity)}.\n\n{prose(entity.model)}\n\n{held(entity)}"
        for entity, title in titles.items()
    )
    stored = {entity.model for entity in titles}
    others = [name for name, model in samples.items() if model not in stored]
    # Values that callers send or receive are part of the row of another model.
    told = [f"Stored as part of another entity or not at all: {_links(module, others)}."] if others else []
    return "\n\n".join((table(head, rows), *told, *sections))


def _models(entity: Entity) -> str:
    """Return links to the model of the rows of an entity, or to each of its kinds if it has some."""
    kinds = [kind for kind in entity.model.__subclasses__() if kind.__module__ == entity.model.__module__]
    names = [kind.__name__ for kind in kinds or [entity.model]]
    return ", ".join(f"[{code(name)}](api-{entity.module}.md#{name.casefold()})" for name in names)


def retention(entity: Entity) -> str:
    """Return when rows of an entity are due for removal, or that they never are, and if none may change."""
    removals = "; ".join(_removals(entity)) or "none"
    return f"{removals}; append-only" if entity.append_only else removals


def _removals(entity: Entity) -> Iterator[str]:
    if entity.retention is not None:
        key = ":".join(module_keys(entity.module).option_paths[entity.retention.option])
        narrowed = codes(dict.fromkeys(condition.field for condition in entity.retention.where))
        depending = f", depending on {narrowed}" if narrowed else ""
        yield f"{code(key)} after {code(entity.retention.field)}{depending}"
    if entity.parent is not None:
        yield f"with their {entity.parent.entity.singular}"


def _anchor(title: str) -> str:
    """Return the anchor of a heading of digits, dots, blanks and words."""
    return title.replace(".", "").replace(" ", "-")


def _links(module: ModuleSpec[object], names: Iterable[str]) -> str:
    folder = folder_of(module).relative_to(SAMPLES.parent).as_posix()
    return ", ".join(f"[{name}](../{folder}/{name})" for name in names) or NONE


def internal_fields_table(modules: Iterable[ModuleSpec[object]]) -> str:
    """Return the fields of documents that are not part of the model, of each entity that has some."""
    rows = {entity.name: _internal_fields(entity) for module in modules for entity in module.catalog.entities}
    head = ("Entity", "Markers", "Derived", "Version")
    cells = ((code(name), *(cell or NONE for cell in row)) for name, row in rows.items() if any(row))
    return table(head, cells)


def document_id_table(modules: Iterable[ModuleSpec[object]]) -> str:
    """Return what ``_id`` is in the documents of each entity, and how the key is found from it."""
    rows = (
        (code(entity.name), *_document_id(entity)) for module in modules for entity in module.catalog.entities
    )
    return table(("Entity", "`_id`", "Key"), rows)


def _document_id(entity: Entity) -> tuple[str, str]:
    """Return what ``_id`` is, and what finds the key: the id, or an index on the other key fields."""
    index = key_index(entity)
    if index is None:
        return code(entity.key[0]), "`_id` itself"
    key = f"{codes(field for field, _ in index.key)}, by {code(index.name)}"
    if entity.generated_id:
        return "generated `ObjectId`", key
    if entity.own_id is not None:
        return code(entity.own_id), f"{key}; it follows from `_id`"
    return code(":".join(f"<{name}>" for name in entity.key)), key


def _internal_fields(entity: Entity) -> tuple[str, str, str]:
    """Return the markers under an internal name, the derived fields, and the version of an entity."""
    names = stored_names(entity)
    markers = [name for name in map(names.__getitem__, entity.markers) if name.startswith("_") and name != ID]
    derived = [names[item.name] for item in derived_fields(entity)]
    return codes(markers), codes(derived), code(VERSION) if entity.versioned else ""
