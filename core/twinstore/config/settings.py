"""The checked settings."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Final, cast

from pydantic import SecretStr, ValidationError

from twinstore.backend import BackendSettings, BackendSpec
from twinstore.config.driver_settings import build_settings
from twinstore.config.entries import Entries, Entry, Path, env_spelling, fold, merge, nest, refuse_overlap
from twinstore.config.keys import MODULES, ModuleKeys, allowed_drivers, canonical_driver, module_keys
from twinstore.errors import ConfigurationError
from twinstore.options import ModuleOptions
from twinstore.redaction import MASK, is_secret_key, mask_secret_url

__all__ = ["Settings"]

WORKER_SECTIONS: Final = (("worker", "storage"), ("worker", "taskrunner", "storage"))
CONNECTION: Final = "connectionstring"


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class Settings:
    """Which driver answers for which module, and how it is reached. Made by :func:`load_settings`."""

    entries: Entries

    def __post_init__(self) -> None:
        """Check every switch and option now, so that a mistake shows at start-up."""
        for module, keys in MODULES.items():
            self._driver(keys)
            self.options(module)

    def __repr__(self) -> str:
        switches = (f"{keys.name}={self._driver(keys) or 'unset'}" for keys in MODULES.values())
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
        keys = module_keys(module)
        found = {
            name: self.entries[fold(path)]
            for name, path in keys.option_paths.items()
            if fold(path) in self.entries
        }
        try:
            return keys.options.model_validate({name: entry.value for name, entry in found.items()})
        except ValidationError as error:
            detail = error.errors(include_url=False)[0]
            entry = found[str(detail["loc"][0])]
            message = detail["msg"].removeprefix("Value error, ")
        raise ConfigurationError(f"{entry.key} = {_shown(entry)!r} ({entry.source}) is not valid: {message}.")

    def for_role(self, role: str) -> Settings:
        """Return the settings as a process of this role sees them.

        ``worker`` reads ``Worker:Storage`` or ``Worker:TaskRunner:Storage`` in place of
        ``TaskRunner:Storage``, key by key.

        Raises:
            ConfigurationError: there is no such role, or its settings contradict each other.
        """
        if role.casefold() != "worker":
            raise ConfigurationError(f"There is no role {role!r}; the only role is worker.")
        mirrored = [dict(self._mirrored(section)) for section in WORKER_SECTIONS]
        for path in mirrored[0].keys() & mirrored[1].keys():
            if mirrored[0][path].text != mirrored[1][path].text:
                raise _contradiction(mirrored[0][path], mirrored[1][path])
        return Settings(MappingProxyType(merge([self.entries, *mirrored])))

    def describe(self) -> dict[str, dict[str, object]]:
        """Return every setting and every default by key: its value without secrets, and its source."""
        shown: dict[str, dict[str, object]] = {
            entry.key: {"value": _shown(entry), "source": entry.source} for entry in self.entries.values()
        }
        for keys in MODULES.values():
            for name, path in keys.option_paths.items():
                default: object = keys.options.model_fields[name].default
                shown.setdefault(":".join(path), {"value": default, "source": "default"})
        return dict(sorted(shown.items()))

    def _driver(self, keys: ModuleKeys) -> str | None:
        """Return the driver of a module, or ``None``; refuse two switches that disagree."""
        found = [entry for path in (keys.switch, keys.mode) if (entry := self.entries.get(fold(path)))]
        names = [canonical_driver(entry, keys) for entry in found]
        if len(set(names)) > 1:
            raise _contradiction(*found)
        return names[0] if names else None

    def _driver_entries(self, keys: ModuleKeys, backend: str) -> Entries:
        """Return the entries of a driver by folded path relative to its section; the module wins."""
        found: dict[Path, Entry] = {}
        for section in (("Persistence", backend), (*keys.storage, backend)):
            found.update(self._below(fold(section)))
        refuse_overlap(found)
        return found

    def _below(self, section: Path) -> Iterator[tuple[Path, Entry]]:
        size = len(section)
        return ((path[size:], entry) for path, entry in self.entries.items() if path[:size] == section)

    def _mirrored(self, section: Path) -> Iterator[tuple[Path, Entry]]:
        """Yield the entries of a worker section as entries of ``TaskRunner:Storage``."""
        for path, entry in self._below(section):
            below = entry.path[len(section) :]
            proper = ("TaskRunner", "Storage", *below)
            yield fold(("TaskRunner", "Storage", *path)), replace(entry, path=proper, given=entry.path)


def _contradiction(first: Entry, second: Entry) -> ConfigurationError:
    return ConfigurationError(
        f"{first.key} ({first.source}) contradicts {second.key} ({second.source}); "
        "remove one of them or give both the same value."
    )


def _shown(entry: Entry) -> object:
    """Return the value of an entry as a listing may show it."""
    name = entry.path[-1]
    if is_secret_key(name):
        return MASK
    if isinstance(entry.value, SecretStr) or name.casefold().endswith(CONNECTION):
        # A text that is neither a URL nor key=value is no connection string and may be anything.
        return mask_secret_url(entry.text) if "://" in entry.text or "=" in entry.text else MASK
    return _masked(entry.value)


def _masked(value: object) -> object:
    if isinstance(value, str):
        return mask_secret_url(value)
    if isinstance(value, list):
        return [_masked(inner) for inner in cast("list[object]", value)]
    return value if isinstance(value, bool | int | float) else MASK
