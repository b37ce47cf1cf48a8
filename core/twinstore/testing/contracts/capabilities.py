"""What is declared works, and what is not declared fails loudly."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

import pytest

from twinstore.backend import CAPABILITY_NAMES
from twinstore.bulk import KeyRange
from twinstore.errors import TwinstoreError, UnsupportedCapabilityError
from twinstore.scheduler.catalog import IMPACT_SNAPSHOTS, RUNS
from twinstore.testing.base import USES, Contract, assert_refused, needs
from twinstore.testing.builders import at, make_image

if TYPE_CHECKING:
    from twinstore.testing.bench import Bench

__all__ = ["CapabilitiesContract"]

LARGE: Final = 17 * 2**20


class CapabilitiesContract(Contract):
    """The declaration of the driver on the connected server."""

    @pytest.mark.parametrize("name", sorted(CAPABILITY_NAMES))
    def test_require_passes_what_is_declared_and_explains_what_is_not(self, bench: Bench, name: str) -> None:
        capabilities = bench.storage.capabilities
        if getattr(capabilities, name):
            capabilities.require(name)
        else:
            with pytest.raises(UnsupportedCapabilityError) as refusal:
                capabilities.require(name)
            assert capabilities.backend in refusal.value.message
            assert capabilities.server_version in refusal.value.message
            assert name.replace("_", " ") in refusal.value.message

    def test_an_unknown_capability_is_a_programming_error(self, bench: Bench) -> None:
        with pytest.raises(ValueError, match="no capability"):
            bench.storage.capabilities.require("teleportation")

    def test_the_declaration_is_the_same_at_every_call(self, bench: Bench) -> None:
        with bench.storages(1) as (other,):
            assert other.capabilities == bench.storage.capabilities == bench.storage.capabilities

    @pytest.mark.parametrize("name", sorted(USES))
    def test_using_it_works_exactly_when_declared(self, bench: Bench, name: str) -> None:
        if getattr(bench.storage.capabilities, name):
            USES[name](bench.storage)
        else:
            assert_refused(bench.storage, name)

    def test_instants_keep_the_declared_precision(self, bench: Bench) -> None:
        assert bench.storage.capabilities.time_precision_ms == 1
        run = bench.storage.runs.create(bench.run(created_at=at(0.001)))
        assert bench.storage.runs.get_required(bench.tenant, run.id).created_at == at(0.001)

    @needs("bulk")
    def test_reads_of_the_past_work_exactly_when_declared(self, bench: Bench) -> None:
        bulk, everything = bench.storage.bulk, KeyRange()
        bench.storage.runs.create(bench.run("before"))
        position = bulk.position()
        bench.storage.runs.create(bench.run("after"))
        if bench.storage.capabilities.point_in_time_reads:
            assert position is not None
            with bulk.view(as_of=position) as view:
                assert view.position == position
                batches = view.records(RUNS, everything, tenant_id=bench.tenant)
                assert [record.key for batch in batches for record in batch] == [(bench.id("before"),)]
                rows = view.rows(RUNS, everything, tenant_id=bench.tenant)
                assert [row.key for batch in rows for row in batch] == [(bench.id("before"),)]
        else:
            with pytest.raises(UnsupportedCapabilityError), bulk.view(as_of="0") as view:
                list(view.records(RUNS, everything))

    def test_a_document_of_17_megabytes_is_stored_or_refused_as_declared(self, bench: Bench) -> None:
        images = (make_image(1, labels={f"{number:08}": "x" * 1000 for number in range(LARGE // 1000)}),)
        snapshot = bench.snapshot("large", images=images)
        if (bench.storage.capabilities.largest_document_bytes or math.inf) > LARGE:
            bench.storage.impact_snapshots.upsert(bench.tenant, snapshot)
            assert bench.storage.impact_snapshots.get(bench.tenant, bench.id("large")) == snapshot
        else:
            with pytest.raises(TwinstoreError):
                bench.storage.impact_snapshots.upsert(bench.tenant, snapshot)
            assert bench.count(IMPACT_SNAPSHOTS) == 0
