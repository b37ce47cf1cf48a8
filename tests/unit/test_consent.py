"""What a consent covers, and how an effect is told."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from twinstore import aio
from twinstore.errors import ConsentRequiredError, Effect, EffectKind, ValidationError
from twinstore.migrations.migration import Consent, consent_required, without_consent
from twinstore_memory.initializer import MemoryInitializer

if TYPE_CHECKING:
    from collections.abc import Set as AbstractSet

    from twinstore.migrations.migration import MigrationReport


def effect(
    kind: EffectKind = EffectKind.TTL, name: str = "runs", rows: int = 5, *, more: bool = False
) -> Effect:
    return Effect(kind=kind, name=name, rows=rows, more=more)


@pytest.mark.parametrize(
    ("consent", "covered", "open_"),
    [
        (Consent(EffectKind.TTL, "runs", 5), effect(), effect(rows=6)),
        (Consent(EffectKind.TTL, "runs", 5), effect(rows=4), effect(name="audit")),
        (Consent(EffectKind.TTL, "runs", 5), effect(), effect(EffectKind.VALIDATOR)),
        (Consent(EffectKind.VALIDATOR, "runs"), effect(EffectKind.VALIDATOR, more=True), effect()),
        (Consent(EffectKind.RLS, "runs"), effect(EffectKind.RLS, rows=10**9), effect(EffectKind.VALIDATOR)),
        (Consent(EffectKind.RLS, "runs", 9), effect(EffectKind.RLS), effect(EffectKind.RLS, more=True)),
    ],
)
def test_a_consent_covers_one_kind_one_name_and_no_more_rows(
    consent: Consent, covered: Effect, open_: Effect
) -> None:
    assert without_consent([covered], {consent}) == ()
    assert without_consent([covered, open_], {consent}) == (open_,)
    assert without_consent([covered, open_], frozenset()) == (covered, open_)


def test_nobody_agrees_to_any_removal() -> None:
    with pytest.raises(ValidationError, match="A consent to remove rows of runs must say how many"):
        Consent(EffectKind.TTL, "runs")


@pytest.mark.parametrize(
    ("item", "text", "option"),
    [
        (effect(rows=1), "remove 1 row of runs at once", "--accept-ttl runs=1"),
        (effect(rows=12345), "remove 12,345 rows of runs at once", "--accept-ttl runs=12345"),
        (
            effect(EffectKind.VALIDATOR, rows=10_000, more=True),
            "refuse the next write of more than 10,000 rows of runs",
            "--accept-validator runs",
        ),
        (
            effect(EffectKind.RLS),
            "hide 5 rows of runs from whoever does not set app.tenant_id",
            "--accept-rls runs=5",
        ),
    ],
)
def test_an_effect_says_what_the_server_would_do_and_how_to_agree(
    item: Effect, text: str, option: str
) -> None:
    assert (item.text, item.option) == (text, option)
    message = consent_required((item,), "Nothing was changed.", module="scheduler", driver="Mongo").message
    assert message == (
        f"Migrating scheduler would let Mongo {text}. Nothing was changed. If that is right, run `twinstore "
        f"migrate run --module scheduler --backend Mongo {option}`, or call "
        "ensure_migrations(accept={Consent(...)}) with the same."
    )


def test_the_facade_for_asyncio_hands_the_consent_on(monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[dict[str, Any]] = []

    def refuse(
        _: MemoryInitializer, *, release: bool = False, accept: AbstractSet[Consent] = frozenset()
    ) -> MigrationReport:
        given.append({"release": release, "accept": accept})
        raise consent_required((effect(),), "", module="scheduler", driver="Memory")

    monkeypatch.setattr(MemoryInitializer, "ensure_migrations", refuse)
    accept = {Consent(EffectKind.TTL, "runs", 4)}

    async def work() -> None:
        async with aio.open_storage({"Persistence": {"Scheduler": "Memory"}}) as storage:
            with pytest.raises(ConsentRequiredError):
                await storage.scheduler.ensure_migrations(release=True, accept=accept)

    asyncio.run(work())
    assert given == [{"release": True, "accept": accept}]
