"""A self-test from beginning to end, in two empty databases.

sample of the source -> scratch source with variants of rows -> copy -> verification: PASS
-> rounds of planting into the target -> verification: names each corruption and nothing else -> restore
-> the same with the roles exchanged
"""

from __future__ import annotations

import logging
import re
from collections import defaultdict
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from time import monotonic
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

import orjson

from twinstore.bulk.corruption import CorruptionRefusedError, Role
from twinstore.bulk.release import copy_writer
from twinstore.bulk.rows import MARK
from twinstore.catalog.entity import CopyPolicy
from twinstore.catalog.keys import KeyType
from twinstore.catalog.tenancy import names_tenant
from twinstore.config import Settings, load_settings
from twinstore.errors import ConfigurationError, ValidationError
from twinstore.ledger import LEDGER_MODULE
from twinstore.plugins.drivers import load_backend
from twinstore.plugins.modules import module_spec
from twinstore_backfill.copy.engine import run_copy
from twinstore_backfill.copy.options import CopyOptions
from twinstore_backfill.outcome import InterruptedRunError, PreflightError
from twinstore_backfill.process.stopping import StopRequestedError
from twinstore_backfill.progress.record import SilentProgress
from twinstore_backfill.report.writing import DIFFERENCES, reports_in
from twinstore_backfill.rules import job_rules
from twinstore_backfill.rules.model import NO_RULES, AcceptRule, JobRules
from twinstore_backfill.selftest.corruptions import ADDING, Corruption, EntityContext, Kind
from twinstore_backfill.selftest.rows import sample_source, variant_rows
from twinstore_backfill.stores import open_store, preflight, prepare_target, select_entities
from twinstore_backfill.verify.checks import SCHEMA
from twinstore_backfill.verify.engine import run_verify
from twinstore_backfill.verify.expected import member
from twinstore_backfill.verify.options import VerifyOptions
from twinstore_backfill.verify.rules import verifier_changes

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from twinstore.bulk.corruption import CorruptionWriter, RawRow, SchemaPart, StoredPlace
    from twinstore.bulk.port import Record
    from twinstore.catalog.entity import Entity
    from twinstore.catalog.keys import Key
    from twinstore_backfill.process.stopping import StopSwitch
    from twinstore_backfill.progress.record import Progress
    from twinstore_backfill.report.model import ParityReport
    from twinstore_backfill.selftest.rows import Sample
    from twinstore_backfill.stores import Store

Line = dict[str, Any]
"""One row that a verification named, as its file of differences has it."""
T = TypeVar("T")
# The remarks of a comparison about a path, behind it.
REMARK: Final = re.compile(r" \([^()]*\)$")
# Remarks about the row as a whole, next to the paths: it is unreadable, or no client would store it so.
WHOLE: Final = frozenset({"doc", member("doc", f"{MARK}bson")})
BEFORE: Final = "refused before comparing"
ROWS_PER_BATCH: Final = 1000


@dataclass(frozen=True, slots=True)
class ScratchSide:
    """One scratch database: as tools see it, and without its driver."""

    store: Store
    corruption_writer: CorruptionWriter
    _places: dict[str, Sequence[StoredPlace]] = field(default_factory=dict[str, "Sequence[StoredPlace]"])

    def places(self, entity: Entity) -> Sequence[StoredPlace]:
        """Return the places of the rows of an entity, as they were when they were first needed."""
        if entity.name not in self._places:
            self._places[entity.name] = self.corruption_writer.places(entity)
        return self._places[entity.name]

    @property
    def entities(self) -> tuple[Entity, ...]:
        """The entities that a copy brings over."""
        return tuple(
            entity for entity in self.store.bulk.entities() if entity.copy_policy is not CopyPolicy.LEFT_OUT
        )

    def rows(self, entity: Entity) -> dict[Key, RawRow]:
        """Return the stored rows of an entity by key, except those that a store keeps to itself."""
        found = ((self.key_of(entity, row), row) for row in self.corruption_writer.rows(entity))
        return {key: row for key, row in found if key is not None and key not in entity.local_keys}

    def key_of(self, entity: Entity, row: RawRow | None) -> Key | None:
        """Return the key of a stored row as a comparison names it, ``None`` if there is none."""
        if row is None:
            return None
        named: dict[str, object] = {}
        for place in self.places(entity):
            value = row.values.get(place.name)
            inside = value if place.role is Role.PAYLOAD and isinstance(value, dict) else {}
            named = {**cast("dict[str, object]", inside), **named, place.field: value}
        values = ((part.type, named.get(part.field)) for part in entity.key_parts)
        writer, of_id = self.corruption_writer, entity.key_as_id
        key = tuple(key_part(writer, kind, value, of_id=of_id) for kind, value in values)
        return cast("Key", key) if entity.admits_key(key) else None

    def clear(self) -> None:
        """Remove all rows, children first, and what the ledger knows of copies."""
        for entity in reversed((*LEDGER_MODULE.catalog.entities, *self.store.bulk.entities())):
            self.corruption_writer.clear(entity)


