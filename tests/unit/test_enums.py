"""Wire texts and numbers of the enumerations are pinned: stored data depends on them."""

from __future__ import annotations

import pytest

from twinstore import tracking
from twinstore.models.enums import NumberedEnum
from twinstore.scheduler import RunState, RunTrigger, ScheduleMode, SelectorScope, SeverityRank
from twinstore.scheduler.enums import SEVERITY_ORDER

PINNED: dict[type[NumberedEnum], list[str]] = {
    ScheduleMode: ["analysis-only", "content-refresh"],
    RunTrigger: ["cron", "manual", "concelier", "excititor", "policy", "content-refresh"],
    RunState: ["planning", "queued", "running", "completed", "error", "cancelled"],
    SelectorScope: ["all-images", "by-namespace", "by-repo", "by-digest", "by-labels"],
    SeverityRank: ["none", "info", "low", "medium", "high", "critical", "unknown"],
}


@pytest.mark.parametrize("enum", PINNED)
def test_texts_and_numbers_are_pinned(enum: type[NumberedEnum]) -> None:
    assert [(member.number, member.value) for member in enum] == list(enumerate(PINNED[enum]))
    assert [enum.from_number(number).value for number in range(len(enum))] == PINNED[enum]


@pytest.mark.parametrize("number", [-1, 6])
def test_a_number_without_member_is_refused(number: int) -> None:
    with pytest.raises(ValueError, match=str(number)):
        RunState.from_number(number)


@pytest.mark.parametrize(
    ("alias", "member"),
    [
        ("conselier", RunTrigger.CONCELIER),
        ("feedser", RunTrigger.CONCELIER),
        ("excitor", RunTrigger.EXCITITOR),
        ("vexer", RunTrigger.EXCITITOR),
    ],
)
def test_historical_names_are_read(alias: str, member: RunTrigger) -> None:
    assert RunTrigger(alias) is member


def test_both_spellings_of_cancelled_are_read_and_one_is_written() -> None:
    assert RunState("canceled") is RunState.CANCELLED
    assert RunState.CANCELLED.value == "cancelled"


@pytest.mark.parametrize("text", ["CRON", " cron", "cron ", ""])
def test_only_the_exact_text_is_read(text: str) -> None:
    with pytest.raises(ValueError, match="RunTrigger"):
        RunTrigger(text)


def test_severities_are_ordered_from_critical_to_unknown() -> None:
    order = sorted(SEVERITY_ORDER, key=SEVERITY_ORDER.__getitem__)
    assert [item.value for item in order] == ["critical", "high", "medium", "low", "info", "none", "unknown"]


def test_the_enumerations_of_tracking_have_the_customers_members() -> None:
    told = {
        kind.__name__: {member.name: member.value for member in kind}
        for kind in (tracking.SessionStatus, tracking.TaskStatus, tracking.MachineStatus)
    }
    assert told == {
        "SessionStatus": {
            "ACTIVE": "active",
            "PAUSED": "paused",
            "COMPLETED": "completed",
            "FAILED": "failed",
            "STALLED": "stalled",
        },
        "TaskStatus": {
            "PENDING": "pending",
            "IN_PROGRESS": "in_progress",
            "COMPLETED": "completed",
            "FAILED": "failed",
            "BLOCKED": "blocked",
        },
        "MachineStatus": {"ONLINE": "online", "OFFLINE": "offline", "MAINTENANCE": "maintenance"},
    }
