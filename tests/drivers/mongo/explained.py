"""Explains recorded commands on filled collections of MongoDB, with values of documents that are there."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from datetime import timedelta
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

from bson import Int64
from pymongo.errors import OperationFailure

from tests.support.plan_rows import rows_of
from tests.support.plans import Finding
from twinstore.catalog.row import Row
from twinstore_mongo.bulk.tenant_filter import PARENT
from twinstore_mongo.mapping.codec import codec_of
from twinstore_mongo.mapping.layout import index_specs

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pymongo.database import Database

    from twinstore.catalog.entity import Entity, Module
    from twinstore.plugins.statements import Statement

Document = dict[str, Any]

PAGE: Final = 20
KEYS: Final = 20
BATCH: Final = 5000
WINDOW: Final = timedelta(days=30)
# Those that the server explains; an insert reads nothing.
EXPLAINED: Final = ("find", "aggregate", "update", "delete", "findAndModify")
COUNTED: Final = {"limit": PAGE, "skip": PAGE, "batchSize": PAGE}
# Where a bound is: in a list without a start, next to the start of a page, or inside of it.
PLAIN, PAGED, EXACT = "plain", "paged", "exact"
SORTS: Final = frozenset({"SORT", "SORT_SIMPLE", "SORT_DEFAULT"})
MATCHED: Final = ("nWouldModify", "nMatched", "nWouldDelete")


def fill(database: Database[Document], module: Module, count: int) -> None:
    """Fill each collection of a module with this many documents."""
    for entity in module.entities:
        codec = codec_of(entity)
        documents = (codec.encode(Row(row.model, row.storage)) for row in rows_of(entity, count))
        while batch := list(islice(documents, BATCH)):
            database[entity.collection].insert_many(batch, ordered=False)


@dataclass
class Explainer:
    """Explains commands on a filled database.

    Attributes:
        database: where the documents are.
        module: whose commands they are.
        tenant: of the documents whose values are asked for.
    """

    database: Database[Document]
    module: Module
    tenant: str
    _samples: dict[str, list[Document]] = field(default_factory=dict)

    def explain(self, statement: Statement) -> Iterator[Finding]:
        """Yield what the server does for a command."""
        entity = self.module.entity(statement.entity)
        shapes = dict(line.split(": ", 1) for line in statement.text.splitlines())
        command = {name: json.loads(text) for name, text in shapes.items()}
        if next(iter(command)) in EXPLAINED:
            yield self._finding(statement, entity, command)

    def _finding(self, statement: Statement, entity: Entity, command: Document) -> Finding:
        bound = Binder(self, entity, command)
        plan = self.database.command("explain", bound.command, verbosity="executionStats")
        stats = list(executions(plan))
        found = list(stages(plan))
        returned = max(matched(plan), *(int(item.get("nReturned", 0)) for item in stats), 0)
        examined = sum(
            max(int(item.get("totalDocsExamined", 0)), int(item.get("totalKeysExamined", 0)))
            for item in stats
        )
        kinds = {str(stage["stage"]) for stage in found}
        return Finding(
            statement=statement.name,
            examined=examined,
            returned=returned,
            page=bound.page,
            indexes=frozenset(str(stage["indexName"]) for stage in found if "indexName" in stage)
            | ({"_id_"} if kinds & {"IDHACK", "EXPRESS_IXSCAN", "CLUSTERED_IXSCAN"} else frozenset()),
            scans_all="COLLSCAN" in kinds,
            sorts=self._sorts(entity, bound.command) if kinds & SORTS else (),
            reads="EOF" not in kinds,
        )

    def _sorts(self, entity: Entity, command: Document) -> tuple[str, ...]:
        """Return the sorts that no index of the entity spares."""
        for spec in index_specs(entity):
            try:
                plan = self.database.command(
                    "explain", {**command, "hint": spec.name}, verbosity="queryPlanner"
                )
            except OperationFailure:  # this index does not hold all documents of the list
                continue
            if not {str(stage["stage"]) for stage in stages(plan)} & SORTS:
                return ()
        return ("SORT",)

    def samples(self, entity: Entity) -> list[Document]:
        """Return documents of the tenant in the middle of its time."""
        if entity.name not in self._samples:
            name = codec_of(entity).tenant
            mine = {} if name is None else {name: self.tenant}
            collection = self.database[entity.collection]
            skipped = collection.count_documents(mine) // 2
            self._samples[entity.name] = list(
                collection.find(mine).sort("$natural", 1).skip(skipped).limit(KEYS)
            )
        return self._samples[entity.name]

    def value(self, entity: Entity, name: str) -> Any:  # noqa: ANN401  # whatever is stored
        """Return a value of the document in the middle, of another one where that has none."""
        for document in self.samples(entity):
            if document.get(name) is not None:
                return document[name]
        collection = self.database[entity.collection]
        present = {name: {"$ne": None}}
        skipped = collection.count_documents(present) // 2
        other = collection.find_one(present, skip=skipped, sort=[(name, 1)])
        return None if other is None else other[name]


class Binder:
    """Gives each type in a recorded command a value.

    Attributes:
        command: the command with values.
        page: how many documents it may return at most, by its limit or its keys.
    """

    def __init__(self, explainer: Explainer, entity: Entity, shape: Document) -> None:
        self._explainer = explainer
        self._entity = entity
        self.page = 1
        if "limit" in shape or "batchSize" in shape:
            self.page = PAGE
        kind = next(iter(shape))
        self._descends = next(iter(shape.get("sort", {"": 1}).values())) == -1
        self.command = {"find": self._read, "aggregate": self._aggregate}.get(kind, self._write)(kind, shape)

    def _read(self, kind: str, shape: Document) -> Document:
        command: Document = {name: COUNTED.get(name, part) for name, part in shape.items()}
        for name in ("filter", "min", "max"):
            if name in shape:
                command[name] = self._filter(
                    shape[name], place=PAGED if "$or" in json.dumps(shape[name]) else PLAIN
                )
        if "max" in command and "min" in command:
            command["max"] = {name: self._above(value) for name, value in command["max"].items()}
        return {kind: command.pop(kind), **command, "collation": {"locale": "simple"}}

    def _aggregate(self, kind: str, shape: Document) -> Document:
        pipeline = [self._stage(stage) for stage in shape["pipeline"]]
        hint = {"hint": shape["hint"]} if "hint" in shape else {}
        return {
            kind: shape[kind],
            "pipeline": pipeline,
            **hint,
            "cursor": {},
            "collation": {"locale": "simple"},
        }

    def _stage(self, stage: Document) -> Document:
        (name, part), *_ = stage.items()
        if name == "$match":
            return {name: self._filter(part, place=PLAIN)}
        if name == "$lookup":
            return {name: self._join(part)}
        return {name: PARENT if name == "$unset" else literal(part)}

    def _join(self, shape: Document) -> Document:
        """Return the join of rows with their parents, of which the recorded one has the form alone."""
        if self._entity.parent is None:
            raise LookupError(f"{self._entity.name} has no parent to be joined with")
        parent = self._entity.parent.entity
        owner = [
            {"$match": dict.fromkeys(stage["$match"], self._explainer.tenant)}
            for stage in shape["pipeline"]
            if "$match" in stage
        ]
        return {
            "from": parent.collection,
            "localField": codec_of(self._entity).names[self._entity.parent.field],
            "foreignField": codec_of(parent).key[-1],
            "pipeline": [*owner, {"$limit": 1}, {"$project": {"_id": 1}}],
            "as": PARENT,
        }

    def _write(self, kind: str, shape: Document) -> Document:
        if kind == "findAndModify":
            query = self._filter(shape["query"], place=PLAIN)
            sort = {"sort": shape["sort"]} if "sort" in shape else {}
            return {kind: shape[kind], "query": query, "update": {"$set": {"explained": 1}}, **sort}
        listed = "updates" if kind == "update" else "deletes"
        one = shape[listed][0]
        condition = self._filter(one["q"], place=PLAIN)
        if kind == "delete":
            return {kind: shape[kind], listed: [{"q": condition, "limit": 0}]}
        change = {"$set": {"explained": 1}}
        return {kind: shape[kind], listed: [{"q": condition, "u": change, "multi": one.get("multi", False)}]}

    def _filter(self, shape: Any, *, place: str, field: str = "", operator: str = "") -> Any:  # noqa: ANN401  # a part of a filter
        if isinstance(shape, dict):
            return {
                name: self._filter(
                    part,
                    place=EXACT if name == "$or" else place,
                    field=field if name.startswith("$") else name,
                    operator=name if name.startswith("$") else "",
                )
                for name, part in shape.items()
            }
        if isinstance(shape, list):
            if (
                operator in {"$in", "$nin"}
                and shape
                and isinstance(shape[0], str)
                and shape[0].startswith("<")
            ):
                return self._several(field, operator)
            return self._expression(shape, place=place, field=field)
        if isinstance(shape, str) and shape.startswith("<"):
            return self._value(field, operator, place=place)
        return shape

    def _expression(self, shape: list[Any], *, place: str, field: str) -> list[Any]:
        """Return the parts of a list; in an expression the first one may name the field of the second."""
        match shape:
            case [[str(first), *_] as fields, [dict(), *_]] if first.startswith("$"):
                # A key of several parts; of equal ones behind each other the record keeps one.
                values = [self._explainer.value(self._entity, str(name)[1:]) for name in fields]
                return [fields, [{"$literal": value} for value in values]]
            case _:
                pass
        named = next(
            (str(item)[1:] for item in shape if isinstance(item, str) and item.startswith("$")), field
        )
        return [self._filter(item, place=place, field=named) for item in shape]

    def _several(self, field: str, operator: str) -> list[Any]:
        if operator == "$nin":
            return ["nobody"]
        self.page = max(self.page, KEYS)
        values = [document.get(field) for document in self._explainer.samples(self._entity)]
        unique: list[Any] = []
        for value in values:
            if value is not None and value not in unique:
                unique.append(value)
        return unique

    def _value(self, field: str, operator: str, *, place: str) -> Any:  # noqa: ANN401  # whatever is stored
        value = self._explainer.value(self._entity, field)
        if not hasattr(value, "year") or operator not in {"$gt", "$gte", "$lt", "$lte"}:
            return value
        begins = "$lte" if self._descends else "$gte"
        if place == EXACT or (place == PAGED and operator == begins):
            return value
        return value - WINDOW if operator.startswith("$g") else value + WINDOW

    def _above(self, value: Any) -> Any:  # noqa: ANN401  # whatever is stored
        if isinstance(value, str):
            return f"{value}~"
        return value + 1 if isinstance(value, int | Int64) else value


def literal(part: Any) -> Any:  # noqa: ANN401  # a part of a pipeline
    """Return a part of a pipeline with numbers where it had some."""
    if isinstance(part, dict):
        return {name: literal(item) for name, item in part.items()}
    if isinstance(part, list):
        return [literal(item) for item in part]
    return 1 if isinstance(part, str) and part.startswith("<") else part


def executions(plan: Any) -> Iterator[Document]:  # noqa: ANN401  # any part of a plan
    """Yield the figures of each execution."""
    if isinstance(plan, dict):
        if "totalDocsExamined" in plan:
            yield plan
            return
        for part in plan.values():
            yield from executions(part)
    elif isinstance(plan, list):
        for part in plan:
            yield from executions(part)


def stages(plan: Any) -> Iterator[Document]:  # noqa: ANN401  # any part of a plan
    """Yield every stage of the winning plan."""
    if isinstance(plan, dict):
        if "stage" in plan:
            yield plan
        for name, part in plan.items():
            if name not in {"rejectedPlans", "executionStats", "slotBasedPlan", "command"}:
                yield from stages(part)
    elif isinstance(plan, list):
        for part in plan:
            yield from stages(part)


def matched(plan: Any) -> int:  # noqa: ANN401  # any part of a plan
    """Return how many documents a command would change."""
    if isinstance(plan, dict):
        own = max((int(plan.get(name, 0)) for name in MATCHED), default=0)
        return max([own, *(matched(part) for part in plan.values())])
    if isinstance(plan, list):
        return max([0, *map(matched, plan)])
    return 0
