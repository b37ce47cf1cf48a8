"""What reads of the access find: rows by key and by unique value, lists and their keys, counts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pytest

from twinstore.access.defaults import matches
from twinstore.access.paging import SortKey
from twinstore.access.protocol import UniqueKey
from twinstore.access.query import key_order
from twinstore.catalog.conditions import (
    After,
    AtLeast,
    AtMost,
    Before,
    Condition,
    Equals,
    IsNull,
    IsPresent,
    NotAfter,
    OneOf,
)
from twinstore.catalog.keys import KeyRange
from twinstore.catalog.tenancy import ALL_TENANTS, NO_TENANT, Tenant
from twinstore.errors import ValidationError
from twinstore.testing.contracts.access_base import (
    AccessCases,
    AccessWorkspace,
    by_key,
    each_home,
    in_order,
    query_of,
)
from twinstore.testing.datasets import (
    COUNTER,
    DEVICE,
    ENTRY,
    EVENT,
    NOTE,
    OWNER_CASES,
    PART,
    SCAN,
    Dataset,
    OwnerCase,
    RowFactory,
)
from twinstore.testing.entities import COUNTERS, DEVICES, EVENTS, NOTES, SCANS, Device
from twinstore.testing.instants import at
from twinstore.testing.scalars import EARLIEST, EDGE_TEXTS, LATEST
from twinstore.testing.workspace import all_pages

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from twinstore.models.canonical import CanonicalModel

__all__ = ["AccessCountContract", "AccessFindContract", "AccessKeysContract", "AccessListContract"]

# As many as there are texts at the edges, so that each is a key, a value and a sort value once.
MANY: Final = len(EDGE_TEXTS)
# The defaults of core count by reading lists in parts of 500 rows.
MORE_THAN_A_PART: Final = 502
SIMILAR: Final[Mapping[str, Callable[[str], str]]] = {
    "other case": str.upper,
    "shorter": lambda text: text[:-1],
    "longer": lambda text: f"{text}0",
}
OWNED: Final = [owner_case for owner_case in OWNER_CASES if owner_case.factory is not COUNTER]
each_owned = pytest.mark.parametrize("owner_case", OWNED, ids=str)

NOTE_CONDITIONS: Final[tuple[tuple[Condition, ...], ...]] = (
    (Equals("id", "nobody has it"),),
    (Equals("title", f"{EDGE_TEXTS[7]}7"),),
    (Equals("holder", EDGE_TEXTS[4].upper()),),
    (Equals("holder", "%"),),
    (Equals("level", "high"),),
    (Equals("colour", "dark-green"),),
    (Equals("urgent", value=True),),
    (Equals("urgent", value=False),),
    (Equals("rank", 2**53 + 1),),
    (Equals("width", -(2**31)),),
    (Equals("dueAt", at(1.001)),),
    (Equals("dueAt", LATEST),),
    (Equals("archivedBy", "ada"),),
    (Equals("revision", 2**31 - 1),),
    (Equals("revision", 0),),
    (OneOf("level", ("low", "high")),),
    (OneOf("level", ()),),
    (OneOf("colour", ("red", "no colour")),),
    (OneOf("holder", (EDGE_TEXTS[0], EDGE_TEXTS[4])),),
    (After("rank", 0),),
    (After("rank", 2**53),),
    (Before("rank", 0),),
    (AtLeast("rank", 2**53 + 1),),
    (AtMost("rank", -(2**31)),),
    (After("dueAt", at(0)),),
    (Before("dueAt", at(0)),),
    (AtLeast("dueAt", at(0)),),
    (AtMost("dueAt", EARLIEST),),
    (AtMost("archivedAt", at(8)),),
    (NotAfter("archivedAt", at(8)),),
    (NotAfter("dueAt", at(0)), NotAfter("revision", 3)),
    (AtLeast("revision", 0),),
    (IsNull("dueAt"),),
    (IsNull("archivedAt"),),
    (IsNull("colour"),),
    (IsPresent("holder"),),
    (IsPresent("archivedAt"), IsNull("holder"), Equals("urgent", value=True)),
    (AtLeast("attempts", 3), Before("attempts", 9), OneOf("level", ("low", "middle"))),
)
DEVICE_CONDITIONS: Final[tuple[tuple[Condition, ...], ...]] = (
    (Equals("spotCount", 1),),
    (AtLeast("spotCount", 1), IsPresent("serial")),
    (Equals("contentDigest", "nobody has it"),),
    (Equals("level", "middle"),),
    (Equals("urgent", value=True), After("rank", 0)),
    (AtMost("dueAt", at(0)),),
    (IsNull("serial"),),
    (Equals("importedBy", EDGE_TEXTS[5]),),
    (Before("importedAt", at(7)),),
    (IsNull("importedBy"), IsPresent("holder")),
)
NOTE_ORDERS: Final = (
    (SortKey("title"), SortKey("id")),
    (SortKey("title", descending=True), SortKey("id")),
    (SortKey("rank", descending=True, number=True), SortKey("id")),
    (SortKey("rank", number=True), SortKey("id", descending=True)),
    (SortKey("dueAt", time=True, nullable=True), SortKey("id")),
    (SortKey("attempts", number=True), SortKey("dueAt", time=True, nullable=True), SortKey("id")),
    (SortKey("closedAt", descending=True, time=True, nullable=True), SortKey("id")),
)


def shown(parts: Sequence[Condition | SortKey]) -> str:
    """Return conditions or an order as the name of a test."""
    return " ".join(f"{type(part).__name__}-{part.field}" for part in parts)


class AccessFindContract(AccessCases):
    """``find``."""

    @each_home
    def test_rows_are_found_by_their_keys_in_the_order_of_the_keys(
        self, workspace: AccessWorkspace, owner_case: OwnerCase
    ) -> None:
        dataset, factory = workspace.of(owner_case), owner_case.factory
        rows = factory.fill(workspace.access, dataset, 5)
        wanted = [3, 0, 7, 4, 3]
        found = workspace.access.find(
            factory.entity, dataset.owner, [factory.key(dataset, item) for item in wanted]
        )
        assert found == (rows[3], rows[0], None, rows[4], rows[3])

    @each_home
    def test_every_value_comes_back_as_it_was_stored(
        self, workspace: AccessWorkspace, owner_case: OwnerCase
    ) -> None:
        dataset, factory = workspace.of(owner_case), owner_case.factory
        rows = factory.fill(workspace.access, dataset, MANY)
        keys = [factory.key(dataset, number) for number in range(MANY)]
        assert list(workspace.access.find(factory.entity, dataset.owner, keys)) == rows

    @each_home
    def test_no_keys_find_nothing(self, workspace: AccessWorkspace, owner_case: OwnerCase) -> None:
        assert workspace.access.find(owner_case.factory.entity, workspace.of(owner_case).owner, []) == ()

    @each_owned
    def test_a_foreign_row_is_as_absent_as_one_that_does_not_exist(
        self, workspace: AccessWorkspace, owner_case: OwnerCase
    ) -> None:
        dataset, factory = workspace.of(owner_case), owner_case.factory
        (row,) = factory.fill(workspace.access, dataset, 1)
        for foreign_dataset in workspace.foreign_datasets(owner_case):
            assert workspace.access.find(factory.entity, foreign_dataset.owner, [factory.key(dataset)]) == (
                None,
            )
        assert workspace.access.find(factory.entity, ALL_TENANTS, [factory.key(dataset)]) == (row,)

    def test_a_row_without_tenancy_is_seen_in_every_scope(self, workspace: AccessWorkspace) -> None:
        (row,) = COUNTER.fill(workspace.access, workspace.dataset, 1)
        for dataset in (workspace.dataset, workspace.elsewhere, workspace.untenanted):
            assert workspace.get(COUNTER, dataset) == row

    def test_a_row_is_found_by_a_unique_value(self, workspace: AccessWorkspace) -> None:
        rows = DEVICE.fill(workspace.access, workspace.dataset, 4)
        serial = DEVICES.unique("serial")
        keys = [
            UniqueKey(serial, (text,))
            for text in (serial_of(rows[3].model), "nobody", serial_of(rows[1].model))
        ]
        assert workspace.access.find(DEVICES, workspace.dataset.owner, keys) == (rows[3], None, rows[1])
        assert workspace.access.find(DEVICES, workspace.untenanted.owner, keys) == (None, None, None)
        assert workspace.access.find(DEVICES, workspace.elsewhere.owner, keys) == (None, None, None)

    def test_a_unique_value_finds_only_the_row_that_holds_it(self, workspace: AccessWorkspace) -> None:
        archived, kept = (
            NOTE.row(workspace.dataset, 2, title="one title"),
            NOTE.row(workspace.dataset, 0, title="one title"),
        )
        workspace.access.insert(NOTES, workspace.dataset.owner, archived)
        key = UniqueKey(NOTES.unique("tenant_title"), (workspace.tenant, workspace.batch, "one title"))
        assert workspace.access.find(NOTES, workspace.dataset.owner, [key]) == (None,)
        workspace.access.insert(NOTES, workspace.dataset.owner, kept)
        assert workspace.access.find(NOTES, workspace.dataset.owner, [key]) == (kept,)

    @pytest.mark.parametrize("name", SIMILAR)
    def test_a_tenant_of_a_similar_name_is_another_one(self, workspace: AccessWorkspace, name: str) -> None:
        similar = Tenant(SIMILAR[name](workspace.tenant))
        for factory in (NOTE, DEVICE, PART):
            rows = factory.fill(workspace.access, workspace.dataset, 1)
            query = query_of(factory.entity, workspace.dataset, scope=similar)
            keys = [factory.key(workspace.dataset)]
            assert workspace.access.find(factory.entity, similar, keys) == (None,)
            assert list(workspace.access.page(factory.entity, query)) == []
            assert workspace.access.remove(factory.entity, query) == 0
            assert workspace.stored(factory, workspace.dataset) == rows

    def test_a_child_whose_parent_is_gone_is_seen_by_no_tenant(self, workspace: AccessWorkspace) -> None:
        SCAN.fill(workspace.access, workspace.dataset, 1)
        gone = workspace.dataset.text(9)
        try:
            workspace.deployment.probe.alter(SCANS, SCAN.key(workspace.dataset), {"parcelId": gone})
        except TimeoutError:
            raise
        except Exception as error:  # noqa: BLE001  # whatever the client of a store raises
            pytest.skip(f"the store keeps children with their parents itself ({type(error).__name__})")
        for dataset in (workspace.dataset, workspace.elsewhere, workspace.untenanted):
            query = query_of(NOTES, dataset, Equals("parcelId", gone), order=key_order(SCANS))
            assert list(workspace.access.page(SCANS, query)) == []
            assert workspace.access.find(SCANS, dataset.owner, [(gone, 1)]) == (None,)


def serial_of(device: Device) -> str:
    """Return the serial that a device has."""
    assert device.serial is not None
    return device.serial


class AccessListContract(AccessCases):
    """``page``."""

    @each_home
    @pytest.mark.parametrize("limit", [1, 4, 100])
    def test_all_pages_make_the_whole_list_in_the_order_of_the_key(
        self, workspace: AccessWorkspace, owner_case: OwnerCase, limit: int
    ) -> None:
        dataset, entity = workspace.of(owner_case), owner_case.factory.entity
        rows = owner_case.factory.fill(workspace.access, dataset, 12)
        found = all_pages(
            lambda token: workspace.access.page(entity, query_of(entity, dataset, limit=limit, token=token))
        )
        assert found == by_key(entity, rows)

    @each_home
    def test_a_range_is_in_the_order_of_the_key(
        self, workspace: AccessWorkspace, owner_case: OwnerCase
    ) -> None:
        dataset, entity = workspace.of(owner_case), owner_case.factory.entity
        rows = by_key(entity, owner_case.factory.fill(workspace.access, dataset, 12))
        keys = [entity.key_of(row.model, row.storage) for row in rows]
        if workspace.backend.capabilities.bulk:
            with workspace.backend.bulk.view() as view:
                for read in (view.rows, view.records):
                    found = [row.key for batch in read(entity, KeyRange(keys[1], keys[10])) for row in batch]
                    assert [key for key in found if key in keys] == keys[1:10]

    @pytest.mark.parametrize("order", NOTE_ORDERS, ids=shown)
    @pytest.mark.parametrize("limit", [3, 100])
    def test_a_list_has_its_order_over_every_value(
        self, workspace: AccessWorkspace, order: tuple[SortKey, ...], limit: int
    ) -> None:
        rows = NOTE.fill(workspace.access, workspace.dataset, MANY)
        found = all_pages(
            lambda token: workspace.access.page(
                NOTES, query_of(NOTES, workspace.dataset, order=order, limit=limit, token=token)
            )
        )
        assert found == in_order(NOTES, rows, order)

    @pytest.mark.parametrize("limit", [3, 100])
    def test_rows_held_as_documents_have_the_same_order(self, workspace: AccessWorkspace, limit: int) -> None:
        order = (
            SortKey("dueAt", time=True, nullable=True),
            SortKey("spotCount", descending=True, number=True),
            SortKey("id"),
        )
        rows = DEVICE.fill(workspace.access, workspace.untenanted, MANY)
        found = all_pages(
            lambda token: workspace.access.page(
                DEVICES, query_of(DEVICES, workspace.untenanted, order=order, limit=limit, token=token)
            )
        )
        assert found == in_order(DEVICES, rows, order)

    @each_home
    def test_nothing_makes_one_empty_page(self, workspace: AccessWorkspace, owner_case: OwnerCase) -> None:
        dataset, factory = workspace.of(owner_case), owner_case.factory
        factory.store_parents(workspace.access, dataset)
        page = workspace.access.page(factory.entity, query_of(factory.entity, dataset))
        assert (page.items, page.next_page_token) == ((), None)

    @each_owned
    def test_a_list_shows_the_rows_of_its_scope(
        self, workspace: AccessWorkspace, owner_case: OwnerCase
    ) -> None:
        dataset, factory = workspace.of(owner_case), owner_case.factory
        rows = by_key(factory.entity, factory.fill(workspace.access, dataset, 3))
        for foreign_dataset in workspace.foreign_datasets(owner_case):
            query = query_of(factory.entity, dataset, scope=foreign_dataset.owner)
            assert list(workspace.access.page(factory.entity, query)) == []
        assert (
            list(workspace.access.page(factory.entity, query_of(factory.entity, dataset, scope=ALL_TENANTS)))
            == rows
        )

    def test_system_scope_lists_the_rows_of_everybody(self, workspace: AccessWorkspace) -> None:
        datasets = [
            Dataset(dataset.owner, f"{workspace.batch}{number}")
            for number, dataset in enumerate((workspace.dataset, workspace.elsewhere, workspace.untenanted))
        ]
        rows = [DEVICE.row(dataset, number, batch=workspace.batch) for number, dataset in enumerate(datasets)]
        for dataset, row in zip(datasets, rows, strict=True):
            workspace.access.insert(DEVICES, dataset.owner, row)
        query = query_of(DEVICES, workspace.dataset, scope=ALL_TENANTS)
        assert list(workspace.access.page(DEVICES, query)) == by_key(DEVICES, rows)

    @pytest.mark.parametrize("where", NOTE_CONDITIONS, ids=shown)
    def test_conditions_choose_rows_by_column(
        self, workspace: AccessWorkspace, where: tuple[Condition, ...]
    ) -> None:
        self.choose(workspace, NOTE, workspace.dataset, where)

    @pytest.mark.parametrize("where", DEVICE_CONDITIONS, ids=shown)
    def test_conditions_choose_rows_held_as_documents(
        self, workspace: AccessWorkspace, where: tuple[Condition, ...]
    ) -> None:
        self.choose(workspace, DEVICE, workspace.untenanted, where)

    def test_one_of_no_values_is_true_of_no_row_in_bulk_either(self, workspace: AccessWorkspace) -> None:
        rows = NOTE.fill(workspace.access, workspace.dataset, 2)
        query = query_of(NOTES, workspace.dataset, OneOf("level", ()))
        if workspace.backend.capabilities.bulk:
            access = workspace.backend.bulk.access()
            assert list(access.page(NOTES, query)) == []
            assert (access.keys(NOTES, query), access.count(NOTES, query, "level")) == ((), {})
            assert access.remove(NOTES, query) == 0
        assert workspace.stored(NOTE, workspace.dataset) == rows

    def test_a_derived_field_is_that_of_the_stored_row(self, workspace: AccessWorkspace) -> None:
        rows = DEVICE.fill(workspace.access, workspace.dataset, 5)
        digest = DEVICES.value(rows[3].model, rows[3].storage, "contentDigest")
        assert isinstance(digest, str)
        assert workspace.stored(DEVICE, workspace.dataset, Equals("contentDigest", digest)) == [rows[3]]

    def choose(
        self,
        workspace: AccessWorkspace,
        factory: RowFactory[CanonicalModel],
        dataset: Dataset,
        where: tuple[Condition, ...],
    ) -> None:
        """Assert that a list shows exactly the rows of which all conditions hold."""
        query = query_of(factory.entity, dataset, *where)
        rows = factory.fill(workspace.access, dataset, MANY)
        expected = [row for row in rows if matches(factory.entity, query, row)]
        assert list(workspace.access.page(factory.entity, query)) == by_key(factory.entity, expected)

    def test_a_token_of_another_scope_or_filter_is_refused(self, workspace: AccessWorkspace) -> None:
        NOTE.fill(workspace.access, workspace.dataset, 3)
        token = workspace.access.page(NOTES, query_of(NOTES, workspace.dataset, limit=1)).next_page_token
        with pytest.raises(ValidationError):
            query_of(NOTES, workspace.elsewhere, limit=1, token=token)
        with pytest.raises(ValidationError):
            query_of(NOTES, workspace.dataset, IsNull("holder"), limit=1, token=token)

    def test_a_list_names_only_fields_that_have_a_column_in_every_layout(
        self, workspace: AccessWorkspace
    ) -> None:
        EVENT.fill(workspace.access, workspace.dataset, 2)
        for unserved in (
            query_of(EVENTS, workspace.dataset, Equals("message", "m")),
            query_of(EVENTS, workspace.dataset, order=(SortKey("message"), SortKey("eventId"))),
        ):
            with pytest.raises(ValidationError, match="events has no field 'message'; it has batch"):
                workspace.access.page(EVENTS, unserved)
        with pytest.raises(ValidationError, match="no field 'message'"):
            workspace.access.count(EVENTS, query_of(EVENTS, workspace.dataset), "message")

    @pytest.mark.parametrize("factory", [PART, ENTRY], ids=lambda factory: factory.entity.name)
    def test_a_list_of_rows_of_a_parent_names_the_parent(
        self, workspace: AccessWorkspace, factory: RowFactory[CanonicalModel]
    ) -> None:
        unpinned = query_of(NOTES, workspace.dataset, order=key_order(factory.entity))
        with pytest.raises(LookupError, match="deviceId"):
            workspace.access.page(factory.entity, unpinned)
        with pytest.raises(LookupError, match="deviceId"):
            workspace.access.count(factory.entity, unpinned, "batch")


class AccessCountContract(AccessCases):
    """``count``."""

    @pytest.mark.parametrize(
        ("by", "expected"),
        [
            ("level", {"low": 4, "middle": 3, "high": 3}),
            ("colour", {"": 4, "red": 3, "dark-green": 3}),
            ("urgent", {"true": 5, "false": 5}),
            ("holder", {"": 7, EDGE_TEXTS[0]: 1, EDGE_TEXTS[4]: 1, EDGE_TEXTS[8]: 1}),
            ("width", {"0": 2, "1": 2, "-1": 2, "2147483647": 2, "-2147483648": 2}),
            ("archivedBy", {"": 7, "ada": 3}),
        ],
    )
    def test_rows_are_counted_by_the_text_of_a_field(
        self, workspace: AccessWorkspace, by: str, expected: dict[str, int]
    ) -> None:
        NOTE.fill(workspace.access, workspace.dataset, 10)
        assert workspace.access.count(NOTES, query_of(NOTES, workspace.dataset), by) == expected

    def test_rows_held_as_documents_are_counted_alike(self, workspace: AccessWorkspace) -> None:
        DEVICE.fill(workspace.access, workspace.untenanted, 10)
        query = query_of(DEVICES, workspace.untenanted)
        assert workspace.access.count(DEVICES, query, "level") == {"low": 4, "middle": 3, "high": 3}
        assert workspace.access.count(DEVICES, query, "urgent") == {"true": 5, "false": 5}
        assert workspace.access.count(DEVICES, query, "spotCount") == {"0": 4, "1": 3, "2": 3}

    @each_home
    def test_limit_and_order_do_not_matter_and_conditions_do(
        self, workspace: AccessWorkspace, owner_case: OwnerCase
    ) -> None:
        dataset, entity = workspace.of(owner_case), owner_case.factory.entity
        owner_case.factory.fill(workspace.access, dataset, 6)
        assert workspace.access.count(entity, query_of(entity, dataset, limit=2), "batch") == {
            workspace.batch: 6
        }
        nothing = query_of(entity, Dataset(dataset.owner, f"{workspace.batch}x"))
        assert workspace.access.count(entity, nothing, "batch") == {}
        assert workspace.access.count(entity, query_of(entity, dataset, OneOf("batch", ())), "batch") == {}

    @each_owned
    def test_foreign_rows_are_not_counted(self, workspace: AccessWorkspace, owner_case: OwnerCase) -> None:
        dataset, entity = workspace.of(owner_case), owner_case.factory.entity
        owner_case.factory.fill(workspace.access, dataset, 2)
        for foreign_dataset in workspace.foreign_datasets(owner_case):
            assert (
                workspace.access.count(
                    entity, query_of(entity, dataset, scope=foreign_dataset.owner), "batch"
                )
                == {}
            )
        assert workspace.access.count(entity, query_of(entity, dataset, scope=ALL_TENANTS), "batch") == {
            workspace.batch: 2
        }

    def test_all_rows_of_a_long_list_are_counted(self, workspace: AccessWorkspace) -> None:
        for number in range(MORE_THAN_A_PART):
            workspace.access.insert(
                COUNTERS, NO_TENANT, COUNTER.row(workspace.dataset, number, holder=str(number % 3))
            )
        query = query_of(COUNTERS, workspace.dataset)
        assert workspace.access.count(COUNTERS, query, "holder") == {"0": 168, "1": 167, "2": 167}
        if workspace.backend.capabilities.bulk:
            assert sum(workspace.backend.bulk.counts(COUNTERS).values()) >= MORE_THAN_A_PART


class AccessKeysContract(AccessCases):
    """Keys of rows that are not loaded."""

    @each_home
    def test_the_keys_of_a_list_are_those_of_its_rows(
        self, workspace: AccessWorkspace, owner_case: OwnerCase
    ) -> None:
        access, dataset, entity = workspace.access, workspace.of(owner_case), owner_case.factory.entity
        owner_case.factory.fill(access, dataset, 6)
        rows = access.page(entity, query_of(entity, dataset, limit=10))
        keys = tuple(entity.key_of(row.model, row.storage) for row in rows)
        assert len(keys) == 6
        assert access.keys(entity, query_of(entity, dataset, limit=10)) == keys
        assert access.keys(entity, query_of(entity, dataset, limit=4)) == keys[:4]

    @each_home
    def test_what_matches_nothing_has_no_keys(
        self, workspace: AccessWorkspace, owner_case: OwnerCase
    ) -> None:
        access, dataset, entity = workspace.access, workspace.of(owner_case), owner_case.factory.entity
        owner_case.factory.fill(access, dataset, 2)
        untenanted = Dataset(dataset.owner, f"{workspace.batch}x")
        assert access.keys(entity, query_of(entity, untenanted)) == ()
        assert access.keys(entity, query_of(entity, dataset, OneOf("batch", ()))) == ()