def key_part(writer: CorruptionWriter, kind: KeyType, value: object, *, of_id: bool = False) -> object:
    """Return a stored value as a part of a key; drivers have classes of their own for numbers and ids.

    In an ``_id`` that is the key, a double without a fraction is an integer.
    """
    if kind in {KeyType.OBJECT_ID, KeyType.BINARY_UUID} and not writer.tabular:
        # There a text is another value than the id that it shows.
        return writer.typed_text(value)
    is_whole = of_id and isinstance(value, float) and value.is_integer()
    if (isinstance(value, int) and not isinstance(value, bool)) or is_whole:
        return int(cast("int | float", value))
    return value.replace("-", "") if kind is KeyType.HEX and isinstance(value, str) else value


def check_drivers(module: str, names: Sequence[str]) -> None:
    """Refuse drivers that the self-test cannot use.

    Raises:
        ValidationError: both sides have the same driver, or one cannot be written to without itself.
    """
    specs = {spec.name: spec for spec in (load_backend(name, module=module) for name in names)}
    if len(specs) == 1:
        raise ValidationError(
            "The self-test needs two drivers, because each is the corrupted target once; both are "
            f"{', '.join(specs)}."
        )
    for spec in specs.values():
        if spec.corruption_writer is None:
            raise ValidationError(
                f"The driver {spec.name} has no corruption_writer in its BackendSpec, so no corruption can "
                "be planted there. Ask its author, or test between other drivers."
            )


@contextmanager
def embedded_settings() -> Iterator[Settings]:
    """Run servers in a temporary directory and yield the settings that name them.

    Raises:
        ConfigurationError: the embedded servers are not installed.
    """
    with TemporaryDirectory(prefix="twinstore-selftest-") as directory:
        try:
            from twinstore_embedded import servers, write_appsettings  # noqa: PLC0415  # an extra

            running = servers(Path(directory), durable=False)
        except ModuleNotFoundError as error:
            raise ConfigurationError(
                f"The self-test needs {error.name!r} to start servers: pip install 'twinstore[all]'; "
                "or name empty databases with --scratch."
            ) from error
        with running as both:
            # The environment may name servers of the user, which must not be used for this.
            yield load_settings(write_appsettings(directory, both.mongo, both.postgres), environ={})


@contextmanager
def open_scratch(module: str, backend: str, settings: Settings) -> Iterator[ScratchSide]:
    """Open an empty database, make its schema, and remove at the end what was written.

    Retention is off: rows of any age are copied, and no server removes one meanwhile.

    Raises:
        PreflightError: it holds rows of ours, or is not suitable.
    """
    spec = load_backend(backend, module=module)
    retention = (entity.retention for entity in module_spec(module).catalog.entities)
    kept = settings.with_options({module: {item.option: 0 for item in retention if item is not None}})
    with ExitStack() as stack:
        store = stack.enter_context(open_store(module, spec.name, kept))
        require_empty(store)
        prepare_target(store)
        if spec.corruption_writer is None:
            raise LookupError(spec.name)  # refused before; met by programmers only
        side = ScratchSide(
            store, stack.enter_context(spec.corruption_writer(kept.backend_settings(module, spec)))
        )
        stack.callback(side.clear)
        yield side


