"""The enumerations of the scheduler."""

from __future__ import annotations

from enum import StrEnum
from typing import Final

from typing_extensions import override

from twinstore.models.enums import NumberedEnum

__all__ = [
    "SEVERITY_ORDER",
    "TERMINAL_STATES",
    "GraphBuildTrigger",
    "GraphJobEventKind",
    "GraphJobStatus",
    "GraphJobType",
    "GraphOverlayKind",
    "GraphOverlayTrigger",
    "LogLevel",
    "PolicyRunExecutionStatus",
    "PolicyRunJobStatus",
    "PolicyRunMode",
    "PolicyRunPriority",
    "RunState",
    "RunTrigger",
    "ScheduleMode",
    "SelectorScope",
    "SeverityRank",
]


class ScheduleMode(NumberedEnum):
    """What a schedule does with the chosen images."""

    ANALYSIS_ONLY = "analysis-only"
    CONTENT_REFRESH = "content-refresh"


class RunTrigger(NumberedEnum):
    """What started a run."""

    CRON = "cron"
    MANUAL = "manual"
    CONCELIER = "concelier"
    EXCITITOR = "excititor"
    POLICY = "policy"
    CONTENT_REFRESH = "content-refresh"

    @classmethod
    @override
    def aliases(cls) -> dict[str, str]:
        """Accept the historical names of the two feeds."""
        return {
            "conselier": "concelier",
            "feedser": "concelier",
            "excitor": "excititor",
            "vexer": "excititor",
        }


class RunState(NumberedEnum):
    """The status of a run."""

    PLANNING = "planning"
    QUEUED = "queued"
    RUNNING = "running"
    COMPLETED = "completed"
    ERROR = "error"
    CANCELLED = "cancelled"

    @classmethod
    @override
    def aliases(cls) -> dict[str, str]:
        """Accept the American spelling."""
        return {"canceled": "cancelled"}

    @property
    def terminal(self) -> bool:
        """Whether no further move is allowed."""
        # By position: the terminal states are the last ones. A new state that is not terminal needs another
        # test.
        return self.number >= FIRST_TERMINAL

    @property
    def rank(self) -> int:
        """Progress of the run: planning 0, queued 1, running 2, terminal 3."""
        # The terminal states share a rank: none of them is further than another.
        return min(self.number, FIRST_TERMINAL)


class SelectorScope(NumberedEnum):
    """Which kind of choice a selector makes."""

    ALL_IMAGES = "all-images"
    BY_NAMESPACE = "by-namespace"
    BY_REPOSITORY = "by-repo"
    BY_DIGEST = "by-digest"
    BY_LABELS = "by-labels"


class SeverityRank(NumberedEnum):
    """Severity of a finding."""

    NONE = "none"
    INFO = "info"
    LOW = "low"
    MEDIUM = "medium"
    HIGH = "high"
    CRITICAL = "critical"
    UNKNOWN = "unknown"


class LogLevel(NumberedEnum):
    """Severity of a log entry."""

    TRACE = "trace"
    DEBUG = "debug"
    INFO = "info"
    WARN = "warn"
    ERROR = "error"


class PolicyRunMode(NumberedEnum):
    """How a policy is evaluated."""

    FULL = "full"
    INCREMENTAL = "incremental"
    SIMULATE = "simulate"


class PolicyRunPriority(NumberedEnum):
    """Which policy runs come first; a higher number goes before a lower one."""

    NORMAL = "normal"
    HIGH = "high"
    EMERGENCY = "emergency"


class PolicyRunExecutionStatus(NumberedEnum):
    """The status of a policy run, as callers see it."""

    QUEUED = "queued"
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELED = "canceled"
    REPLAY_PENDING = "replay_pending"

    @classmethod
    @override
    def aliases(cls) -> dict[str, str]:
        """Accept the British spelling."""
        return {"cancelled": "canceled"}


class GraphJobType(NumberedEnum):
    """What a graph job makes."""

    BUILD = "build"
    OVERLAY = "overlay"


class GraphJobStatus(NumberedEnum):
    """The status of a graph job; names and numbers of the first five are the customer's."""

    QUEUED = "queued"
    RUNNING = "running"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELED = "canceled"
    PENDING = "pending"

    @classmethod
    @override
    def aliases(cls) -> dict[str, str]:
        """Accept the British spelling."""
        return {"cancelled": "canceled"}

    @property
    def terminal(self) -> bool:
        """Whether no further move is allowed."""
        return self in TERMINAL_GRAPH_STATUSES


class PolicyRunJobStatus(NumberedEnum):
    """The status of a policy job in the queue."""

    PENDING = "pending"
    DISPATCHING = "dispatching"
    SUBMITTED = "submitted"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"

    @classmethod
    @override
    def aliases(cls) -> dict[str, str]:
        """Accept the American spelling."""
        return {"canceled": "cancelled"}


class GraphBuildTrigger(StrEnum):
    """What asked for a graph."""

    SBOM_VERSION = "sbom-version"
    BACKFILL = "backfill"
    MANUAL = "manual"


class GraphOverlayKind(StrEnum):
    """What an overlay shows."""

    POLICY = "policy"
    ADVISORY = "advisory"
    VEX = "vex"


class GraphOverlayTrigger(StrEnum):
    """What asked for an overlay."""

    POLICY = "policy"
    ADVISORY = "advisory"
    VEX = "vex"
    SBOM_VERSION = "sbom-version"
    MANUAL = "manual"


class GraphJobEventKind(StrEnum):
    """What an event of a graph job reports; a job is completed in every terminal state."""

    CREATED = "scheduler.graph.job.created"
    UPDATED = "scheduler.graph.job.updated"
    COMPLETED = "scheduler.graph.job.completed"


TERMINAL_GRAPH_STATUSES: Final = frozenset(
    {GraphJobStatus.COMPLETED, GraphJobStatus.FAILED, GraphJobStatus.CANCELED}
)
FIRST_TERMINAL: Final = RunState.COMPLETED.number
TERMINAL_STATES: Final = frozenset({RunState.COMPLETED, RunState.ERROR, RunState.CANCELLED})

SEVERITY_ORDER: Final[dict[SeverityRank, int]] = {
    severity: position
    for position, severity in enumerate(
        (
            SeverityRank.CRITICAL,
            SeverityRank.HIGH,
            SeverityRank.MEDIUM,
            SeverityRank.LOW,
            SeverityRank.INFO,
            SeverityRank.NONE,
            SeverityRank.UNKNOWN,
        )
    )
}
