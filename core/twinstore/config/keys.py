"""The known keys, as modules and option models say them. Any other key below our sections is refused."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import Enum, auto
from typing import Final, cast

from pydantic import BaseModel

from twinstore.config.entries import ConfigPath, SettingsEntry
from twinstore.errors import ConfigurationError
from twinstore.plugins.drivers import installed_backend_names
from twinstore.plugins.entry_points import did_you_mean
from twinstore.plugins.modules import broken_modules, module_plugins
from twinstore.plugins.options import ModuleSettings
from twinstore.runtime.secrets import mask_secret_url

# Sections of these are known even where their driver is not installed, since one file serves many hosts.
OWN_DRIVERS: Final = ("Filesystem", "Memory", "Mongo", "Postgres")


class Leaf(Enum):
    """What is at a key that is not a section of known names."""

    VALUE = auto()
    # A section in which any name is a value.
    NAMES = auto()
    # A section of a driver, whose names are known once the driver is loaded.
    DRIVER = auto()
    # What only the model itself can judge.
    FREE = auto()


Tree = dict[str, "Tree | Leaf"]


def modules() -> Mapping[str, ModuleSettings]:
    """Return the locations of the settings by module."""
    return {name: plugin.settings for name, plugin in module_plugins().items()}


def key_tree() -> Tree:
    """Return the tree of allowed keys, as the modules define it."""
    root: Tree = {}
    drivers = dict.fromkeys(_sorted({*OWN_DRIVERS, *installed_backend_names()}), Leaf.DRIVER)
    for keys in modules().values():
        for path in filter(None, (keys.switch, keys.mode)):
            _section(root, path[:-1])[path[-1]] = Leaf.VALUE
        for option, path in keys.option_paths.items():
            _section(root, path[:-1])[path[-1]] = Leaf.NAMES if keys.is_section(option) else Leaf.VALUE
        storage = _section(root, keys.storage)
        storage |= drivers
        for path in (path for paths in keys.roles.values() for path in paths):
            # The same object, so that a role may set every key below the storage section of its module.
            _section(root, path[:-1])[path[-1]] = storage
    _section(root, ("Persistence",)).update(drivers)
    return root


def _section(root: Tree, path: ConfigPath) -> Tree:
    """Return the section of a path, which is made if there is none."""
    for name in path:
        root = cast("Tree", root.setdefault(name, {}))
    return root


def model_tree(model: type[BaseModel]) -> Tree:
    """Return the tree of allowed keys, as a model defines it."""
    found: Tree = {}
    for name, field in model.model_fields.items():
        inner: object = field.annotation
        below = model_tree(inner) if isinstance(inner, type) and issubclass(inner, BaseModel) else Leaf.FREE
        alias = field.alias or name
        # By its name in Python too, where that is another word than the alias.
        found |= dict.fromkeys((alias, name) if _plain(alias) != _plain(name) else (alias,), below)
    return dict(sorted(found.items()))


def module_keys(module: str) -> ModuleSettings:
    """Return the location of the settings of a module.

    Raises:
        ConfigurationError: the module does not exist, or its plug-in is broken.
    """
    known = modules()
    if (settings := known.get(module.casefold())) is not None:
        return settings
    if (broken := broken_modules().get(module.casefold())) is not None:
        raise broken
    raise ConfigurationError(f"Unknown module {mask_secret_url(module)!r}; known: {', '.join(known)}.")


def allowed_drivers(keys: ModuleSettings) -> tuple[str, ...]:
    """Return the driver names a module may be switched to: our own for it, and every other installed one."""
    # Which modules a third-party driver stores is known once it is imported, and settings import no driver.
    return _sorted({*keys.drivers, *installed_backend_names()} - ({*OWN_DRIVERS} - {*keys.drivers}))


def canonical_driver(entry: SettingsEntry, keys: ModuleSettings) -> str:
    """Return the value of a switch in its proper spelling.

    Raises:
        ConfigurationError: it does not name a driver.
    """
    allowed = allowed_drivers(keys)
    given = entry.value.strip().casefold() if isinstance(entry.value, str) else None
    if (found := next((name for name in allowed if name.casefold() == given), None)) is not None:
        return found
    raise ConfigurationError(
        f"{entry.key} = {mask_secret_url(entry.text)[:60]!r} ({entry.source}) does not name a driver."
        f"{did_you_mean(str(entry.value), allowed)} Allowed: {', '.join(allowed)}."
    )


def spelled(entry: SettingsEntry, tree: Tree, start: int = 0) -> ConfigPath:
    """Return the key of an entry in its proper spelling, as far as the names are known.

    Args:
        entry: the entry.
        tree: the tree of allowed keys.
        start: at which segment of the key the tree begins.

    Raises:
        ConfigurationError: a key is unknown, or a value is given instead of a section.
    """
    path, here = entry.path[:start], cast("Tree | Leaf", tree)
    for depth, segment in enumerate(entry.path[start:], start):
        if here is Leaf.DRIVER or here is Leaf.FREE:
            return (*path, *entry.path[depth:])
        if here is Leaf.NAMES:
            path, here = (*path, segment), Leaf.VALUE
        elif isinstance(here, dict):
            name = next((known for known in here if _plain(known) == _plain(segment)), None)
            if name is None:
                raise _unknown(entry, depth, here)
            path, here = (*path, name), here[name]
        else:
            raise _misplaced(entry, depth, "is a single value, but has settings below it")
    if here is not Leaf.VALUE and here is not Leaf.FREE:
        raise _misplaced(entry, len(entry.path), "is a section, but has a value")
    return path


def _plain(name: str) -> str:
    """Return a name for comparisons: files spell ``PoolMax``, Python spells ``pool_max``."""
    return name.casefold().replace("_", "")


def _sorted(names: Iterable[str]) -> tuple[str, ...]:
    return tuple(sorted(names, key=str.casefold))


def _unknown(entry: SettingsEntry, depth: int, allowed: Iterable[str]) -> ConfigurationError:
    if depth and (broken := broken_modules().get(entry.path[depth].casefold())) is not None:
        return broken
    parent = mask_secret_url(":".join(entry.path[:depth]))
    return ConfigurationError(
        f"Unknown setting {entry.key} in {entry.source}.{did_you_mean(entry.path[depth], allowed)} "
        f"Allowed below {parent}: {', '.join(allowed) or 'nothing'}."
    )


def _misplaced(entry: SettingsEntry, depth: int, problem: str) -> ConfigurationError:
    return ConfigurationError(f"{mask_secret_url(':'.join(entry.path[:depth]))} in {entry.source} {problem}.")
