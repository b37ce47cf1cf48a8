"""Brings the sources of the settings together.

file, environment, mapping -> entries of known top sections -> one layer each, no key twice
-> merged, later wins -> every key spelled properly or refused -> Settings, which check switches and options
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Final, cast

from twinstore.config.entries import SettingsEntry, collect, merge, walk
from twinstore.config.files import read_file
from twinstore.config.keys import check_keys, key_tree, top_sections
from twinstore.config.settings import Settings
from twinstore.errors import ConfigurationError
from twinstore.forgetting import without_locals
from twinstore.redaction import mask_secret_url

__all__ = ["CONFIG_VARIABLE", "ConfigSource", "load_settings"]

CONFIG_VARIABLE: Final = "TWINSTORE_CONFIG"

ConfigSource = Mapping[str, object] | str | os.PathLike[str] | Settings | None

SHOWN: Final = 200


@without_locals
def load_settings(
    source: ConfigSource = None,
    *,
    environ: Mapping[str, str] | None = None,
) -> Settings:
    """Read and check the settings.

    Later sources win: the file (the path given here, or else ``TWINSTORE_CONFIG``), the environment,
    the mapping given here. Top sections that belong to the host are ignored.

    Args:
        source: an explicit mapping, the path of a file, or settings that were loaded before (returned
            as they are).
        environ: the environment; that of the process by default.

    Raises:
        ConfigurationError: a file cannot be read, a key is unknown or given twice, a value is not
            allowed, or two settings contradict each other. The message names key and source.
    """
    if isinstance(source, Settings):
        return source
    environment = os.environ if environ is None else environ
    mapping: Mapping[str, object] = source if isinstance(source, Mapping) else {}
    path = None if source is None or isinstance(source, Mapping) else _path_of(source, "The configuration")
    root = key_tree()
    tops = top_sections(root)
    layers = (
        # Each source by itself: a key given twice in one is a mistake, in two of them the later one wins.
        collect(_file_entries(path, environment, tops)),
        collect(_environment_entries(environment, tops)),
        collect(walk(mapping, "the explicit mapping", tops)),
    )
    return Settings(MappingProxyType(check_keys(merge(layers), root)))


def _path_of(source: object, what: str) -> Path:
    """Return the path of a settings file.

    Raises:
        ConfigurationError: something else stands there, such as a connection string.
    """
    # Safe, because what comes out is looked at next.
    text: object = os.fspath(cast("os.PathLike[str]", source)) if isinstance(source, os.PathLike) else source
    if not isinstance(text, str):
        kind = type(source).__name__
        raise ConfigurationError(f"{what} should be a mapping or the path of a settings file, not {kind}.")
    # Judged as text: a path has one slash where a connection string has two, and would show the password.
    if "://" in text:
        raise ConfigurationError(
            f"{what} should be the path of a settings file, not a connection string "
            f"({mask_secret_url(text)[:SHOWN]}); put that into the file, below Persistence."
        )
    return Path(text)


def _file_entries(
    path: Path | None, environment: Mapping[str, str], tops: frozenset[str]
) -> Iterator[SettingsEntry]:
    origin = "given as an argument"
    if path is None and (variable := environment.get(CONFIG_VARIABLE)):
        path, origin = _path_of(variable, CONFIG_VARIABLE), f"from {CONFIG_VARIABLE}"
    if path is not None:
        yield from walk(read_file(path, origin), f"file {path}", tops)


def _environment_entries(environment: Mapping[str, str], tops: frozenset[str]) -> Iterator[SettingsEntry]:
    """Yield the variables that name a key below a known section; ``WORKER`` alone is somebody else's."""
    for name, value in environment.items():
        path = tuple(name.split("__"))
        if len(path) > 1 and path[0].casefold() in tops:
            yield SettingsEntry(path, value, f"environment variable {mask_secret_url(name)}")
