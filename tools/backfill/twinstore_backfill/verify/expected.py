"""What a copy of a source row stores in an empty target, and what had to be normalised for it.

The target is never normalised: its row is right when it is stored as expected here. The source is, by the
rules of the copy, which are those of the models; each place where that changed something is told by its kind.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, cast

import orjson
import pydantic

from twinstore import jsontext
from twinstore.bulk import NOTHING_BESIDE, Record
from twinstore.canonical import CanonicalModel, describe_failure, schema_validator
from twinstore.fields import parse_timestamp
from twinstore.jsontext import LARGE_TEXT
from twinstore.mapnames import lossy_map
from twinstore.normalform import marker_not_normal
from twinstore.releasing import fence_in, released
from twinstore.shapes import Kind, left_out_values
from twinstore.stored import MARK, NUMBERS, has_marks, unmarked
from twinstore.tenancy import Tenant
from twinstore_backfill.ignoring import without
from twinstore_backfill.verify.equivalences import BESIDE, IGNORED, Change, changes

if TYPE_CHECKING:
    from twinstore.bulk import ScanRow
    from twinstore.catalog import Entity, Marker
    from twinstore_backfill.ignoring import IgnoredPath

__all__ = ["Expected", "Expecting", "Refused", "misplaced", "stands_beside"]

DOC: Final = b'{"doc":'
NO_STORAGE: Final = b',"storage":{}}'
ID: Final = "_id"
INDEX: Final = re.compile(r"\[\d+\]")
# Forms of numbers that only models take for integers.
FRACTIONAL: Final = frozenset({"double", "number"})


@dataclass(frozen=True, slots=True)
class Expected:
    """A row as a copy stores it.

    Attributes:
        content: as for :class:`~twinstore.bulk.ScanRow`.
        beside: the values that a store may hold beside it, by name; absent ones are left out.
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


