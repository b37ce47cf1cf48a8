"""A module of data alone whose documents no rule of a job file changes into rows.

The old service kept a date as three numbers, and a place as a town and a country in one text. Copies and
verifications call ``letter`` for each stored document, before the rules of the job.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final, cast

from twinstore.module import (
    CanonicalModel,
    Entity,
    Id,
    Module,
    ModuleOptions,
    ModulePlugin,
    ModuleSettings,
    ModuleSpec,
    Tenancy,
    Text,
    Timestamp,
    text,
)


class Letter(CanonicalModel):
    """A letter of an archive."""

    id: Id
    town: Text
    country: Text
    sent_at: Timestamp


def letter(document: dict[str, object]) -> dict[str, object]:
    """Return a letter as the model has it; one that has this form already stays as it is."""
    if "sent" in document:
        sent = cast("dict[str, int]", document.pop("sent"))
        document["sentAt"] = datetime(sent["year"], sent["month"], sent["day"], tzinfo=UTC)
    if "place" in document:
        # Without exactly one comma this raises, and the document goes to quarantine.
        town, country = str(document.pop("place")).split(", ")
        document |= {"town": town, "country": country}
    return document


LETTERS: Final = Entity(
    name="letters",
    singular="letter",
    module="letters",
    model=Letter,
    key_parts=(text("id"),),
    tenancy=Tenancy.none(),
    group="letters",
)
MODULE: Final[ModuleSpec[object]] = ModuleSpec(
    catalog=Module(name="letters", entities=(LETTERS,)),
    title="Letters",
    package="letters",
    normalise={"letters": letter},
)
LETTERS_PLUGIN: Final = ModulePlugin(
    name="letters",
    title="Letters",
    settings=ModuleSettings(section="Letters", options=ModuleOptions, option_paths={}),
    spec=lambda: MODULE,
)
