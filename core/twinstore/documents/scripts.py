"""An initializer of a store whose schema is made by scripts, each recorded with its checksum."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from hashlib import sha256
from typing import TYPE_CHECKING

from typing_extensions import override

from twinstore.applied import check_history, statuses
from twinstore.errors import MigrationError
from twinstore.migrations import Initializer, MigrationReport, MigrationState, MigrationStatus

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping
    from collections.abc import Set as AbstractSet
    from datetime import datetime

    from twinstore.migrations import Consent, Effect

__all__ = ["AppliedScript", "Script", "ScriptInitializer"]


@dataclass(frozen=True, slots=True)
class Script:
    """A part of a schema: what it is recorded as, and the statement that makes it."""

    name: str
    text: str

    @property
    def checksum(self) -> str:
        """The SHA-256 of the text."""
        return sha256(self.text.encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class AppliedScript:
    """A script as the store has recorded it."""

    checksum: str
    applied_at: datetime | None = None


class ScriptInitializer(Initializer, ABC):
    """Implements :class:`~twinstore.migrations.Initializer`; a driver says what is recorded, and applies one.

    Its server acts on no row by itself, so nothing needs consent.
    """

    def __init__(self, module: str, driver: str, scripts: Iterable[Script] = ()) -> None:
        """Take the names of the module and of the driver, and what makes the schema, in order.

        Released scripts never change; new ones are added.
        """
        self._module = module
        self._driver = driver
        self._scripts = tuple(scripts)

    @abstractmethod
    def recorded(self) -> Mapping[str, AppliedScript]:
        """Return what is applied, by name; empty where there is no schema. Writes nothing."""

    @abstractmethod
    def apply(self, script: Script) -> bool:
        """Apply and record a script in one transaction, unless it is recorded by now; return whether."""

    @override
    def ensure_migrations(
        self, *, release: bool = False, accept: AbstractSet[Consent] = frozenset()
    ) -> MigrationReport:
        del release, accept
        # Before anything is applied: a schema that is newer than this library must not be touched.
        self._check()
        done = {script.name: self.apply(script) for script in self._scripts}
        return MigrationReport(
            module=self._module,
            backend=self._driver,
            applied=tuple(name for name, applied in done.items() if applied),
            already_applied=tuple(sorted(name for name, applied in done.items() if not applied)),
        )

    @override
    def effects(self, *, release: bool = False) -> tuple[Effect, ...]:
        """Return nothing: no server acts on the rows."""
        del release
        return ()

    @override
    def status(self) -> tuple[MigrationStatus, ...]:
        """Return the shipped and the applied scripts by name."""
        return statuses(*self._known())

    @override
    def verify(self, *, additions: bool = True) -> tuple[str, ...]:
        """Return what is not applied as it is shipped; nobody looks for additions."""
        del additions
        return tuple(
            f"The migration {status.name} of {self._module} is {status.state}."
            for status in self.status()
            if status.state is not MigrationState.APPLIED
        )

    @override
    def export(self, names: Collection[str] | None = None) -> str:
        """Return the scripts, each below its name."""
        chosen = (script for script in self._scripts if names is None or script.name in names)
        return "\n".join(f"-- {script.name}\n{script.text};\n" for script in chosen)

    def check_applied(self) -> None:
        """Do nothing when the schema is as it is shipped.

        Raises:
            MigrationError: a script is pending, or was changed after it was applied, or is not shipped.
        """
        self._check()
        pending = [item.name for item in self.status() if item.state is MigrationState.PENDING]
        if pending:
            raise MigrationError(
                f"Migrations of {self._module} are pending: {', '.join(pending)}. Run: twinstore migrate run "
                f"--module {self._module}",
                module=self._module,
                driver=self._driver,
            )

    def _check(self) -> None:
        check_history(*self._known(), module=self._module, driver=self._driver)

    def _known(self) -> tuple[list[MigrationStatus], list[MigrationStatus]]:
        """Return what is shipped, and what is recorded."""
        shipped = [(item.name, item.checksum, None) for item in self._scripts]
        recorded = [(name, item.checksum, item.applied_at) for name, item in self.recorded().items()]
        return _listed(shipped, MigrationState.PENDING), _listed(recorded, MigrationState.MISSING)


def _listed(
    found: Iterable[tuple[str, str, datetime | None]], state: MigrationState
) -> list[MigrationStatus]:
    return [
        MigrationStatus(name=name, category="schema", checksum=checksum, state=state, applied_at=at)
        for name, checksum, at in found
    ]
