"""Jobs that describe themselves: another process needs their id, the settings of its stores, and no options.

It refuses to copy where anything differs that decides what is written.
"""

from __future__ import annotations

import json
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

from twinstore.models import json_text
from twinstore_backfill.alike import RELEASE, digest_of
from twinstore_backfill.copy.options import DESCRIBED, CopyOptions, applied_rules
from twinstore_backfill.outcome import PreflightError
from twinstore_backfill.rules import job_rules
from twinstore_backfill.rules.model import FunctionRule, JobRules
from twinstore_backfill.subset import Subset

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from twinstore.catalog.entity import Entity
    from twinstore.ledger import CopyJob
    from twinstore_backfill.stores import Store

# Of the ledger, as far as workers of one job must agree on it.
FORMAT: Final = 1
# Options that decide what a worker writes, or how.
KEPT: Final = ("on_conflict", "max_conflicts", "max_quarantine", "range_size", "batch_size")


def described(options: CopyOptions, source: Store, target: Store, entities: Iterable[Entity]) -> str:
    """Return what another process has to know of a copy, or to have alike, as JSON."""
    document = {
        **{name: getattr(options, name) for name in KEPT},
        "lease": options.lease.total_seconds(),
        "reverse": options.rules.reverse,
        **_alike(source, target, entities),
    }
    return json_text.dumps_sorted(document).decode()


def options_of(job: CopyJob, source: Store, target: Store) -> CopyOptions:
    """Return the options of a job, for a worker that has opened both stores.

    Raises:
        PreflightError: a store, the release, the description of an entity, or a function of the module is
            another one.
    """
    settings = job.settings
    document = json.loads(settings.get(DESCRIBED, "{}"))
    names = settings["entities"].split(",")
    entities = [entity for entity in source.bulk.entities() if entity.name in names]
    rules = applied_rules(settings)[-1] if document.get("reverse") is not None else JobRules()
    rules = JobRules(rules.rules, reverse=bool(document.get("reverse")))
    alike = _alike(source, target, entities)
    for problem in (*_other_stores(settings, source, target), *_others(document, alike)):
        raise PreflightError(f"The job {job.id} cannot be copied from here: {problem}.")
    if functions_in(rules) != functions_in(job_rules(JobRules(), source)):
        raise PreflightError(
            f"The job {job.id} cannot be copied from here: the functions of its module are others; install "
            "the same files."
        )
    return CopyOptions(
        **{name: document[name] for name in KEPT},
        entities=names,
        tenants=json.loads(settings["tenants"]),
        lease=timedelta(seconds=document["lease"]),
        max_rate=job.max_rate,
        as_of=job.as_of,
        subset=Subset.of(json.loads(settings["subset"])) if "subset" in settings else Subset(),
        rules=rules,
        execute=True,
    )


def lease_duration(job: CopyJob) -> timedelta:
    """Return for how long a silent worker of a job keeps others out."""
    document = json.loads(job.settings.get(DESCRIBED, "{}"))
    return timedelta(seconds=document.get("lease", 0))


def _alike(source: Store, target: Store, entities: Iterable[Entity]) -> dict[str, Any]:
    """Return what must be the same in every process of a job."""
    return {
        "format": FORMAT,
        "release": RELEASE,
        "drivers": [source.backend, target.backend],
        "descriptions": digest_of(entities),
    }


def _other_stores(settings: Mapping[str, str], source: Store, target: Store) -> Iterator[str]:
    for side, store in (("source", source), ("target", target)):
        # The place is how 0.1.0 identified stores.
        if settings[side] not in {store.bulk.identity, store.bulk.place}:
            yield f"its {side} is another store than {store.bulk.place}"


def _others(document: Mapping[str, Any], alike: Mapping[str, Any]) -> Iterator[str]:
    for name, wanted in alike.items():
        if document.get(name) != wanted:
            yield DIFFERENCES[name].format(document.get(name), wanted)


def functions_in(rules: JobRules) -> set[str]:
    """Return the SHA-256 of each function of the module."""
    return {rule.sha256 for rule in rules if isinstance(rule, FunctionRule)}


DIFFERENCES: Final = {
    "format": "its ledger has another format; install the release that has begun it",
    "release": "release {} of twinstore has begun it, and this is {}; install the same",
    "drivers": "its drivers are {}, and here they are {}",
    "descriptions": "its module describes an entity in another way here; install the same module",
}
