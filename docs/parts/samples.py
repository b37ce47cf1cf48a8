"""The samples of a module, each with the model that it is named after."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pydantic.alias_generators import to_snake

from twinstore.models.canonical import CanonicalModel

if TYPE_CHECKING:
    from collections.abc import Sequence

    from twinstore.plugins.module_spec import ModuleSpec

__all__ = ["SAMPLES", "folder_of", "model_of", "samples_of"]

SAMPLES: Final = Path(__file__).parents[2] / "samples"
FORMS: Final = frozenset({".json", ".ndjson"})


def folder_of(module: ModuleSpec[object]) -> Path:
    """Return where the samples of a module are; those of a web interface have a folder of their own."""
    api = SAMPLES / "api" / module.name
    return api if api.is_dir() else SAMPLES / module.name


def samples_of(module: ModuleSpec[object]) -> dict[str, type[CanonicalModel]]:
    """Return the models of the samples of a module by file name, ``run.json`` before ``run-a.json``."""
    folder = folder_of(module)
    names = (path.name for path in folder.iterdir() if path.suffix in FORMS) if folder.is_dir() else ()
    return {name: model_of(module, name) for name in sorted(names, key=_stem)}


def model_of(module: ModuleSpec[object], sample: str) -> type[CanonicalModel]:
    """Return the model of a sample by its name: that of an entity, or of a public model, or what it begins.

    Raises:
        LookupError: no public model of the module has such a name.
    """
    stem = _stem(sample)
    # By the name of an entity first, since its model may have another one.
    entities = {entity.singular.replace(" ", "-"): entity.model for entity in module.catalog.entities}
    if (entity := entities.get(_closest(stem, [*entities]))) is not None:
        return entity
    models = _models(module.package)
    found = _closest(stem, [*models])
    if not found:
        raise LookupError(f"{module.package} exports no model that the sample {sample} is named after")
    return models[found]


def _closest(stem: str, names: Sequence[str]) -> str:
    """Return the name that a stem is, or begins, or else the longest with which it begins; empty for none."""
    longer = [name for name in names if name == stem or name.startswith(f"{stem}-")]
    found = longer or [name for name in names if stem.startswith(f"{name}-")]
    return stem if stem in longer else max(found, key=len, default="")


def _models(package: str) -> dict[str, type[CanonicalModel]]:
    """Return the public models of a package by name, in words with hyphens."""
    public = import_module(package)
    return {
        to_snake(name).replace("_", "-"): item
        for name in public.__all__
        if isinstance(item := getattr(public, name), type) and issubclass(item, CanonicalModel)
    }


def _stem(sample: str) -> str:
    return sample.rpartition(".")[0]
