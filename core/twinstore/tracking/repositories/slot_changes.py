"""Steps over machines and sessions: which session runs where, and in which slot.

Every such step writes the rows of the machines that it decides about, so that two of them never decide over
the same list. It locks machines before sessions, each by id, so that steps do not deadlock. Which rows it
needs follows from rows that are read before; where those have changed when they are locked, it begins again.
"""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Set as AbstractSet
from typing import TYPE_CHECKING, TypeVar

from twinstore.access.errors import lost_race
from twinstore.access.protocol import Ref
from twinstore.access.retry import retry
from twinstore.catalog.row import Row
from twinstore.catalog.tenancy import NO_TENANT
from twinstore.errors import DocumentDecodeError
from twinstore.tracking.catalog import MACHINES, SESSIONS
from twinstore.tracking.machines import TrackingMachine
from twinstore.tracking.rules.records import touched
from twinstore.tracking.rules.slots import SlotState
from twinstore.tracking.sessions import TrackingSession

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import datetime

    from twinstore.access.protocol import Access, Rows, ServerClock

R = TypeVar("R", TrackingMachine, TrackingSession)


Decide = Callable[[SlotState], "SlotState | None"]
"""Returns what is to be written: what changes, and machines that serialise the decision; ``None``: none."""


def change_slots(
    access: Access,
    now: datetime,
    decide: Decide,
    *,
    session_id: str | None = None,
    machine_id: str | None = None,
    needs_session: bool = True,
) -> SlotState:
    """Decide about a session and its machine, and about a machine with all that it lists, in one step.

    Returns the rows as they are stored then. An unreadable row that the call does not name is skipped: it
    must not stop the decision about others.

    Args:
        access: the rows.
        now: what is stored as the instant of the change.
        decide: the decision.
        session_id: the session it is about.
        machine_id: the machine it is about.
        needs_session: whether the session that is named must be readable.

    Raises:
        ConcurrencyError: in a unit, where the rows were read at another state than they are locked in;
            outside one, when others changed them at every attempt.
        DocumentDecodeError: what the call names cannot be read.
    """
    named = {(MACHINES.name, machine_id), (SESSIONS.name, session_id if needs_session else None)}

    def once() -> SlotState:
        unread: set[tuple[str, str]] = set()
        while True:
            try:
                return _Step(access, now, decide, session_id, machine_id, unread).run()
            except DocumentDecodeError as error:
                place = (error.entity or "", error.key or "")
                if place in named or place in unread:
                    raise
                unread.add(place)

    # In a unit only the whole of it can be repeated, because it reads one state.
    return once() if access.binding.in_unit else retry(once)


class _Step:
    """One attempt."""

    def __init__(  # noqa: PLR0917  # the arguments of the call, and what an earlier attempt found
        self,
        access: Access,
        now: datetime,
        decide: Decide,
        session_id: str | None,
        machine_id: str | None,
        unread: AbstractSet[tuple[str, str]],
    ) -> None:
        self._access = access
        self._now = now
        self._decide = decide
        self._session_id = session_id
        self._machine_id = machine_id
        self._unread = unread
        self._machines: list[str] = []
        self._sessions: list[str] = []
        self._state = SlotState()

    def run(self) -> SlotState:
        """Read what identifies the rows, lock them, decide and write."""
        session = self._read_session()
        listed = self._read_listed()
        machines = _sorted([self._machine_id, None if session is None else session.machine_id])
        self._machines = [key for key in machines if (MACHINES.name, key) not in self._unread]
        sessions = _sorted([*listed, self._session_id])
        self._sessions = [key for key in sessions if (SESSIONS.name, key) not in self._unread]
        refs: list[Ref] = [Ref(MACHINES, NO_TENANT, (key,)) for key in self._machines]
        refs += [Ref(SESSIONS, NO_TENANT, (key,)) for key in self._sessions]
        if refs:
            self._access.change(refs, self._rule)
        else:
            self._state = SlotState(unread=self._unread_sessions)
        return self._state

    @property
    def _unread_sessions(self) -> frozenset[str]:
        return frozenset(key for entity, key in self._unread if entity == SESSIONS.name)

    def _read_session(self) -> TrackingSession | None:
        if self._session_id is None or (SESSIONS.name, self._session_id) in self._unread:
            return None
        (row,) = self._access.find(SESSIONS, NO_TENANT, [(self._session_id,)])
        return None if row is None else row.model

    def _read_listed(self) -> tuple[str, ...]:
        if self._machine_id is None:
            return ()
        (row,) = self._access.find(MACHINES, NO_TENANT, [(self._machine_id,)])
        return () if row is None else row.model.active_sessions

    def _rule(self, rows: Rows, now: ServerClock) -> Rows:
        # The clock of the storage says when, as of every instant that a repository sets.
        del now
        models = [None if row is None else row.model for row in rows]
        stored = SlotState(
            {item.machine_id: item for item in models if isinstance(item, TrackingMachine)},
            {item.session_id: item for item in models if isinstance(item, TrackingSession)},
            self._unread_sessions,
        )
        self._check_whole(stored)
        decided = self._decide(stored) or SlotState()
        machines = {key: self._touched(stored.machines[key], item) for key, item in decided.machines.items()}
        sessions = {key: self._touched(stored.sessions[key], item) for key, item in decided.sessions.items()}
        self._state = stored.changed(SlotState(machines, sessions))
        return (
            *(_row(machines.get(key)) for key in self._machines),
            *(_row(sessions.get(key)) for key in self._sessions),
        )

    def _check_whole(self, stored: SlotState) -> None:
        """Begin again where rows that the decision needs are not among those that are locked."""
        session = stored.sessions.get(self._session_id or "")
        read = session is None or (MACHINES.name, session.machine_id) not in self._unread
        if session is not None and read and session.machine_id not in self._machines:
            raise lost_race(SESSIONS, session.session_id, self._access.binding.driver)
        machine = stored.machines.get(self._machine_id or "")
        if machine is not None and not {*machine.active_sessions} <= {*self._sessions} | stored.unread:
            raise lost_race(MACHINES, machine.machine_id, self._access.binding.driver)

    def _touched(self, stored: R, changed: R) -> R:
        return touched(stored, changed, self._now)


def _row(model: TrackingMachine | TrackingSession | None) -> Row | None:
    return None if model is None else Row(model)


def _sorted(keys: Iterable[str | None]) -> list[str]:
    return sorted({key for key in keys if key is not None})
