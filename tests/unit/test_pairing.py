"""Fields that a copy normalised are reported member by member, even if it spells the members differently."""

from __future__ import annotations

from typing import Final

import pytest

from twinstore_backfill.verify.expected import MAX_MATCHED, changes, match_items

Members = list[object]
CASES: Final[dict[str, tuple[Members, Members, list[tuple[str, str]]]]] = {
    "another case moves a label": (
        [{"key": "app", "values": []}, {"key": "0T", "values": ["a"]}],
        [{"key": "0t", "values": ["a"]}, {"key": "app", "values": []}],
        [("set_order", "doc.m"), ("case", "doc.m[1].key")],
    ),
    "a blank and the order of a member": (
        [{"key": "b ", "values": ["y", "x"]}, {"key": "a", "values": ["z"]}],
        [{"key": "a", "values": ["z"]}, {"key": "b", "values": ["x", "y"]}],
        [("set_order", "doc.m"), ("whitespace", "doc.m[0].key"), ("set_order", "doc.m[0].values")],
    ),
    "the order alone": ([{"a": 1}, {"a": 0}], [{"a": 0}, {"a": 1}], [("set_order", "doc.m")]),
    "a spelling alone": ([{"a": "X"}], [{"a": "x"}], [("case", "doc.m[0].a")]),
    "an instant in another spelling": (
        [{"at": "2025-10-26T16:05:00+02:00"}, {"at": "2025-10-26T14:05:00.0004Z"}],
        [{"at": "2025-10-26T14:05:00+00:00"}, {"at": "2025-10-26T14:05:00+00:00"}],
        [("text_timestamp", "doc.m[0].at"), ("text_timestamp", "doc.m[1].at")],
    ),
    "an instant in another spelling at another place": (
        [{"at": "2025-10-26T14:05:00Z", "id": "b"}, {"at": "2025-10-26T14:04:00+00:00", "id": "a"}],
        [{"at": "2025-10-26T14:04:00+00:00", "id": "a"}, {"at": "2025-10-26T14:05:00+00:00", "id": "b"}],
        [("set_order", "doc.m"), ("text_timestamp", "doc.m[0].at")],
    ),
    "values that no rule explains": (
        [{"a": 1}, {"a": 2}],
        [{"a": 2}, {"a": 3}],
        [("normalised", "doc.m[0].a"), ("normalised", "doc.m[1].a")],
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_each_change_has_its_name(case: str) -> None:
    given, stored, expected = CASES[case]
    found = changes({"doc": {"m": given}}, {"doc": {"m": stored}})
    assert [(change.kind, change.path) for change in found] == expected


def test_a_list_in_a_list_in_a_list_is_compared_quickly() -> None:
    given: list[object] = [{"a": 1}, {"b": 2}]
    stored: list[object] = [{"b": 3}, {"a": 1}]
    for _ in range(60):
        given, stored = [given, {"c": [1, 2]}], [{"c": [2, 1]}, stored]
    # Twice as long for each depth would end with the universe.
    assert {change.kind for change in changes({"doc": {"m": given}}, {"doc": {"m": stored}})} == {
        "normalised"
    }


def test_too_many_are_not_compared() -> None:
    many = [{"a": number} for number in range(MAX_MATCHED + 1)]
    assert match_items(many, many[::-1]) is None
    assert match_items(many[1:], many[:0:-1]) == list(range(MAX_MATCHED))[::-1]
