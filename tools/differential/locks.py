"""Drives the lock statements of a driver with drawn histories against the rule of leases.

The rule decides the result of each step, from the rows stored before it and the time of the server. A step
must store the row that the rule makes of the instant that the server chose. The calls go to contenders, and
not to the handles that callers have, because a handle refuses late steps before a statement is sent.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Final, TypeAlias, TypeVar

from hypothesis import given
from hypothesis import strategies as st

from twinstore.catalog.row import Row
from twinstore.catalog.tenancy import ALL_TENANTS
from twinstore.errors import Outcome, UnavailableError
from twinstore.scheduler.catalog import LOCKS
from twinstore.scheduler.rules import locks as rules
from twinstore.scheduler.rules.locks import LockClaim

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime

    from hypothesis import settings

    from twinstore.access.protocol import Access
    from twinstore.scheduler.held_lock import Contender
    from twinstore.scheduler.locks import LockInfo

T = TypeVar("T")
# What a step does, a number that picks the key or the owner, and one that picks all else.
Step: TypeAlias = tuple[str, int, int]

# Mostly one lock and one name, so that owners meet and only their fences distinguish them.
KEYS: Final = (*(("system", "a"),) * 4, ("system", "b"), ("ta", "a"))
# The second one is a name that a server could take for a field.
HOLDERS: Final = (*("one name for all",) * 6, "$fence", "$fence", "c")
# None of them ends while an example runs: time passes where a step says so.
LEASES: Final = (timedelta(minutes=5), timedelta(minutes=7, milliseconds=1), timedelta(hours=1))
AGE: Final = timedelta(hours=2)
# Mostly what lets owners meet.
ACTIONS: Final = ("acquire", "acquire", "overtake", "overtake", "renew", "renew", "release", "age", "close")
STEPS: Final = st.lists(
    st.tuples(st.sampled_from(ACTIONS), st.integers(0, len(KEYS) - 1), st.integers(0, len(HOLDERS) - 1)),
    min_size=8,
    max_size=16,
)
# Below the number of connections for locks that a storage may have.
MOST_OPEN: Final = 6


class WrongLockError(AssertionError):
    """A statement answered otherwise than the rule, or stored something else."""


@dataclass(frozen=True, slots=True)
class LockSide:
    """One driver.

    Attributes:
        name: name in reports.
        access: its rows.
        contend: returns what attempts a lock.
        now: returns the time of its server.
        expire_lease: ends what holds a lock in addition to its row, as the server does at the end of a lease;
            ``None`` if there is only the row.
    """

    name: str
    access: Access
    contend: Callable[[], Contender]
    now: Callable[[], datetime]
    expire_lease: Callable[[tuple[str, str]], object] | None = None


@dataclass(slots=True)
class Owner:
    """A contender and what it was granted, which may be over by now.

    Attributes:
        cut: the server may have ended its connection.
    """

    contender: Contender
    owned: LockInfo
    cut: bool = False

    @property
    def key(self) -> tuple[str, str]:
        """The key of its lock."""
        return (self.owned.tenant_id, self.owned.lock_key)


@dataclass(slots=True)
class Run:
    """One history on one side."""

    side: LockSide
    owners: list[Owner] = field(default_factory=list)

    def take(self, step: Step) -> None:
        """Take a step and judge it."""
        action, which, how = step
        if action in {"age", "overtake"}:
            self.age(KEYS[which])
        if action in {"acquire", "overtake"}:
            self.acquire(KEYS[which], HOLDERS[how], LEASES[how % len(LEASES)])
        if action in {"renew", "release", "close"} and self.owners:
            owner = self.owners[which % len(self.owners)]
            if action == "renew":
                self.renew(owner, LEASES[how % len(LEASES)])
            elif action == "release":
                self.release(owner)
            else:
                self.close(owner)

    def acquire(self, key: tuple[str, str], holder: str, lease: timedelta) -> None:
        """Attempt a lock, also in the name of its present owner."""
        claim = LockClaim(
            tenant_id=key[0], lock_key=key[1], holder_id=holder, lease=lease, metadata={"why": f"${holder}"}
        )
        before = self.stored(key)
        expected = rules.acquired(before, claim, self.side.now())
        if expected is not None:
            self.expire_lease(key)
        if len(self.owners) == MOST_OPEN:
            self.close(self.owners[0])
        contender = self.side.contend()
        found = contender.acquire(claim)
        if found is None:
            # Whatever a failed attempt leaves behind would block the next one.
            self.demand(expected is None, claim, "was refused", before)
            self.demand(contender.acquire(claim) is None, claim, "was granted the second time", before)
            contender.close()
        else:
            self.owners.append(Owner(contender, found))
            self.demand(
                found == rules.acquired(before, claim, found.acquired_at), claim, "was granted", found
            )
        self.demand(self.stored(key) == (before if found is None else found), claim, "stored", before)

    def renew(self, owner: Owner, lease: timedelta) -> None:
        """Extend a lease, or try to."""
        before = self.stored(owner.key)
        expected = rules.renewed(before, owner.owned, lease, self.side.now())
        found = self.answer_of(owner, lambda: owner.contender.renew(owner.owned, lease))
        after = self.stored(owner.key)
        if found is None or found.renewed_at is None:
            self.demand(expected is None, owner.owned, "was not renewed", before)
            self.demand(after == before, owner.owned, "was changed", after)
            return
        made = rules.renewed(before, owner.owned, lease, found.renewed_at)
        self.demand(found == after == made, owner.owned, "was renewed", after)
        owner.owned = found

    def release(self, owner: Owner) -> None:
        """Give a lock up, or try to."""
        before = self.stored(owner.key)
        expected = rules.released(before, owner.owned, self.side.now())
        answer = self.answer_of(owner, lambda: owner.contender.release(owner.owned))
        after = self.stored(owner.key)
        self.demand(bool(answer) == (expected is not None), owner.owned, f"release answered {answer}", before)
        # Given up at the instant at which its lease ends now.
        made = (
            before if after is None or not answer else rules.released(before, owner.owned, after.expires_at)
        )
        self.demand(after == made, owner.owned, "was released", after)

    def age(self, key: tuple[str, str]) -> None:
        """Let a lease end, as if its time had passed."""
        lock = self.stored(key)
        if lock is None:
            return
        renewed = None if lock.renewed_at is None else lock.renewed_at - AGE
        aged = lock.evolve(
            acquired_at=lock.acquired_at - AGE, expires_at=lock.expires_at - AGE, renewed_at=renewed
        )
        self.side.access.put(LOCKS, ALL_TENANTS, Row(aged))

    def close(self, owner: Owner) -> None:
        """Let an owner go without a word to anybody."""
        self.owners.remove(owner)
        owner.contender.close()

    def expire_lease(self, key: tuple[str, str]) -> None:
        """Have the server end what late owners of a lock hold in addition to the row."""
        if self.side.expire_lease is None:
            return
        self.side.expire_lease(key)
        for owner in self.owners:
            owner.cut = owner.cut or owner.key == key

    def end(self) -> None:
        """Let everybody go."""
        while self.owners:
            self.close(self.owners[0])

    def answer_of(self, owner: Owner, step: Callable[[], T]) -> T | None:
        """Return the answer to a step; none came where the connection was ended."""
        try:
            return step()
        except UnavailableError as error:
            if not owner.cut or error.outcome is not Outcome.UNKNOWN:
                raise
            # As a handle does: no further statement is sent over a lost connection.
            self.close(owner)
            return None

    def stored(self, key: tuple[str, str]) -> LockInfo | None:
        """Return the row of a lock."""
        (row,) = self.side.access.find(LOCKS, ALL_TENANTS, (key,))
        return None if row is None else row.model

    def demand(self, right: bool, who: object, what: str, stored: object) -> None:  # noqa: FBT001  # a verdict
        """Fail unless the rule says so."""
        if not right:
            raise WrongLockError(f"{self.side.name}: {who} {what}, with the row {stored}")


def run_lock_machine(side: LockSide, wipe: Callable[[], object], profile: settings) -> None:
    """Search for a history in which a driver answers otherwise than the rule."""

    @profile
    @given(history=STEPS)
    def compare(history: list[Step]) -> None:
        wipe()
        run = Run(side)
        try:
            for step in history:
                run.take(step)
        finally:
            run.end()

    compare()
