"""What a shell offers as the value of an option: installed names, mostly without importing their modules."""

from __future__ import annotations

from importlib.metadata import entry_points
from typing import TYPE_CHECKING, Final

import typer

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["drivers", "entities", "modules"]

DRIVERS: Final = "twinstore.backends"
MODULES: Final = "twinstore.modules"


def modules(incomplete: str) -> list[str]:
    """Return the installed modules that begin so."""
    return _beginning(incomplete, (found.name for found in entry_points(group=MODULES)))


def drivers(incomplete: str) -> list[str]:
    """Return the installed drivers that begin so, in the spelling of the documents."""
    names = (found.name for found in entry_points(group=DRIVERS))
    return _beginning(incomplete, (name.capitalize() if name.islower() else name for name in names))


def entities(context: typer.Context, incomplete: str) -> list[str]:
    """Return the entities that begin so: those of the module that is named before, or of all."""
    from twinstore.errors import TwinstoreError  # noqa: PLC0415  # only where entities are asked for
    from twinstore.modules import built_modules, module_spec  # noqa: PLC0415  # the same

    given = context.params.get("module")
    try:
        specs = [module_spec(name) for name in ([given] if given else built_modules())]
    except TwinstoreError:
        # A shell has nowhere to say it; the command will.
        return []
    return _beginning(incomplete, (entity.name for spec in specs for entity in spec.catalog.entities))


def _beginning(incomplete: str, names: Iterable[str]) -> list[str]:
    # Names compare without case, but a shell drops what does not begin as it was typed.
    spelled = {name.lower() if incomplete.islower() else name for name in names}
    return sorted(name for name in spelled if name.startswith(incomplete))