class Expecting:
    """Knows what is expected for the rows of one entity."""

    def __init__(self, entity: Entity, ignored: Sequence[IgnoredPath] = ()) -> None:
        """Take the entity and which unknown properties a copy of it drops."""
        self._entity = entity
        self._ignored = tuple(item.path for item in ignored)
        self._approved = {".".join(("doc", *item.path)): item.reason is not None for item in ignored}
        self._identity = tuple(entity.identity.items())
        self._left_out = left_out_values(entity.model)
        # Without the classmethod around it, which costs as much again on small documents.
        self._validator = schema_validator(entity.model)
        self.has_beside = bool(entity.derived or entity.beside)

    def accepts(self, content: bytes) -> bool:
        """Whether the decoder of the service accepts a row that has no marks; the way for equal rows."""
        if content.endswith(NO_STORAGE) and not self._entity.storage and len(content) < LARGE_TEXT:
            try:
                self._validator.validate_json(
                    content[len(DOC) : -len(NO_STORAGE)], by_alias=True, by_name=False
                )
            except pydantic.ValidationError:
                return False
            return True
        try:
            model, markers = self._accepted(content)
        except ValueError:
            return False
        return not self._entity.storage or marker_not_normal(self._entity, markers, model) is None

    def _accepted(self, content: bytes) -> tuple[CanonicalModel, Mapping[str, object]]:
        """Return model and markers of what has no marks; the values they are made of are forgotten.

        Raises:
            ValueError: no service could read it.
        """
        value = parts_of(content)
        return self._model(value["doc"]), self._markers(value["storage"])

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
        content = jsontext.dumps_sorted({"doc": wire, "storage": markers})
        stored = content
        if self._entity.release is not None:
            stored = jsontext.dumps_sorted({"doc": released(self._entity, model).wire(), "storage": markers})
        beside = self.beside(model, markers, wire)
        contradictions = self._contradictions(row, beside)
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
        found = tuple(self._told(change, given["doc"]) for change in changes(given, parts_of(content)))
        return Expected(stored, beside, (*contradictions, *found))

    def _contradictions(self, row: ScanRow, beside: Mapping[str, object]) -> tuple[Change, ...]:
        """Return what the source holds beside the content of a row that does not follow from it.

        A copy stores what follows. By what the source holds its own lists find and order the row, so both
        stores answer differently. Derived fields may be absent: documents of other programs have none.
        """
        if row.beside == NOTHING_BESIDE:
            return ()
        stored: dict[str, object] = orjson.loads(row.beside)
        names = [name for name in self._entity.beside if name in stored]
        names += [item.name for item in self._entity.derived if stored.get(item.name) is not None]
        return tuple(
            Change(BESIDE, f"beside.{name}", name) for name in names if stored[name] != beside.get(name)
        )

    def beside_target(self, source: ScanRow, target: ScanRow) -> Expected | Refused:
        """Return what a copy leaves of a row of the target, or makes of it.

        That is what it stores in an empty target, but for rows that are released: of these the fence alone
        counts where the service can read the row, and a higher one stays.
        """
        expected = self.of(source)
        if isinstance(expected, Refused) or self._entity.release is None:
            return expected
        wanted, stored = (fence_in(self._entity, content) for content in (expected.content, target.content))
        if wanted is None or stored is None or not self._is_readable(target.content):
            return expected
        document = parts_of(target.content)
        document["doc"][self._entity.release.fence] = max(wanted, stored)
        return replace(expected, content=jsontext.dumps_sorted(document), beside=orjson.loads(target.beside))

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
        """Return model and markers of a scanned row, and between them the id that stands in the document.

        Raises:
            ValueError: the decoder of the service refuses it, or takes it for a row of another key.
        """
        given = parts_of(row.content)
        # First, because what is ignored may hold values of any form.
        document, storage = without(given["doc"], self._ignored), given["storage"]
        del given
        # Only where there are marks something else comes of it, and another object for each value.
        if has_marks(row.content):
            document = readable(document)
        markers = self._markers(cast("Mapping[str, object]", storage))
        return (*self._modelled(document, row), markers)

    def _told(self, change: Change, given: Mapping[str, object]) -> Change:
        """Return a change as it is told: by its rule, or as ignored on request."""
        field = change.field
        if change.path == f"doc.{field}" and field in self._left_out:
            # Written out, or left out as the models do: every reader takes both for the same.
            value, default = given.get(field), self._left_out[field]
            if value == default and type(value) is type(default):
                return replace(change, kind="null_for_absent")
        approved = self._approved.get(INDEX.sub("", change.path))
        return change if approved is None else replace(change, kind=IGNORED, approved=approved)

    def beside(
        self, model: CanonicalModel, markers: Mapping[str, object], wire: Mapping[str, object]
    ) -> dict[str, object]:
        """Return what a store may hold beside the content of a model."""
        if not self.has_beside:
            return {}
        found: dict[str, object] = {name: markers.get(name, wire.get(name)) for name in self._entity.beside}
        found |= {item.name: item.value(model, markers) for item in self._entity.derived}
        present = {name: value for name, value in found.items() if value is not None}
        plain: dict[str, object] = orjson.loads(jsontext.dumps_sorted(present))
        return plain

    def _modelled(self, document: object, row: ScanRow) -> tuple[CanonicalModel, str | None]:
        """Return the model of a document, with the id that stands in it where ids are derived.

        Raises:
            ValueError: the decoder of the service refuses it, or takes it for a row of another key or tenant.
        """
        if not isinstance(document, dict):
            raise RefusedError("a document is an object")
        known: dict[str, Any] = {
            name: value for name, value in document.items() if name != ID and value is not None
        }
        single = self._entity.document_id
        # A null under its own name stands for an absent one.
        if single is not None and ID in document and document[ID] != known.setdefault(single, document[ID]):
            raise RefusedError("two ids differ")
        key = None if self._entity.derived_key is None or single is None else known.pop(single, None)
        if key is not None and not isinstance(key, str):
            raise RefusedError("the id is not a text")
        model = self._model(known)
        self._check_identity(known, model, row)
        if lossy_map(known, model) is not None:
            raise RefusedError("names of a map would lose a value")
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
            if derive(markers, jsontext.dumps(wire)) != own_key:
                model = model.evolve(**{self._entity.shapes[single].name: own_key})
                wire = model.wire()
        if self._entity.storage and marker_not_normal(self._entity, markers, model) is not None:
            raise RefusedError("the key is not in normal form")
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
                raise RefusedError("the key is not in normal form")

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
    return cast("dict[str, Any]", jsontext.loads(content))


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
        return parse_timestamp(plain)
    wanted = int if marker.kind is Kind.INTEGER else str
    if type(plain) is not wanted or (form is not None and form[0] in FRACTIONAL):
        raise RefusedError(f"the marker {marker.name} is of another type")
    return plain


def readable(value: object) -> object:
    """Return a scanned value without the marks of the forms that models read all the same.

    Raises:
        RefusedError: something is stored in a form that no copy takes.
    """
    if isinstance(value, list):
        return [readable(item) for item in value]
    if not isinstance(value, dict):
        return value
    mark = unmarked(value)
    if mark is not None:
        return reading_of(*mark)
    if any(name.startswith(MARK) for name in value):
        raise RefusedError("a document holds what cannot be given back")
    return {name: readable(item) for name, item in value.items()}


def reading_of(form: str, value: object) -> object:
    """Return a value in another form as the models read it.

    Raises:
        RefusedError: they do not.
    """
    if form in {"text", "null", "bounds", "object"}:
        return value
    if form not in NUMBERS:
        raise RefusedError(f"a value of the form {form}")
    if isinstance(value, int):
        return value
    number = float(str(value))
    return int(number) if number.is_integer() else number


def stands_beside(expected: Expected, target: ScanRow) -> bool:
    """Whether the target holds beside the content what follows from it."""
    return target.beside == NOTHING_BESIDE or not misplaced(expected, target)


def misplaced(expected: Expected, target: ScanRow) -> list[str]:
    """Return the names beside the content of a target row that hold something else than they must."""
    stored: dict[str, object] = orjson.loads(target.beside)
    return sorted(
        name
        for name, value in stored.items()
        if value != expected.beside.get(name) or type(value) is not type(expected.beside.get(name))
    )
