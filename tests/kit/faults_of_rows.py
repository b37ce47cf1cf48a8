"""Faults of single rows that a kit easily overlooks: conflicts, milliseconds, keys, purges, units."""

# ruff: noqa: ANN401, SLF001  # faults are planted inside, where types do not help

from __future__ import annotations

import unicodedata
from dataclasses import replace
from functools import partial
from typing import Any, Final

from tests.kit.mutants import Mutant, Patch, case, replacing
from twinstore.access import errors, guard
from twinstore.access.protocol import UniqueKey
from twinstore.documents import access
from twinstore.documents import access as documents
from twinstore.documents.rows import sort_key
from twinstore.scheduler.catalog import AUDIT, IMPACT_SNAPSHOTS, RUNS
from twinstore.scheduler.rules import schedules as schedule_rules
from twinstore.testing.contracts.paging import FilledLists
from twinstore.testing.scheduler import SchedulerContract, SchedulerWorkspace
from twinstore.testing.scheduler.examples import SCHEDULER_EXAMPLES
from twinstore_memory import rows, store
from twinstore_memory.access import MemoryAccess
from twinstore_memory.backend import MemoryBackend
from twinstore_memory.unit import MemoryUnit

RUN, SNAPSHOT, RECORD = map(SCHEDULER_EXAMPLES.of, (RUNS, IMPACT_SNAPSHOTS, AUDIT))
RUNS_LISTING = next(listing for listing in SchedulerContract.listings() if listing.name == "runs.list")


def reads_and_writes_separately(operation: str, patch: Patch) -> None:
    """Look for a row in one unit, holding nothing, and write it in another one."""

    def separately(self: Any, entity: Any, scope: Any, row: Any) -> Any:
        wanted = rows.encode(entity, row.model, row.storage)
        found = self._steps.take(lambda unit: unit.get(entity, wanted.key))
        if found is not None and (operation == "insert" or entity.append_only or found.owner != scope):
            raise errors.duplicate(entity, wanted.key, store.DRIVER)
        self._steps.take(lambda unit: rows.write(unit.unit, wanted))
        return row

    patch.setattr(MemoryAccess, operation, separately)


def changes_without_holding(patch: Patch) -> None:
    def change(self: Any, refs: Any, rule: Any) -> Any:
        held = self._steps.take(
            lambda unit: [documents.visible_row(unit, ref.entity, ref.scope, ref.key) for ref in refs]
        )
        before = tuple(self._decoded(ref.entity, row) for ref, row in zip(refs, held, strict=True))
        after = rule(before, None)
        for ref, changed in zip(refs, after, strict=True):
            if changed is not None:
                row = rows.encode(ref.entity, changed.model, changed.storage)
                self._steps.take(lambda unit, row=row: rows.write(unit.unit, row))
        return tuple(old if new is None else new for old, new in zip(before, after, strict=True))

    patch.setattr(MemoryAccess, "change", change)


def whole_seconds(value: Any) -> Any:
    return value.replace(microsecond=0) if hasattr(value, "microsecond") else value


def filters_in_whole_seconds(patch: Patch) -> None:
    is_true = access.is_true

    def truncated(condition: Any, row: Any) -> bool:
        if hasattr(condition, "value"):
            condition = replace(condition, value=whole_seconds(condition.value))
        return is_true(condition, row)

    patch.setattr(access, "is_true", truncated)


def stored_with(changed: Any, patch: Patch) -> None:
    """Store other rows than those that are given."""
    encode = rows.encode
    patch.setattr(documents, "encode", lambda *arguments: changed(encode(*arguments)))


def markers_in_whole_seconds(row: rows.DocumentRow) -> rows.DocumentRow:
    return replace(row, markers={name: whole_seconds(value) for name, value in row.markers.items()})


def document_in_whole_seconds(row: rows.DocumentRow) -> rows.DocumentRow:
    return replace(row, document={name: whole_seconds(value) for name, value in row.document.items()})


def without_one_field(row: rows.DocumentRow) -> rows.DocumentRow:
    return replace(row, document={name: value for name, value in row.document.items() if name != "retryOf"})


def recalculated_in_whole_seconds(patch: Patch) -> None:
    recalculated = schedule_rules.recalculated
    patch.setattr(
        schedule_rules,
        "recalculated",
        lambda before, stored, now: recalculated(before, stored, whole_seconds(now)),
    )


def keys_made_alike(change: Any, patch: Patch) -> None:
    """Store rows under what their keys become, and look them up by that."""
    get, holder, hold = MemoryUnit.get, MemoryUnit.holder, MemoryUnit.hold

    def alike(key: Any) -> Any:
        if isinstance(key, UniqueKey):
            return replace(key, values=tuple(map(change, key.values)))
        return tuple(map(change, key))

    def unique(row: rows.DocumentRow) -> Any:
        return tuple(
            (index, rows.unique_value(index, tuple(change(row.value(name)) for name in index.names)))
            for index in row.entity.uniques
        )

    patch.setattr(MemoryUnit, "get", lambda unit, entity, key, *scope: get(unit, entity, alike(key), *scope))
    patch.setattr(MemoryUnit, "holder", lambda unit, entity, key: holder(unit, entity, alike(key)))
    patch.setattr(MemoryUnit, "hold", lambda unit, entity, key: hold(unit, entity, alike(key)))
    patch.setattr(rows.DocumentRow, "unique", property(unique))
    stored_with(lambda row: replace(row, key=alike(row.key)), patch)


def a_token_that_leads_back(patch: Patch) -> None:
    follows = access.follows

    def inclusive(row: Any, order: Any, after: Any) -> bool:
        return sort_key(row, order) == tuple(after) or follows(row, order, after)

    patch.setattr(access, "follows", inclusive)


