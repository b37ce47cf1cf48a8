"""Logs of pack runs: appended below their run under numbers, read in order, removed by age."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import TYPE_CHECKING

from typing_extensions import override

from twinstore.access.protocol import Ref
from twinstore.access.scope import id_argument
from twinstore.catalog.row import Row
from twinstore.catalog.tenancy import AllTenants
from twinstore.taskrunner import queries
from twinstore.taskrunner.catalog import PACK_RUN_LOGS, PACK_RUNS
from twinstore.taskrunner.pack_run_logs import PackRunLogDraft, PackRunLogEntry, PackRunLogStore
from twinstore.taskrunner.repositories.base import TaskRunnerRepository

if TYPE_CHECKING:
    from twinstore.access.query import Query

Entries = tuple[PackRunLogEntry, ...]


class PackRunLogs(TaskRunnerRepository, PackRunLogStore):
    """Implements :class:`~twinstore.taskrunner.pack_run_logs.PackRunLogStore`."""

    @override
    def append(self, entries: Sequence[PackRunLogEntry], *, tenant_id: str | AllTenants | None = None) -> int:
        entries = self._models(entries, PackRunLogEntry, "entries")
        scope = self._admit_run(tenant_id, "append")
        if not entries:
            self._check_writable()
            return 0
        rows = [Row(entry) for entry in entries]
        stored = self._append_to_logs(PACK_RUN_LOGS, PACK_RUNS, scope, rows, lambda entry: entry.run_id)
        # An entry that was stored before comes back as another object; its own number keeps the given one.
        return sum(row is given for row, given in zip(stored, rows, strict=True))

    @override
    def append_next(
        self, run_id: str, draft: PackRunLogDraft, *, tenant_id: str | AllTenants | None = None
    ) -> PackRunLogEntry:
        key = id_argument(run_id, "run_id")
        draft = self._model(draft, PackRunLogDraft, "draft")
        scope = self._admit_run(tenant_id, "append_next")
        (row,) = self._access.append(
            PACK_RUN_LOGS, Ref(PACK_RUNS, scope, (key,)), (Row(unnumbered(key, draft)),)
        )
        return row.model

    @override
    def read(
        self,
        run_id: str,
        *,
        after_sequence: int = 0,
        limit: int = 500,
        tenant_id: str | AllTenants | None = None,
    ) -> Entries:
        scope = self._admit_run(tenant_id, "read")
        key = id_argument(run_id, "run_id")
        return self._entries(queries.log_of_run(scope, key, after_sequence, limit))

    @override
    def read_window(
        self,
        run_id: str,
        start: datetime,
        end: datetime,
        *,
        limit: int = 500,
        tenant_id: str | AllTenants | None = None,
    ) -> Entries:
        scope = self._admit_run(tenant_id, "read_window")
        key = id_argument(run_id, "run_id")
        return self._entries(queries.window_of_log(scope, key, start, end, limit))

    @override
    def last_sequence(self, run_id: str, *, tenant_id: str | AllTenants | None = None) -> int:
        scope = self._admit_run(tenant_id, "last_sequence")
        # The number alone: the entry that has it may be large.
        last = self._access.keys(PACK_RUN_LOGS, queries.last_entry(scope, id_argument(run_id, "run_id")))
        return int(last[0][-1]) if last else 0

    @override
    def purge(self, before: datetime, *, batch_size: int = 500) -> int:
        return self._purge(PACK_RUN_LOGS, self._admit_system("purge"), before, batch_size)

    def _entries(self, query: Query) -> Entries:
        return self._page(PACK_RUN_LOGS, query).items


def unnumbered(run_id: str, draft: PackRunLogDraft) -> PackRunLogEntry:
    """Return an entry that lacks its number, which the store assigns; only the store sees it so."""
    # Past the checks, which would ask for a number; the entry is checked when it gets one.
    make: Callable[..., PackRunLogEntry] = PackRunLogEntry.model_construct
    return make(run_id=run_id, **draft.__dict__, sequence=None)
