"""The class names that hosts know of a driver, derived from the modules: initialisers and repositories.

A driver holds no repository. ``MongoRunRepository`` is the one repository of runs, bound to MongoDB, and
``SchedulerMongoInitializer`` is the initialiser of that driver, bound to the scheduler.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields
from typing import TYPE_CHECKING, get_type_hints

from typing_extensions import is_protocol

from twinstore.errors import ConfigurationError
from twinstore.modules import MODULES, ModuleSpec, module_spec
from twinstore.repository import Repository

if TYPE_CHECKING:
    from twinstore.access import Access

__all__ = ["bound_name", "bound_names"]


def bound_name(
    package: str, name: str, driver: str, initializer: Callable[[], Callable[[ModuleSpec[object]], type]]
) -> type:
    """Return the class of a driver that hosts import by name from its package.

    Args:
        package: the package of the driver, for the message.
        name: the name of the class.
        driver: the name of the driver.
        initializer: imports what makes the initialiser class of a module; a name of a submodule, which the
            import system asks for first, must not import the driver.

    Raises:
        AttributeError: there is no such class.
    """
    found = bound_names(driver, initializer()).get(name) if name[:1].isupper() else None
    if found is None:
        raise AttributeError(f"module {package!r} has no attribute {name!r}")
    return found


def bound_names(driver: str, initializer: Callable[[ModuleSpec[object]], type]) -> Mapping[str, type]:
    """Return the classes of a driver by the name that hosts know.

    Args:
        driver: the name of the driver, which is part of each name.
        initializer: makes the initialiser class of a module.
    """
    found: dict[str, type] = {}
    for name in MODULES:
        spec = module_spec(name)
        found[f"{spec.title}{driver}Initializer"] = initializer(spec)
        for repository in repository_classes(spec):
            title = f"{driver}{protocol_name(repository)}"
            found[title] = bound_repository(title, repository, driver)
    return found


def repository_classes(spec: ModuleSpec[object]) -> Iterator[type[Repository]]:
    """Yield the repository classes of a module: the types of the fields of its set."""
    owner = getattr(spec.repositories, "__self__", None)
    if not isinstance(owner, type):
        return
    hints = get_type_hints(owner)
    for item in fields(owner):
        if isinstance(hints[item.name], type) and issubclass(hints[item.name], Repository):
            yield hints[item.name]


def protocol_name(repository: type[Repository]) -> str:
    """Return the name of the Protocol that a repository implements."""
    return next(
        base.__name__ for base in repository.__mro__ if is_protocol(base) and base.__name__ != "Protocol"
    )


def bound_repository(name: str, repository: type[Repository], driver: str) -> type[Repository]:
    """Return a repository class that accepts the rows of one driver only."""

    def take(self: Repository, access: Access) -> None:
        """Take the access to the rows of this driver.

        Raises:
            ConfigurationError: the rows are those of another driver.
        """
        if access.binding.driver != driver:
            raise ConfigurationError(
                f"{name} takes the rows of {driver}, not those of {access.binding.driver}.", driver=driver
            )
        repository.__init__(self, access)

    doc = f"{repository.__doc__ or name} Bound to {driver}."
    return type(name, (repository,), {"__init__": take, "__doc__": doc})
