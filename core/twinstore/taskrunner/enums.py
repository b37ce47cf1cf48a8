"""The enumerations of the task runner; every store holds their texts."""

from __future__ import annotations

from enum import StrEnum

__all__ = ["LogLevel", "PackApprovalStatus", "PackArtifactStatus", "PackRunStepKind", "PackRunStepStatus"]


class LogLevel(StrEnum):
    """Severity of a log entry."""

    TRACE = "trace"
    DEBUG = "debug"
    INFO = "info"
    WARN = "warn"
    ERROR = "error"


class PackRunStepKind(StrEnum):
    """What a step does."""

    RUN = "run"
    PARALLEL = "parallel"
    MAP = "map"
    GATE_APPROVAL = "gate.approval"
    GATE_POLICY = "gate.policy"
    LOOP = "loop"
    CONDITIONAL = "conditional"


class PackRunStepStatus(StrEnum):
    """The status of a step."""

    PENDING = "pending"
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    SKIPPED = "skipped"


class PackArtifactStatus(StrEnum):
    """What became of an output."""

    PENDING = "pending"
    COPIED = "copied"
    MATERIALIZED = "materialized"
    SKIPPED = "skipped"


class PackApprovalStatus(StrEnum):
    """Whether an approval was given."""

    PENDING = "pending"
    APPROVED = "approved"
    REJECTED = "rejected"
    EXPIRED = "expired"
