"""The rules of a job backwards: rows of the model become documents as the source of the job has them."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Final, cast
from uuid import UUID

from typing_extensions import override

from twinstore.bulk.changes import (
    NO_CHANGES,
    ChangedDocument,
    ChangeRefusedError,
    DocumentChange,
    DocumentChanges,
    StoredObjectId,
)
from twinstore_backfill.copy.rules.changes import copier_changes
from twinstore_backfill.copy.rules.ids import digits_of, uuid_of
from twinstore_backfill.copy.rules.places import replace_each
from twinstore_backfill.copy.rules.results import stored_path
from twinstore_backfill.copy.rules.steps import Place, as_kind, object_id_in, step_of, word_of
from twinstore_backfill.rules.model import IdRule, MapRule, RenameRule

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from twinstore.bulk.changes import StoredValues
    from twinstore.catalog.entity import Entity
    from twinstore.models.shapes import Kind
    from twinstore_backfill.copy.rules.places import Members
    from twinstore_backfill.copy.rules.steps import Step
    from twinstore_backfill.rules.model import JobRules, Rule

# As other reasons of a target begin.
NOT_GIVEN_BACK: Final = "the target refuses it because the rules, read forward, do not give it back"


def backward_changes(rules: JobRules, entities: Iterable[Entity]) -> DocumentChanges:
    """Return what a copy changes in the documents of its target; nothing unless the rules are reversed."""
    if not rules.reverse:
        return NO_CHANGES
    entities = tuple(entities)
    found = copier_changes(rules, entities)
    written = {
        entity.name: BackwardChange(_steps(entity, rules), found.documents[entity.name])
        for entity in entities
        if entity.name in found.documents
    }
    return replace(found, written=written)


@dataclass(frozen=True, slots=True)
class BackwardChange(DocumentChange):
    """The change of the documents of one entity, and the one that must undo it."""

    steps: Sequence[Step]
    forward: DocumentChange

    @override
    def __call__(self, document: Members, values: StoredValues) -> ChangedDocument:
        wanted = deepcopy(document)
        for step in self.steps:
            step(document, values)
        given = self.forward(deepcopy(document), values).document
        if not _same(values, given, wanted):
            raise ChangeRefusedError(NOT_GIVEN_BACK)
        return ChangedDocument(document)


def _same(values: StoredValues, one: object, other: object) -> bool:
    """Whether two stored values mean the same, each with its type."""
    one, other = values.read(one), values.read(other)
    if type(one) is not type(other):
        return False
    if isinstance(one, dict):
        members, others = cast("Members", one), cast("Members", other)
        return members.keys() == others.keys() and all(_same(values, members[n], others[n]) for n in members)
    if isinstance(one, list):
        items, rest = cast("list[object]", one), cast("list[object]", other)
        return len(items) == len(rest) and all(map(partial(_same, values), items, rest))
    # A copy of a value that equals none, not even itself, has the same text.
    return one == other or repr(one) == repr(other)


def _steps(entity: Entity, rules: JobRules) -> Sequence[Step]:
    """Return what undoes the rules of an entity, the last one first."""
    changing = rules.changing(entity)
    place = Place(entity, [rule for rule in changing if isinstance(rule, RenameRule)])
    return [_step(rule, place) for rule in reversed(changing)]


def _step(rule: Rule, place: Place) -> Step:
    if isinstance(rule, IdRule):
        kind = place.kind(rule)
        return lambda document, values: replace_each(
            document, rule.path, partial(_object_id, rule, kind, values)
        )
    if isinstance(rule, MapRule):
        words = {word_of(new) or "": old for old, new in rule.values.items()}
        return step_of(replace(rule, values=words), place)
    if isinstance(rule, RenameRule):
        return step_of(replace(rule, path=stored_path(place.entity, rule.to), to=rule.path), place)
    raise LookupError(rule.kind)  # the check of the rules has refused it


def _object_id(rule: IdRule, kind: Kind | None, values: StoredValues, value: object) -> object:
    """Return the ObjectId of which a rule makes a value, and any other value as it is."""
    known = values.read(value)
    if rule.to == "text":
        digits = object_id_in(values, known)
    else:
        digits = None if (found := _uuid(known)) is None else digits_of(found)
    if digits is None or as_kind(digits if rule.to == "text" else uuid_of(digits), kind) != known:
        return value
    return values.write(StoredObjectId(digits))


def _uuid(value: object) -> UUID | None:
    try:
        return UUID(value) if isinstance(value, str) else value if isinstance(value, UUID) else None
    except ValueError:
        return None
