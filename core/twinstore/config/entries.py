"""Flat settings: every value with its key and the source it came from."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, cast

from pydantic import SecretStr

from twinstore.errors import ConfigurationError
from twinstore.plugins.options import ConfigPath
from twinstore.runtime.secrets import mask_secret_url

__all__ = [
    "ConfigPath",
    "Entries",
    "SettingsEntry",
    "collect",
    "env_spelling",
    "fold",
    "items_of",
    "merge",
    "nest",
    "refuse_overlap",
    "walk",
]

MAX_KEY_CHARACTERS: Final = 60
# Deeper than any setting, and less deep than Python recurses: a mapping may contain itself.
MAX_DEPTH: Final = 50
MAX_SHOWN_DEPTH: Final = 5


@dataclass(frozen=True, slots=True)
class SettingsEntry:
    """One value.

    Attributes:
        path: segments of the key.
        value: what was given; never part of a representation, since it may be a secret.
        source: where it came from, ready for a message.
        given: the key as the user knows it when it differs from ``path``.
    """

    path: ConfigPath
    value: object = field(repr=False)
    source: str
    given: ConfigPath = ()

    @property
    def key(self) -> str:
        """The key for messages; one that was written as a connection string is shown without its secret."""
        return mask_secret_url(":".join(self.given or self.path))

    @property
    def text(self) -> str:
        """The value as text, secrets included; for masking only."""
        value = self.value
        return value.get_secret_value() if isinstance(value, SecretStr) else str(value)


Entries = Mapping[ConfigPath, SettingsEntry]


def fold(path: Iterable[str]) -> ConfigPath:
    """Return the path for comparisons."""
    return tuple(segment.casefold() for segment in path)


def env_spelling(path: Iterable[str]) -> str:
    """Return the name of the environment variable of a key."""
    return "__".join(path)


def items_of(given: object, what: str) -> Iterator[tuple[str, object]]:
    """Yield what a host gave by name, which no type checker may have seen.

    Raises:
        ConfigurationError: it is no mapping, or not by texts.
    """
    if not isinstance(given, Mapping):
        name = mask_secret_url(what.removeprefix("the "))
        raise ConfigurationError(f"The {name} should be a mapping, not {type(given).__name__}.")
    for key, value in cast("Mapping[object, object]", given).items():
        if not isinstance(key, str):
            masked = mask_secret_url(repr(key)[:MAX_KEY_CHARACTERS])
            raise ConfigurationError(f"{mask_secret_url(what)} has the key {masked}; keys must be text.")
        yield key, value


def walk(mapping: Mapping[str, object], source: str, top_sections: frozenset[str]) -> Iterator[SettingsEntry]:
    """Yield the values of a nested mapping below the given top sections; null counts as not given."""
    for key, value in items_of(mapping, source):
        path = tuple(key.split(":"))
        if path[0].casefold() in top_sections:
            yield from walk_below(path, value, source)


def walk_below(path: ConfigPath, value: object, source: str) -> Iterator[SettingsEntry]:
    """Yield the values at and below a key."""
    if len(path) > MAX_DEPTH:
        masked = mask_secret_url(":".join(path[:MAX_SHOWN_DEPTH]))
        raise ConfigurationError(
            f"{masked} in {source} is nested deeper than {MAX_DEPTH} sections; no setting is there."
        )
    if isinstance(value, Mapping):
        for key, inner in items_of(cast("object", value), f"{':'.join(path)} in {source}"):
            yield from walk_below((*path, *key.split(":")), inner, source)
    elif value is not None:
        # Settings objects hold connection strings as objects of this module, which is imported for them only.
        url = any(base.__module__ == "pydantic.networks" for base in type(value).__mro__)
        yield SettingsEntry(path, str(value) if url else value, source)


def collect(entries: Iterable[SettingsEntry]) -> dict[ConfigPath, SettingsEntry]:
    """Index the entries of one source.

    Raises:
        ConfigurationError: a key is given twice, which leaves no rule to choose by.
    """
    found: dict[ConfigPath, SettingsEntry] = {}
    for entry in entries:
        # The first one stays, so that the message can name both places.
        first = found.setdefault(fold(entry.path), entry)
        if first is not entry:
            sources = " and ".join(dict.fromkeys((first.source, entry.source)))
            raise ConfigurationError(f"{entry.key} is given twice in {sources}; keep one (keys ignore case).")
    return found


def merge(layers: Iterable[Entries]) -> dict[ConfigPath, SettingsEntry]:
    """Lay later sources over earlier ones.

    Raises:
        ConfigurationError: a key is a value in one place and a section in another.
    """
    merged: dict[ConfigPath, SettingsEntry] = {}
    for layer in layers:
        merged.update(layer)
    # After merging: a value in the file and a section in the environment are each fine alone.
    refuse_overlap(merged)
    return merged


def refuse_overlap(entries: Entries) -> None:
    """Raise ``ConfigurationError`` when a key is a value in one place and a section in another."""
    for path, entry in entries.items():
        for length in range(1, len(path)):
            if (parent := entries.get(path[:length])) is not None:
                raise ConfigurationError(
                    f"{parent.key} is a value in {parent.source} and a section in {entry.source}; remove one."
                )


def nest(pairs: Iterable[tuple[ConfigPath, object]]) -> dict[str, object]:
    """Build nested mappings from paths; segments that differ only in case become one."""
    built: dict[str, object] = {}
    for path, value in pairs:
        section = built
        for depth, segment in enumerate(path):
            name = next((key for key in section if key.casefold() == segment.casefold()), segment)
            if depth + 1 == len(path):
                section[name] = value
            else:
                section = cast("dict[str, object]", section.setdefault(name, {}))
    return built
