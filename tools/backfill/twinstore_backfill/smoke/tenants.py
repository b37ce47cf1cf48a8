"""The tenants that smoke tests make up: their names, which are left over, and how they are emptied."""

from __future__ import annotations

import os
import re
import socket
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from secrets import token_hex
from typing import TYPE_CHECKING, Final, Self

from typing_extensions import override

from twinstore.errors import TwinstoreError
from twinstore.query import Query, key_order
from twinstore.tenancy import Tenant

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from twinstore.catalog import Entity
    from twinstore_backfill.stores import Store

__all__ = ["SmokeTenant", "emptied", "is_smoke_tenant"]

PREFIX: Final = "twinstore-smoke-"
INSTANT: Final = "%Y%m%dT%H%M%SZ"
FORM: Final = re.compile(rf"{PREFIX}(\d{{8}}T\d{{6}}Z)-([0-9a-f]{{12}})-(\d+)-[0-9a-f]{{8}}")
# A call that was begun in time may end later: a server ends a statement after 30 s unless told otherwise.
GRACE: Final = timedelta(seconds=60)
BATCH: Final = 500


@dataclass(frozen=True, slots=True)
class SmokeTenant:
    """A tenant that one smoke test made up.

    Attributes:
        name: the id of the tenant, which tells the rest.
        until: when that test has ended in any case, by the clock of the store.
        machine: which processes the number can be looked up among.
        process: the number of the process.
    """

    name: str
    until: datetime
    machine: str
    process: int

    @classmethod
    def new(cls, now: datetime, timeout: timedelta) -> Self:
        """Make up a tenant for a test that begins now, by the clock of the store."""
        until = (now + timeout + GRACE).replace(microsecond=0)
        machine, process = this_machine(), os.getpid()
        name = f"{PREFIX}{until.strftime(INSTANT)}-{machine}-{process}-{token_hex(4)}"
        return cls(name, until, machine, process)

    @classmethod
    def of(cls, name: str) -> Self | None:
        """Return what a name tells, ``None`` for that of any other tenant."""
        found = FORM.fullmatch(name)
        if found is None:
            return None
        instant, machine, process = found.groups()
        try:
            until = datetime.strptime(instant, INSTANT).replace(tzinfo=UTC)
        except ValueError:
            return None
        return cls(name, until, machine, int(process))

    def is_left_over(self, now: datetime) -> bool:
        """Whether the test that made it up is certainly over: its process is gone, or its time is."""
        gone = self.machine == this_machine() and not is_running(self.process)
        return gone or now > self.until

    @override
    def __str__(self) -> str:
        """Return the id of the tenant."""
        return self.name


def is_smoke_tenant(name: str) -> bool:
    """Whether a smoke test made up a tenant."""
    return SmokeTenant.of(name) is not None


def this_machine() -> str:
    """Return a text that is the same for processes which see each other's numbers."""
    try:
        # Containers may share a host name; each has numbers of its own.
        numbers = os.readlink("/proc/self/ns/pid")  # noqa: PTH115  # it names no file
    except OSError:
        numbers = ""
    return sha256(f"{socket.gethostname()}\n{numbers}".encode()).hexdigest()[:12]


def is_running(process: int) -> bool:
    """Whether there is a process of that number; true where nobody can tell."""
    try:
        os.kill(process, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except OSError:
        return True
    return True


def emptied(store: Store, tenant: str) -> tuple[int, tuple[str, ...]]:
    """Remove every row of a tenant, children first; return how many, and what kept others from going."""
    removed, problems = 0, list[str]()
    for entity in owned(reversed(store.bulk.entities())):
        try:
            removed += _emptied(store, entity, tenant)
        except TwinstoreError as error:
            problems.append(f"rows of {entity.name} of tenant {tenant} are left: {error.message}")
    return removed, tuple(problems)


def owned(entities: Iterable[Entity]) -> Iterator[Entity]:
    """Yield the entities whose rows name their tenant."""
    return (entity for entity in entities if entity.tenant_field is not None)


def _emptied(store: Store, entity: Entity, tenant: str) -> int:
    # Counted first: nobody needs the right to remove what is not there.
    wanted = sum(store.bulk.counts(entity, tenant_id=tenant).values())
    query = Query(entity=entity.name, scope=Tenant(tenant), where=(), order=key_order(entity), limit=BATCH)
    removed = 0
    while removed < wanted and (batch := store.bulk.access().remove(entity, query)):
        removed += batch
    return removed
