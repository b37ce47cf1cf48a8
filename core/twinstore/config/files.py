"""Reads a settings file. No message repeats the text of the file, because it may hold a password."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Hashable, Iterable, Mapping
from importlib.resources.abc import Traversable
from pathlib import Path
from tomllib import TOMLDecodeError
from typing import Final, cast

import yaml
from pydantic_settings import (
    BaseSettings,
    JsonConfigSettingsSource,
    TomlConfigSettingsSource,
    YamlConfigSettingsSource,
)
from typing_extensions import override

from twinstore.errors import ConfigurationError
from twinstore.redaction import mask_secret_url

__all__ = ["read_file"]

# Windows editors put a byte order mark in front of appsettings.json.
ENCODING: Final = "utf-8-sig"
# What aliases may stand for; without them the length of the file is the limit.
MOST_NODES: Final = 100_000
# In a message; systems admit less.
LONGEST_PATH: Final = 4096


class RefusedFileError(ValueError):
    """A file that is well-formed is refused; the message names a key, never a value."""


class JsonFile(JsonConfigSettingsSource):
    """A JSON file in which no object repeats a key."""

    @override
    def _read_file(self, file_path: Path | Traversable) -> dict[str, object]:
        return _mapping(json.loads(file_path.read_text(ENCODING), object_pairs_hook=_unique))


class UniqueKeyLoader(yaml.SafeLoader):
    """Refuses a mapping that repeats a key, of which plain YAML loaders silently keep the last.

    And aliases that stand for more than a settings file ever holds: a few lines of them can mean gigabytes.
    """

    @override
    def get_single_node(self) -> yaml.Node | None:
        """Return the file as nodes after looking at what its aliases stand for."""
        node: yaml.Node | None = super().get_single_node()
        nodes: dict[int, int] = {}
        size = 0 if node is None else expanded_size(node, nodes)
        if len(nodes) < size > MOST_NODES:
            raise RefusedFileError(
                f"its YAML aliases stand for more than {MOST_NODES:,} values; write out what they mean"
            )
        return node

    @override
    def construct_mapping(
        self, node: yaml.MappingNode, deep: bool = False
    ) -> dict[Hashable, object]:  # signature of yaml
        """Build a mapping after checking its keys."""
        _unique((str(key.value), None) for key, _ in node.value)
        built: dict[Hashable, object] = super().construct_mapping(node, deep)
        return built


def expanded_size(node: yaml.Node, known: dict[int, int]) -> int:
    """Return of how many nodes one consists where each alias is written out.

    Args:
        node: where to begin.
        known: by identity, the sizes that are known; a node is looked at once, however often it is named.
    """
    if id(node) in known:
        return known[id(node)]
    # A node inside itself has no end.
    known[id(node)] = MOST_NODES + 1
    below: list[yaml.Node] = []
    if isinstance(node, yaml.MappingNode):
        below = [part for pair in node.value for part in pair]
    elif isinstance(node, yaml.SequenceNode):
        below = node.value
    known[id(node)] = 1 + sum(expanded_size(part, known) for part in below)
    return known[id(node)]


class YamlFile(YamlConfigSettingsSource):
    """A YAML file in which no mapping repeats a key."""

    @override
    def _read_file(self, file_path: Path | Traversable) -> dict[str, object]:
        return _mapping(yaml.load(file_path.read_text(ENCODING), UniqueKeyLoader))  # noqa: S506  # a SafeLoader


READERS: Final[Mapping[str, Callable[[Path], Mapping[str, object]]]] = {
    ".json": lambda path: JsonFile(BaseSettings, path).json_data,
    ".yaml": lambda path: YamlFile(BaseSettings, path).yaml_data,
    ".yml": lambda path: YamlFile(BaseSettings, path).yaml_data,
    # TOML itself forbids to repeat a key; spellings that differ in case are found when entries are collected.
    ".toml": lambda path: TomlConfigSettingsSource(BaseSettings, path).toml_data,
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
    try:
        if not path.is_file():
            raise ConfigurationError(
                f"Settings file {path} ({origin}) does not exist; correct the path or create it."
            )
        return reader(path)
    # Before ValueError, whose subclass it is.
    except RefusedFileError as error:
        raise ConfigurationError(f"Settings file {path}: {error}.") from None
    except OSError as error:
        raise ConfigurationError(
            f"Settings file {str(path)[:LONGEST_PATH]} ({origin}) cannot be read: {error.strerror}."
        ) from error
    except (ValueError, TypeError, yaml.YAMLError, RecursionError) as error:
        # "from None": the error of the parser quotes the file.
        raise ConfigurationError(f"Settings file {path} is malformed{_place(error)}.") from None


def _unique(pairs: Iterable[tuple[str, object]]) -> dict[str, object]:
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
    if isinstance(error, yaml.MarkedYAMLError) and error.problem_mark is not None:
        return f" at line {error.problem_mark.line + 1}, column {error.problem_mark.column + 1}"
    if isinstance(error, TOMLDecodeError):
        found = re.search(r"at line \d+, column \d+", str(error))
        return f" {found.group()}" if found else ""
    if isinstance(error, UnicodeDecodeError):
        return f": byte {error.start} is not UTF-8"
    return ": the top level must be an object" if isinstance(error, TypeError) else ""
