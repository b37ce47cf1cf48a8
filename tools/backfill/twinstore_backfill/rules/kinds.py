"""What a job may accept with a reason: a closed list, by name.

An equivalence is a difference between source and target that a copy makes by itself. A cause of quarantine is
why rows of the source are not copied; how many may be accepted is part of the decision. A check is a finding
about lists that no single row causes.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Final

__all__ = ["ACCEPTABLE", "NO_TRIGGER", "SCHEMA", "Acceptable", "Group", "acceptable"]

NO_TRIGGER: Final = "no_trigger"
SCHEMA: Final = "job-file.schema.json"
"""The JSON Schema of job files, next to this file."""


class Group(Enum):
    """What kind of finding is accepted, and what the decision must name."""

    EQUIVALENCE = "equivalence"
    QUARANTINE = "cause of quarantine"
    CHECK = "finding of a check"


@dataclass(frozen=True, slots=True)
class Acceptable:
    """One kind.

    Attributes:
        name: its name in job files and reports, before the colon.
        group: what it is.
        text: a sentence for people.
        argument: what follows the colon, such as ``FIELD``; empty for a kind without one.
    """

    name: str
    group: Group
    text: str
    argument: str = ""

    @property
    def form(self) -> str:
        """The name as help and schema show it, such as ``model:FIELD``."""
        return f"{self.name}:{self.argument}" if self.argument else self.name


EQUIVALENCES: Final = {
    "text_timestamp": "An instant is stored as text.",
    "sub_millisecond": "An instant has parts of a millisecond, which a copy cuts.",
    "number_type": "A number is stored as another type of number.",
    "text_value": "A text is stored for an ObjectId, a UUID or a decimal.",
    "decimal_exponent": "A decimal has a positive exponent, which a copy writes out.",
    "null_for_absent": "Null, an empty value or a default is stored where a copy stores none.",
    "id_repeated": "The id is stored in _id and again under its own name.",
    "whitespace": "A text has blanks around it, which a copy removes.",
    "key_case": "A name of a map is stored in another case or with blanks.",
    "set_order": "A set is stored in another order or with repetitions.",
    "list_bounds": "A PostgreSQL array has other bounds.",
    "date_object": "An object is stored where the driver writes a date.",
    "typed_object": "An object is stored where the driver writes an ObjectId, a decimal or bytes.",
    "default_for_absent": "Nothing, null or an empty text is stored where a copy writes a default.",
    "case": "A text is stored in another case.",
    "key_collision": "Several names of a map become one.",
    "normalised": "A copy changes the value by another rule of the model.",
    "beside": "A derived field or column contradicts the content of its row.",
}
CAUSES: Final = (
    ("model", "FIELD", "The model does not accept the value of this field."),
    ("unknown", "PROPERTY", "The model does not know this property; the path is that of the source."),
    ("model", "", "A row breaks a rule between fields of its model."),
    ("rule", "PATH", "A rule of the job cannot change the value at this path of the source."),
    ("unique", "NAME", "Another row holds the same unique value; NAME is the index."),
    ("key", "", "The key is absent, has another type or form, or contradicts the content of its row."),
    ("repeated_key", "", "Another row of the source has the same key."),
    ("tenant", "", "The tenant is absent, or has another type or form."),
    ("orphan", "", "The parent of the row does not exist."),
    ("map_names", "", "Names of a map become one, so that a value would be lost."),
    ("broken", "", "The document cannot be decoded."),
    ("function", "", "The function of the module refuses the row."),
    ("target", "", "The target refuses the row for another reason, such as its size."),
)
ACCEPTABLE: Final[tuple[Acceptable, ...]] = (
    *(Acceptable(name, Group.EQUIVALENCE, text) for name, text in EQUIVALENCES.items()),
    *(Acceptable(name, Group.QUARANTINE, text, argument) for name, argument, text in CAUSES),
    Acceptable(NO_TRIGGER, Group.CHECK, "Enabled schedules have no trigger, so they never fire."),
)
"""Every kind, as help, JSON Schema and documentation list them."""


def acceptable(what: str) -> Acceptable | None:
    """Return the kind of a text such as ``orphan`` or ``model:state``, ``None`` if there is no such kind."""
    name, colon, argument = what.partition(":")
    return next(
        (
            item
            for item in ACCEPTABLE
            if item.name == name and bool(item.argument) == bool(colon) == bool(argument)
        ),
        None,
    )
