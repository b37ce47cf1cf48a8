"""Updates by a pipeline, which mongomock does with neither ``$replaceWith`` nor the time of the server."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

from bson.int64 import Int64

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    Names = Mapping[str, Any]

__all__ = ["NOW", "piped"]

Document = dict[str, Any]

NOW: Final = "$$NOW"
# What a field has that is not there, and what "$$REMOVE" stands for.
ABSENT: Final = object()


def piped(document: Document, pipeline: Sequence[Mapping[str, Any]], now: datetime) -> Document:
    """Return what the stages of an update make of a document.

    Raises:
        NotImplementedError: a stage or an operator that the driver has not used so far.
    """
    for stage in pipeline:
        names = {"ROOT": document, "NOW": now, "REMOVE": ABSENT}
        match stage:
            case {"$set": changes}:
                document = without_absent({**document, **evaluated(changes, names, keep=True)})
            case {"$replaceWith": expression}:
                document = evaluated(expression, names)
            case _:
                raise NotImplementedError(f"an update with {sorted(stage)}")
    return document


def evaluated(expression: Any, names: Names, *, keep: bool = False) -> Any:  # noqa: ANN401  # any value of BSON
    """Return the value of an expression; ``keep`` leaves absent fields in an object."""
    if isinstance(expression, str) and expression.startswith("$"):
        return referred(expression, names)
    if isinstance(expression, list):
        return [evaluated(item, names) for item in expression]
    if not isinstance(expression, dict):
        return expression
    operator = next(iter(expression), "")
    if operator.startswith("$"):
        if operator not in OPERATORS:
            raise NotImplementedError(f"an update with {operator}")
        return OPERATORS[operator](expression[operator], names)
    values = {name: evaluated(item, names) for name, item in expression.items()}
    return values if keep else without_absent(values)


def referred(path: str, names: Names) -> Any:  # noqa: ANN401  # any value of BSON
    """Return what a path leads to, from a variable or from the document."""
    head, *rest = path[2:].split(".") if path.startswith("$$") else ["ROOT", *path[1:].split(".")]
    value = names[head]
    for name in rest:
        value = value.get(name, ABSENT) if isinstance(value, dict) else ABSENT
    return value


def without_absent(document: Document) -> Document:
    """Return a document without the fields that are to be removed."""
    return {name: value for name, value in document.items() if value is not ABSENT}


def if_null(argument: list[Any], names: Names) -> Any:  # noqa: ANN401  # any value of BSON
    """Return the first value that is there."""
    *firsts, last = argument
    values = (evaluated(item, names) for item in firsts)
    found = (value for value in values if value is not None and value is not ABSENT)
    return next(found, evaluated(last, names))


def add(argument: list[Any], names: Names) -> Any:  # noqa: ANN401  # a number or an instant
    """Return a sum; an instant grows by milliseconds, and 64 bits stay 64 bits."""
    first, *others = evaluated(argument, names)
    if isinstance(first, datetime):
        return first + timedelta(milliseconds=sum(others))
    long = any(isinstance(value, Int64) for value in (first, *others))
    return (Int64 if long else int)(sum(others, first))


def merge_objects(argument: list[Any], names: Names) -> Document:
    """Return the fields of all objects; the last one wins."""
    merged: Document = {}
    for item in evaluated(argument, names):
        merged |= item
    return merged


def let(argument: Mapping[str, Any], names: Names) -> Any:  # noqa: ANN401  # any value of BSON
    """Return the value of an expression with more variables."""
    return evaluated(argument["in"], {**names, **evaluated(argument["vars"], names)})


def cond(argument: list[Any], names: Names) -> Any:  # noqa: ANN401  # any value of BSON
    """Return one of two values."""
    condition, then, otherwise = argument
    return evaluated(then if evaluated(condition, names) else otherwise, names)


def is_equal(argument: list[Any], names: Names) -> bool:
    """Whether two values are equal; unlike the server this takes fields in another order for the same."""
    one, other = evaluated(argument, names)
    return bool(one == other)


OPERATORS: Final[Mapping[str, Callable[[Any, Names], Any]]] = {
    "$add": add,
    "$cond": cond,
    "$eq": is_equal,
    "$ifNull": if_null,
    "$let": let,
    "$literal": lambda argument, _: argument,
    "$mergeObjects": merge_objects,
}
