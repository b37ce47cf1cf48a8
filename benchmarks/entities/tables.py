"""The tables of the entities: rate and rate per byte, and what the stages of a copy take of one row."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from benchmarks.entities.names import BACK, STANDARD, THERE, VERIFY, case_name, stage_name
from benchmarks.markdown import head, line

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from benchmarks.schedule import Sample, Samples

__all__ = ["entity_lines", "per_byte"]

MICROSECONDS: Final = 1e6
TITLES: Final = {
    THERE: "Every entity, copied from MongoDB to PostgreSQL",
    VERIFY: "Every entity, verified",
    BACK: "Every entity, copied from PostgreSQL to MongoDB",
}
STAGES: Final = ("read", "check and pack", "write", "mongod", "PostgreSQL")


def entity_lines(sizes: Mapping[str, float], samples: Samples) -> Iterator[str]:
    """Yield a table for each way."""
    for way, title in TITLES.items():
        yield from [f"**{title}**: medians; a byte is one of BSON; processor time by its stages", ""]
        staged = way != VERIFY
        columns = ["entity", "rows", "bytes a row", "rows/s", "MB/s", "per byte, of runs", "fast"]
        yield from head(
            [*columns, "CPU µs a row", *(STAGES if staged else ("client", "mongod", "PostgreSQL"))]
        )
        for entity, size in sizes.items():
            case = case_name(entity, way)
            rate, rows = samples.rate(case).middle, samples.by_case[case][0].units
            fast = samples.middle(case, lambda sample: sample.fast)
            shares = _stages(samples, entity, way) if staged else _shares(samples, case)
            cells = [entity, f"{rows:,}", f"{size:,.0f}", f"{rate:,.0f}", f"{rate * size / 1e6:.1f}"]
            cells += [f"{per_byte(sizes, samples, entity, way):.2f}", "" if fast is None else f"{fast:.0%}"]
            total = sum(shares)
            yield line([*cells, f"{total:,.1f}", *(f"{share:.1f} ({share / total:.0%})" for share in shares)])
        yield ""


def per_byte(sizes: Mapping[str, float], samples: Samples, entity: str, way: str) -> float:
    """Return the bytes per second of an entity as a part of those of runs, the median of the rounds."""
    ratio = samples.ratio(case_name(entity, way), case_name(STANDARD, way))
    return ratio.middle * sizes[entity] / sizes[STANDARD]


def _stages(samples: Samples, entity: str, way: str) -> list[float]:
    """Return the microseconds of a row: what a later stage takes is what it takes beyond the one before."""
    read, packed = (
        samples.middle(stage_name(entity, way, packed=packed), _client) or 0.0 for packed in (False, True)
    )
    whole, mongo, postgres = _shares(samples, case_name(entity, way))
    return [read, max(packed - read, 0.0), max(whole - packed, 0.0), mongo, postgres]


def _shares(samples: Samples, case: str) -> list[float]:
    return [samples.middle(case, part) or 0.0 for part in (_client, _mongo, _postgres)]


def _client(sample: Sample) -> float | None:
    return _each(sample, sample.client_seconds)


def _mongo(sample: Sample) -> float | None:
    return _each(sample, sample.mongo_seconds)


def _postgres(sample: Sample) -> float | None:
    if sample.server_seconds is None or sample.mongo_seconds is None:
        return None
    return _each(sample, sample.server_seconds - sample.mongo_seconds)


def _each(sample: Sample, seconds: float | None) -> float | None:
    return None if seconds is None else MICROSECONDS * seconds / sample.units
