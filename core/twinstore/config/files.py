"""Reads a settings file. No message repeats the text of the file, because it may hold a password."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final, cast

from twinstore.config.unique import MalformedTextError, RepeatedKeyError, unique
from twinstore.errors import ConfigurationError

__all__ = ["read_file"]

# Windows editors put a byte order mark in front of appsettings.json.
ENCODING: Final = "utf-8-sig"


def _json(text: str) -> object:
    return json.loads(text, object_pairs_hook=unique)


def _yaml(text: str) -> object:
    from twinstore.config.yaml_text import read_yaml  # noqa: PLC0415  # few settings are YAML

    return read_yaml(text)


READERS: Final[Mapping[str, Callable[[str], object]]] = {
    ".json": _json,
    ".yaml": _yaml,
    ".yml": _yaml,
    # TOML itself forbids to repeat a key; spellings that differ in case are found when entries are collected.
    ".toml": tomllib.loads,
}


def read_file(path: Path, origin: str) -> Mapping[str, object]:
    """Return the content of a settings file.

    Args:
        path: where it is; the suffix decides the format.
        origin: who named it, for messages.

    Raises:
        ConfigurationError: the file is missing, unreadable, of an unknown format or malformed.
    """
    reader = READERS.get(path.suffix.lower())
    if reader is None:
        raise ConfigurationError(
            f"Settings file {path} ({origin}) has an unknown format; use one of {', '.join(READERS)}."
        )
    if not path.is_file():
        raise ConfigurationError(
            f"Settings file {path} ({origin}) does not exist; correct the path or create it."
        )
    try:
        return _mapping(reader(path.read_text(ENCODING)))
    # Before ValueError, whose subclass it is: this message names a key, never a value.
    except RepeatedKeyError as error:
        raise ConfigurationError(f"Settings file {path}: {error}. Keep one of them.") from None
    except OSError as error:
        raise ConfigurationError(
            f"Settings file {path} ({origin}) cannot be read: {error.strerror}."
        ) from error
    except (ValueError, TypeError, RecursionError) as error:
        # "from None": the error of the parser quotes the file.
        raise ConfigurationError(f"Settings file {path} is malformed{_place(error)}.") from None


def _mapping(data: object) -> dict[str, object]:
    if data is None:
        return {}
    if not isinstance(data, dict):
        raise TypeError("the top level is not an object")
    items = cast("dict[object, object]", data).items()
    # YAML has keys of other types. None of ours is one, and all others belong to the host.
    return {key: value for key, value in items if isinstance(key, str)}


def _place(error: Exception) -> str:
    """Say where the parser stopped, from positions alone."""
    if isinstance(error, json.JSONDecodeError):
        return f" at line {error.lineno}, column {error.colno}"
    if isinstance(error, MalformedTextError):
        return error.place
    if isinstance(error, tomllib.TOMLDecodeError):
        found = re.search(r"at line \d+, column \d+", str(error))
        return f" {found.group()}" if found else ""
    if isinstance(error, UnicodeDecodeError):
        return f": byte {error.start} is not UTF-8"
    return ": the top level must be an object" if isinstance(error, TypeError) else ""
