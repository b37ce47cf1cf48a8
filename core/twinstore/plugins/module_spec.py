"""A module as drivers and tools see it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib.resources import files
from typing import TYPE_CHECKING, Final, Generic, Never, Protocol, TypeAlias, TypeVar, cast

if TYPE_CHECKING:
    from importlib.resources.abc import Traversable

    from twinstore.access.protocol import Access
    from twinstore.catalog.entity import Module
    from twinstore.plugins.checks import Cutoffs, ModuleChecks, NeededRows, SmokeTest, Trial

__all__ = ["ModuleSpec", "Normalise"]


R_co = TypeVar("R_co", covariant=True)


Normalise: TypeAlias = Callable[[dict[str, object]], dict[str, object]]
"""Returns a stored document as the models accept it, see :attr:`ModuleSpec.normalise`."""


class SessionMaker(Protocol):
    """What a module knows of its storage, a :class:`~twinstore.storage.module.ModuleStorage`."""

    @property
    def session_over(self) -> Callable[..., object]:
        """Return the session over the repositories of a driver."""
        ...


def itself(access: Access) -> Access:
    """Return the access, which a module of data alone has in place of repositories."""
    return access


# Whatever a caller takes it for, a module that names no repositories has none of that type.
NO_REPOSITORIES: Final = cast("Callable[[Access], Never]", itself)


@dataclass(frozen=True, slots=True, kw_only=True)
class ModuleSpec(Generic[R_co]):
    """A module as drivers and tools see it.

    A module of data alone leaves out ``repositories``, ``storage`` and ``session``: its rows can be migrated,
    copied and compared, and its storage has the access alone.

    Attributes:
        catalog: its entities.
        repositories: makes its set of repositories over an access; default: it has none.
        title: the name of the module in names of classes.
        package: the import package whose folder ``migrations`` has one folder per kind of store, and whose
            package ``aio`` the generator writes.
        storage: the class of its storage; ``None`` if no application opens it, or for a module of data alone.
        session: the class of its sessions, whose annotations name the Protocols.
        checks: makes the lists that a verification compares, from the cut-offs of its entities and the rows
            per page; they are read through ``storage``. ``None``: only rows are compared.
        smoke_test: what a verification tries on a target; ``None``: nothing.
        trial: what ``twinstore smoke`` does on a deployed store, in a separate tenant; ``None``: nothing.
        due_order: the name in reports of the order in which rows are due next, if some of the lists are in
            it.
        needed_rows: which rows are never due because another row is missing; ``None``: none can be.
        kit: the location of the contract that proves a driver for the module, such as
            ``acme_library.testing:LibraryContract``. It is imported by tests only, because the contract kit
            needs ``twinstore[testing]``. ``None``: the module has none.
        normalise: by name of an entity, a function that copies and verifications call for each document of a
            source before the rules of the job. It gets a copy of the document under its stored names, with
            values as Python has them (``str``, ``bool``, ``int``, ``float``, ``None``, ``dict``, ``list``,
            ``bytes``, ``Decimal``, ``UUID``, a ``datetime`` in UTC, a ``StoredObjectId``, a
            ``StoredReference``, or an object of the client for any other type), and returns such a document.
            What it leaves alone stays as it is stored. If it raises, or changes the key or the tenant, the
            document goes to quarantine. The same document must give the same result, without I/O, in any
            thread.
    """

    catalog: Module
    repositories: Callable[[Access], R_co] = NO_REPOSITORIES
    title: str
    package: str
    storage: type[SessionMaker] | None = None
    session: type[object] | None = None
    checks: Callable[[Cutoffs, int], ModuleChecks[Never]] | None = None
    smoke_test: SmokeTest[Never] | None = None
    trial: Trial[Never] | None = None
    due_order: str | None = None
    needed_rows: NeededRows | None = None
    kit: str | None = None
    normalise: Mapping[str, Normalise] = field(default_factory=dict[str, Normalise], hash=False)

    @property
    def name(self) -> str:
        """The name of the module, of its schema and in commands."""
        return self.catalog.name

    @property
    def has_repositories(self) -> bool:
        """Whether it has repositories; a module of data alone has none."""
        return self.repositories is not NO_REPOSITORIES

    def migrations(self, store: str) -> Traversable:
        """Return the folder with the migrations for a kind of store, such as ``postgres``."""
        return files(self.package) / "migrations" / store
