"""How much of a copy or a verification went the fast path, as both reports say it."""

from __future__ import annotations

from typing import Final, Literal

from pydantic import BaseModel, ConfigDict, Field

from twinstore.fast.library import fast_path

TENTHS: Final = 1000


class FastPathReport(BaseModel):
    """How many of the rows that were read went through the native library. The result is the same without it.

    Attributes:
        state: whether the library was used.
        reason: why it was off.
        rows: rows that it packed (copy) or proved by digests (verification).
        of: all rows that were read.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", json_schema_serialization_defaults_required=True)

    state: Literal["native", "off"]
    reason: str = ""
    rows: int = Field(default=0, ge=0)
    of: int = Field(default=0, ge=0)

    def __str__(self) -> str:
        if self.state == "off":
            return f"fast path: off ({self.reason})"
        if not self.of:
            return "fast path: native, no rows were read"
        return f"fast path: native, {share(self.rows, self.of)} of {self.of:,} row{'s' * (self.of != 1)}"


def fast_path_report(rows: int, of: int) -> FastPathReport:
    """Return the section of a report.

    Args:
        rows: the number of rows on the fast path.
        of: the number of all rows that were read.
    """
    found = fast_path()
    return FastPathReport(state="native" if found.is_on else "off", reason=found.reason, rows=rows, of=of)


def share(part: int, whole: int) -> str:
    """Return a part of a whole; neither all nor nothing is said of a number that is only near it."""
    if part in {0, whole}:
        return "100 %" if part else "0 %"
    tenths = min(max(part * TENTHS // whole, 1), TENTHS - 1)
    return f"{tenths / 10:.1f} %"
