"""The next migration step of a module: what its description wants and no shipped step creates."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

from twinstore.migrations.migration import MigrationDraft
from twinstore_mongo.mapping.layout import collection_specs
from twinstore_mongo.schema.steps import load_steps

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from twinstore.catalog.entity import Module
    from twinstore.plugins.module_spec import ModuleSpec
    from twinstore_mongo.client.types import Document
    from twinstore_mongo.mapping.layout import IndexSpec
    from twinstore_mongo.schema.steps import Step

FOLDER: Final = "mongo"


def draft_of(module: ModuleSpec[object]) -> MigrationDraft:
    """Return what the descriptions want and no shipped step creates."""
    shipped = load_steps(module.migrations(FOLDER))
    return MigrationDraft(
        folder=FOLDER,
        suffix=".json",
        text=proposed_step(module.catalog, shipped),
        contradictions=tuple(contradictions(module.catalog, shipped)),
    )


def proposed_step(module: Module, shipped: Sequence[Step]) -> str | None:
    """Return the text of the next step, for a person to read and to number; ``None`` when nothing is missing.

    A shipped index is never changed by a step; :func:`contradictions` names those that the description wants
    otherwise.
    """
    created = indexes_of(shipped)
    missing: list[Document] = []
    for collection in collection_specs(module):
        known = created.get(collection.name)
        new = [index for index in collection.indexes if index.name not in (known or {})]
        if known is None or new:
            missing.append({"name": collection.name, "indexes": [index.content() for index in new]})
    return step_text(missing) if missing else None


def step_text(collections: Iterable[Document]) -> str:
    """Return the text of a step with one line per index."""
    parts: list[str] = []
    for item in collections:
        indexes = ",\n".join(f"        {json.dumps(index, ensure_ascii=False)}" for index in item["indexes"])
        listed = f"[\n{indexes}\n      ]" if indexes else "[]"
        name = json.dumps(item["name"], ensure_ascii=False)
        parts.append(f'    {{\n      "name": {name},\n      "indexes": {listed}\n    }}')
    return '{\n  "collections": [\n' + ",\n".join(parts) + "\n  ]\n}\n"


def contradictions(module: Module, shipped: Sequence[Step]) -> Iterator[str]:
    """Yield each shipped index that the description wants otherwise, or no longer."""
    wanted = {collection.name: by_name(collection.indexes) for collection in collection_specs(module)}
    for name, indexes in indexes_of(shipped).items():
        # Collections of no entity, such as those of a ledger, are described by their step alone.
        for index in indexes.values() if name in wanted else ():
            if wanted[name].get(index.name) != index:
                yield f"The index {name}.{index.name} of a shipped step differs from the description."


def indexes_of(steps: Iterable[Step]) -> dict[str, dict[str, IndexSpec]]:
    """Return the indexes that some steps create, by collection and name."""
    found: dict[str, dict[str, IndexSpec]] = {}
    for step in steps:
        for collection in step.collections:
            found.setdefault(collection.name, {}).update(by_name(collection.indexes))
    return found


def by_name(indexes: Iterable[IndexSpec]) -> dict[str, IndexSpec]:
    """Return indexes by name."""
    return {index.name: index for index in indexes}
