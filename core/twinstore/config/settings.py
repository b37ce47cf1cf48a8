"""The checked settings."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from difflib import get_close_matches
from itertools import combinations
from pathlib import Path
from types import MappingProxyType
from typing import Final, cast, get_args

from pydantic import BaseModel, SecretBytes, SecretStr, ValidationError
from typing_extensions import override

from twinstore.config.entries import (
    ConfigPath,
    Entries,
    SettingsEntry,
    collect,
    env_spelling,
    fold,
    items_of,
    merge,
    nest,
    refuse_overlap,
    walk_below,
)
from twinstore.config.files import ELSEWHERE, read_elsewhere
from twinstore.config.keys import (
    allowed_drivers,
    canonical_driver,
    key_tree,
    model_tree,
    module_keys,
    modules,
    spelled,
)
from twinstore.errors import ConfigurationError, TwinstoreError
from twinstore.plugins.backend import BackendSpec
from twinstore.plugins.drivers import installed_backend_names, load_backend
from twinstore.plugins.entry_points import did_you_mean
from twinstore.plugins.modules import built_modules
from twinstore.plugins.options import ModuleOptions, ModuleSettings
from twinstore.plugins.settings import BackendSettings
from twinstore.runtime.secrets import (
    MASK,
    SIMILARITY_CUTOFF,
    is_secret_key,
    mask_secret_url,
    mentions_secret,
    resembles_secret_key,
    secrets_in,
    without_locals,
)

CONNECTION: Final = "connectionstring"
OPTIONS: Final = "the argument options"
WITHHELD: Final = "the driver refuses its value (its message is withheld because it repeats a secret)"


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class Settings:
    """Which driver answers for which module, and how it is reached. Made by :func:`load_settings`.

    Attributes:
        entries: by folded key.
        note: what a message about something that is not set says besides.
    """

    entries: Entries
    note: str = ""

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
        if (name := self._driver(keys)) is not None:
            return name
        problem = (
            f"{':'.join(keys.switch)} is not set; set it to one of {', '.join(allowed_drivers(keys))} "
            f"(environment: {env_spelling(keys.switch)}). {self.note}"
        )
        raise ConfigurationError(problem.strip())

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
        return build_settings(
            spec, self._driver_entries(keys, spec.name), (*keys.storage, spec.name), self.note
        )

    def options(self, module: str) -> ModuleOptions:
        """Return the options of a module.

        Raises:
            ConfigurationError: a value is refused.
        """
        return self._options(module_keys(module))

    def _options(self, keys: ModuleSettings) -> ModuleOptions:
        # By the location that pydantic reports: the option, and for an option that is a mapping the name as
        # well.
        found = {
            (name, *(entry.path[-1:] if path else ())): entry
            for name, section in keys.option_paths.items()
            for path, entry in self._below(fold(section))
        }
        try:
            return keys.options.model_validate(nest((path, entry.value) for path, entry in found.items()))
        except ValidationError as error:
            detail = error.errors(include_url=False)[0]
            location = tuple(map(str, detail["loc"]))
            message = detail["msg"].removeprefix("Value error, ")
        # Outside the handler: pydantic's error holds the value and would be shown as the context of ours.
        entry = next(
            (entry for path, entry in found.items() if path == location[: len(path)]),
            next(entry for path, entry in found.items() if path[0] == location[0]),
        )
        raise ConfigurationError(
            f"{entry.key} = {_display_value(entry)!r} ({entry.source}) is not valid: {message}."
        )

    @without_locals
    def with_options(self, given: Mapping[str, Mapping[str, object]]) -> Settings:
        """Return the settings with options of modules given from Python, which win over all other sources.

        Args:
            given: by module, by option. An option that is a mapping is added to what the settings have,
                name by name.

        Raises:
            ConfigurationError: there is no such module or option, or a value is refused.
        """
        tree = key_tree()
        entries = collect(replace(entry, path=spelled(entry, tree)) for entry in _given_options(given))
        return replace(self, entries=MappingProxyType(merge([self.entries, entries])))

    def named_modules(self) -> tuple[str, ...]:
        """Return the modules that can be opened and whose driver the settings name."""
        known = modules()
        return tuple(name for name in built_modules() if self._driver(known[name]) is not None)

    def drivers_of(self, module: str) -> tuple[str, ...]:
        """Return the installed drivers of a module that the settings name or have a section for."""
        return tuple(self._drivers(module_keys(module)))

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
            {
                fold((*keys.storage, *path)): replace(
                    entry, path=(*keys.storage, *entry.path[len(section) :]), given=entry.path
                )
                for path, entry in self._below(fold(section))
            }
            for keys in modules().values()
            for section in keys.roles.get(role.casefold(), ())
        ]
        for first, second in combinations(mirrored, 2):
            for path in first.keys() & second.keys():
                _refuse_contradiction(first[path], second[path])
        return replace(self, entries=MappingProxyType(merge([self.entries, *mirrored])))

    def describe(self) -> dict[str, dict[str, object]]:
        """Return every setting and every default by key: its value without secrets, and its source.

        Defaults of a driver are shown where the settings name the driver or have a section for it.
        """
        described: dict[str, dict[str, object]] = {
            entry.key: {"value": _display_value(entry), "source": entry.source}
            for entry in self.entries.values()
        }
        spellings = {key.casefold() for key in described}
        for path, default in self._defaults():
            if (key := ":".join(path)).casefold() not in spellings:
                described[key] = {"value": default, "source": "default"}
        return dict(sorted(described.items()))

    def problems(self) -> tuple[str, ...]:
        """Return what drivers refuse in their sections, and what the named ones lack; nothing connects."""
        found: dict[str, None] = {}
        for module in self.named_modules() or built_modules():
            keys = module_keys(module)
            for driver in self._drivers(keys):
                section, entries = (*keys.storage, driver), self._driver_entries(keys, driver)
                # A section that waits for the day of the switch need not be complete.
                waits = driver != self._driver(keys)
                try:
                    build_settings(load_backend(driver), entries, section, self.note, partly=waits)
                except ConfigurationError as error:
                    found[error.message] = None
        return tuple(found)

    def _defaults(self) -> Iterator[tuple[ConfigPath, object]]:
        for keys in modules().values():
            if self._driver(keys) is None:
                yield keys.switch, None
            for name, path in keys.option_paths.items():
                if not keys.is_section(name):  # what is in one is shown entry by entry
                    yield path, keys.options.model_fields[name].default
        for driver in dict.fromkeys(name for keys in modules().values() for name in self._drivers(keys)):
            # A driver that cannot be loaded is one of the problems, and no reason to hide everything else.
            with suppress(ConfigurationError):
                for name, default in driver_defaults(load_backend(driver).settings):
                    yield (
                        ("Persistence", driver, name),
                        None if default is None or default == {} else _masked(default),
                    )

    def _drivers(self, keys: ModuleSettings) -> Iterator[str]:
        """Yield the drivers of a module that the settings name or have a section for."""
        installed = installed_backend_names()
        for driver in allowed_drivers(keys):
            if driver in installed and (driver == self._driver(keys) or self._driver_entries(keys, driver)):
                yield driver

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
        meant = {fold(key): target for key, target in keys.spellings.items()}
        found: dict[ConfigPath, SettingsEntry] = {}
        for path, entry in self._below(fold((*keys.storage, backend))):
            target = meant.get(fold((backend, *path)))
            proper = (
                entry if target is None else replace(entry, path=(*keys.storage, *target), given=entry.path)
            )
            _refuse_contradiction(found.setdefault(fold(target[1:]) if target else path, proper), proper)
        return found

    def _below(self, section: ConfigPath) -> Iterator[tuple[ConfigPath, SettingsEntry]]:
        size = len(section)
        return ((path[size:], entry) for path, entry in self.entries.items() if path[:size] == section)


def _given_options(given: object) -> Iterator[SettingsEntry]:
    for module, options in items_of(given, "options"):
        paths = module_keys(module).option_paths
        for name, value in items_of(options, f"options of {module!r}"):
            if name not in paths:
                raise ConfigurationError(
                    f"The module {module!r} has no option {mask_secret_url(name)!r}."
                    f"{did_you_mean(name, paths)} It has {', '.join(paths) or 'none'}."
                )
            yield from walk_below(paths[name], value, OPTIONS)


def _refuse_contradiction(first: SettingsEntry, second: SettingsEntry) -> None:
    """Refuse two keys for one setting with different values: it would be unclear which one wins."""
    if first.text != second.text:
        raise _contradiction(first, second)


def _contradiction(first: SettingsEntry, second: SettingsEntry) -> ConfigurationError:
    return ConfigurationError(
        f"{first.key} ({first.source}) contradicts {second.key} ({second.source}); "
        "remove one of them or give both the same value."
    )


def _display_value(entry: SettingsEntry) -> object:
    """Return the value of an entry as a listing may show it."""
    # A text below the key of a secret, or next to it by mistake, may be the secret itself.
    if any(map(resembles_secret_key, entry.path)):
        return MASK
    if isinstance(entry.value, SecretStr) or any(map(_is_connection, entry.path)):
        # A text that is neither a URL nor key=value is not a connection string and may be anything.
        return mask_secret_url(entry.text) if "://" in entry.text or "=" in entry.text else MASK
    return _masked(entry.value)


def _is_connection(name: str) -> bool:
    """Whether a key is that of a connection string, or meant to be."""
    plain = name.casefold()
    return plain.endswith(CONNECTION) or bool(get_close_matches(plain, [CONNECTION], 1, SIMILARITY_CUTOFF))


def follow(entry: SettingsEntry, variables: Mapping[str, str]) -> SettingsEntry:
    """Return an entry, a connection string with what the variable or file holds that it names.

    Raises:
        ConfigurationError: that variable is not set, or the file cannot be read.
    """
    if not (entry.path[-1].casefold().endswith(CONNECTION) and entry.text.startswith(ELSEWHERE)):
        return entry
    text = read_elsewhere(entry.text, variables, f"{entry.key} ({entry.source})")
    return replace(entry, value=SecretStr(text) if isinstance(entry.value, SecretStr) else text)


def follow_if_possible(entry: SettingsEntry, variables: Mapping[str, str]) -> SettingsEntry:
    """Do the same, but leave what cannot be read: the driver that needs it says so."""
    with suppress(ConfigurationError):
        return follow(entry, variables)
    return entry


def _masked(value: object) -> object:
    if isinstance(value, str):
        return mask_secret_url(value)
    if isinstance(value, list):
        return [_masked(inner) for inner in cast("list[object]", value)]
    return value if isinstance(value, bool | int | float) else MASK


@without_locals
def build_settings(
    spec: BackendSpec, entries: Entries, section: ConfigPath, note: str = "", *, partly: bool = False
) -> BackendSettings:
    """Validate the entries below a driver's section through the driver's model.

    Args:
        spec: the driver.
        entries: by folded path relative to the section.
        section: the section of the module, for messages about absent keys.
        note: where absent keys might be, for the message.
        partly: whether to ignore absent keys, because the caller checks only the given ones.

    Raises:
        ConfigurationError: a key is unknown, a value is refused, or a required one is absent.
    """
    named = {path: follow(entry, os.environ) for path, entry in _named(spec.settings, entries).items()}
    try:
        return spec.settings.model_validate(nest((entry.path, entry.value) for entry in named.values()))
    except ValidationError as error:
        # Without input and context, which hold the value that was refused.
        details = error.errors(include_url=False, include_context=False, include_input=False)
        absent = [detail for detail in details if detail["type"] == "missing" or not detail["loc"]]
        if partly and len(absent) == len(details):
            return spec.settings.model_construct()
        problems = [
            _problem(spec, named, section, tuple(map(str, detail["loc"])), detail["type"], detail["msg"])
            for detail in details
            if not partly or detail not in absent
        ]
        problems += [note] if absent else []
    except TwinstoreError:
        raise
    # A third-party validator may raise anything, and its message may repeat the value that it was given.
    except (Exception, SystemExit) as error:  # noqa: BLE001  # reported in the message
        problem = (
            f"The settings of the driver {spec.name} ({':'.join(section)}) were refused with "
            f"{type(error).__name__}, whose text is withheld because it may repeat a secret; correct them, "
            "or ask the author of the driver, whose validators must raise ValueError."
        )
        problems = [problem]
    # Outside the handler: pydantic's error holds the input, and a context would show it in a traceback.
    raise ConfigurationError(" ".join(filter(None, problems)), driver=spec.name)


def _named(model: type[BaseModel], entries: Entries) -> Entries:
    """Return the entries by the names of the model, of which two spellings are a key given twice."""
    tree, aliases = model_tree(model), {name: field.alias for name, field in model.model_fields.items()}
    named: list[SettingsEntry] = []
    for path, entry in entries.items():
        start = len(entry.path) - len(path)
        first, *rest = spelled(entry, tree, start)[start:]
        proper = (aliases.get(first) or first, *rest)
        named.append(replace(entry, path=proper, given=entry.given or entry.path))
    found = collect(named)
    refuse_overlap(found)
    return found


def driver_defaults(model: type[BaseModel]) -> Iterator[tuple[str, object]]:
    """Yield name and default of each setting of a driver that a file can hold."""
    for name, field in model.model_fields.items():
        # What is excluded from dumps is an object of the host.
        if not field.exclude:
            default: object = None if field.is_required() else field.get_default(call_default_factory=True)
            if default is not None and (_holds_secret(field.annotation) or is_secret_key(name)):
                default = MASK
            yield field.alias or name, str(default) if isinstance(default, Path) else default


def _problem(  # noqa: PLR0917  # the parts of one pydantic error, passed on once
    spec: BackendSpec, named: Entries, section: ConfigPath, location: ConfigPath, kind: str, message: str
) -> str:
    """Say one refusal of the model without repeating a secret."""
    if kind == "missing":
        shared = ("Persistence", spec.name, location[0])
        return (
            f"{':'.join((*section, location[0]))} is not set; set it or {':'.join(shared)} "
            f"(environment: {env_spelling(shared)})."
        )
    concerned = [entry for path, entry in named.items() if path[:1] == fold(location[:1])]
    text = message.removeprefix("Value error, ").removeprefix("Assertion failed, ")
    if mentions_secret(text, _secrets(spec, named)):
        text = WITHHELD
    # The key as the user wrote it, with its source; the model knows neither.
    where = ", ".join(f"{entry.key} ({entry.source})" for entry in concerned) or ":".join(section)
    return f"{where} is not valid: {mask_secret_url(text).rstrip('.')}."


def _secrets(spec: BackendSpec, named: Entries) -> Iterator[str]:
    fields = spec.settings.model_fields.items()
    secret = {(field.alias or name).casefold() for name, field in fields if _holds_secret(field.annotation)}
    for path, entry in named.items():
        yield from secrets_in(entry.text)
        if is_secret_key(path[-1]) or path[0] in secret:
            yield entry.text


def _holds_secret(annotation: object) -> bool:
    return (
        annotation is SecretStr or annotation is SecretBytes or any(map(_holds_secret, get_args(annotation)))
    )
