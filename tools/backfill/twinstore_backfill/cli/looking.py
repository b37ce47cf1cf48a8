"""``twinstore backfill diff``: one row on both sides."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Annotated, Any

import orjson
import typer

from twinstore.catalog import Entity
from twinstore.errors import ValidationError
from twinstore.keys import Key
from twinstore_backfill.cli.groups import Sides, spread
from twinstore_backfill.cli.output import emit
from twinstore_backfill.cli.params import (
    AsOf,
    Format,
    IgnoreUnknown,
    OutputFormat,
    ignored_option,
    instant_option,
)
from twinstore_backfill.cli.parts import IgnoreField, ignored_fields_option
from twinstore_backfill.copy.retention import instant_of_judgement
from twinstore_backfill.ignoring import check_ignored, of_entity
from twinstore_backfill.ignoring_fields import check_ignored_fields
from twinstore_backfill.outcome import Exit
from twinstore_backfill.repair.named import is_nameable
from twinstore_backfill.report.texts import IGNORED_FIELD
from twinstore_backfill.stores import select_entities
from twinstore_backfill.verify.row import RowComparison, compare_row

__all__ = ["KeyOption", "ShowValues", "diff", "key_option"]

KeyOption = Annotated[
    list[str],
    typer.Option("--key", help="Key of the row; for a key of several parts once for each, in their order."),
]
ShowValues = Annotated[
    bool, typer.Option("--show-values", help="Also print what is stored; customers' data, on request only.")
]
CODES = {
    "equal": Exit.OK,
    "unproved": Exit.INCONCLUSIVE,
    "quarantined": Exit.INCONCLUSIVE,
    "expired": Exit.OK,
}


@spread
def diff(  # noqa: PLR0917  # the options of a command
    sides: Sides,
    entity: Annotated[str, typer.Option("--entity", help="Entity of the row.")],
    key: KeyOption,
    as_of: AsOf = None,
    show_values: ShowValues = False,  # noqa: FBT002  # Typer makes a flag of it
    ignore_unknown: IgnoreUnknown = None,
    ignore_field: IgnoreField = None,
    output: OutputFormat = Format.TEXT,
) -> None:
    """Compare one row as a verification does, and say where it differs. Values are shown on request only."""
    name = sides.name
    asked = instant_option(as_of, "--as-of")
    with sides.opened(name) as (left, right):
        (chosen,) = select_entities(left.bulk, [entity])
        instant = instant_of_judgement(left.bulk, asked)
        ignored = ignored_option(sides.context, ignore_unknown)
        check_ignored(ignored, left.bulk.entities())
        row = key_option(chosen, key)
        fields = ignored_fields_option(sides.context, ignore_field)
        check_ignored_fields(fields, left.bulk.entities())
        found = compare_row(
            left, right, chosen, row, instant, of_entity(ignored, chosen), of_entity(fields, chosen)
        )
    emit(output, _document(found, show_values=show_values), *_texts(found, show_values=show_values))
    raise typer.Exit(CODES.get(found.verdict, Exit.DIFFERENT))


def key_option(entity: Entity, parts: Sequence[str]) -> Key:
    """Return the key that an option gives in parts.

    Raises:
        ValidationError: it is no key of the entity.
    """
    wanted = entity.key_parts
    if len(parts) == len(wanted):
        try:
            key = tuple(
                int(text) if part.type.is_number else text for text, part in zip(parts, wanted, strict=True)
            )
        except ValueError:
            key = ()
        if key and is_nameable(entity, key):
            return key
    described = ", ".join(f"{part.field} ({part.type.value})" for part in wanted)
    raise ValidationError(
        f"--key does not name a row of {entity.name}, whose key is {described}; give --key once for each."
    )


def _document(found: RowComparison, *, show_values: bool) -> dict[str, Any]:
    places = [
        {"path": item.path, **({"source": item.source, "target": item.target} if show_values else {})}
        for item in found.places
    ]
    return {
        "entity": found.entity,
        "key": list(found.key),
        "verdict": found.verdict,
        "tenant_in_source": found.source_tenant,
        "tenant_in_target": found.target_tenant,
        "reason": found.reason,
        "equivalences": list(found.equivalences),
        "differences": places,
    }


def _texts(found: RowComparison, *, show_values: bool) -> Iterator[str]:
    yield f"{found.entity} {'/'.join(map(str, found.key))}: {found.verdict}"
    if found.reason is not None:
        yield f"No copy takes the row of the source: {found.reason}."
    for text in found.equivalences:
        how = "Not compared" if text.endswith(f"({IGNORED_FIELD})") else "Equal after normalisation"
        yield f"{how}: {text}."
    for item in found.places:
        yield f"  {item.path}"
        if show_values:
            yield f"    expected: {_shown(item.source)}"
            yield f"    stored:   {_shown(item.target)}"


def _shown(value: object) -> str:
    return "(nothing)" if value is None else orjson.dumps(value).decode()
