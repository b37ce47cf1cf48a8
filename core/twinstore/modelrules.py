"""Rules between the fields of one model, as data: which kinds there are and what each one means.

A model lists its rules in ``rules``; the first one that is broken is the one that is reported. A rule holds
names of fields, members of enumerations and the words of the refusal, and nothing that runs, so that more
than one program can evaluate it; :class:`FieldDerived` alone holds a function and says so. Below the sentence
that says what a kind of rule means stands ``breach``, the same for Python (see :mod:`twinstore.rulechecks`).

Fields have their Python names. A dotted name leads into a nested model; where that one is absent, so is the
field. A rule that names a field the model does not have, or needs it otherwise than it is, is a ``TypeError``
where the class is defined.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, LiteralString

from typing_extensions import override

if TYPE_CHECKING:
    from twinstore.rulechecks import Reads

__all__ = [
    "AbsentIn",
    "AllOrNone",
    "EqualExactlyIn",
    "EqualOrAbsent",
    "FieldAtMost",
    "FieldDerived",
    "FirstOf",
    "LengthAtMost",
    "ModelRule",
    "NotBefore",
    "PresentExactlyIn",
    "PresentExactlyWhen",
    "PresentIn",
    "RequiresEntry",
    "SumAtMost",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelRule(ABC):
    """What every rule has: the type of the error, as pydantic reports it, and the sentence a user reads."""

    code: LiteralString
    message: LiteralString

    @abstractmethod
    def breach(self, reads: Reads) -> str:
        """Return the Python expression that is true where the rule is broken."""


@dataclass(frozen=True, slots=True)
class FieldAtMost(ModelRule):
    """The number in ``field`` is at most the one in ``limit``; neither is ever absent."""

    field: str
    limit: str

    @override
    def breach(self, reads: Reads) -> str:
        return f"{reads.always(self.field)} > {reads.always(self.limit)}"


@dataclass(frozen=True, slots=True)
class SumAtMost(ModelRule):
    """The numbers in ``fields`` sum to at most the one in ``limit``; none is ever absent."""

    fields: tuple[str, ...]
    limit: str

    @override
    def breach(self, reads: Reads) -> str:
        return f"{' + '.join(map(reads.always, self.fields))} > {reads.always(self.limit)}"


@dataclass(frozen=True, slots=True)
class LengthAtMost(ModelRule):
    """The list in ``field`` has at most as many entries as the number in ``limit`` says."""

    field: str
    limit: str

    @override
    def breach(self, reads: Reads) -> str:
        return f"len({reads.items(self.field)}) > {reads.always(self.limit)}"


@dataclass(frozen=True, slots=True)
class NotBefore(ModelRule):
    """The instant in ``field`` is not before any of those in ``earlier``; absent ones do not count."""

    field: str
    earlier: tuple[str, ...]

    @override
    def breach(self, reads: Reads) -> str:
        later = reads.any(self.field)
        before = [f"({it} is not None and {later} < {it})" for it in map(reads.any, self.earlier)]
        return f"{later} is not None and ({' or '.join(before)})"


@dataclass(frozen=True, slots=True)
class PresentExactlyIn(ModelRule):
    """``field`` is present if and only if ``by`` is one of ``members``."""

    field: str
    by: str
    members: tuple[Enum, ...]

    @override
    def breach(self, reads: Reads) -> str:
        return f"({reads.sometimes(self.field)} is None) is ({reads.among(self.by, self.members)})"


@dataclass(frozen=True, slots=True)
class PresentIn(ModelRule):
    """``field`` is present where ``by`` is one of ``members``; elsewhere it may be."""

    field: str
    by: str
    members: tuple[Enum, ...]

    @override
    def breach(self, reads: Reads) -> str:
        return f"{reads.sometimes(self.field)} is None and {reads.among(self.by, self.members)}"


@dataclass(frozen=True, slots=True)
class AbsentIn(ModelRule):
    """``field`` is absent where ``by`` is one of ``members``; elsewhere it may be present."""

    field: str
    by: str
    members: tuple[Enum, ...]

    @override
    def breach(self, reads: Reads) -> str:
        return f"{reads.sometimes(self.field)} is not None and {reads.among(self.by, self.members)}"


@dataclass(frozen=True, slots=True)
class PresentExactlyWhen(ModelRule):
    """``field`` is present if and only if ``flag`` is true."""

    field: str
    flag: str

    @override
    def breach(self, reads: Reads) -> str:
        return f"({reads.sometimes(self.field)} is None) is {reads.flag(self.flag)}"


@dataclass(frozen=True, slots=True)
class AllOrNone(ModelRule):
    """The ``fields`` are all present or all absent."""

    fields: tuple[str, ...]

    @override
    def breach(self, reads: Reads) -> str:
        # A set of truth values has two members where some fields are absent and others are not.
        absent = ", ".join(f"{name} is None" for name in map(reads.sometimes, self.fields))
        return f"len({{{absent}}}) > 1"


@dataclass(frozen=True, slots=True)
class RequiresEntry(ModelRule):
    """Where ``by`` is a member named in ``entries``, the list in the field beside it has an entry.

    The message quotes the two as ``{<by>}`` and ``{field}``.
    """

    by: str
    entries: tuple[tuple[Enum, str], ...]

    @override
    def breach(self, reads: Reads) -> str:
        return " or ".join(
            f"({reads.among(self.by, (member,))} and not {reads.items(field)})"
            for member, field in self.entries
        )


@dataclass(frozen=True, slots=True)
class EqualOrAbsent(ModelRule):
    """``field`` is absent or equal to ``other``."""

    field: str
    other: str

    @override
    def breach(self, reads: Reads) -> str:
        value = reads.any(self.field)
        return f"{value} is not None and {value} != {reads.any(self.other)}"


@dataclass(frozen=True, slots=True)
class EqualExactlyIn(ModelRule):
    """``field`` is ``value`` if and only if ``by`` is one of ``members``."""

    field: str
    value: Enum
    by: str
    members: tuple[Enum, ...]

    @override
    def breach(self, reads: Reads) -> str:
        return f"({reads.among(self.field, (self.value,))}) is not ({reads.among(self.by, self.members)})"


@dataclass(frozen=True, slots=True)
class FirstOf(ModelRule):
    """``field`` equals the first entry of the list in ``items``, and is absent when that is empty."""

    field: str
    items: str

    @override
    def breach(self, reads: Reads) -> str:
        items = reads.items(self.items)
        return f"{reads.sometimes(self.field)} != ({items}[0] if {items} else None)"


@dataclass(frozen=True, slots=True)
class FieldDerived(ModelRule):
    """``field`` equals what ``function`` makes of ``source``.

    For what data cannot say: another evaluator knows the function by its name or leaves such models alone.
    """

    field: str
    source: str
    function: Callable[..., object]

    @override
    def breach(self, reads: Reads) -> str:
        return f"{reads.any(self.field)} != {reads.constant(self.function)}({reads.any(self.source)})"