def due_by_the_trigger_alone(patch: Patch) -> None:
    """Return the schedules of all due triggers, whether they may fire or not."""

    def all_of_them(triggers: Any, schedules: Any) -> Any:
        return zip(triggers, (row.model for row in schedules), strict=False)

    patch.setattr("twinstore.scheduler.repositories.schedules.active", all_of_them)


def removes(choose: Any, patch: Patch) -> None:
    """Remove other rows than the first ones of the list."""

    def remove(self: Any, entity: Any, query: Any) -> Any:
        def step(unit: Any) -> int:
            chosen = choose(access.ordered(unit.rows(entity, query.scope), query), query.limit)
            for row in chosen:
                documents.discard(unit, self._entities, entity, row.key)
            return len(chosen)

        return self._steps.take(step)

    patch.setattr(MemoryAccess, "remove", remove)


def keeps_what_it_replaces(patch: Patch) -> None:
    write = documents.store

    def merged(unit: Any, scope: Any, held: Any, row: Any) -> None:
        kept = {} if held.row is None else held.row.document
        write(unit, scope, held, replace(row, document={**kept, **row.document}))

    patch.setattr(documents, "store", merged)


def joining_commits(patch: Patch) -> None:
    join = MemoryBackend.join

    def committing(self: Any, handle: Any, scope: Any) -> Any:
        handle.store.end(handle, handle._staged)
        handle._staged = {}
        return join(self, handle, scope)

    patch.setattr(MemoryBackend, "join", committing)


MUTANTS: Final = [
    Mutant(
        "a write keeps fields of the row that it replaces",
        keeps_what_it_replaces,
        case("test_a_broken_row_is_replaced_as_a_whole_or_left_alone", SNAPSHOT),
    ),
    Mutant(
        "a run is looked for in one unit and created in another",
        partial(reads_and_writes_separately, "insert"),
        case("test_one_run_of_an_id_is_created_in_every_round"),
    ),
    Mutant(
        "a record is looked for in one unit and appended in another",
        partial(reads_and_writes_separately, "put"),
        case("test_one_record_of_an_id_is_appended_in_every_round"),
    ),
    Mutant(
        "two tenants get one new snapshot",
        partial(reads_and_writes_separately, "put"),
        case("test_of_two_tenants_one_gets_a_new_key_in_every_round", example=SNAPSHOT),
    ),
    Mutant(
        "a trigger is recalculated from what was read before",
        changes_without_holding,
        # One run in fifty misses it: three, none in a hundred thousand.
        lambda workspace: [
            SchedulerContract().test_a_schedule_and_its_trigger_stay_in_step_in_every_round(
                workspace=SchedulerWorkspace(*place)
            )
            for place in [(workspace.deployment, workspace.storage)] * 3
        ],
    ),
    Mutant(
        "runs are filtered in whole seconds",
        filters_in_whole_seconds,
        case("test_bounds_are_compared_to_the_millisecond"),
    ),
    Mutant(
        "records are filtered in whole seconds",
        filters_in_whole_seconds,
        case("test_bounds_of_records_are_compared_to_the_millisecond"),
    ),
    Mutant(
        "a token leads back to its page",
        a_token_that_leads_back,
        lambda workspace: SchedulerContract().test_all_pages_make_the_whole_list_in_order(
            FilledLists(workspace.deployment, workspace.storage), RUNS_LISTING, 1
        ),
    ),
    Mutant(
        "deletions are stored in whole seconds",
        partial(stored_with, markers_in_whole_seconds),
        case("test_the_instants_of_a_deletion_keep_their_milliseconds"),
    ),
    Mutant(
        "instants are stored in whole seconds",
        partial(stored_with, document_in_whole_seconds),
        case("test_instants_keep_the_declared_precision"),
    ),
    Mutant(
        "now is taken in whole seconds",
        recalculated_in_whole_seconds,
        case("test_recalculate_looks_at_the_milliseconds_of_now"),
    ),
    Mutant(
        "keys are normalised when they are looked up",
        partial(keys_made_alike, partial(unicodedata.normalize, "NFKC")),
        case("test_keys_that_only_look_alike_are_different_keys", RUN),
    ),
    Mutant(
        "another tenant's row is found by its key",
        replacing(MemoryUnit, "_sees", lambda *_: True),
        case("test_a_row_of_another_tenant_is_as_absent_as_none", RUN),
    ),
    Mutant(
        "an absent key is named as it was given",
        replacing(
            errors,
            "not_found",
            lambda entity, key, driver, found=errors.not_found: found(entity, f" {key} ", driver),
        ),
        case("test_an_absent_row_is_nothing_or_an_error_with_the_normalised_key", RUN),
    ),
    Mutant(
        "one field is not stored",
        partial(stored_with, without_one_field),
        case("test_every_look_up_finds_the_row_as_it_was_stored", RUN),
    ),
    Mutant(
        "schedules are due by their triggers alone",
        due_by_the_trigger_alone,
        case("test_a_schedule_that_may_not_fire_is_not_due_whatever_its_trigger_says"),
    ),
    Mutant(
        "the newest rows are purged first",
        partial(removes, lambda found, limit: found[::-1][:limit]),
        case("test_a_purge_removes_the_oldest_first_in_batches_as_large_as_asked", RUN, 2),
    ),
    Mutant(
        "joining commits what came before",
        joining_commits,
        case("test_joining_again_commits_nothing_of_what_came_before"),
    ),
    Mutant(
        "a joined write leaves its half",
        replacing(guard, "WRITE_ERRORS", ()),
        case("test_a_joined_write_that_fails_leaves_no_half_of_itself"),
    ),
]
