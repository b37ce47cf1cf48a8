"""Taking a sample of a source: some rows of every tenant, chosen by a seed, with the parents they need."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from hashlib import sha256
from math import ceil
from typing import TYPE_CHECKING, Final

from twinstore.catalog import LifeInCopy
from twinstore.releasing import copied, copy_counts
from twinstore.tenancy import TenancyKind, names_tenant
from twinstore_backfill.copy.forgiving import Forgiving

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from twinstore.bulk import BulkPort, BulkView, Record
    from twinstore.catalog import Entity
    from twinstore.keys import Key
    from twinstore_backfill.ignoring import IgnoredPath

__all__ = ["Sample", "key_of_parent", "sampled"]

# A range is read as a whole, so that a seed chooses the same rows whatever a batch holds.
RANGE: Final = 500


@dataclass(slots=True)
class Sample:
    """The rows of one entity that were taken.

    Attributes:
        records: by key, in order of the keys.
        unreadable: rows that no copy could take, which are left out.
    """

    entity: Entity
    records: dict[Key, Record] = field(default_factory=dict["Key", "Record"])
    unreadable: int = 0

    @property
    def tenants(self) -> Counter[str]:
        """How many rows of each owner there are."""
        return Counter(record.label for record in self.records.values())


def sampled(source: BulkPort, size: int, seed: int, ignored: Sequence[IgnoredPath] = ()) -> dict[str, Sample]:
    """Return a sample of every entity that a copy brings over, by name, in the order of a copy.

    Args:
        source: the store.
        size: rows of each entity.
        seed: chooses them.
        ignored: unknown properties that the rows are taken without.
    """
    forgiven = Forgiving(source, ignored).forgiven
    entities = [entity for entity in source.entities() if entity.life is not LifeInCopy.LEFT_OUT]
    present = {survey.entity for survey in source.survey() if survey.present}
    samples = {entity.name: Sample(entity) for entity in entities}
    with source.view() as view:
        # Children first, because their parents have to come along.
        for entity in reversed([entity for entity in entities if entity.name in present]):
            for record in forgiven(entity, list(_chosen(source, view, entity, size, seed))):
                take(samples[entity.name], record)
            _add_parents(view, samples, entity, forgiven)
    for sample in samples.values():
        sample.records = dict(sorted(sample.records.items()))
    return samples


def take(sample: Sample, record: Record) -> None:
    """Add a row to a sample, or count it where it cannot be copied."""
    if record.model is None or record.key is None:
        sample.unreadable += 1
    else:
        sample.records[record.key] = record


def _chosen(source: BulkPort, view: BulkView, entity: Entity, size: int, seed: int) -> Iterator[Record]:
    left = size
    tenants = _tenants(source, entity, size, seed)
    for number, tenant in enumerate(tenants):
        # What a small tenant does not have goes to those that follow.
        quota = ceil(left / (len(tenants) - number))
        ranges = list(source.cut(entity, RANGE, tenant_id=tenant))
        ranges.sort(key=lambda within: place_of(seed, entity.name, within))
        for within in ranges:
            if quota <= 0:
                break
            batches = view.records(entity, within, tenant_id=tenant, batch_size=RANGE)
            found = [record for batch in batches for record in copied(entity, batch)]
            found.sort(key=lambda record: place_of(seed, entity.name, record.key))
            yield from found[:quota]
            left -= len(found[:quota])
            quota -= len(found)


def _tenants(source: BulkPort, entity: Entity, size: int, seed: int) -> list[str | None]:
    """Return the tenants to ask for rows, those with the fewest first; as many as there may be rows."""
    if entity.tenancy.kind is not TenancyKind.REQUIRED:
        return [None]
    counts = copy_counts(source, entity)
    labels = sorted(filter(names_tenant, counts), key=lambda label: place_of(seed, entity.name, label))
    chosen = sorted((counts[label], label) for label in labels[:size])
    return [label for _, label in chosen]


def place_of(seed: int, *values: object) -> bytes:
    """Return where something stands in the order of a seed; it depends on nothing else."""
    return sha256(repr((seed, *values)).encode("utf-8", "surrogatepass")).digest()


def _add_parents(
    view: BulkView,
    samples: dict[str, Sample],
    entity: Entity,
    forgiven: Callable[[Entity, Sequence[Record]], list[Record]],
) -> None:
    parent = entity.parent
    if parent is None or parent.entity.name not in samples:
        return
    sample = samples[parent.entity.name]
    wanted = {key_of_parent(entity, record) for record in samples[entity.name].records.values()}
    records = list(view.records_of(parent.entity, sorted(wanted - sample.records.keys())))
    for record in forgiven(parent.entity, records):
        take(sample, record)


def key_of_parent(entity: Entity, record: Record) -> Key:
    """Return the key of the parent that a readable row names."""
    if entity.parent is None or record.model is None:
        raise LookupError(f"{entity.name} has no parent")  # met by programmers only
    value = entity.value(record.model, record.storage, entity.parent.field)
    return (value,) if isinstance(value, str | int) else ()
