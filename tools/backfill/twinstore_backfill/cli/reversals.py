"""What ``twinstore migrate revert`` says."""

from __future__ import annotations

from typing import TYPE_CHECKING

from twinstore_backfill.cli.output import table
from twinstore_backfill.cli.tables import Rows
from twinstore_backfill.outcome import effect_document

if TYPE_CHECKING:
    from rich.console import RenderableType

    from twinstore.migrations import Effect
    from twinstore.reverting import Reversal

__all__ = ["consents_table", "reversal_document", "reversal_lines"]


def consents_table(effects: tuple[Effect, ...]) -> Rows:
    """Return each effect beside the option that agrees to it."""
    return table(("do this", "option"), [(item.text, item.option) for item in effects])


def reversal_document(found: Reversal) -> dict[str, object]:
    """Return what a program reads of a migration that is taken back."""
    effects = [effect_document(item) for item in found.effects]
    return {
        "migration": found.migration,
        "applied": found.applied,
        "rows": dict(found.rows),
        "effects": effects,
        "done": found.done,
    }


def reversal_lines(found: Reversal) -> list[RenderableType]:
    """Return what a person reads of it."""
    if not found.applied:
        return [f"{found.migration} is not applied; there is nothing to take back."]
    word = "dropped" if found.done else "would drop"
    lines: list[RenderableType] = [f"{word} {name} with {rows:,} rows" for name, rows in found.rows.items()]
    if found.done:
        return [*lines, f"{found.migration} is taken back."]
    if found.effects:
        lines += [
            "Consent is needed with --execute, once these rows are kept elsewhere:",
            consents_table(found.effects),
        ]
    return [*lines, "Nothing was changed; --execute does it."]
