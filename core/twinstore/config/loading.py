"""Brings the sources of the settings together.

file, secret files, environment file, environment, mapping -> entries of known top sections -> one layer each,
no key twice -> merged, later wins -> every key spelled properly or refused -> connection strings read where
they are -> Settings, which check switches and options
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Final, cast

from pydantic import BaseModel

from twinstore.config.entries import collect, merge, walk
from twinstore.config.files import environment, read_env_file, read_file, read_secrets
from twinstore.config.keys import key_tree, spelled
from twinstore.config.settings import Settings, follow_if_possible
from twinstore.errors import ConfigurationError
from twinstore.runtime.secrets import mask_secret_url, without_locals

CONFIG_VARIABLE: Final = "TWINSTORE_CONFIG"
ENV_FILE_VARIABLE: Final = "TWINSTORE_ENV_FILE"
SECRETS_DIR_VARIABLE: Final = "TWINSTORE_SECRETS_DIR"

ConfigPathLike = str | os.PathLike[str] | None
ConfigSource = Mapping[str, object] | BaseModel | str | os.PathLike[str] | Settings | None

MAX_MESSAGE_TEXT: Final = 200
NO_FILE: Final = f"No settings file was named: {CONFIG_VARIABLE} is unset."


@without_locals
def load_settings(
    source: ConfigSource = None,
    *,
    env_file: ConfigPathLike = None,
    secrets_dir: ConfigPathLike = None,
    environ: Mapping[str, str] | None = None,
) -> Settings:
    """Read and check the settings.

    Later sources win: the file (the path given here, or else ``TWINSTORE_CONFIG``), the secret files, the
    environment file, the environment, the mapping or settings object given here. Nothing is read that
    neither an argument nor a variable names. Top sections that belong to the host are ignored.

    Args:
        source: an explicit mapping, an instance of a pydantic model such as ``BaseSettings``, the path of a
            file, or settings that were loaded before (returned as they are).
        env_file: a file of lines ``NAME=value``, as Compose reads it; default: ``TWINSTORE_ENV_FILE``.
        secrets_dir: a directory in which a file ``Persistence__Postgres__ConnectionString`` holds the value,
            as Docker and Kubernetes mount it; default: ``TWINSTORE_SECRETS_DIR``.
        environ: the environment; that of the process by default.

    Raises:
        ConfigurationError: a file cannot be read, a key is unknown or given twice, a value is not
            allowed, or two settings contradict each other. The message names key and source.
    """
    if isinstance(source, Settings):
        if env_file is not None or secrets_dir is not None:
            raise ConfigurationError(
                "Loaded settings are taken as they are; give env_file and secrets_dir to load_settings."
            )
        return source
    process = os.environ if environ is None else environ
    named = _named(env_file, "env_file", ENV_FILE_VARIABLE, process)
    tree = key_tree()
    top_sections = frozenset(name.casefold() for name in tree)
    lines, settings = read_env_file(*named, process, top_sections) if named else ({}, [])
    # An environment file is a fallback for the environment, which wins over it.
    variables = {**lines, **process}
    mapping, file, origin = _given(source)
    config = _named(file, "configuration", CONFIG_VARIABLE, variables)
    secrets = _named(secrets_dir, "secrets_dir", SECRETS_DIR_VARIABLE, variables)
    sources = (
        walk(read_file(*config), f"file {config[0]}", top_sections) if config else (),
        read_secrets(*secrets, top_sections) if secrets else (),
        settings,
        environment(process, top_sections),
        walk(mapping, origin, top_sections),
    )
    # Each source by itself: a key given twice in one is a mistake, in two of them the later one wins.
    layers = [collect(replace(entry, path=spelled(entry, tree)) for entry in source) for source in sources]
    note = "" if config or source is not None else NO_FILE
    found = {path: follow_if_possible(entry, variables) for path, entry in merge(layers).items()}
    return Settings(MappingProxyType(found), note)


def _given(source: object) -> tuple[Mapping[str, object], object, str]:
    """Return the mapping of a host, or else the path of its file, and what the mapping is called."""
    if isinstance(source, BaseModel):
        name = f"the settings object {type(source).__name__}"
        try:
            # No warnings: they would repeat values.
            return source.model_dump(by_alias=True, warnings=False), None, name
        except Exception as error:  # noqa: BLE001  # a serializer of the host may raise anything
            problem = (
                f"{name[0].upper()}{name[1:]} cannot be dumped ({type(error).__name__}); give a mapping."
            )
        raise ConfigurationError(problem)
    if isinstance(source, Mapping):
        return cast("Mapping[str, object]", source), None, "the explicit mapping"
    return dict[str, object](), source, "nothing"


def _named(given: object, what: str, variable: str, variables: Mapping[str, str]) -> tuple[Path, str] | None:
    """Return the path that an argument or else a variable names, and who named it.

    Raises:
        ConfigurationError: the value is not a path, for example a connection string.
    """
    kind = type(given).__name__
    if given is None:
        text: object = variables.get(variable)
        name, origin = variable, f"from {variable}"
        if not text:
            return None
    else:
        text = os.fspath(cast("os.PathLike[str]", given)) if isinstance(given, os.PathLike) else given
        name, origin = f"The {what}", "given as an argument"
    form = (
        "a mapping, a settings object or the path of a settings file" if what == "configuration" else "a path"
    )
    if not isinstance(text, str):
        raise ConfigurationError(f"{name} should be {form}, not {kind}.")
    # Judged as text: a path has one slash where a connection string has two, and would show the password.
    if "://" in text:
        raise ConfigurationError(
            f"{name} should be a path, not a connection string ({mask_secret_url(text)[:MAX_MESSAGE_TEXT]}); "
            "put that into a settings file, below Persistence, or give url and module to open_storage."
        )
    # No system has such a path, and most calls would say so with a ValueError.
    if "\0" in text:
        raise ConfigurationError(f"{name} should be a path, and no path holds a NUL character.")
    return Path(text), origin
