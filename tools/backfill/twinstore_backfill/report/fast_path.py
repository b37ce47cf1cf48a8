"""How much of a copy or a verification went the fast path, as both reports say it."""

from __future__ import annotations

from typing import Final, Literal

from pydantic import BaseModel, ConfigDict, Field

from twinstore.fast.library import fast_path

TENTHS: Final = 1000
FEW: Final = 0.9


class FastPathReport(BaseModel):
    """How many of the rows that were read went through the native library. The result is the same without it.

    Attributes:
        state: whether the library was used.
        reason: why it was off, or why it read less than nine tenths of the rows.
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
            return "fast path: native, this command read no rows"
        why = f" ({self.reason})" if self.reason else ""
        return f"fast path: native, {share(self.rows, self.of)} of {self.of:,} row{'s' * (self.of != 1)}{why}"


def fast_path_report(rows: int, of: int, why_few: str = "") -> FastPathReport:
    """Return the section of a report.

    Args:
        rows: the number of rows on the fast path.
        of: the number of all rows that were read.
        why_few: why rows are left to the exact way; reported if these are more than a tenth.
    """
    found = fast_path()
    if not found.is_on:
        return FastPathReport(state="off", reason=found.reason, rows=rows, of=of)
    return FastPathReport(state="native", reason=why_few if rows < FEW * of else "", rows=rows, of=of)


def share(part: int, whole: int) -> str:
    """Return a part of a whole; neither all nor nothing is said of a number that is only near it."""
    if part in {0, whole}:
        return "100 %" if part else "0 %"
    tenths = min(max(part * TENTHS // whole, 1), TENTHS - 1)
    return f"{tenths / 10:.1f} %"
