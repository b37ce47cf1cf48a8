"""The steps of a smoke test: what each is called, what became of it, and how long it took."""

from __future__ import annotations

from dataclasses import dataclass
from time import perf_counter
from typing import TYPE_CHECKING, Final

from twinstore.errors import TwinstoreError, UnavailableError

if TYPE_CHECKING:
    from collections.abc import Callable

    from twinstore_backfill.report.model import Check, Result

__all__ = ["Finding", "SmokeReport", "Step", "StepSkippedError", "timed"]

SHOWN: Final = 20


class StepSkippedError(Exception):
    """A step cannot be taken, and why; nothing is known to be wrong."""


@dataclass(frozen=True, slots=True)
class Finding:
    """What a step found: its result in one line, and each problem as a sentence."""

    summary: str
    problems: tuple[str, ...] = ()
    result: Result | None = None

    @classmethod
    def of(cls, check: Check) -> Finding:
        """Return what a check of a verification found."""
        return cls(check.summary, tuple(check.findings), check.result)


@dataclass(frozen=True, slots=True)
class Step:
    """One step.

    Attributes:
        name: what was looked at or tried.
        result: what it amounts to; an inconclusive or skipped one is told and fails nothing.
        milliseconds: how long it took.
        summary: the result in one line.
        problems: what is wrong, each with what to do about it.
        unreachable: the store did not answer.
    """

    name: str
    result: Result
    milliseconds: int
    summary: str
    problems: tuple[str, ...] = ()
    unreachable: bool = False

    def document(self) -> dict[str, object]:
        """Return what a program reads."""
        return {
            "step": self.name,
            "result": self.result,
            "milliseconds": self.milliseconds,
            "summary": self.summary,
            "findings": list(self.problems[:SHOWN]),
            "count": len(self.problems),
        }


@dataclass(frozen=True, slots=True)
class SmokeReport:
    """What a smoke test found: its steps in order, and of which store."""

    module: str
    store: dict[str, str]
    tenant: str
    steps: tuple[Step, ...]

    @property
    def passed(self) -> bool:
        """Whether nothing is wrong."""
        return all(step.result != "fail" for step in self.steps)

    @property
    def unreachable(self) -> bool:
        """Whether the store did not answer at some step."""
        return any(step.unreachable for step in self.steps)

    def document(self) -> dict[str, object]:
        """Return what a program reads."""
        return {
            "verdict": "OK" if self.passed else "FAILED",
            "module": self.module,
            **self.store,
            "tenant": self.tenant,
            "steps": [step.document() for step in self.steps],
        }


def timed(name: str, look: Callable[[], Finding]) -> Step:
    """Take a step and say what became of it; an error of the library is what it found."""
    began = perf_counter()
    unreachable = False
    try:
        found = look()
    except StepSkippedError as skipped:
        found = Finding(str(skipped), result="skipped")
    except TwinstoreError as error:
        unreachable = isinstance(error, UnavailableError)
        found = Finding("ended with an error", (error.message,))
    result = found.result or ("fail" if found.problems else "pass")
    spent = round(1000 * (perf_counter() - began))
    return Step(name, result, spent, found.summary, found.problems, unreachable)
