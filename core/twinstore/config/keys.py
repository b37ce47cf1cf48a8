"""The known keys. Everything below the known top sections is checked against this tree."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from twinstore.config.entries import ConfigPath, Entries, SettingsEntry, fold
from twinstore.entrypoints import did_you_mean
from twinstore.errors import ConfigurationError
from twinstore.modules import broken_modules, module_plugins
from twinstore.options import ModuleSettings
from twinstore.plugins import installed_backend_names
from twinstore.redaction import mask_secret_url

__all__ = [
    "allowed_drivers",
    "canonical_driver",
    "check_keys",
    "key_tree",
    "module_keys",
    "modules",
    "top_sections",
]

# Sections of these are known even where their driver is not installed, since one file serves many hosts.
OWN_DRIVERS: Final = ("Filesystem", "Memory", "Mongo", "Postgres")


@dataclass(slots=True)
class Section:
    """What may stand below a key.

    Attributes:
        values: the names of single values.
        sections: what may stand below each section.
        drivers: whether there may be one section per driver, whose keys are the driver's.
        open: whether any name is a value, as in an option that is a mapping.
    """

    values: tuple[str, ...] = ()
    sections: dict[str, Section] = field(default_factory=dict[str, "Section"])
    drivers: bool = False
    open: bool = False

    def at(self, path: ConfigPath) -> Section:
        """Return the section of a path below this one; it is made if there is none."""
        section = self
        for name in path:
            section = section.sections.setdefault(name, Section())
        return section

    def add_value(self, path: ConfigPath) -> None:
        """Let a value stand at a path."""
        parent = self.at(path[:-1])
        parent.values = (*parent.values, path[-1])


def modules() -> Mapping[str, ModuleSettings]:
    """Return by module where its settings stand."""
    return {name: plugin.settings for name, plugin in module_plugins().items()}


def key_tree() -> Section:
    """Return what may stand where, as the modules say it."""
    root = Section()
    root.at(("Persistence",)).drivers = True
    for settings in modules().values():
        root.add_value(settings.switch)
        if settings.mode:
            root.add_value(settings.mode)
        for option, path in settings.option_paths.items():
            if settings.is_section(option):
                root.at(path).open = True
            else:
                root.add_value(path)
        storage = root.at(settings.storage)
        storage.drivers = True
        for path in (path for paths in settings.roles.values() for path in paths):
            # The same object, so that a role may set whatever stands below the storage section of its module.
            root.at(path[:-1]).sections[path[-1]] = storage
    return root


def top_sections(root: Section | None = None) -> frozenset[str]:
    """Return the top sections that are ours, folded; all others belong to the host."""
    return frozenset(fold((root or key_tree()).sections))


def module_keys(module: str) -> ModuleSettings:
    """Return where the settings of a module stand.

    Raises:
        ConfigurationError: there is no such module, or its plug-in is broken.
    """
    known = modules()
    if (settings := known.get(module.casefold())) is not None:
        return settings
    if (broken := broken_modules().get(module.casefold())) is not None:
        raise broken
    raise ConfigurationError(f"Unknown module {mask_secret_url(module)!r}; known: {', '.join(known)}.")


def allowed_drivers(keys: ModuleSettings) -> tuple[str, ...]:
    """Return the driver names a module may be switched to: our own for it, and every other installed one."""
    # Which modules a driver of somebody else stores is known once it is imported, and settings import none.
    others = {name for name in installed_backend_names() if name not in OWN_DRIVERS}
    return tuple(sorted({*keys.drivers, *others}, key=str.casefold))


def canonical_driver(entry: SettingsEntry, keys: ModuleSettings) -> str:
    """Return the value of a switch in its proper spelling.

    Raises:
        ConfigurationError: it does not name a driver.
    """
    allowed = allowed_drivers(keys)
    if isinstance(entry.value, str):
        for name in allowed:
            if name.casefold() == entry.value.strip().casefold():
                return name
    hint = did_you_mean(str(entry.value), allowed)
    raise ConfigurationError(
        f"{entry.key} = {mask_secret_url(entry.text)[:60]!r} ({entry.source}) does not name a driver.{hint} "
        f"Allowed: {', '.join(allowed)}."
    )


def check_keys(entries: Entries, root: Section) -> dict[ConfigPath, SettingsEntry]:
    """Return the entries with their keys in proper spelling.

    Args:
        entries: by folded path.
        root: what may stand where; see :func:`key_tree`.

    Raises:
        ConfigurationError: a key is unknown, or a value stands where a section is expected.
    """
    drivers = tuple(sorted({*OWN_DRIVERS, *installed_backend_names()}, key=str.casefold))
    found: dict[ConfigPath, SettingsEntry] = {}
    for path, entry in entries.items():
        proper = tuple(_spell(entry, root, drivers))
        found[path] = SettingsEntry(proper, entry.value, entry.source)
    return found


def _spell(entry: SettingsEntry, section: Section, drivers: tuple[str, ...]) -> Iterator[str]:
    for depth, segment in enumerate(entry.path):
        last = depth + 1 == len(entry.path)
        if section.open:
            if not last:
                raise _misplaced(entry, depth, is_value=True)
            yield segment
            return
        name = _match(segment, (*section.sections, *section.values, *(drivers if section.drivers else ())))
        if name is None:
            raise _unknown(entry, depth, section, drivers)
        if last != (name in section.values):
            raise _misplaced(entry, depth, is_value=name in section.values)
        yield name
        if name not in section.values and name not in section.sections:
            yield from entry.path[depth + 1 :]
            return
        section = section.sections.get(name, section)


def _match(segment: str, names: tuple[str, ...]) -> str | None:
    return next((name for name in names if name.casefold() == segment.casefold()), None)


def _unknown(
    entry: SettingsEntry, depth: int, section: Section, drivers: tuple[str, ...]
) -> ConfigurationError:
    if depth and (broken := broken_modules().get(entry.path[depth].casefold())) is not None:
        return broken
    allowed = (*section.values, *section.sections, *(drivers if section.drivers else ()))
    parent = mask_secret_url(":".join(entry.path[:depth]))
    return ConfigurationError(
        f"Unknown setting {entry.key} in {entry.source}.{did_you_mean(entry.path[depth], allowed)} "
        f"Allowed below {parent}: {', '.join(allowed)}."
    )


def _misplaced(entry: SettingsEntry, depth: int, *, is_value: bool) -> ConfigurationError:
    key = mask_secret_url(":".join(entry.path[: depth + 1]))
    problem = "is a single value, but has settings below it" if is_value else "is a section, but has a value"
    return ConfigurationError(f"{key} in {entry.source} {problem}.")
