"""Modules are plug-ins: found by entry point, described by one light object, loaded by name.

A module is a distribution with an entry point in the group ``twinstore.modules`` that names a
:class:`ModulePlugin`. The plug-in names the keys of the settings of the module. What the module stores is
described by its :class:`ModuleSpec`, which the plug-in imports only when this module is requested.

The plug-ins of all modules are read for the keys of the settings; a broken one is skipped there and logged,
and requesting that module is an error. The ledger of copies is a :class:`ModuleSpec` without a plug-in,
because it is not configured.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Hashable, Iterator, Mapping
from dataclasses import dataclass
from keyword import iskeyword
from typing import Final, cast

from twinstore.catalog.entity import NAME
from twinstore.errors import ConfigurationError
from twinstore.plugins.entry_points import (
    Registration,
    brief_error,
    place_of,
    registrations,
    single_registration,
)
from twinstore.plugins.module_spec import ModuleSpec
from twinstore.plugins.options import ModuleSettings

__all__ = [
    "MODULE_GROUP",
    "ModulePlugin",
    "broken_modules",
    "built_modules",
    "complete_modules",
    "module_plugin",
    "module_plugins",
    "module_spec",
]


log = logging.getLogger("twinstore.modules")

MODULE_GROUP: Final = "twinstore.modules"
KIND: Final = "module"
OWN_DISTRIBUTION: Final = "twinstore"
# Attributes that every storage has, the schema of the ledger, and schemas that PostgreSQL fills itself.
RESERVED: Final = frozenset({"close", "information_schema", "module", "public", "twinstore"})
# What PostgreSQL keeps for its own schemas.
PREFIX: Final = "pg_"

# What the plug-ins said, by the entry points that were installed then.
_read: dict[Hashable, Mapping[str, ModulePlugin | ConfigurationError]] = {}


@dataclass(frozen=True, slots=True, kw_only=True)
class ModulePlugin:
    """What the entry point of a module names. To import it must not import models, catalog or repositories.

    Attributes:
        name: the name of the entry point: of the attribute of a storage, of the schema, and in commands.
        title: the name of the module in names of classes, for example ``Library``.
        settings: the location of its settings.
        session: the name of the class of its sessions; default: ``LibrarySession``.
        position: where lists of modules name it; smaller ones first, equal ones by name.
        spec: imports and returns what the module stores; ``None`` for a module of which only the settings are
            known, because one settings file serves applications of several releases.
    """

    name: str
    title: str
    settings: ModuleSettings
    position: int = 100
    spec: Callable[[], ModuleSpec[object]] | None = None
    session: str = ""

    @property
    def classes(self) -> tuple[str, str]:
        """The names of the classes of its sessions and of its storage."""
        return self.session or f"{self.title}Session", f"{self.title}Storage"


def is_module_name(name: str) -> bool:
    """Whether a module may have a name: it is an attribute of a storage and a schema of PostgreSQL."""
    taken = name in RESERVED or name.startswith(PREFIX) or iskeyword(name)
    return NAME.fullmatch(name) is not None and not taken


def module_plugin(name: str) -> ModulePlugin:
    """Return the light description of one module.

    Args:
        name: compared without case.

    Raises:
        ConfigurationError: no distribution or more than one provides the module; its plug-in cannot be
            imported, is not a :class:`ModulePlugin`, or has another name. The message says which and what to
            do.
    """
    known = _registrations()
    registration = single_registration(
        [registration for registration in known if registration.key == name.casefold()], name, known, KIND
    )
    return _loaded(registration)


def module_plugins() -> Mapping[str, ModulePlugin]:
    """Return the light descriptions of all modules that can be read, by name; nothing is raised."""
    found = [plugin for plugin in _all().values() if isinstance(plugin, ModulePlugin)]
    return {plugin.name: plugin for plugin in sorted(found, key=lambda item: (item.position, item.name))}


def broken_modules() -> Mapping[str, ConfigurationError]:
    """Return by name why a module cannot be used."""
    return {name: error for name, error in _all().items() if isinstance(error, ConfigurationError)}


def built_modules() -> tuple[str, ...]:
    """Return the names of the modules that can be opened, without importing what they store."""
    return tuple(name for name, plugin in module_plugins().items() if plugin.spec is not None)


def module_spec(name: str) -> ModuleSpec[object]:
    """Import a module and return what it stores.

    Args:
        name: compared without case.

    Raises:
        ConfigurationError: as for :func:`module_plugin`; or this release knows the settings of the module
            only; or what it stores cannot be imported or has another name.
    """
    known = _registrations()
    registration = single_registration(
        [registration for registration in known if registration.key == name.casefold()], name, known, KIND
    )
    plugin = _loaded(registration)
    if plugin.spec is None:
        raise registration.error(
            "is known by its settings only: this release cannot open, migrate or copy it. "
            f"Choose another module ({', '.join(built_modules()) or 'none is complete'}), or install a "
            "release that has it."
        )
    try:
        spec: object = plugin.spec()
    except (Exception, SystemExit) as error:
        raise registration.error(
            f"cannot be imported ({brief_error(error)}{place_of(error)}); reinstall it or its requirements."
        ) from error
    return _checked(registration, plugin, spec)


def complete_modules() -> Iterator[ModuleSpec[object]]:
    """Import all modules and yield what they store; one that cannot be imported is skipped and logged."""
    for name in built_modules():
        try:
            yield module_spec(name)
        except ConfigurationError as error:
            log.warning("A module is skipped: %s", error.message)


def _checked(registration: Registration, plugin: ModulePlugin, spec: object) -> ModuleSpec[object]:
    if not isinstance(spec, ModuleSpec):
        raise registration.error(f"returned {type(spec).__name__} instead of a ModuleSpec; ask its author.")
    found = cast("ModuleSpec[object]", spec)
    # The names of classes and functions come from the plug-in, the schema from what is stored.
    if (found.name, found.title) != (plugin.name, plugin.title):
        raise registration.error(
            f"stores {found.name!r} ({found.title}), but its plug-in says {plugin.name!r} ({plugin.title}); "
            "both must be the same."
        )
    retention = (entity.retention for entity in found.catalog.entities)
    wanted = {item.option for item in retention if item is not None}
    if lacking := sorted(wanted - plugin.settings.options.model_fields.keys()):
        raise registration.error(
            f"lets rows expire by {', '.join(lacking)}, which is no option of its plug-in; add it there."
        )
    if unknown := sorted(found.normalise.keys() - {entity.name for entity in found.catalog.entities}):
        raise registration.error(f"normalises {', '.join(unknown)}, which is none of its entities.")
    return found


def _registrations() -> list[Registration]:
    """Return the registrations by name; ours first, so that no plug-in takes one of our settings sections."""
    return sorted(
        registrations(MODULE_GROUP, KIND),
        key=lambda registration: (registration.distribution != OWN_DISTRIBUTION, registration.key),
    )


def _all() -> Mapping[str, ModulePlugin | ConfigurationError]:
    """Return by name the plug-in, or why there is none; every load of settings asks several times."""
    installed = registrations(MODULE_GROUP, KIND)
    # By what is installed and not once for all: a host may put a distribution on its path while it runs.
    key = tuple(
        (
            registration.name,
            registration.point.value,
            str(registration.point.dist and registration.point.dist.locate_file("")),
        )
        for registration in installed
    )
    found = _read.get(key)
    if found is None:
        # No lock: a plug-in may ask for modules while it is imported, and two threads read the same.
        found = _plugins()
        # Only the latest state is worth keeping; an earlier one does not come back.
        _read.clear()
        _read[key] = found
    return found


def _plugins() -> dict[str, ModulePlugin | ConfigurationError]:
    found: dict[str, ModulePlugin | ConfigurationError] = {}
    known = _registrations()
    sections: dict[str, Registration] = {}
    for registration in known:
        # A name that several distributions register is judged once, and then has no owner.
        if registration.key in found:
            continue
        try:
            plugin = _loaded(
                single_registration(
                    [other for other in known if other.key == registration.key],
                    registration.name,
                    known,
                    KIND,
                )
            )
            # Ours come first, so that a section of ours stays ours.
            _take_sections(registration, plugin, sections)
        except ConfigurationError as error:
            log.warning("A module is missing from the settings: %s", error.message)
            found[registration.key] = error
        else:
            found[registration.key] = plugin
    return found


def _take_sections(registration: Registration, plugin: ModulePlugin, taken: dict[str, Registration]) -> None:
    """Let a module have its top sections, unless an earlier one has them."""
    settings = plugin.settings
    top_sections = {settings.section, *(path[0] for paths in settings.roles.values() for path in paths)}
    for top in sorted(top_sections):
        if (other := taken.get(top.casefold())) is not None:
            raise registration.error(
                f"uses the section {top} of the settings, which belongs to {other.name}; ask its author."
            )
    taken.update(dict.fromkeys((top.casefold() for top in top_sections), registration))


def _loaded(registration: Registration) -> ModulePlugin:
    if not is_module_name(registration.point.name):
        raise registration.error(
            "has a name that no module can have; its author must choose at most 40 lower-case letters, "
            "digits and underscores: no keyword of Python, nothing that begins with pg_, and none of "
            f"{', '.join(sorted(RESERVED))}."
        )
    try:
        plugin: object = registration.point.load()
    # SystemExit too: a plug-in that exits while it is imported must not end the host.
    except (Exception, SystemExit) as error:
        raise registration.error(
            f"cannot be imported ({brief_error(error)}); reinstall it or its requirements."
        ) from error
    if not isinstance(plugin, ModulePlugin):
        raise registration.error(
            f"is of type {type(plugin).__name__} instead of a ModulePlugin; its entry point must name one, "
            "as in package.plugin:PLUGIN."
        )
    if plugin.name != registration.point.name:
        raise registration.error(
            f"describes itself as {plugin.name!r}; its entry point must have the same name."
        )
    return plugin
