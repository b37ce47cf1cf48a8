"""What happens when a stored document forms no model: loud, precise, and without its content."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from twinstore.access.paging import Page
from twinstore.errors import DocumentDecodeError, DuplicateError
from twinstore.testing.base import Contract, each, each_example

if TYPE_CHECKING:
    from twinstore.testing.calls import Touch
    from twinstore.testing.examples import Example
    from twinstore.testing.workspace import Workspace

__all__ = ["DecodingContract"]

# Five words, so that it would even pass for the shape of a time rule.
CONTENT: Final = "s3cr3t 1 2 3 4"


class DecodingContract(Contract):
    """Reads of one tenant never skip a broken row, those of all name it, and writes never build on one."""

    @each("touch", lambda kit: kit.touches())
    def test_a_broken_row_is_named_without_its_content_and_left_alone(
        self, workspace: Workspace, touch: Touch
    ) -> None:
        one_of_each = self.store_one_of_each(workspace)
        key = next(key for entity, key in one_of_each.keys if entity is touch.entity)
        workspace.probe.poison(touch.entity, key, CONTENT)
        before = one_of_each.stored(workspace)
        try:
            answer = touch.call(workspace.storage.unbound, workspace.tenant, one_of_each)
        except DocumentDecodeError as problem:
            assert not touch.over_all
            entity, named, text = problem.entity, str(problem.key), problem.message
            in_text = True
        else:
            assert touch.over_all
            assert isinstance(answer, Page)
            (row,) = answer.undecodable
            entity, named, text = row.entity, row.key, row.reason
            in_text = False
        assert entity == touch.entity.name
        assert str(key[-1]) in named
        assert (named in text) == in_text
        assert CONTENT not in text
        assert "s3cr3t" not in text
        assert one_of_each.stored(workspace) == before

    @each_example
    def test_a_broken_row_is_replaced_as_a_whole_or_left_alone(
        self, workspace: Workspace, example: Example
    ) -> None:
        session, tenant = workspace.storage.unbound, workspace.tenant
        model = self.module.store_small(session, tenant, workspace.id("a"), example.entity)
        other, key = example.rich(tenant, workspace.id("a")), example.key(tenant, model)
        workspace.probe.poison(example.entity, key, CONTENT)
        broken = workspace.probe.read(example.entity, key)
        try:
            example.store(session, tenant, other)
        except (DocumentDecodeError, DuplicateError):
            assert workspace.probe.read(example.entity, key) == broken
        else:
            assert example.found(session, tenant, other) == other

    def test_a_broken_row_of_another_tenant_disturbs_nobody(self, workspace: Workspace) -> None:
        one_of_each = self.store_one_of_each(workspace)
        theirs = self.store_one_of_each(workspace.elsewhere)
        for entity, key in theirs.keys:
            if self.module.of(entity).is_owned:
                workspace.probe.poison(entity, key, CONTENT)
        for touch in self.touches():
            if touch.repeatable:
                touch.call(workspace.storage.unbound, workspace.tenant, one_of_each)
