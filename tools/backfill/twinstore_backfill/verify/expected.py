"""The row that a copy of a source row stores in an empty target, and the values that were normalised for it.

The target is never normalised: its row is right if it is stored as expected here. The source is, by the
rules of the copy, which are those of the models; each place where that changed something is reported by its
kind.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, cast

import orjson
import pydantic
import pydantic_core
from typing_extensions import override

from twinstore.bulk.normal_form import marker_not_normal
from twinstore.bulk.port import Record
from twinstore.bulk.release import fence_in, released
from twinstore.bulk.rows import MARK, NO_ADDITIONAL_VALUES, NUMBERS, has_marks, unmarked
from twinstore.catalog.tenancy import Tenant
from twinstore.models import json_text
from twinstore.models.canonical import CanonicalModel, describe_failure, schema_validator
from twinstore.models.fields import DATE, parse_timestamp
from twinstore.models.json_text import LARGE_TEXT, format_timestamp
from twinstore.models.shapes import Kind, lossy_map, lossy_map_reason, omitted_values
from twinstore.runtime.formatting import SHORT_REPR_LENGTH
from twinstore_backfill.causes import not_normal

if TYPE_CHECKING:
    from twinstore.bulk.rows import ScanRow
    from twinstore.catalog.entity import Entity, Marker
    from twinstore.models.json_text import JsonValue
    from twinstore_backfill.rules.model import DropRule

# How a source row differs from what a copy of it stores: where, and by which rule of normalising.
#
# An equivalence is harmless where no query uses the value. Inside a key, a tenant, a unique value, a
# filter, an order or a retention, the two stores answer the same list differently, so there it leaves the
# proof open.


MISSING: Final = object()
# A text that a store keeps with more digits than milliseconds have.
LONGEST_INSTANT: Final = len("2025-10-26T14:05:00.123+00:00")
OTHER: Final = "normalised"
DEFAULT: Final = "default_for_absent"
# The places of members of lists in a path.
MEMBERS: Final = re.compile(r"\[\d+\]")
# A value that the source repeats or derives in addition to the content of a row contradicts it. A copy uses
# the content; the lists of the source use the contradicting value.
CONTRADICTION: Final = "beside"
# An unknown property that was dropped on request.
IGNORED: Final = "ignored"
# A rule of the model without a name here, names that fell together, and properties ignored without a reason:
# a loss cannot be ruled out. A default is what the service reads in the source too, but no list of the source
# finds it.
UNNAMED: Final = frozenset({OTHER, DEFAULT, CONTRADICTION, "case", IGNORED, "key_collision"})


@dataclass(frozen=True, slots=True)
class Change:
    """One place where normalising changed something.

    Attributes:
        kind: the rule, such as ``whitespace``.
        path: the place, as reports show it.
        field: the field of the row that holds it.
        approved: a reason was given why it may be lost.
    """

    kind: str
    path: str
    field: str
    approved: bool = False


def queried_fields(entity: Entity) -> frozenset[str]:
    """Return the fields of an entity by which rows are found, ordered or removed."""
    fields = {*entity.key, *(name for index in entity.indexes for name in index.names)}
    fields |= {condition.field for index in entity.indexes for condition in index.where}
    if entity.tenant_field is not None:
        fields.add(entity.tenant_field)
    if entity.retention is not None:
        fields |= {entity.retention.field, *(item.field for item in entity.retention.where)}
    if entity.parent is not None:
        fields.add(entity.parent.field)
    return frozenset(fields)


def is_harmless(change: Change, fields: frozenset[str]) -> bool:
    """Whether both stores still answer alike; ``fields`` are those of :func:`queried_fields`."""
    return change.approved or (change.kind not in UNNAMED and not is_queried(change, fields))


def is_queried(change: Change, fields: frozenset[str]) -> bool:
    """Whether a change is in a field, or on the way to or below an indexed path such as ``address.city``."""
    if change.field in fields:
        return True
    place = f"{MEMBERS.sub('', change.path.partition('.')[2])}."
    paths = (f"{name}." for name in fields if "." in name)
    return any(path.startswith(place) or place.startswith(path) for path in paths)


def changes(given: Mapping[str, object], stored: Mapping[str, object]) -> Iterator[Change]:
    """Yield where a scanned row differs from what a copy of it stores, in order of the paths."""
    for part in ("doc", "storage"):
        yield from _changes(part, "", given.get(part), stored.get(part))


def _changes(path: str, field: str, given: object, stored: object, *, again: bool = True) -> Iterator[Change]:
    """Yield the changes of one value; ``again`` also allows comparing a list in another order."""
    if given == stored and type(given) is type(stored):
        return
    if isinstance(given, dict) and (mark := unmarked(given)) is not None:
        yield Change(_kind_of_mark(mark[0], mark[1], stored), path, field)
    elif isinstance(given, dict) and isinstance(stored, dict):
        yield from _changes_of_objects(path, field, given, stored, again=again)
    elif isinstance(given, list) and isinstance(stored, list) and len(given) == len(stored):
        yield from _changes_of_lists(path, field, given, stored, again=again)
    else:
        yield Change(_kind(given, stored), path, field)


def _changes_of_lists(
    path: str, field: str, given: Sequence[object], stored: Sequence[object], *, again: bool
) -> Iterator[Change]:
    """Yield the changes of a list whose members a copy may have brought in order."""
    if _is_reordered(given, stored):
        yield Change("set_order", path, field)
        return
    found = _changes_of_members(path, field, given, stored, range(len(given)), again=again)
    unnamed = _unnamed(found) if again else 0
    places = match_items(given, stored) if unnamed else None
    if places is not None:
        # Only once: otherwise the work on each list inside it would double with each level of depth.
        moved = _changes_of_members(path, field, given, stored, places, again=False)
        if _unnamed(moved) < unnamed:
            yield Change("set_order", path, field)
            found = moved
    yield from found


def _unnamed(found: Sequence[Change]) -> int:
    """Return how many changes no rule explains."""
    return sum(change.kind == OTHER for change in found)


def _changes_of_members(
    path: str,
    field: str,
    given: Sequence[object],
    stored: Sequence[object],
    places: Sequence[int],
    *,
    again: bool,
) -> list[Change]:
    return [
        change
        for number, (one, place) in enumerate(zip(given, places, strict=True))
        for change in _changes(f"{path}[{number}]", field, one, stored[place], again=again)
    ]


def _changes_of_objects(
    path: str, field: str, given: Mapping[str, object], stored: Mapping[str, object], *, again: bool
) -> Iterator[Change]:
    # Sets and counts, because a free map may have many thousands of names.
    folded = {folded_name(name) for name in stored}
    alike = Counter(map(folded_name, given))
    lost = {folded_name(name) for name in given if name not in stored}
    for name in sorted(given.keys() | stored.keys()):
        place = (member(path, name), field or name)
        if name in given and name in stored:
            yield from _changes(*place, given[name], stored[name], again=again)
        elif name in given:
            kind = _kind_of_lost(name, given[name], folded)
            collides = bool(field) and alike[folded_name(name)] > 1
            yield Change("key_collision" if collides else kind, *place)
        elif name not in lost:
            yield Change(_kind(MISSING, stored[name]), *place)


def folded_name(name: str) -> str:
    """Return what names of a free map have in common that a copy takes for one."""
    return name.strip().casefold()


def _kind_of_lost(name: str, value: object, folded: AbstractSet[str]) -> str:
    """Return why a name of the source is not in what a copy stores."""
    if folded_name(name) in folded:
        return "key_case"
    mark = unmarked(value) if isinstance(value, dict) else None
    absent = value is None or (mark is not None and mark[1] is None)
    return "null_for_absent" if absent else _kind_of_absent(value)


# The rules by which a copy stores what a text in another form shows.
TEXTS: Final[Mapping[str, str]] = {
    "text": "text_timestamp",
    "string": "text_value",
    "decimal": "decimal_exponent",
}


def _kind_of_mark(form: str, value: object, stored: object) -> str:
    if isinstance(stored, str) and form in TEXTS:
        return TEXTS[form]
    if form in NUMBERS and (isinstance(stored, int | float) or stored == str(value)):
        return "number_type"
    if form == "bounds":
        return "list_bounds"
    if form == "object" and isinstance(value, dict) and value == stored:
        return "date_object" if DATE in value else "typed_object"
    return "null_for_absent" if value is None and stored is MISSING else OTHER


def _kind(given: object, stored: object) -> str:
    """Return the rule that turned a value into another one."""
    if isinstance(given, str) and isinstance(stored, str):
        return _kind_of_texts(given, stored)
    if isinstance(given, list) and isinstance(stored, list):
        return "set_order" if _same_members(given, stored) else OTHER
    if stored is MISSING:
        return _kind_of_absent(given)
    if type(given) is int and stored == str(given):  # a decimal in JSON, which is a text
        return "number_type"
    # Nothing is stored where a copy writes the default of the field, or a key that is stored elsewhere.
    return DEFAULT if given is None or given is MISSING or given == "" else OTHER


def _kind_of_texts(given: str, stored: str) -> str:
    if not given.strip():
        return DEFAULT
    if given.strip() == stored:
        return "whitespace"
    if len(given) > LONGEST_INSTANT > len(stored) - 1 and given[:19] == stored[:19]:
        return "sub_millisecond"
    if is_instant(given) and is_instant(stored) and parse_timestamp(given) == parse_timestamp(stored):
        return "text_timestamp"
    return "case" if given.strip().casefold() == stored.casefold() else OTHER


def _kind_of_absent(given: object) -> str:
    """Return the rule by which a copy omits a value."""
    if isinstance(given, str) and given and not given.strip():
        return "whitespace"
    return "null_for_absent" if given in (None, "", [], {}) else OTHER


def _is_reordered(given: Sequence[object], stored: Sequence[object]) -> bool:
    """Whether two lists of one length have the same members in another order, texts but for outer blanks."""
    if sorted(map(orjson.dumps, given)) == sorted(map(orjson.dumps, stored)):
        return True
    texts = [item.strip() for item in given if isinstance(item, str)]
    return len(texts) == len(given) and texts != stored and sorted(texts) == sorted(map(str, stored))


def _same_members(given: Sequence[object], stored: Sequence[object]) -> bool:
    """Whether two lists have the same members but for order, repetition, blanks and what is empty."""
    members = {item.strip() if isinstance(item, str) else str(item) for item in given} - {""}
    return members == {item if isinstance(item, str) else str(item) for item in stored}


DOC: Final = b'{"doc":'
NO_STORAGE: Final = b',"storage":{}}'
ID: Final = "_id"
# Forms of numbers that only models take for integers.
FRACTIONAL: Final = frozenset({"double", "number"})


@dataclass(frozen=True, slots=True)
class Expected:
    """A row as a copy stores it.

    Attributes:
        content: as for :class:`~twinstore.bulk.port.ScanRow`.
        beside: the values that a store may hold in addition to it, by name, without absent ones.
        changes: where the source is stored otherwise.
    """

    content: bytes
    beside: Mapping[str, object]
    changes: tuple[Change, ...] = ()


@dataclass(frozen=True, slots=True)
class Refused:
    """A source row that no copy takes, and why; the reason holds none of its values."""

    reason: str


class RefusedError(ValueError):
    """No copy takes a source row in this form."""


class FormRefusedError(RefusedError):
    """The same of one value.

    Attributes:
        path: the names and numbers that lead to it, the innermost one first.
    """

    def __init__(self, rule: str) -> None:
        super().__init__(rule)
        self.path: list[str | int] = []

    @override
    def __str__(self) -> str:
        path = ""
        for step in reversed(self.path):
            path = f"{path}[{step}]" if isinstance(step, int) else member(path, step[:SHORT_REPR_LENGTH])
        return f"{path}: {super().__str__()}" if path else super().__str__()


class RowExpectation:
    """Knows what is expected for the rows of one entity."""

    def __init__(self, entity: Entity, drops: Sequence[DropRule] = ()) -> None:
        self._entity = entity
        self._drops = {item.number: item for item in drops}
        self._identity = tuple(entity.identity.items())
        self._left_out = omitted_values(entity.model)
        # Without the classmethod around it, which costs as much again on small documents.
        self._validator = schema_validator(entity.model)
        self.has_additional_values = bool(entity.derived or entity.beside)

    def accepts(self, content: bytes) -> bool:
        """Whether the decoder of the service accepts a row that has no marks."""
        return self._accepted(content) is not None

    def is_normal(self, content: bytes) -> bool:
        """Whether a row that has no marks is one that a copy stores as it is; the way for equal rows."""
        accepted = self._accepted(content)
        if accepted is None:
            return False
        model, markers = accepted
        return json_text.dumps_sorted({"doc": model.wire(), "storage": markers}) == content

    def _accepted(self, content: bytes) -> tuple[CanonicalModel, Mapping[str, object]] | None:
        """Return model and markers of what has no marks, ``None`` if no service could read it.

        The values they are made of are forgotten.
        """
        try:
            if content.endswith(NO_STORAGE) and not self._entity.storage and len(content) < LARGE_TEXT:
                text = content[len(DOC) : -len(NO_STORAGE)]
                return self._validator.validate_json(text, by_alias=True, by_name=False), {}
            value = parts_of(content)
            model, markers = self._model(value["doc"]), self._markers(value["storage"])
        except ValueError:
            return None
        if self._entity.storage and marker_not_normal(self._entity, markers, model) is not None:
            return None
        return model, markers

    def of(self, row: ScanRow) -> Expected | Refused:
        """Return what a copy stores for a source row, or why it goes to quarantine."""
        if row.error is not None:
            return Refused(row.error)
        try:
            wire, model, markers = self._read(row)
        except pydantic.ValidationError as error:
            return Refused(describe_failure(self._entity.model, error, quote=False))
        except RefusedError as error:
            return Refused(str(error))
        except (ValueError, RecursionError):
            return Refused("a value is not acceptable, or is nested too deeply")
        content = json_text.dumps_sorted({"doc": wire, "storage": markers})
        stored = content
        if self._entity.release is not None:
            stored = json_text.dumps_sorted({"doc": released(self._entity, model).wire(), "storage": markers})
        beside = self.beside(model, markers, wire)
        contradictions = (*self._contradictions(row, beside), *self._drop_changes(row))
        if content == row.content:
            return Expected(stored, beside, contradictions)
        has_own = self._entity.document_id in wire
        # A large document takes a multiple of its bytes in each of these forms.
        del wire, model
        given = parts_of(row.content)
        single = self._entity.document_id
        if self._entity.derived_key is not None and not has_own and row.key is not None:
            # The id follows from what a copy stores, and need not follow from how the source spells it.
            given["doc"] = {
                name: value for name, value in given["doc"].items() if (name, value) != (single, row.key[0])
            }
        found = tuple(self._reported(change, given["doc"]) for change in changes(given, parts_of(content)))
        return Expected(stored, beside, (*contradictions, *found))

    def _contradictions(self, row: ScanRow, beside: Mapping[str, object]) -> tuple[Change, ...]:
        """Return the additional values of a source row that do not follow from its content.

        A copy stores the values that follow. The lists of the source find and order the row by the stored
        ones, so both stores answer differently. Derived fields may be absent: documents of other programs
        have none.
        """
        # What follows from a document before the rules says nothing about the one after them.
        if row.beside == NO_ADDITIONAL_VALUES or row.rules:
            return ()
        stored: dict[str, object] = orjson.loads(row.beside)
        names = [name for name in self._entity.beside if name in stored]
        names += [item.name for item in self._entity.derived if stored.get(item.name) is not None]
        return tuple(
            Change(CONTRADICTION, f"beside.{name}", name)
            for name in names
            if stored[name] != beside.get(name)
        )

    def drops(self, row: ScanRow) -> bool:
        """Whether a rule dropped a property of a source row."""
        return any(number in self._drops for number in row.rules)

    def _drop_changes(self, row: ScanRow) -> Iterator[Change]:
        """Yield the properties that rules dropped."""
        for number in row.rules:
            if (rule := self._drops.get(number)) is not None:
                path = ".".join(("doc", *rule.path))
                yield Change(IGNORED, path, rule.path[0], approved=bool(rule.reason))

    def of_pair(self, source: ScanRow, target: ScanRow) -> Expected | Refused:
        """Return what a copy leaves of a row of the target, or makes of it.

        That is what it stores in an empty target, but for two kinds of rows. What both stores hold alike it
        leaves in a form that it does not write itself. Of rows that are released the fence alone counts where
        the service can read the row, and a higher one stays.
        """
        expected = self.of(source)
        if isinstance(expected, Refused) or expected.content == target.content:
            return expected
        if self.is_held_alike(source, target):
            return replace(expected, content=target.content)
        if self._entity.release is None:
            return expected
        wanted, stored = (fence_in(self._entity, content) for content in (expected.content, target.content))
        own = self.of(target)
        if wanted is None or stored is None or has_marks(target.content) or isinstance(own, Refused):
            return expected
        document = parts_of(target.content)
        document["doc"][self._entity.release.fence] = max(wanted, stored)
        return replace(expected, content=json_text.dumps_sorted(document), beside=own.beside)

    def is_held_alike(self, source: ScanRow, target: ScanRow) -> bool:
        """Whether a target has what the source has, and a service can read it."""
        return source.content == target.content and self._is_readable(source.content)

    def _is_readable(self, content: bytes) -> bool:
        return not has_marks(content) and self.accepts(content)

    def record(self, row: ScanRow) -> Record | None:
        """Return a source row as a copy takes it, ``None`` when it goes to quarantine."""
        if row.error is not None:
            return None
        try:
            _, model, markers = self._read(row)
        except (ValueError, RecursionError):
            return None
        return Record(row.key, row.owner, model, markers)

    def _read(self, row: ScanRow) -> tuple[Mapping[str, object], CanonicalModel, Mapping[str, object]]:
        """Return wire form, model and markers of a scanned row.

        Raises:
            ValueError: no copy takes it.
        """
        # The values of which the model is made are forgotten here.
        model, key, markers = self._decoded(row)
        return (*self._wire(model, key, markers, row), markers)

    def _decoded(self, row: ScanRow) -> tuple[CanonicalModel, str | None, Mapping[str, object]]:
        """Return model and markers of a scanned row, and between them the id in the document.

        Raises:
            ValueError: the decoder of the service refuses it, or takes it for a row of another key.
        """
        given = parts_of(row.content)
        document, storage = given["doc"], given["storage"]
        del given
        # Only where there are marks something else comes of it, and another object for each value.
        if has_marks(row.content):
            document = readable(document)
        model, key = self._modelled(document, row)
        return model, key, self._markers(cast("Mapping[str, object]", storage))

    def _reported(self, change: Change, given: Mapping[str, object]) -> Change:
        """Return a change as it is reported, by its rule."""
        field = change.field
        if change.path == f"doc.{ID}":
            # The row has the same under the name of the field: two that differ are refused.
            return replace(change, kind="id_repeated")
        if change.path == f"doc.{field}" and field in self._left_out:
            # Written out, or omitted as the models do: every reader treats both as the same.
            value, default = given.get(field), self._left_out[field]
            if value == default and type(value) is type(default):
                return replace(change, kind="null_for_absent")
        return change

    def beside(
        self, model: CanonicalModel, markers: Mapping[str, object], wire: Mapping[str, object]
    ) -> dict[str, object]:
        """Return the values that a store may hold in addition to the content of a model."""
        if not self.has_additional_values:
            return {}
        found: dict[str, object] = {name: markers.get(name, wire.get(name)) for name in self._entity.beside}
        found |= {item.name: item.value(model, markers) for item in self._entity.derived}
        present = {name: value for name, value in found.items() if value is not None}
        plain: dict[str, object] = orjson.loads(json_text.dumps_sorted(present))
        return plain

    def _modelled(self, document: object, row: ScanRow) -> tuple[CanonicalModel, str | None]:
        """Return the model of a document, with the id in it if ids are derived.

        Raises:
            ValueError: the decoder of the service refuses it, or takes it for a row of another key or tenant.
        """
        if not isinstance(document, dict):
            raise RefusedError("a document is an object")
        known: dict[str, Any] = {
            name: value for name, value in document.items() if name != ID and value is not None
        }
        single = self._entity.document_id
        # A null under its own name means an absent one.
        if single is not None and ID in document and document[ID] != known.setdefault(single, document[ID]):
            raise RefusedError(f"its fields {ID} and {single} differ")
        key = None if self._entity.derived_key is None or single is None else known.pop(single, None)
        if key is not None and not isinstance(key, str):
            raise RefusedError("the id is not a text")
        model = self._model(known)
        self._check_identity(known, model, row)
        if (path := lossy_map(known, model)) is not None:
            raise RefusedError(lossy_map_reason(path))
        if (problem := self._entity.extra_problem(model)) is not None:
            raise RefusedError(problem)
        return model, key

    def _wire(
        self, model: CanonicalModel, key: str | None, markers: Mapping[str, object], row: ScanRow
    ) -> tuple[Mapping[str, object], CanonicalModel]:
        """Return the wire form that a copy stores, with the model.

        Raises:
            ValueError: it would be a row of another key or tenant.
        """
        single, derive = self._entity.document_id, self._entity.derived_key
        wire = model.wire()
        if derive is not None and single is not None and row.key is not None:
            own_key = key if key is not None else row.key[0]
            if derive(markers, json_text.dumps(wire)) != own_key:
                model = model.evolve(**{self._entity.shapes[single].name: own_key})
                wire = model.wire()
        marker = marker_not_normal(self._entity, markers, model) if self._entity.storage else None
        if marker is not None:
            raise RefusedError(not_normal(marker))
        if row.key is not None and self._entity.key_of(model, markers) != row.key:
            raise RefusedError("it is stored under the key of another row")
        return wire, model

    def _check_identity(self, known: Mapping[str, object], model: CanonicalModel, row: ScanRow) -> None:
        """Refuse what is found by another key or tenant than the model has, which trims ids.

        Raises:
            RefusedError: as said.
        """
        found_by: dict[str, object] = {**known}
        if row.key is not None:
            found_by |= zip(self._entity.key, row.key, strict=True)
        if self._entity.tenant_field is not None and isinstance(row.owner, Tenant):
            found_by[self._entity.tenant_field] = row.owner.id
        for name, own in self._identity:
            if name in found_by and found_by[name] != getattr(model, own):
                raise RefusedError(not_normal(name))

    def _model(self, document: object) -> CanonicalModel:
        return cast("CanonicalModel", self._validator.validate_python(document, by_alias=True, by_name=False))

    def _markers(self, storage: Mapping[str, object]) -> dict[str, object]:
        found: dict[str, object] = {}
        for marker in self._entity.storage:
            value = storage.get(marker.name)
            if value is not None and (read := marker_value(marker, value)) is not None:
                found[marker.name] = read
            elif marker.required:
                raise RefusedError(f"the marker {marker.name} is missing")
        return found


def parts_of(content: bytes) -> dict[str, Any]:
    """Return document and storage markers of a scanned row."""
    return cast("dict[str, Any]", json_text.loads(content))


def marker_value(marker: Marker, value: object) -> object | None:
    """Return a scanned storage marker as the service reads it, ``None`` for a null.

    Raises:
        ValueError: it is of another type. So is a number that is not stored as an integer: no model reads
            markers, so nothing makes 5 of 5.0.
    """
    form = unmarked(value) if isinstance(value, dict) else None
    plain = readable(value)
    if plain is None:
        return None
    if marker.kind is Kind.INSTANT:
        try:
            return parse_timestamp(plain)
        except pydantic_core.PydanticCustomError:
            raise RefusedError(f"the marker {marker.name} is of another type") from None
    wanted = int if marker.kind is Kind.INTEGER else str
    if type(plain) is not wanted or (form is not None and form[0] in FRACTIONAL):
        raise RefusedError(f"the marker {marker.name} is of another type")
    return plain


def readable(value: object) -> object:
    """Return a scanned value without the marks of the forms that models read all the same.

    Raises:
        FormRefusedError: something is stored in a form that no copy takes.
    """
    if isinstance(value, list):
        return [readable_part(number, item) for number, item in enumerate(value)]
    if not isinstance(value, dict):
        return value
    mark = unmarked(value)
    if mark is not None:
        return reading_of(*mark)
    # A member that is refused itself is named first.
    found = {name: readable_part(name, item) for name, item in value.items() if not name.startswith(MARK)}
    if len(found) < len(value):
        raise FormRefusedError("a document holds what cannot be given back")
    return found


def readable_part(name: str | int, value: object) -> object:
    """Return a part of a scanned value in the same way.

    Raises:
        FormRefusedError: as said, with the path.
    """
    try:
        return readable(value)
    except FormRefusedError as error:
        error.path.append(name)
        raise


def reading_of(form: str, value: object) -> object:
    """Return a value in another form as the models read it.

    Raises:
        FormRefusedError: they do not.
    """
    if form in {"text", "null", "bounds", "object", "string", "decimal"}:
        return value
    if form not in NUMBERS:
        # What is no type of JSON has its name as extended JSON has it.
        name = next(iter(value), "") if isinstance(value, dict) else ""
        raise FormRefusedError(f"a value of the form {form}{name and f' ({name})'}")
    if isinstance(value, int):
        return value
    number = float(str(value))
    return int(number) if number.is_integer() else number


def additional_values_match(expected: Expected, target: ScanRow) -> bool:
    """Whether the additional values in the target follow from the content."""
    return target.beside == NO_ADDITIONAL_VALUES or not mismatched_values(expected, target)


def mismatched_values(expected: Expected, target: ScanRow) -> list[str]:
    """Return the names of additional values of a target row that differ from what they must be."""
    stored: dict[str, object] = orjson.loads(target.beside)
    return sorted(
        name
        for name, value in stored.items()
        if value != expected.beside.get(name) or type(value) is not type(expected.beside.get(name))
    )


# Where two documents differ: the paths, never the values.


PLAIN_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*")


def differing_paths(source: JsonValue, target: JsonValue) -> list[str]:
    """Return one text per place at which two JSON values differ, in order of the keys.

    A text is a path and, where one side has nothing there or another type, what that is.
    """
    return [_described(item) for item in differences(source, target)]


@dataclass(frozen=True, slots=True)
class Difference:
    """One place at which two JSON values differ, with what each side has there."""

    path: str
    source: object
    target: object


def differences(source: JsonValue, target: JsonValue) -> Iterator[Difference]:
    """Yield the places at which two JSON values differ, in order of the keys."""
    yield from _differences("", source, target)


def _described(item: Difference) -> str:
    if item.source is MISSING:
        return f"{item.path} (only in target)"
    if item.target is MISSING:
        return f"{item.path} (only in source)"
    if kind(item.source) != kind(item.target):
        return f"{item.path} ({kind(item.source)} in source, {kind(item.target)} in target)"
    return item.path


def _differences(path: str, source: object, target: object) -> Iterator[Difference]:
    if isinstance(source, dict) and isinstance(target, dict) and not (unmarked(source) or unmarked(target)):
        for name in sorted(source.keys() | target.keys()):
            yield from _differences(member(path, name), source.get(name, MISSING), target.get(name, MISSING))
    elif isinstance(source, list) and isinstance(target, list):
        for index in range(max(len(source), len(target))):
            yield from _differences(f"{path}[{index}]", _item(source, index), _item(target, index))
    elif kind(source) != kind(target) or source != target:  # the content under a mark is one value
        yield Difference(path, source, target)


def member(path: str, name: str) -> str:
    """Return the path of a member of an object."""
    if PLAIN_NAME.fullmatch(name):
        return f"{path}.{name}" if path else name
    # Keys of free maps are chosen by users, and may look like a path of their own.
    quoted = name.replace("\\", "\\\\").replace('"', '\\"')
    return f'{path}["{quoted}"]'


def _item(values: list[object], index: int) -> object:
    return values[index] if index < len(values) else MISSING


def kind(value: object) -> str:
    """Return the JSON type of a value."""
    if value is MISSING:
        return "nothing"
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, int | float):
        return "number"
    if isinstance(value, str):
        return "text"
    return "object" if isinstance(value, dict) else "array"


# Each member is compared with each other one.
MAX_MATCHED: Final = 200


def match_items(given: Sequence[object], stored: Sequence[object]) -> list[int] | None:
    """Return for each member of a list the place of the one that it became, by what they have in common.

    Args:
        given: the members of the source.
        stored: as many members, in another order and perhaps in another spelling.

    Returns:
        the places; ``None`` if each kept its place, or if there are too many to compare.
    """
    if len(given) > MAX_MATCHED:
        return None
    left = {place: set(_leaves("", member)) for place, member in enumerate(stored)}
    places: list[int] = []
    for number, member in enumerate(given):
        wanted = set(_leaves("", member))
        # Of equally good ones the one at its place, then the first.
        best = max(left, key=lambda place: (len(wanted & left[place]), place == number, -place))
        places.append(best)
        del left[best]
    return None if places == list(range(len(given))) else places


def _leaves(path: str, value: object) -> Iterator[tuple[str, str]]:
    """Yield the plain values of a member with their places; texts without case and outer blanks."""
    if isinstance(value, dict):
        mark = unmarked(value)
        if mark is not None:
            yield from _leaves(path, mark[1])
            return
        for name, item in value.items():
            yield from _leaves(f"{path}.{name.strip().casefold()}", item)
    elif isinstance(value, list):
        for item in value:
            yield from _leaves(f"{path}[]", item)
    elif isinstance(value, str) and is_instant(value):
        yield path, format_timestamp(parse_timestamp(value))
    else:
        yield path, str(value).strip().casefold()


def is_instant(text: str) -> bool:
    """Whether a text is an instant in any spelling that the models read."""
    if not text[:4].isdigit():
        return False
    try:
        parse_timestamp(text)
    except pydantic_core.PydanticCustomError:
        return False
    return True
