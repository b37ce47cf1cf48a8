"""How the driver introduces itself: what a host reads of it before anything is opened."""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING

from twinstore.plugins.backend import BACKEND_API_VERSION
from twinstore.plugins.drivers import list_backends, load_backend
from twinstore.plugins.settings import BackendSettings
from twinstore.testing.base import Contract

if TYPE_CHECKING:
    from twinstore.testing.workspace import Workspace

__all__ = ["PluginContract"]


class PluginContract(Contract):
    """The entry point and the description behind it."""

    def test_the_driver_is_installed_under_the_name_that_it_gives_itself(self, workspace: Workspace) -> None:
        name = workspace.storage.driver
        listed = [info for info in list_backends() if info.name.casefold() == name.casefold()]
        assert [(info.state, info.detail) for info in listed] == [("ready", "")]
        assert self.module.module.name in listed[0].modules
        assert load_backend(name.upper(), module=self.module.module.name).name == name

    def test_the_description_of_the_driver_has_the_types_that_are_asked_for(
        self, workspace: Workspace
    ) -> None:
        spec = load_backend(workspace.storage.driver)
        for texts in (spec.schemes, spec.requires):
            assert type(texts) is tuple
            assert all(type(text) is str and text for text in texts)
        assert spec.schemes
        assert (type(spec.api_version), type(spec.extra)) == (int, str)
        assert 1 <= spec.api_version <= BACKEND_API_VERSION
        assert spec.extra
        assert spec.modules is None or type(spec.modules) is frozenset
        assert issubclass(spec.settings, BackendSettings)
        assert callable(spec.factory)
        assert all(find_spec(name) is not None for name in spec.requires)
