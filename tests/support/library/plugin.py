"""Describes the module without importing what it stores."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from pydantic import Field

from twinstore.plugins.module_spec import ModuleSpec
from twinstore.plugins.modules import ModulePlugin
from twinstore.plugins.options import Days, ModuleOptions, ModuleSettings


class LibraryOptions(ModuleOptions):
    """Options of the library."""

    keep_days: Days = 30
    signature: Mapping[str, str] = Field(default_factory=dict)


def spec() -> ModuleSpec[object]:
    """Return the module."""
    from tests.support.library.module import MODULE  # noqa: PLC0415  # the plug-in is read by every host

    return MODULE


PLUGIN: Final = ModulePlugin(
    name="library",
    title="Library",
    settings=ModuleSettings(
        section="Library",
        options=LibraryOptions,
        option_paths={
            "keep_days": ("Library", "Storage", "KeepDays"),
            "signature": ("Library", "Signature"),
        },
    ),
    spec=spec,
)
