"""The attributes of a storage: one for each module that is installed."""

from __future__ import annotations

from twinstore.errors import ConfigurationError
from twinstore.plugins.modules import module_spec


class ModuleAttributes:
    """Gives a storage one attribute per installed module."""

    def module(self, name: str) -> object:
        """Return the storage of a module."""
        raise NotImplementedError(name)

    def __getattr__(self, name: str) -> object:
        """Return the storage of a module; it is kept, so that only the first access passes here."""
        # copy, pickle and inspect ask for such names; a module can never have one.
        if name.startswith("_"):
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        try:
            module_spec(name)
        except ConfigurationError as error:
            raise AttributeError(f"A storage has no attribute {name!r}. {error.message}") from error
        # Kept as an attribute, which Python finds before it asks here again.
        found = self.__dict__[name] = self.module(name)
        return found
