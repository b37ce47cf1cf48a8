"""What is reported to a host when the store fails: which error and why, but no text of the store.

A stored document that does not form a model is reported loudly, precisely, and without its content.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pytest

from twinstore.access.paging import Page
from twinstore.errors import DocumentDecodeError, DuplicateError, TwinstoreError, UnavailableError
from twinstore.testing.base import Contract, each, each_example, of_tenants

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from twinstore.testing.calls import Touch
    from twinstore.testing.examples import Example
    from twinstore.testing.workspace import AnyStorage, Workspace

__all__ = ["DecodingContract", "StoreErrorContract"]

# Shorter lines are words that any message may need.
MIN_REVEALING_LENGTH: Final = 12


def causes_of(error: BaseException) -> Iterator[BaseException]:
    """Yield the errors of other libraries that lie behind an error.

    Raises:
        AssertionError: an error is its own cause.
    """
    seen = [error]
    while (cause := error.__cause__) is not None:
        assert all(cause is not other for other in seen), f"{type(cause).__name__} is its own cause"
        seen.append(cause)
        if not isinstance(cause, TwinstoreError):
            yield cause
        error = cause


def assert_reveals_nothing(error: TwinstoreError) -> None:
    """Assert that a message repeats nothing of what the client library or the server said of a row."""
    for cause in causes_of(error):
        for line in str(cause).splitlines():
            fragment = line.strip()
            assert len(fragment) < MIN_REVEALING_LENGTH or fragment not in error.message


class StoreErrorContract(Contract):
    """Every failure of the store is one of ours."""

    @each("name", lambda kit: kit.fatal_steps())
    def test_a_taken_value_is_reported_in_the_words_of_the_library(
        self, workspace: Workspace, name: str
    ) -> None:
        one_of_each = self.store_one_of_each(workspace)
        self.store_one_of_each(workspace.elsewhere)
        with pytest.raises(DuplicateError) as refusal:
            self.fatal_steps()[name](workspace.storage.unbound, workspace, one_of_each)
        assert refusal.value.driver == workspace.storage.driver
        assert_reveals_nothing(refusal.value)

    @each_example
    def test_a_row_of_another_form_is_undecodable_and_says_why_in_its_cause(
        self, workspace: Workspace, example: Example
    ) -> None:
        session, tenant = workspace.storage.unbound, workspace.tenant
        model = self.module.store_small(session, tenant, workspace.id("a"), example.entity)
        damages: list[Callable[[], object]] = [
            lambda: workspace.probe.poison(example.entity, example.key(tenant, model), "s3cr3t 1 2 3 4"),
            lambda: workspace.probe.garble(example.entity, example.key(tenant, model)),
        ]
        for damage in damages:
            damage()
            with pytest.raises(DocumentDecodeError) as problem:
                example.found(session, tenant, model)
            assert list(causes_of(problem.value)), "an error without its cause"
            assert "s3cr3t" not in problem.value.message

    @of_tenants
    def test_a_store_out_of_reach_is_unavailable_for_every_kind_of_call(self, workspace: Workspace) -> None:
        broken = workspace.deployment.break_connection()
        if broken is None:
            assert workspace.deployment.settings() is None, "what other processes see can be out of reach"
            return
        entity, tenant, name = self.module.typical.entity, workspace.tenant, workspace.id("a")
        model = self.module.typical.small(tenant, name)

        def in_a_unit(storage: AnyStorage) -> None:
            with storage.transaction(tenant) as unit:
                self.module.typical.found(unit, tenant, model)

        calls: list[Callable[[AnyStorage], object]] = [
            lambda it: self.module.typical.found(it.unbound, tenant, model),
            lambda it: self.module.store_small(it.unbound, tenant, name, entity),
        ]
        if workspace.storage.capabilities.transactions:
            calls.append(in_a_unit)
        with broken as storage:
            for call in calls:
                with pytest.raises(UnavailableError) as outage:
                    call(storage)
                assert outage.value.driver == workspace.storage.driver
                assert list(causes_of(outage.value)), "an error without its cause"
        assert self.module.typical.found(workspace.storage.unbound, tenant, model) is None


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
            assert not touch.all_tenants
            entity, named, text = problem.entity, str(problem.key), problem.message
            in_text = True
        else:
            assert touch.all_tenants
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

    def test_a_broken_row_of_another_tenant_affects_no_one(self, workspace: Workspace) -> None:
        one_of_each = self.store_one_of_each(workspace)
        theirs = self.store_one_of_each(workspace.elsewhere)
        for entity, key in theirs.keys:
            if self.module.of(entity).is_owned:
                workspace.probe.poison(entity, key, CONTENT)
        for touch in self.touches():
            if touch.repeatable:
                touch.call(workspace.storage.unbound, workspace.tenant, one_of_each)
