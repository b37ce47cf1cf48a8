"""The rules of a job as changes of the documents that a scan reads."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import takewhile
from typing import TYPE_CHECKING

from twinstore.bulk.changes import (
    ChangedDocument,
    ChangeRefusedError,
    DocumentChange,
    DocumentChanges,
    Lookup,
)
from twinstore.catalog.keys import KeyRange
from twinstore.catalog.tenancy import TenancyKind
from twinstore.errors import ValidationError
from twinstore_backfill.rules.model import (
    ANY,
    DefaultRule,
    DeriveRule,
    DropRule,
    FunctionRule,
    IdRule,
    JobRules,
    KeyRule,
    LookupRule,
    RenameRule,
    ReplaceRule,
    Rule,
)
from twinstore_backfill.verify.rules.fields import ID, renamed

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from twinstore.bulk.changes import StoredValues
    from twinstore.catalog.entity import Entity
    from twinstore_backfill.verify.rules.kinds import Step
    from twinstore_backfill.verify.rules.places import Holder


@dataclass(frozen=True, slots=True)
class VerifierChange(DocumentChange):
    """The rules of one entity, in the order in which they apply: number, name at the top, step.

    A rule with a name is for documents that have it.
    """

    steps: tuple[tuple[int, str | None, Step], ...]
    broken_text: bool
    dropped_names: frozenset[str] | None
    looked_up: tuple[Lookup, ...] = ()

    @property
    def dropped(self) -> frozenset[str] | None:
        """The names at the top of a document that are dropped, if that is all."""
        return self.dropped_names

    @property
    def reads_broken_text(self) -> bool:
        """Whether a rule replaces bytes that are not UTF-8."""
        return self.broken_text

    @property
    def lookups(self) -> tuple[Lookup, ...]:
        """How rules find rows of other documents."""
        return self.looked_up

    def __call__(self, document: Holder, values: StoredValues) -> ChangedDocument:
        """Return the document after the rules; the given one is changed in place."""
        changed: list[int] = []
        first: ChangeRefusedError | None = None
        for number, top, step in self.steps:
            try:
                if (top is None or top in document) and step(document, values):
                    changed.append(number)
            except ChangeRefusedError as error:
                # The others go on, because they may make the key and the tenant by which the row is named.
                first = first or error
        if first is not None:
            raise ChangeRefusedError(str(first), document)
        return ChangedDocument(document, sorted(changed))


def verifier_changes(rules: JobRules, entities: Iterable[Entity]) -> DocumentChanges:
    """Return what the rules change in a store.

    Raises:
        ValidationError: a rule cannot be verified yet.
    """
    known = tuple(entities)
    changing = {entity.name: rules.changing(entity) for entity in known}
    return DocumentChanges(
        documents={
            entity.name: change_of(entity, changing[entity.name], found_by(rules, entity, known))
            for entity in known
            if changing[entity.name]
        },
        keys={
            name: rule.path[0]
            for name, found in changing.items()
            for rule in found
            if isinstance(rule, KeyRule)
        },
        ids={
            entity.name: rule.to
            for entity in known
            for rule in changing[entity.name]
            if isinstance(rule, IdRule) and rule.path == key_place(entity, changing[entity.name])
        },
    )


def names_dropped(rules: Sequence[Rule]) -> frozenset[str] | None:
    """Return the names at the top of documents that rules drop, ``None`` if they do anything else."""
    drops = [rule.path for rule in rules if isinstance(rule, DropRule) and len(rule.path) == 1]
    return frozenset(name for (name,) in drops) if len(drops) == len(rules) else None


def key_place(entity: Entity, rules: Sequence[Rule]) -> tuple[str, ...]:
    """Return where documents have the one value that is the key, nothing where several are."""
    own = next((rule.path for rule in rules if isinstance(rule, KeyRule)), None)
    if own is not None or len(entity.key) > 1:
        return own or ()
    return entity.key if entity.document_id is None and not entity.key_as_id else (ID,)


def found_by(rules: JobRules, entity: Entity, entities: Sequence[Entity]) -> Mapping[int, Lookup]:
    """Return how rules of an entity find other rows, by the number of the rule."""
    pairs = [
        (rule, other)
        for rule in rules.of(entity, LookupRule)
        for other in entities
        if other.name == rule.other
    ]
    return {
        rule.number: Lookup(
            entity=other,
            by=rule.by,
            change=change_of(other, found, {}) if (found := rules.changing_found(other)) else None,
            keeps_tenant=not moves_tenants(rules, other),
        )
        for rule, other in pairs
    }


def change_of(entity: Entity, rules: Sequence[Rule], lookups: Mapping[int, Lookup]) -> VerifierChange:
    """Return the change of an entity; ``lookups`` by the numbers of the rules that look rows up."""
    from twinstore_backfill.verify.rules.kinds import Compilation  # noqa: PLC0415  # few jobs have rules

    renames = [rule for rule in rules if isinstance(rule, RenameRule)]
    own_key = any(isinstance(rule, KeyRule) for rule in rules)
    plain = Compilation(entity, renames, own_key)
    behind = takewhile(lambda rule: not isinstance(rule, LookupRule), reversed(rules) if lookups else ())
    later = [plain.step(rule) for rule in behind if names_tenant(rule, renames, entity)]
    compilation = replace(plain, lookups=lookups, later=later[::-1])
    broken = any(isinstance(rule, ReplaceRule) and rule.what == "invalid-utf-8" for rule in rules)
    steps = tuple((rule.number, top_of(rule), compilation.step(rule)) for rule in rules)
    return VerifierChange(steps, broken, names_dropped(rules), tuple(lookups.values()))


def top_of(rule: Rule) -> str | None:
    """Return the name at the top of documents that a rule reads, ``None`` if it is not one name, or fills."""
    top = next(iter(rule.path), ANY)
    return None if top == ANY or isinstance(rule, DefaultRule | DeriveRule | KeyRule) else top


def moves_tenants(rules: JobRules, entity: Entity) -> bool:
    """Whether a rule may change which tenant owns a row, so that no server can select or count by it."""
    changing = rules.changing(entity)
    renames = [rule for rule in changing if isinstance(rule, RenameRule)]
    return any(names_tenant(rule, renames, entity) for rule in changing)


def names_tenant(rule: Rule, renames: Sequence[RenameRule], entity: Entity) -> bool:
    """Whether a rule may change the tenant of a row."""
    tenant = entity.tenant_field
    first = {place[0] for place in places_of(rule, renames)}
    return tenant is not None and not first.isdisjoint({tenant, f"_{tenant}", ANY})


def check_tenants(rules: JobRules, entities: Iterable[Entity]) -> None:
    """Refuse to select the rows of tenants where a server cannot find those of children.

    Raises:
        ValidationError: rules change the tenant, or replace the key, of the parent of an entity.
    """
    for entity in entities:
        parent = entity.parent.entity if entity.parent and entity.tenancy.kind is TenancyKind.PARENT else None
        if parent is not None and (moves_tenants(rules, parent) or rules.of(parent, KeyRule)):
            raise ValidationError(
                f"--tenant cannot select rows of {entity.name}, because rules change the tenant or the key "
                f"of {parent.name}, by which a server finds them; leave it out."
            )


def places_of(rule: Rule, renames: Sequence[RenameRule]) -> Iterable[Sequence[str]]:
    """Return the places of the model that a rule may change."""
    if isinstance(rule, FunctionRule):
        return ()
    if isinstance(rule, DefaultRule | DeriveRule):
        return (rule.path,)
    return (rule.path, renamed(rule.path, renames))


def ranges_after(changes: DocumentChanges, entity: Entity, ranges: Iterable[KeyRange]) -> Iterable[KeyRange]:
    """Return ranges that were cut by stored ObjectIds with the keys that the rules make of these."""
    if changes.ids.get(entity.name) != "uuid":
        return ranges
    from twinstore_backfill.verify.rules.ids import key_after  # noqa: PLC0415  # few jobs have rules

    kind = entity.key_parts[0].type
    return (
        KeyRange(*(None if key is None else key_after(key, kind) for key in (within.lower, within.upper)))
        for within in ranges
    )