def require_empty(store: Store) -> None:
    """Refuse a database that holds a row of ours.

    Raises:
        PreflightError: names the entity and how many there are.
    """
    present = {inventory.entity for inventory in store.bulk.inventory() if inventory.present}
    for entity in store.bulk.entities():
        rows = sum(store.bulk.counts(entity).values()) if entity.name in present else 0
        if rows:
            raise PreflightError(
                f"The scratch database {store.bulk.place} holds {rows:,} rows of {entity.name}; the "
                "self-test corrupts and removes what it finds. Name an empty database.",
                driver=store.backend,
            )


def load_rows(
    rows: Mapping[str, Sequence[Record]], source: ScratchSide, target: ScratchSide, stop: StopSwitch
) -> None:
    """Write rows to both sides; a row that one of them refuses is on neither afterwards."""
    for entity in source.entities:
        # As a copy writes them: then both sides hold the same, whichever is the target.
        records = sorted(rows[entity.name], key=lambda record: cast("Key", record.key))
        for start in range(0, len(records), ROWS_PER_BATCH):
            with copy_writer(source.store.bulk, entity) as writer:
                writer.write(records[start : start + ROWS_PER_BATCH])
                writer.flush()
                writer.commit()
    copy_all(source, target, stop)
    for entity in reversed(source.entities):
        stored = target.rows(entity)
        for key, row in source.rows(entity).items():
            if key not in stored:
                source.corruption_writer.change(entity, row, None)


def copy_all(source: ScratchSide, target: ScratchSide, stop: StopSwitch) -> None:
    """Copy everything."""
    with TemporaryDirectory(prefix="twinstore-selftest-copy-") as directory:
        options = CopyOptions(execute=True, out=Path(directory), jobs=1)
        run_copy(source.store, target.store, options, SilentProgress(), stop)


def run_verification(
    source: ScratchSide, target: ScratchSide, stop: StopSwitch, entities: Sequence[str] = ()
) -> tuple[ParityReport, list[Line]]:
    """Compare both sides, or some entities of them, and return the report and every row that it names."""
    options = VerifyOptions(entities=entities, rules=JobRules(_accepted_of_samples(target.store.module)))
    logger = logging.getLogger("twinstore.undecodable")
    with TemporaryDirectory(prefix="twinstore-selftest-verify-") as directory:
        # Lists log each row that no service can read; these were planted.
        before, logger.disabled = logger.disabled, True
        try:
            with reports_in(Path(directory)) as write:
                report = run_verify(source.store, target.store, options, SilentProgress(), stop, write)
        finally:
            logger.disabled = before
        lines = (Path(directory) / DIFFERENCES).read_bytes().splitlines()
        return report, [orjson.loads(line) for line in lines]


def _accepted_of_samples(module: str) -> tuple[AcceptRule, ...]:
    """Return what is no finding in a sample: its rows may lack other rows that were not chosen."""
    needed = module_spec(module).needed_rows
    if needed is None:
        return ()
    why = "a sample has some rows of each entity"
    accepted = AcceptRule(
        number=1,
        line=0,
        entity=needed.entity.name,
        path=(),
        what=needed.kind,
        reason=why,
        approved_by="selftest",
    )
    return (accepted,)


@dataclass(frozen=True, slots=True, kw_only=True)
class SelftestOptions:
    """Options of a self-test.

    Attributes:
        sample: rows of each entity to read from the source, spread over the tenants.
        seed: chooses them; the same seed chooses the same rows.
        thorough: plant every corruption again alone, not only one of each kind.
        entities: corrupt only these; empty for all. The others are sampled, copied and compared as well.
        rules: what changes on the way, and what is accepted.
    """

    sample: int = 200
    seed: int = 0
    thorough: bool = False
    entities: tuple[str, ...] = ()
    rules: JobRules = NO_RULES

    def corrupts(self, entity: str) -> bool:
        """Whether an entity is one of those to corrupt."""
        return not self.entities or entity in self.entities

    def __post_init__(self) -> None:
        """Refuse a sample of nothing."""
        if self.sample < 1:
            raise ValidationError(f"--sample should be at least 1, not {self.sample}.")


