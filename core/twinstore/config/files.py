"""Reads a settings file. No message repeats the text of the file, because it may hold a password."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Final, cast

from twinstore.errors import ConfigurationError
from twinstore.redaction import mask_secret_url

__all__ = ["ENCODING", "RefusedFileError", "read_file", "read_text", "unique"]

# Windows editors put a byte order mark in front of appsettings.json.
ENCODING: Final = "utf-8-sig"
# A file of another kind that is named by mistake may not fit into the memory.
MOST_BYTES: Final = 16_777_216
# In a message; systems admit less.
LONGEST_PATH: Final = 4096


class RefusedFileError(ValueError):
    """A file that is well-formed is refused; the message names a key, never a value."""


def unique(pairs: Iterable[tuple[str, object]]) -> dict[str, object]:
    """Return an object of a file, in which no key may stand twice; parsers would keep the last one."""
    found: dict[str, object] = {}
    spellings: dict[str, str] = {}
    for key, value in pairs:
        first = spellings.setdefault(key.casefold(), key)
        if key in found or first != key:
            also = "" if first == key else f" (also spelled {first!r}; keys ignore case)"
            raise RefusedFileError(
                mask_secret_url(f"key {key!r} occurs twice in one object{also}. Keep one of them")
            )
        found[key] = value
    return found


def _yaml(text: str) -> object:
    from twinstore.config.yamlfile import load_yaml  # noqa: PLC0415  # few hosts have such a file

    return load_yaml(text)


PARSERS: Final[Mapping[str, Callable[[str], object]]] = {
    ".json": lambda text: json.loads(text, object_pairs_hook=unique),
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
    parse = PARSERS.get(path.suffix.lower())
    if parse is None:
        raise ConfigurationError(
            f"Settings file {path} ({origin}) has an unknown format; use one of {', '.join(PARSERS)}."
        )
    text = read_text(path, "Settings file", origin)
    try:
        data = parse(text)
    # Before ValueError, whose subclass it is.
    except RefusedFileError as error:
        problem = f": {error}"
    except (ValueError, RecursionError) as error:
        problem = f" is malformed{place_in(error)}"
    else:
        if isinstance(data, dict | None):
            items = cast("dict[object, object]", data or {}).items()
            # YAML has keys of other types. None of ours is one, and all others belong to the host.
            return {key: value for key, value in items if isinstance(key, str)}
        problem = " is malformed: the top level must be an object"
    # Outside the handlers: the error of a parser quotes the file.
    raise ConfigurationError(f"Settings file {path}{problem}.")


def read_text(path: Path, what: str, origin: str) -> str:
    """Return the text of a file.

    Args:
        path: where it is.
        what: what it is, for messages.
        origin: who named it.

    Raises:
        ConfigurationError: it is not there, no file, too large, cannot be read, or is not UTF-8.
    """
    name = f"{what} {str(path)[:LONGEST_PATH]} ({origin})"
    try:
        if not path.exists():
            problem = "does not exist; correct the path or create it"
        elif not path.is_file():
            problem = "is not a file; name one"
        elif path.stat().st_size > MOST_BYTES:
            problem = f"is larger than {MOST_BYTES:,} bytes; name a file of settings"
        else:
            return path.read_text(ENCODING)
    except OSError as error:
        problem = f"cannot be read: {error.strerror}"
    except UnicodeDecodeError as error:
        problem = f"is malformed: byte {error.start} is not UTF-8"
    # Outside the handlers: what could not be decoded is part of the error.
    raise ConfigurationError(f"{name} {problem}.")


def place_in(error: Exception) -> str:
    """Say where a parser stopped, from positions alone."""
    found = re.findall(r"line (\d+),? column (\d+)", str(error))
    return f" at line {found[-1][0]}, column {found[-1][1]}" if found else ""
