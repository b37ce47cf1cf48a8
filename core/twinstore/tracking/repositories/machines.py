"""Machines: alone while no slot is decided about, otherwise in one step with their sessions."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING, Final

from typing_extensions import override

from twinstore.access.errors import required
from twinstore.access.paging import Page, UndecodableRow, decode_token, encode_token
from twinstore.access.scope import count_argument, id_argument, instant_argument, member_argument
from twinstore.catalog.row import Row
from twinstore.tracking import queries
from twinstore.tracking.catalog import MACHINES, SESSIONS
from twinstore.tracking.enums import MachineStatus
from twinstore.tracking.machines import MachineAvailability, TrackingMachine, TrackingMachineRepository
from twinstore.tracking.repositories.base import TrackingRepository
from twinstore.tracking.repositories.slot_changes import change_slots
from twinstore.tracking.rules import machines as rules
from twinstore.tracking.rules import slots
from twinstore.tracking.rules.records import created, touched
from twinstore.tracking.rules.slots import SlotState

if TYPE_CHECKING:
    from collections.abc import Iterable

    from twinstore.access.query import Query

# So many pages of machines one call of list_available reads while it finds any; then it says how to go on.
MAX_ROUNDS: Final = 20


class TrackingMachines(TrackingRepository, TrackingMachineRepository):
    """Implements :class:`~twinstore.tracking.machines.TrackingMachineRepository`."""

    @override
    def create(self, record: TrackingMachine) -> TrackingMachine:
        record, scope = self._model(record, TrackingMachine, "record"), self._scope()
        rules.check_new(record)
        return self._access.insert(MACHINES, scope, Row(created(record, self._clock.now()))).model

    @override
    def get(self, machine_id: str) -> TrackingMachine | None:
        return self._get(MACHINES, self._scope(), (id_argument(machine_id, "machine_id"),))

    @override
    def get_required(self, machine_id: str) -> TrackingMachine:
        return self._required(self.get(machine_id), MACHINES, machine_id.strip())

    @override
    def list(
        self,
        *,
        statuses: Collection[MachineStatus] | None = None,
        limit: int = 20,
        page_token: str | None = None,
    ) -> Page[TrackingMachine]:
        self._scope()
        return self._page(MACHINES, queries.machines(statuses, limit, page_token))

    @override
    def count(self, *, statuses: Collection[MachineStatus] | None = None) -> int:
        self._scope()
        return self._count(MACHINES, queries.machines(statuses, 1, None), "status")

    @override
    def update(self, record: TrackingMachine, *, expected_status: MachineStatus | None = None) -> bool:
        record, key = self._model(record, TrackingMachine, "record"), record.machine_id
        expected = (
            None
            if expected_status is None
            else member_argument(expected_status, MachineStatus, "expected_status")
        )
        self._scope()

        def update(state: SlotState) -> SlotState | None:
            stored = state.machines.get(key)
            if stored is None:
                return None
            taken = slots.occupied(stored, state.sessions)
            after = rules.updated(stored, record, expected, taken)
            return None if after == stored else SlotState({key: after})

        # With its sessions, because the slots that it offers are decided about.
        return key in change_slots(self._access, self._clock.now(), update, machine_id=key).machines

    @override
    def heartbeat(self, machine_id: str, now: datetime) -> TrackingMachine:
        key, instant = id_argument(machine_id, "machine_id"), instant_argument(now, "now")
        changed = self._clock.now()

        def revised(stored: TrackingMachine | None) -> TrackingMachine | None:
            return None if stored is None else touched(stored, rules.alive(stored, instant), changed)

        return self._required(self._revise(MACHINES, self._scope(), (key,), revised), MACHINES, key)

    @override
    def assign_session(
        self, machine_id: str, session_id: str, *, docker_slot: int | None = None
    ) -> TrackingMachine:
        target, key = id_argument(machine_id, "machine_id"), id_argument(session_id, "session_id")
        slot = None if docker_slot is None else count_argument(docker_slot, "docker_slot")
        self._scope()

        def assign(state: SlotState) -> SlotState | None:
            machine = required(state.machines.get(target), MACHINES, target, self.driver)
            session = required(state.sessions.get(key), SESSIONS, key, self.driver)
            return slots.assigned(state, session, machine, slot)

        state = change_slots(self._access, self._clock.now(), assign, session_id=key, machine_id=target)
        return state.machines[target]

    @override
    def release_session(self, machine_id: str, session_id: str) -> TrackingMachine:
        target, key = id_argument(machine_id, "machine_id"), id_argument(session_id, "session_id")
        self._scope()

        def release(state: SlotState) -> SlotState | None:
            machine = required(state.machines.get(target), MACHINES, target, self.driver)
            return slots.released(state, machine, key)

        # An unreadable session is released as well: this is how its machine gets rid of it.
        state = change_slots(
            self._access,
            self._clock.now(),
            release,
            session_id=key,
            machine_id=target,
            needs_session=False,
        )
        return state.machines[target]

    @override
    def list_available(self, *, limit: int = 20, page_token: str | None = None) -> Page[MachineAvailability]:
        self._scope()
        query = queries.available_machines(limit, page_token)
        wanted = query.limit
        found: tuple[MachineAvailability, ...] = ()
        broken: tuple[UndecodableRow, ...] = ()
        rounds = 0
        # In turns: machines whose slots are all occupied take places on a page.
        while True:
            page = self._access.page(MACHINES, query)
            rounds += 1
            available, unread = self._available(row.model for row in page)
            found += available
            broken = tuple(dict.fromkeys(broken + page.undecodable + unread))
            token = page.next_page_token
            if len(found) > wanted:
                return replace(_cut(found[:wanted], query), undecodable=broken)
            if token is None or len(found) == wanted or (found and rounds >= MAX_ROUNDS):
                return Page(found, token, broken)
            after = decode_token(token, query.entity, query.fingerprint, query.order)
            # Ever longer, because a short page of a long list of full machines would cost a turn for each.
            query = replace(query, after=after, limit=min(2 * query.limit, queries.MAX_PAGE))

    @override
    def delete(self, machine_id: str) -> bool:
        return self._remove(MACHINES, self._scope(), (id_argument(machine_id, "machine_id"),))

    def _available(
        self, machines: Iterable[TrackingMachine]
    ) -> tuple[tuple[MachineAvailability, ...], tuple[UndecodableRow, ...]]:
        """Return those of some machines that have a free slot, and the unreadable sessions on them.

        Looks for all their sessions at once. The slot of an unreadable session is unknown, so its machine is
        skipped.
        """
        offering = [machine for machine in machines if machine.docker_slots]
        keys = tuple(dict.fromkeys(key for machine in offering for key in machine.active_sessions))
        page = self._access.page(SESSIONS, queries.sessions_named(keys))
        sessions = {row.model.session_id: row.model for row in page}
        unread = {row.key for row in page.undecodable}
        free = (
            MachineAvailability(machine=item, free_slots=slots.free_slots(item, sessions))
            for item in offering
            if unread.isdisjoint(item.active_sessions)
        )
        return tuple(item for item in free if item.free_slots), page.undecodable


def _cut(shown: tuple[MachineAvailability, ...], query: Query) -> Page[MachineAvailability]:
    """Return a page after which more machines were found than it holds."""
    token = encode_token(query.entity, query.fingerprint, (shown[-1].machine.machine_id,))
    return Page(shown, token)
