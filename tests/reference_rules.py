"""The rules between fields evaluated the plainest way, from nothing but their data, to measure the other by.

Returns what ``twinstore.models.rules`` says in words; shares no code with ``breach`` or the compiled
function.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

from twinstore.models import rules as kinds


def first_broken(rules: Iterable[kinds.ModelRule], model: object) -> kinds.ModelRule | None:
    return next((rule for rule in rules if not keeps(rule, model)), None)


def keeps(rule: kinds.ModelRule, model: object) -> bool:  # noqa: C901, PLR0911, PLR0912  # one case a kind
    def value(name: str) -> object:
        found: object = model
        for part in name.split("."):
            found = None if found is None else getattr(found, part)
        return found

    def present(name: str) -> bool:
        return value(name) is not None

    def numbers(*names: str) -> list[int]:
        found = [value(name) for name in names]
        return [number for number in found if isinstance(number, int)]

    def instants(*names: str) -> list[datetime]:
        found = [value(name) for name in names]
        return [instant for instant in found if isinstance(instant, datetime)]

    match rule:
        case kinds.FieldAtMost(field=field, limit=limit):
            number, most = numbers(field, limit)
            return number <= most
        case kinds.SumAtMost(fields=fields, limit=limit):
            return sum(numbers(*fields)) <= sum(numbers(limit))
        case kinds.LengthAtMost(field=field, limit=limit):
            return len(entries(value(field))) <= sum(numbers(limit))
        case kinds.NotBefore(field=field, earlier=earlier):
            return all(before <= after for after in instants(field) for before in instants(*earlier))
        case kinds.PresentExactlyIn(field=field, by=by, members=members):
            return present(field) == (value(by) in members)
        case kinds.PresentIn(field=field, by=by, members=members):
            return present(field) or value(by) not in members
        case kinds.AbsentIn(field=field, by=by, members=members):
            return not present(field) or value(by) not in members
        case kinds.PresentExactlyWhen(field=field, flag=flag):
            return present(field) == value(flag)
        case kinds.AllOrNone(fields=fields):
            return sum(present(name) for name in fields) in {0, len(fields)}
        case kinds.RequiresEntry(by=by, entries=required):
            return all(entries(value(field)) for member, field in required if value(by) == member)
        case kinds.EqualOrAbsent(field=field, other=other):
            return not present(field) or value(field) == value(other)
        case kinds.EqualExactlyIn(field=field, value=wanted, by=by, members=members):
            return (value(field) == wanted) == (value(by) in members)
        case kinds.FirstOf(field=field, items=items):
            first = [*entries(value(items))[:1], None][0]
            return value(field) == first
        case kinds.FieldDerived(field=field, source=source, function=function):
            return value(field) == function(value(source))
    raise AssertionError(f"no plain evaluation of {rule}")


def entries(items: object) -> tuple[object, ...]:
    assert isinstance(items, tuple)
    return items