@dataclass(frozen=True, slots=True)
class AppliedCorruption:
    """One corruption that was in a store during a verification.

    Attributes:
        item: the corruption.
        before, after: the row; ``None`` if there was or is none.
        key: the key of the row afterwards.
    """

    item: Corruption
    before: RawRow | None
    after: RawRow | None
    key: Key | None

    @property
    def expected(self) -> tuple[tuple[str, Key | None], ...]:
        """The rows that the verification must name: what it calls each, and its key."""
        point, kind = self.item.point, self.item.kind
        if self.item.free:
            return ()
        if kind in ADDING:
            return (("extra", self.key),)
        if kind is Kind.ROW_MISSING:
            return (("missing", point.key),)
        # A key in a payload goes with it, whatever was meant to change there.
        if (point.role is Role.KEY or point.entity.key_in_payload is not None) and self.key != point.key:
            return (("missing", point.key), ("extra", self.key))
        return (("different", point.key),)

    def problem(self, kind: str, lines: Sequence[Line]) -> str:
        """Return what is wrong with the lines that name the row, empty where nothing is."""
        if not lines or kind != "different":
            return "" if lines else f"{kind} is not named"
        entity, paths = self.item.point.entity, self.item.paths
        if entity.own_id is not None and member("doc", entity.own_id) in paths:
            # Under another name it leaves its place to an id that the server makes.
            paths = (*paths, member("doc", "_id"))
        kept = None if entity.extra is None else member("doc", entity.extra)
        if kept is not None:
            # What no field names is shown in the field that keeps it.
            paths = (*paths, *(kept + path.removeprefix("doc") for path in paths if path.startswith("doc.")))
        # An id that followed from the content does so no more, and becomes a part of it.
        also = () if entity.derived_key is None else tuple(member("doc", name) for name in entity.key)
        named = {REMARK.sub("", path) for path in lines[0]["paths"]} - (WHOLE - set(paths))
        # The first unknown property brings the field that keeps it, and the last one takes it away.
        whole = named & {kept}
        if not whole and not any(lies_in(place, paths) for place in named):
            return f"the field is not named: {', '.join(lines[0]['paths'])}"
        wrong = sorted(place for place in named - whole if not lies_in(place, (*paths, *also)))
        return f"other fields are named: {', '.join(wrong)}" if wrong else ""


def lies_in(place: str, paths: Sequence[str]) -> bool:
    """Whether a path is one of others, or lies below one."""
    return any(place == path or (place.startswith(path) and place[len(path)] in ".[") for path in paths)


@dataclass(slots=True)
class Trial:
    """One verification of planted corruptions.

    Attributes:
        planted: each with what is wrong with how it was named, empty where nothing is.
        false_alarms: what was named and not planted.
        refused: what the server does not store.
        report: the verification.
        named: how many rows it named.
        whole: it was about all entities.
    """

    planted: list[tuple[AppliedCorruption, str]]
    false_alarms: list[Line]
    refused: list[tuple[Corruption, CorruptionRefusedError]]
    report: ParityReport
    named: int
    whole: bool

    @property
    def verdict_problem(self) -> str:
        """What is wrong with the verdict; empty if nothing is."""
        must_fail, verdict = any(planted.expected for planted, _ in self.planted), self.report.verdict
        wanted = "FAIL" if must_fail else "PASS" if self.whole else "PARTIAL"
        if verdict != wanted:
            return f"the verdict is {verdict}, not {wanted}"
        return "the report says that it is safe to cut over" * (must_fail and self.report.cutover_ready)

    @property
    def problem(self) -> str:
        """What is wrong with the verification of a single corruption, except false alarms; empty: nothing."""
        return "; ".join(filter(None, (*(text for _, text in self.planted), self.verdict_problem)))


