"""Whether the probe of the test module sees what it is asked for: the other contracts believe it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from twinstore.testing.base import Contract

if TYPE_CHECKING:
    from twinstore.testing.workspace import Workspace

__all__ = ["ProbeContract"]


class ProbeContract(Contract):
    """Counts, stamps and changes past the repositories."""

    def test_the_probe_reads_counts_and_stamps_one_row_of_each_entity(self, workspace: Workspace) -> None:
        rows = self.store_one_of_each(workspace)
        for entity, key in rows.keys:
            assert workspace.probe.read(entity, key) is not None
            assert workspace.count(entity) >= 1
            if self.module.of(entity).is_owned:
                assert workspace.elsewhere.count(entity) <= workspace.count(entity) - 1
            assert workspace.stamp(entity, key) == workspace.stamp(entity, key)

    def test_the_probe_sees_nothing_where_nothing_is(self, workspace: Workspace) -> None:
        for example in self.module.examples:
            key = example.key(workspace.tenant, example.small(workspace.tenant, workspace.id("absent")))
            assert workspace.probe.read(example.entity, key) is None
            assert workspace.probe.stamp(example.entity, key) is None
