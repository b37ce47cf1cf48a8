"""A fresh start: somebody decided to begin without the old data. The source is neither opened nor needed.

count the target -> ask it for its lists -> checks -> verdict -> report
"""

from __future__ import annotations

from time import monotonic
from typing import TYPE_CHECKING, Final

from typing_extensions import override

from twinstore.catalog import LifeInCopy
from twinstore.releasing import copy_counts
from twinstore_backfill.copy.retention import instant_of_judgement
from twinstore_backfill.progress import SilentProgress
from twinstore_backfill.report.model import Check, LeftOut, SideReport
from twinstore_backfill.stores import left_out_entities, preflight
from twinstore_backfill.verify.beside import LARGEST_PAGE
from twinstore_backfill.verify.checks import list_checks, skipped, smoke_check
from twinstore_backfill.verify.engine import Verification
from twinstore_backfill.verify.schema import schema_check
from twinstore_backfill.verify.tasks import ListResult, ListTask, VerifyContext

if TYPE_CHECKING:
    from twinstore_backfill.report.model import ParityReport
    from twinstore_backfill.stopping import StopSwitch
    from twinstore_backfill.stores import Store
    from twinstore_backfill.verify.options import VerifyOptions

__all__ = ["run_start_clean"]

# The lists of one tenant must work too, and an empty store has none; nobody has this one.
NOBODY: Final = "twinstore-smoke"
# There is nothing to compare.
WHY: Final = "approved fresh start"
SKIPPED: Final = (("C1", "counts"), ("C2", "content"), ("C3", "mode"))


def run_start_clean(source: str, target: Store, options: VerifyOptions, stop: StopSwitch) -> ParityReport:
    """Check that a store is empty and answers its lists, and return the report.

    Args:
        source: the driver of the source, for the report; ``none`` where there is none.
        target: the store to begin with.
        options: what was asked; ``approval`` is set.
        stop: who may ask for a stop.

    Raises:
        PreflightError: the target is not migrated or not safe to read.
        InterruptedRunError: a signal asked for the stop.
    """
    started = monotonic()
    as_of = instant_of_judgement(target.bulk, options.as_of)
    preflight(target.storage.check_ready)
    # Both sides of the context are the target, which is asked for each list twice.
    run = FreshStart(source, VerifyContext(target, target, as_of, options.batch_size), options, stop)
    run.look()
    stop.raise_if_interrupted("Nothing was written; run the same command again.")
    return run.report((), as_of, monotonic() - started)


class FreshStart(Verification):
    """Looks at a target that nothing is compared with."""

    def __init__(
        self,
        source: str,
        context: VerifyContext,
        options: VerifyOptions,
        stop: StopSwitch,
    ) -> None:
        """Take the driver of the source, the target as both sides, and the options."""
        super().__init__(context, options, SilentProgress(), stop)
        self._source = source
        self._target = context.target

    def look(self) -> None:
        """Make the checks."""
        lists = ListResult([])
        for tenant in (None, NOBODY):
            lists.add(ListTask(tenant, LARGEST_PAGE, target_only=True).run(self._context))
        self.checks = [
            self._empty_check(),
            *(skipped(name, title, WHY) for name, title in SKIPPED),
            *list_checks(lists, self._target.module),
            smoke_check(self._target),
            skipped("C7", "undecodable", WHY),
            schema_check(self._target),
        ]

    def _empty_check(self) -> Check:
        """C0: nothing is there but what processes register when they start."""
        port = self._target.bulk
        entities = [entity for entity in port.entities() if entity.life is not LifeInCopy.LEFT_OUT]
        found = [
            f"{entity.name}: {count:,} {'row' if count == 1 else 'rows'} in target"
            for entity in entities
            if (count := sum(copy_counts(port, entity).values()))
        ]
        return Check(
            id="C0",
            title="empty target",
            result="fail" if found else "pass",
            summary="a fresh start needs an empty target",
            count=len(found),
            findings=tuple(found),
        )

    @override
    def _source_side(self) -> SideReport:
        return SideReport(backend=self._source, identity="", server_version="")

    @override
    def _left_out(self) -> tuple[LeftOut, ...]:
        port = self._target.bulk
        return tuple(
            LeftOut(
                entity=entity.name,
                why=entity.life.value,
                source={},
                target=dict(sorted(port.counts(entity).items())),
            )
            for entity in left_out_entities(port, ())
        )
