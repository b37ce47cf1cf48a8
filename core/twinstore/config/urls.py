"""Settings made of one URL, for a script or a notebook that has no settings file."""

from __future__ import annotations

import os
import re
from types import MappingProxyType
from typing import Final

from pydantic import SecretStr

from twinstore.config.entries import Entries, SettingsEntry, collect, fold, merge
from twinstore.config.files import read_elsewhere
from twinstore.config.keys import module_keys
from twinstore.config.settings import Settings
from twinstore.errors import ConfigurationError
from twinstore.plugins.drivers import list_backends, load_backend
from twinstore.runtime.secrets import without_locals

__all__ = ["settings_of_url"]

SOURCE: Final = "the argument url"
SCHEME: Final = re.compile(r"([a-z][a-z0-9+.-]*)://", re.IGNORECASE)


@without_locals
def settings_of_url(url: str | SecretStr, module: str, over: Settings | None = None) -> Settings:
    """Return the settings of one module, read from nothing but a URL, whose scheme chooses the driver.

    Args:
        url: it may hold a password; ``env:NAME`` or ``file:PATH`` for a variable or a file that holds it.
        module: the module, compared without case.
        over: settings that stay in force, apart from the driver and where its store is.

    Raises:
        ConfigurationError: there is no such module, variable, file or scheme of a driver.
    """
    keys, text = module_keys(module), _resolved(url)
    found = SCHEME.match(text)
    backends = {scheme: info for info in list_backends() for scheme in info.schemes}
    if found is None or (backend := backends.get(found[1].casefold())) is None:
        # Not quoted: what was mistaken for a URL may be a secret.
        given = "and this one has another" if found else "and this one has none"
        known = ", ".join(f"{scheme}://" for scheme in sorted(backends))
        raise ConfigurationError(f"The url should have the scheme of a driver ({known}), {given}.")
    spec = load_backend(backend.name, module=module.casefold())
    entries = (
        SettingsEntry(keys.switch, spec.name, SOURCE),
        # Clients know a scheme in small letters only.
        SettingsEntry(
            (*keys.storage, spec.name, "ConnectionString"),
            SecretStr(found[1].casefold() + text[found.end(1) :]),
            SOURCE,
        ),
    )
    sections = fold(("Persistence", spec.name)), fold((*keys.storage, spec.name))
    before: Entries = {} if over is None else over.entries
    kept = {
        path: entry
        for path, entry in before.items()
        # The owner role of another server must not migrate this one, nor the other one instead of this.
        if not (path[:-1] in sections and _names_a_place(path[-1]))
        and path not in {fold(keys.switch), fold(keys.mode)}
    }
    return Settings(MappingProxyType(merge((kept, collect(entries)))))


def _names_a_place(key: str) -> bool:
    """Return whether a key of a driver says where a store is, and not how to use it."""
    return key.endswith("connectionstring") or key in {"database", "client", "pool"}


def _resolved(url: object) -> str:
    """Return the URL itself."""
    text = url.get_secret_value() if isinstance(url, SecretStr) else url
    if not isinstance(text, str):
        raise ConfigurationError(f"Argument url should be a text, not {type(text).__name__}.")
    return read_elsewhere(text, os.environ, "the url")
