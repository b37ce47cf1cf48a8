"""The class names that hosts know of a driver, derived from the modules.

They are those of initialisers, session factories and repositories.

A driver holds no repository. ``MongoRunRepository`` is the one repository of runs, bound to MongoDB, and
``LibraryMongoInitializer`` is the initialiser of that driver, bound to the module ``library``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields
from importlib import import_module
from typing import TYPE_CHECKING, TypeVar, cast, get_type_hints

from typing_extensions import is_protocol

from twinstore.access.repository import Repository
from twinstore.errors import ConfigurationError
from twinstore.plugins.module_spec import ModuleSpec
from twinstore.plugins.modules import complete_modules
from twinstore.storage.module import SessionFactory

if TYPE_CHECKING:
    from twinstore.access.protocol import Access

I = TypeVar("I")  # noqa: E741  # a type

Maker = Callable[[ModuleSpec[object]], type]
# What was made, so that two files of a host that import a name have one class.
_bound: dict[tuple[object, ...], type[Repository]] = {}


def named_initializer(
    base: type[I], module: ModuleSpec[object], driver: str, /, **members: object
) -> type[I]:
    """Return the initialiser of a module, a separate class under the name that applications know."""
    # Where hosts import it from.
    package = base.__module__.partition(".")[0]
    given = {"__doc__": f"The initialiser of {module.name}.", "__module__": package, **members}
    return cast("type[I]", type(f"{module.title}{driver}Initializer", (base,), given))


def bound_name(
    package: str,
    name: str,
    driver: str,
    initializer: str,
    source: str | None = None,
) -> type:
    """Return the class of a driver that hosts import by name from its package.

    Args:
        package: the package of the driver, for the message.
        name: the name of the class.
        driver: the name of the driver.
        initializer: where the function is that makes the initialiser class of a module, as ``module:name``;
            a name of a submodule, which the import system asks for first, must not import the driver.
        source: the same for the connection source of a module.

    Raises:
        AttributeError: there is no such class.
    """
    # The import system asks a package for its submodules by this way too, and those are in lower case.
    if name[:1].isupper():
        maker = None if source is None else made_at(source)
        found = bound_names(package, driver, made_at(initializer), maker).get(name)
        if found is not None:
            return found
    raise AttributeError(f"module {package!r} has no attribute {name!r}")


def made_at(place: str) -> Maker:
    """Import what makes classes of modules."""
    module, _, name = place.partition(":")
    maker: Maker = getattr(import_module(module), name)
    return maker


def bound_names(
    package: str,
    driver: str,
    initializer: Maker,
    source: Maker | None = None,
) -> Mapping[str, type]:
    """Return the classes of a driver by the name that applications know.

    Args:
        package: the package of the driver, from which the classes are imported.
        driver: the name of the driver, which is part of each name.
        initializer: makes the initialiser class of a module.
        source: makes the class from which an application checks out connections, if the driver has one; its
            name is that of the module alone, ``LibraryDataSource``.
    """
    found: dict[str, type] = {}
    for spec in complete_modules():
        found[f"{spec.title}{driver}Initializer"] = initializer(spec)
        found[f"{spec.title}{driver}SessionFactory"] = SessionFactory
        if source is not None:
            found[f"{spec.title}DataSource"] = source(spec)
        for repository in repository_classes(spec):
            title = f"{driver}{protocol_name(repository)}"
            # Where two modules name a repository alike, the first one has the name.
            found.setdefault(title, bound_repository(package, title, repository, driver))
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
    """Return the name of the Protocol from which a repository derives, or its own name."""
    found = (
        base.__name__ for base in repository.__mro__ if is_protocol(base) and base.__name__ != "Protocol"
    )
    return next(found, repository.__name__)


def bound_repository(package: str, name: str, repository: type[Repository], driver: str) -> type[Repository]:
    """Return a repository class that accepts the rows of one driver only; the same at every import."""

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

    key = (package, name, repository, driver)
    if key not in _bound:
        doc = f"{repository.__doc__ or name} Bound to {driver}."
        members = {"__init__": take, "__doc__": doc, "__module__": package}
        # Of two threads that make it, one is right.
        _bound.setdefault(key, type(name, (repository,), members))
    return _bound[key]