@dataclass(frozen=True, slots=True)
class Side:
    """What was found in one store as the corrupted target.

    Attributes:
        names: the drivers of source and target.
        clean: the verification before anything was planted, and what it named.
        rounds: corruptions planted together, no two of them in one row at the same time.
        blocked: those that another row kept from being planted, each alone.
        alone: corruptions planted again alone.
        schema: each part of the schema with how its absence was named, empty if it was not.
        seconds: by step.
    """

    names: tuple[str, str]
    clean: tuple[ParityReport, list[Line]]
    rounds: list[Trial]
    blocked: list[Trial]
    alone: list[Trial]
    schema: list[tuple[Entity, SchemaPart, str]]
    seconds: dict[str, float]


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a self-test found: the sample and the number of made rows by entity, and each store as target."""

    samples: Mapping[str, Sample]
    made: Mapping[str, int]
    sides: list[Side]
    seconds: float


def run_selftest(  # noqa: PLR0917  # the three stores, the request, and the receivers of reports
    source: Store,
    left: ScratchSide,
    right: ScratchSide,
    options: SelftestOptions,
    progress: Progress,
    stop: StopSwitch,
) -> Outcome:
    """Run the self-test between two empty scratch databases; the source is only read.

    Raises:
        PreflightError: the source has no row that a copy includes.
        ValidationError: an entity is unknown, or an ignored property is none.
        TwinstoreError: a store failed.
        InterruptedRunError: a signal requested the stop.
    """
    started = monotonic()
    try:
        select_entities(source.bulk, options.entities)
        rules = job_rules(options.rules, source)
        # As a verification sees them, which is what it is about.
        changed = source.changed(verifier_changes(rules, source.bulk.entities()))
        samples = sample_source(preflight(lambda: changed.bulk), options.sample, options.seed)
        if not any(sample.records for sample in samples.values()):
            raise PreflightError(
                f"{source.bulk.place} has no row to test with; name a source that holds some.",
                driver=source.backend,
            )
        made = variant_rows(samples, options.corrupts)
        rows = {name: [*sample.records.values(), *made[name]] for name, sample in samples.items()}
        load_rows(rows, left, right, stop)
        added = {
            item.name: len(left.rows(item).keys() - samples[item.name].records.keys())
            for item in left.entities
        }
        test = Selftest(samples, options, progress, stop)
        forth = test.corrupted(left, right)
        for entity in reversed(left.entities):
            left.corruption_writer.clear(entity)
        copy_all(right, left, stop)
        sides = [forth, test.corrupted(right, left)]
    except (StopRequestedError, InterruptedRunError):
        # Also where a copy was interrupted: what it has saved goes with the scratch databases.
        stop.raise_if_interrupted("The scratch databases were emptied; run the same command again.")
        raise
    return Outcome(samples, added, sides, monotonic() - started)


@dataclass(slots=True)
class Selftest:
    """The tests of both stores.

    Attributes:
        seen: the kinds that were planted alone, each with whether it must be found.
    """

    samples: Mapping[str, Sample]
    options: SelftestOptions
    progress: Progress
    stop: StopSwitch
    seen: set[tuple[Kind, bool]] = field(default_factory=set[tuple[Kind, bool]])

    def corrupted(self, source: ScratchSide, target: ScratchSide) -> Side:
        """Corrupt one store, verify it against the other one, and restore it."""
        seconds: dict[str, float] = {}
        names = source.store.backend, target.store.backend
        with timed(seconds, "verification before planting"):
            clean = run_verification(source, target, self.stop)
        with timed(seconds, "planting"):
            rounds = list(self._rounds(source, target))
        with timed(seconds, "planting apart"):
            in_the_way = [item for trial in rounds for item, error in trial.refused if error.unique]
            blocked = [self._trial(source, target, [item]) for item in in_the_way]
        with timed(seconds, "alone"):
            planted = [planted for trial in rounds for planted, _ in trial.planted]
            chosen = planted if self.options.thorough else list(self._one_of_each(planted))
            tracked = self._with_progress(f"planting alone into {names[1]}", chosen)
            alone = [self._trial(source, target, [item.item]) for item in tracked]
        with timed(seconds, "schema"):
            schema = self._schema(source, target)
        return Side(names, clean, rounds, blocked, alone, schema, seconds)

    def _one_of_each(self, planted: Iterable[AppliedCorruption]) -> Iterator[AppliedCorruption]:
        """Yield the first corruption of each kind that was not planted alone yet, in either store."""
        for item in planted:
            kind = item.item.kind, bool(item.expected)
            if kind not in self.seen:
                self.seen.add(kind)
                yield item

    def _with_progress(self, title: str, items: Sequence[T]) -> Iterator[T]:
        self.progress.start(title, len(items))
        for item in items:
            yield item
            self.progress.advance(title, 1)
        self.progress.finish(title)

    def _rounds(self, source: ScratchSide, target: ScratchSide) -> Iterator[Trial]:
        """Plant every corruption once: in each round one into each row that has one left."""
        done: set[tuple[str, ...]] = set()
        contexts, waiting = entity_contexts(target, self.samples), list[Iterator[Corruption]]()
        for entity in filter(lambda entity: self.options.corrupts(entity.name), target.entities):
            # The user's own rows first, because they are the better test.
            own, rows = self.samples[entity.name].records, target.rows(entity)
            for key in sorted(rows, key=lambda key: (key not in own, key)):
                waiting.append(contexts[entity.name].corruptions(key, rows[key].values))
        title = f"planting into {target.store.backend}"
        self.progress.start(title, len(waiting))
        while waiting:
            whole, chosen = not done, dict[int, Corruption]()
            for number, corruptions in enumerate(waiting):
                # A corruption that was planted into another row is not planted again.
                item = next((item for item in corruptions if item.identity not in done), None)
                if item is not None:
                    done.add(item.identity)
                    chosen[number] = item
            self.progress.advance(title, len(waiting) - len(chosen))
            waiting = [waiting[number] for number in chosen]
            if chosen:
                yield self._trial(source, target, [*chosen.values()], whole=whole)
        self.progress.finish(title)

    def _trial(
        self, source: ScratchSide, target: ScratchSide, items: Sequence[Corruption], *, whole: bool = False
    ) -> Trial:
        """Plant corruptions of different rows, verify all or only their entities, and restore the rows."""
        entities = {item.point.entity.name: item.point.entity for item in items}
        rows = {name: target.rows(entity) for name, entity in entities.items()}
        planted: list[AppliedCorruption] = []
        refused: list[tuple[Corruption, CorruptionRefusedError]] = []
        try:
            for item in items:
                self.stop.check()
                entity = item.point.entity
                row = rows[entity.name][item.point.key]
                before = None if item.kind in ADDING else row
                try:
                    after = target.corruption_writer.change(entity, before, item.of(row.values))
                except CorruptionRefusedError as error:
                    refused.append((item, error))
                else:
                    planted.append(AppliedCorruption(item, before, after, target.key_of(entity, after)))
            report, lines = run_verification(source, target, self.stop, () if whole else tuple(entities))
        finally:
            for done in reversed(planted):
                values = None if done.before is None else done.before.values
                target.corruption_writer.change(done.item.point.entity, done.after, values)
        return Trial(*evaluate(planted, lines), refused, report, len(lines), whole)

    def _schema(self, source: ScratchSide, target: ScratchSide) -> list[tuple[Entity, SchemaPart, str]]:
        """Drop every part of the schema, check that it is named, and create it again.

        A part whose absence makes a target unsafe to read ends a verification before it begins, so it is
        created again at once. The others stay absent until one verification of all has named each.
        """
        found: list[tuple[Entity, SchemaPart, str]] = []
        with ExitStack() as dropped:
            # Children first: the key of a parent takes the foreign keys that refer to it along.
            for entity in reversed(target.store.bulk.entities()):
                if not self.options.corrupts(entity.name):
                    continue
                for part in list(target.corruption_writer.parts(entity)):
                    self.stop.check()
                    named = ""
                    try:
                        with ExitStack() as own:
                            part.drop()
                            own.callback(part.make)
                            preflight(target.store.storage.check_ready)
                            dropped.push(own.pop_all())
                    except PreflightError as error:
                        # No target was refused for what was dropped before, so the refusal is for this part.
                        named = BEFORE if names(error.message, entity.name) else ""
                    found.append((entity, part, named))
            report, _ = run_verification(source, target, self.stop)
        checks = () if report.cutover_ready or report.verdict == "PASS" else report.checks
        texts = [
            f"{check.id}: {text}"
            for check in checks
            if check.title == SCHEMA and check.result != "pass"
            for text in check.findings
        ]
        return [
            (entity, part, named or next((text for text in texts if names(text, entity.name, part.name)), ""))
            for entity, part, named in found
        ]


def names(text: str, *wanted: str) -> bool:
    """Whether a finding has some names, each as a whole."""
    return all(re.search(rf"\b{re.escape(name)}\b", text) for name in wanted)


def entity_contexts(side: ScratchSide, samples: Mapping[str, Sample]) -> dict[str, EntityContext]:
    """Return what the rows of each entity have in common."""
    rows = {entity.name: side.rows(entity) for entity in side.entities}
    tenants = sorted({name for sample in samples.values() for name in sample.tenants if names_tenant(name)})
    referenced: defaultdict[str, set[Key]] = defaultdict(set)
    spare: dict[str, list[Key]] = {}
    taken: dict[str, dict[str, set[object]]] = {}
    for entity in side.entities:
        found, parent = rows[entity.name].values(), entity.parent
        taken[entity.name] = {
            place.name: {value for row in found if isinstance(value := row.values.get(place.name), str)}
            for place in side.places(entity)
        }
        if parent is not None and (above := parent.entity.name) in rows:
            name = next(place.name for place in side.places(entity) if place.field == parent.field)
            kind = parent.entity.key_parts[0].type
            parents = {key_part(side.corruption_writer, kind, row.values.get(name)) for row in found}
            parents_keys = {key for key in rows[above] if key[0] in parents}
            # One for the row doubled under another key, one for that under another tenant.
            spare[entity.name] = sorted(rows[above].keys() - parents_keys - referenced[above])[:2]
            referenced[above] |= {*parents_keys, *spare[entity.name]}
    return {
        (name := entity.name): EntityContext(
            entity,
            side.corruption_writer,
            side.places(entity),
            taken[name],
            referenced[name],
            tenants,
            spare.get(name, ()),
        )
        for entity in side.entities
    }


@contextmanager
def timed(seconds: dict[str, float], name: str) -> Iterator[None]:
    """Note how long a step takes."""
    started = monotonic()
    yield
    seconds[name] = round(monotonic() - started, 3)


def evaluate(
    planted: Sequence[AppliedCorruption], lines: Iterable[Line]
) -> tuple[list[tuple[AppliedCorruption, str]], list[Line]]:
    """Return what is wrong with how each corruption was named, and what was named and not planted."""
    named: defaultdict[tuple[str, str, Key | None], list[Line]] = defaultdict(list)
    for line in lines:
        # A text is what is stored in place of a key.
        key = tuple(line["key"]) if isinstance(line["key"], list) else None
        named[line["entity"], line["kind"], key].append(line)
    evaluated: list[tuple[AppliedCorruption, str]] = []
    for item in planted:
        places = [(item.item.point.entity.name, kind, key) for kind, key in item.expected]
        problems = [item.problem(place[1], named[place]) for place in places]
        evaluated.append((item, "; ".join(filter(None, problems))))
        for place in places:
            del named[place][:1]
    return evaluated, [line for rest in named.values() for line in rest]
