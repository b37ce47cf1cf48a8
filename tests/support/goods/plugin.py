"""Describes the module without importing what it stores."""

from __future__ import annotations

from typing import Final

from twinstore.plugins.module_spec import ModuleSpec
from twinstore.plugins.modules import ModulePlugin
from twinstore.plugins.options import ModuleOptions, ModuleSettings


def spec() -> ModuleSpec[object]:
    """Return the module."""
    from tests.support.goods.module import MODULE  # noqa: PLC0415  # the plug-in is read by every host

    return MODULE


PLUGIN: Final = ModulePlugin(
    name="goods",
    title="Goods",
    settings=ModuleSettings(section="Goods", options=ModuleOptions, option_paths={}),
    spec=spec,
)
