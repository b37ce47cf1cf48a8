"""The checked settings."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from types import MappingProxyType
from typing import Final, cast

from pydantic import SecretStr, ValidationError
from typing_extensions import override

from twinstore.backend import BackendSettings, BackendSpec
from twinstore.config.driver_settings import build_settings
from twinstore.config.entries import (
    ConfigPath,
    Entries,
    SettingsEntry,
    collect,
    env_spelling,
    fold,
    merge,
    nest,
    refuse_overlap,
)
from twinstore.config.keys import allowed_drivers, canonical_driver, module_keys, modules
from twinstore.entrypoints import did_you_mean
from twinstore.errors import ConfigurationError
from twinstore.forgetting import without_locals
from twinstore.modules import built_modules
from twinstore.options import ModuleOptions, ModuleSettings
from twinstore.redaction import MASK, is_secret_key, mask_secret_url

__all__ = ["Settings"]

CONNECTION: Final = "connectionstring"
OPTIONS: Final = "the argument options"


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class Settings:
    """Which driver answers for which module, and how it is reached. Made by :func:`load_settings`."""

    entries: Entries

    def __post_init__(self) -> None:
        """Check every switch and option now, so that a mistake shows at start-up."""
        for keys in modules().values():
            self._driver(keys)
            self._options(keys)

    @override
    def __repr__(self) -> str:
        switches = (f"{keys.section}={self._driver(keys) or 'unset'}" for keys in modules().values())
        return f"Settings({', '.join(switches)})"

    def backend_name(self, module: str) -> str:
        """Return the driver of a module in its proper spelling.

        Raises:
            ConfigurationError: none is set.
        """
        keys = module_keys(module)
        name = self._driver(keys)
        if name is None:
            raise ConfigurationError(
                f"{':'.join(keys.switch)} is not set; set it to one of {', '.join(allowed_drivers(keys))} "
                f"(environment: {env_spelling(keys.switch)})."
            )
        return name

    def backend_section(self, module: str, backend: str) -> Mapping[str, object]:
        """Return ``Persistence:<backend>`` overlaid by ``<module>:Storage:<backend>``, secrets included."""
        entries = self._driver_entries(module_keys(module), backend)
        return nest((entry.path[-len(path) :], entry.value) for path, entry in entries.items())

    @without_locals
    def backend_settings(self, module: str, spec: BackendSpec) -> BackendSettings:
        """Return the section of a driver as an instance of its settings model.

        Raises:
            ConfigurationError: a key is unknown, a value is refused, or a required one is absent.
        """
        keys = module_keys(module)
        return build_settings(spec, self._driver_entries(keys, spec.name), (*keys.storage, spec.name))

    def options(self, module: str) -> ModuleOptions:
        """Return the options of a module.

        Raises:
            ConfigurationError: a value is refused.
        """
        return self._options(module_keys(module))

    def _options(self, keys: ModuleSettings) -> ModuleOptions:
        found: dict[str, list[SettingsEntry]] = {}
        values: dict[str, object] = {}
        for name, path in keys.option_paths.items():
            below = [entry for _, entry in self._below(fold(path))]
            if not below:
                continue
            found[name] = below
            section = {entry.path[-1]: entry.value for entry in below}
            values[name] = section if keys.is_section(name) else below[0].value
        try:
            return keys.options.model_validate(values)
        except ValidationError as error:
            detail = error.errors(include_url=False)[0]
            # Only taken from the error here and raised below, since pydantic's error holds the value and
            # would be shown as the context of ours.
            location = tuple(map(str, detail["loc"]))
            message = detail["msg"].removeprefix("Value error, ")
        entry = _concerned(found[location[0]], location)
        raise ConfigurationError(f"{entry.key} = {_shown(entry)!r} ({entry.source}) is not valid: {message}.")

    @without_locals
    def with_options(self, given: Mapping[str, Mapping[str, object]]) -> Settings:
        """Return the settings with options of modules given from Python, which win over all other sources.

        Args:
            given: by module, by option. An option that is a mapping is added to what the settings have,
                name by name.

        Raises:
            ConfigurationError: there is no such module or option, or a value is refused.
        """
        modules_given = _named(given, "options")
        entries = [
            entry
            for module, options in modules_given.items()
            for entry in _given_options(
                module, module_keys(module), _named(options, f"options of {module!r}")
            )
        ]
        return Settings(MappingProxyType(merge([self.entries, collect(entries)]))) if entries else self

    def named_modules(self) -> tuple[str, ...]:
        """Return the modules that can be opened and whose driver the settings name."""
        known = modules()
        return tuple(name for name in built_modules() if self._driver(known[name]) is not None)

    @without_locals
    def for_role(self, role: str) -> Settings:
        """Return the settings as a process of this role sees them.

        A process of that role reads the sections that its module has for it, such as ``Worker:Storage``, in
        place of those of every other process, key by key.

        Raises:
            ConfigurationError: there is no such role, or its settings contradict each other.
        """
        known = sorted({name for keys in modules().values() for name in keys.roles})
        if role.casefold() not in known:
            raise ConfigurationError(f"Unknown role {mask_secret_url(role)!r}; known: {', '.join(known)}.")
        mirrored = [
            dict(self._mirrored(fold(section), keys.storage))
            for keys in modules().values()
            for section in keys.roles.get(role.casefold(), ())
        ]
        for first, second in combinations(mirrored, 2):
            for path in first.keys() & second.keys():
                # Two sections of one role may say the same; which one would win otherwise nobody could tell.
                if first[path].text != second[path].text:
                    raise _contradiction(first[path], second[path])
        return Settings(MappingProxyType(merge([self.entries, *mirrored])))

    def describe(self) -> dict[str, dict[str, object]]:
        """Return every setting and every default by key: its value without secrets, and its source."""
        shown: dict[str, dict[str, object]] = {
            entry.key: {"value": _shown(entry), "source": entry.source} for entry in self.entries.values()
        }
        for keys in modules().values():
            for name, path in keys.option_paths.items():
                if keys.is_section(name):
                    continue  # what is in it is shown entry by entry
                default: object = keys.options.model_fields[name].default
                shown.setdefault(":".join(path), {"value": default, "source": "default"})
        return dict(sorted(shown.items()))

    def _driver(self, keys: ModuleSettings) -> str | None:
        """Return the driver of a module, or ``None``; refuse two switches that disagree."""
        found = [entry for path in (keys.switch, keys.mode) if (entry := self.entries.get(fold(path)))]
        names = [canonical_driver(entry, keys) for entry in found]
        # Two keys may name the driver. Neither wins: a host that reads only one of them would be surprised.
        if len(set(names)) > 1:
            raise _contradiction(*found)
        return names[0] if names else None

    def _driver_entries(self, keys: ModuleSettings, backend: str) -> Entries:
        """Return the entries of a driver by folded path relative to its section; the module wins."""
        found = dict(self._below(fold(("Persistence", backend))))
        found.update(self._spelled(keys, backend))
        refuse_overlap(found)
        return found

    def _spelled(self, keys: ModuleSettings, backend: str) -> Entries:
        """Return the entries of a driver below the section of a module, each under the key that it means."""
        section = (*keys.storage, backend)
        meant = {fold(key): target for key, target in keys.spellings.items()}
        found = dict(self._below(fold(section)))
        for path, entry in tuple(found.items()):
            target = meant.get(fold((backend, *path)))
            if target is None:
                continue
            del found[path]
            same = found.setdefault(
                fold(target[1:]), replace(entry, path=(*keys.storage, *target), given=entry.path)
            )
            # Two keys for one thing: which one would win otherwise nobody could tell.
            if same.text != entry.text:
                raise _contradiction(same, entry)
        return found

    def _below(self, section: ConfigPath) -> Iterator[tuple[ConfigPath, SettingsEntry]]:
        size = len(section)
        return ((path[size:], entry) for path, entry in self.entries.items() if path[:size] == section)

    def _mirrored(
        self, section: ConfigPath, storage: ConfigPath
    ) -> Iterator[tuple[ConfigPath, SettingsEntry]]:
        """Yield the entries of the section of a role as entries of the storage section of its module."""
        for path, entry in self._below(section):
            proper = (*storage, *entry.path[len(section) :])
            yield fold((*storage, *path)), replace(entry, path=proper, given=entry.path)


def _named(given: object, what: str) -> Mapping[str, object]:
    """Return what a host gave by name, which no type checker may have seen.

    Raises:
        ConfigurationError: it is no mapping, or not by texts.
    """
    if not isinstance(given, Mapping):
        raise ConfigurationError(
            mask_secret_url(f"The {what} should be a mapping, not {type(given).__name__}.")
        )
    found = cast("Mapping[object, object]", given)
    for name in found:
        if not isinstance(name, str):
            raise ConfigurationError(
                mask_secret_url(f"The {what} have the key {name!r:.60}; keys must be text.")
            )
    return cast("Mapping[str, object]", given)


def _given_options(module: str, keys: ModuleSettings, given: Mapping[str, object]) -> Iterator[SettingsEntry]:
    """Yield the entries of options that are given from Python."""
    for name, value in given.items():
        path = keys.option_paths.get(name)
        if path is None:
            known, near = ", ".join(keys.option_paths), did_you_mean(name, keys.option_paths)
            raise ConfigurationError(
                f"The module {module!r} has no option {mask_secret_url(name)!r}.{near} "
                f"It has {known or 'none'}."
            )
        if not keys.is_section(name):
            yield SettingsEntry(path, value, OPTIONS)
        elif isinstance(value, Mapping):
            for key, inner in cast("Mapping[object, object]", value).items():
                yield SettingsEntry((*path, str(key)), inner, OPTIONS)
        else:
            raise ConfigurationError(
                f"The option {name!r} of {module!r} takes texts by their names, not {type(value).__name__}."
            )


def _concerned(entries: Sequence[SettingsEntry], location: tuple[str, ...]) -> SettingsEntry:
    """Return the entry that a refusal is about: the named one of a mapping, else the only one."""
    return next((entry for entry in entries if entry.path[-1] == location[-1]), entries[0])


def _contradiction(first: SettingsEntry, second: SettingsEntry) -> ConfigurationError:
    return ConfigurationError(
        f"{first.key} ({first.source}) contradicts {second.key} ({second.source}); "
        "remove one of them or give both the same value."
    )


def _shown(entry: SettingsEntry) -> object:
    """Return the value of an entry as a listing may show it."""
    name = entry.path[-1]
    if is_secret_key(name):
        return MASK
    if isinstance(entry.value, SecretStr) or name.casefold().endswith(CONNECTION):
        # A text that is neither a URL nor key=value is not a connection string and may be anything.
        return mask_secret_url(entry.text) if "://" in entry.text or "=" in entry.text else MASK
    return _masked(entry.value)


def _masked(value: object) -> object:
    if isinstance(value, str):
        return mask_secret_url(value)
    if isinstance(value, list):
        return [_masked(inner) for inner in cast("list[object]", value)]
    return value if isinstance(value, bool | int | float) else MASK
