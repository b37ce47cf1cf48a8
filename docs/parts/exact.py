"""Which entities never take the fast path."""

from __future__ import annotations

from docs.parts.tables import code, table
from twinstore_backfill.cli.config import program_states

__all__ = ["exact_entities_table"]


def exact_entities_table() -> str:
    """Return a table of the entities without a reader program, each with the reason."""
    states = program_states()
    exact = [state for state in states if not state.fast]
    rows = [(code(state.entity), state.module, state.reason) for state in exact]
    count = (
        f"Of {len(states)} entities of the shipped modules {len(states) - len(exact)} have a reader program."
    )
    return f"{count}\n\n{table(('entity', 'module', 'why its rows never take it'), rows)}" if exact else count
