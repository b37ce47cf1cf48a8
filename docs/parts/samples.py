"""The samples of a module, each with the model that it is named after."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pydantic.alias_generators import to_snake

from twinstore.canonical import CanonicalModel

if TYPE_CHECKING:
    from twinstore.modules import ModuleSpec

__all__ = ["FOLDER", "model_of", "samples_of"]

FOLDER: Final = Path(__file__).parents[2] / "samples" / "api"


def samples_of(module: ModuleSpec[object]) -> dict[str, type[CanonicalModel]]:
    """Return the models of the samples of a module by file name, ``run.json`` before ``run-a.json``."""
    names = sorted((path.name for path in (FOLDER / module.name).glob("*.json")), key=_stem)
    return {name: model_of(module, name) for name in names}


def model_of(module: ModuleSpec[object], sample: str) -> type[CanonicalModel]:
    """Return the model of a sample by its name: the longest that it begins with, or that begins with it.

    Raises:
        LookupError: no public model of the module has such a name.
    """
    models = _models(module.package)
    stem = _stem(sample)
    exact = [name for name in models if stem == name or stem.startswith(f"{name}-")]
    found = exact or [name for name in models if name.startswith(f"{stem}-")]
    if not found:
        raise LookupError(f"{module.package} exports no model that the sample {sample} is named after")
    return models[max(found, key=len)]


def _models(package: str) -> dict[str, type[CanonicalModel]]:
    """Return the public models of a package by name, in words with hyphens."""
    public = import_module(package)
    return {
        to_snake(name).replace("_", "-"): item
        for name in public.__all__
        if isinstance(item := getattr(public, name), type) and issubclass(item, CanonicalModel)
    }


def _stem(sample: str) -> str:
    return sample.removesuffix(".json")
