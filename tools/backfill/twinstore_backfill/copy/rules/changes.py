"""The changes of a whole job: by entity the steps of its rules, in the order in which kinds apply."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from typing_extensions import override

from twinstore.bulk.changes import (
    ChangedDocument,
    ChangeRefusedError,
    DocumentChange,
    DocumentChanges,
    Lookup,
)
from twinstore_backfill.copy.rules.selection import decides_tenant
from twinstore_backfill.rules.model import (
    ANY,
    DefaultRule,
    DeriveRule,
    DropRule,
    IdRule,
    KeyRule,
    LookupRule,
    ReplaceRule,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from twinstore.bulk.changes import StoredValues
    from twinstore.catalog.entity import Entity
    from twinstore_backfill.copy.rules.places import Members
    from twinstore_backfill.copy.rules.steps import Step
    from twinstore_backfill.rules.model import JobRules, Rule

ID: Final = "_id"


@dataclass(frozen=True, slots=True)
class EntityChange(DocumentChange):
    """The change of the documents of one entity.

    Each step has the number of its rule, and the name at the top without which it changes nothing, if any.
    """

    steps: Sequence[tuple[int, str | None, Step]]
    broken_text: bool
    only_drops: frozenset[str] | None
    found: Sequence[Lookup] = ()

    @property
    @override
    def reads_broken_text(self) -> bool:
        return self.broken_text

    @property
    @override
    def dropped(self) -> frozenset[str] | None:
        return self.only_drops

    @property
    @override
    def lookups(self) -> Sequence[Lookup]:
        return self.found

    @override
    def __call__(self, document: Members, values: StoredValues) -> ChangedDocument:
        changed: set[int] = set()
        refusal: ChangeRefusedError | None = None
        for number, name, step in self.steps:
            if name is not None and name not in document:
                continue
            try:
                if step(document, values):
                    changed.add(number)
            except ChangeRefusedError as error:
                # The other rules still say whose row it is.
                refusal = refusal or error
        if refusal is not None:
            raise ChangeRefusedError(str(refusal), document)
        return ChangedDocument(document, sorted(changed))


def copier_changes(
    rules: JobRules, entities: Iterable[Entity], known: Iterable[Entity] = ()
) -> DocumentChanges:
    """Return what a copy changes in the documents of a source.

    Args:
        rules: the rules of the job.
        entities: those whose documents are read.
        known: others, whose rows they may look up.
    """
    found = {entity: rules.changing(entity) for entity in entities}
    everything = (*known, *found)
    keys = {entity.name: rule.path[0] for entity in everything for rule in rules.of(entity, KeyRule)}
    ids = {
        entity.name: rule.to
        for entity in everything
        for rule in rules.of(entity, IdRule)
        if len(entity.key) == 1 and rule.path == (keys.get(entity.name) or key_name(entity),)
    }
    return DocumentChanges(
        {
            entity.name: _change(entity, of_entity, _lookups(rules, of_entity, everything))
            for entity, of_entity in found.items()
            if of_entity
        },
        keys,
        ids,
    )


def key_name(entity: Entity) -> str:
    """Return under which name documents have a key of one part."""
    has_own_name = entity.document_id is None and not entity.key_as_id
    return entity.key[0] if has_own_name else ID


def _lookups(rules: JobRules, of_entity: Sequence[Rule], entities: Iterable[Entity]) -> Mapping[int, Lookup]:
    """Return how each rule of an entity that looks rows up finds them, by its number."""
    known = {entity.name: entity for entity in entities}
    found: dict[int, Lookup] = {}
    for rule in of_entity:
        if isinstance(rule, LookupRule):
            other = known[rule.other]
            own = rules.changing_found(other)
            change = _change(other, own, {}) if own else None
            found[rule.number] = Lookup(other, rule.by, change, not decides_tenant(rules, other))
    return found


def _change(entity: Entity, rules: Sequence[Rule], lookups: Mapping[int, Lookup]) -> EntityChange:
    from twinstore_backfill.copy.rules.steps import Place, step_of  # noqa: PLC0415  # few jobs have rules

    place = Place(entity, rules, lookups)
    return EntityChange(
        steps=tuple((rule.number, needed(rule), step_of(rule, place)) for rule in rules),
        broken_text=any(isinstance(rule, ReplaceRule) and rule.what == "invalid-utf-8" for rule in rules),
        only_drops=only_drops(rules),
        found=tuple(lookups.values()),
    )


def needed(rule: Rule) -> str | None:
    """Return the name at the top without which a rule changes nothing."""
    fills = isinstance(rule, DeriveRule | DefaultRule | KeyRule)
    top = next(iter(rule.path), ANY)
    return None if fills or top == ANY else top


def only_drops(rules: Sequence[Rule]) -> frozenset[str] | None:
    """Return the names at the top of documents that rules drop, ``None`` if they do anything else."""
    if not all(isinstance(rule, DropRule) and len(rule.path) == 1 for rule in rules):
        return None
    return frozenset(rule.path[0] for rule in rules)
