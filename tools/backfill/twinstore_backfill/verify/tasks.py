"""The pieces of a verification, each able to run in another process."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from typing_extensions import override

from twinstore.catalog.keys import Key, KeyRange
from twinstore_backfill.verify.context import Task, VerifyContext
from twinstore_backfill.verify.findings import RangeResult
from twinstore_backfill.verify.ranges import compare_keys, compare_parts, compare_range
from twinstore_backfill.verify.sampling import compare_sample

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from twinstore_backfill.verify.options import RowSelection


@dataclass(frozen=True, slots=True)
class RangeTask(Task[RangeResult]):
    """Compare one range; with ``rates`` only a sample of it."""

    entity: str
    tenant: str | None
    within: KeyRange
    rates: Mapping[str, float] | None = None
    seed: int = 0

    @override
    def run(self, context: VerifyContext) -> RangeResult:
        work = context.comparison(self.entity, self.tenant)
        if self.rates is None:
            return compare_range(work, self.within)
        return compare_sample(work, self.within, self.rates, self.seed)


@dataclass(frozen=True, slots=True)
class OpenPartsTask(Task[RangeResult]):
    """Compare the parts of a range that digests leave open, and add them to what these prove.

    Attributes:
        proved: what the digests prove.
        parts: what they leave open, in key order.
        compared: how many ranges of digests these parts are.
        is_small: whether there are so few that no other process is started for them.
    """

    proved: RangeResult
    parts: tuple[KeyRange, ...]
    compared: int
    is_small: bool = False

    @property
    @override
    def is_local(self) -> bool:
        """Whether another process would take longer to begin with it than this one to do it."""
        return self.is_small or not self.parts

    @override
    def run(self, context: VerifyContext) -> RangeResult:
        result = self.proved
        if self.parts:
            compare_parts(context.comparison(result.entity, result.tenant), self.parts, result)
        result.shares.compared += self.compared
        return result


@dataclass(frozen=True, slots=True)
class KeyTask(Task[RangeResult]):
    """Compare single rows."""

    entity: str
    keys: tuple[Key, ...]

    @override
    def run(self, context: VerifyContext) -> RangeResult:
        return compare_keys(context.comparison(self.entity), self.keys)


def key_tasks(entities: Iterable[str], only: RowSelection) -> Iterator[KeyTask]:
    """Return the tasks that compare single rows."""
    for name in entities:
        yield from (KeyTask(name, keys) for keys in only.key_batches(name))
