"""The light description of the module, which every host reads."""

from __future__ import annotations

from typing import Final

from twinstore.module import Days, ModuleOptions, ModulePlugin, ModuleSettings, ModuleSpec


class LibraryOptions(ModuleOptions):
    """Options of the library.

    Attributes:
        keep_days: age in days at which books that are gone are due for removal; 0 keeps them.
    """

    keep_days: Days = 0


def spec() -> ModuleSpec[object]:
    """Return the module; its models are imported here and nowhere earlier."""
    from acme_library.module import MODULE

    return MODULE


PLUGIN: Final = ModulePlugin(
    name="library",
    title="Library",
    settings=ModuleSettings(
        section="Library",
        options=LibraryOptions,
        option_paths={"keep_days": ("Library", "Storage", "KeepDays")},
    ),
    spec=spec,
)
