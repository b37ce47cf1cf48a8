"""What rivals may do to each other, tried often enough to meet: twenty rounds, each over fresh rows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from twinstore.errors import TwinstoreError
from twinstore.testing.base import Contract, each, needs
from twinstore.testing.workspace import outcomes

if TYPE_CHECKING:
    from twinstore.models.canonical import CanonicalModel
    from twinstore.testing.examples import Example
    from twinstore.testing.workspace import AnyStorage, Workspace

__all__ = ["RaceContract"]

RIVALS: Final = 4


def rows_of_their_own(kit: type[Contract]) -> list[Example]:
    """Return the examples of what tenants own, without those that are written with their parent."""
    return [item for item in kit.module.examples if item.is_owned and item.entity.parent is None]


class RaceContract(Contract):
    """One winner, and nothing lost, in every round."""

    @needs("transactions")
    @each("example", rows_of_their_own)
    def test_of_two_tenants_one_gets_a_new_key_in_every_round(
        self, workspace: Workspace, example: Example
    ) -> None:
        tenants = (workspace.tenant, workspace.foreign)

        def store(storage: AnyStorage, rival: tuple[str, CanonicalModel]) -> str:
            tenant, model = rival
            example.store(storage.unbound, tenant, model)
            return tenant

        def rivals(turn: int) -> list[tuple[str, CanonicalModel]]:
            key = workspace.id(f"race {turn}")
            return [(tenant, example.small(tenant, key)) for tenant in tenants * (RIVALS // 2)]

        for turn, results in enumerate(workspace.rounds(store, rivals)):
            winners = {result for result in results if not isinstance(result, TwinstoreError)}
            assert len(winners) == (1 if example.shares_keys else 2)
            assert set(outcomes(results)) <= {"DuplicateError", "ok"}
            models = dict(rivals(turn))
            for tenant in tenants:
                shared = example.system_only and example.shares_keys
                owner = next(iter(winners)) if shared else tenant
                wanted, model = (models[owner] if owner in winners else None), models[tenant]
                assert example.found(workspace.storage.unbound, tenant, model) == wanted
