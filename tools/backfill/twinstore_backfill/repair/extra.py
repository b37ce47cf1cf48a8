"""After a copy: the rows that only the target has, named, and removed on request."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from twinstore_backfill.outcome import Exit
from twinstore_backfill.repair.engine import Repair
from twinstore_backfill.repair.named import no_rows
from twinstore_backfill.stores import select_entities
from twinstore_backfill.verify.engine import run_verify
from twinstore_backfill.verify.options import VerifyOptions

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime

    from twinstore_backfill.copy.options import CopyOptions
    from twinstore_backfill.progress import Progress
    from twinstore_backfill.report.model import ParityReport
    from twinstore_backfill.stopping import StopSwitch
    from twinstore_backfill.stores import Store

__all__ = ["ExtraRows", "delete_extra"]


@dataclass(frozen=True, slots=True)
class ExtraRows:
    """What only the target has.

    Attributes:
        found, removed: rows by entity.
        keyless: rows without a usable key, which can be removed by hand only.
        recheck: the comparison of the removed rows afterwards; nothing in a dry run.
        reasons: why rows that were to be removed are still there.
    """

    found: Mapping[str, int]
    removed: Mapping[str, int]
    keyless: int
    recheck: ParityReport | None
    reasons: Sequence[str] = ()

    @property
    def exit(self) -> Exit:
        """The exit code: rows that are still there are a difference."""
        if self.recheck is not None and self.recheck.exit_code:
            return Exit(self.recheck.exit_code)
        left = self.keyless or (self.recheck is None and any(self.found.values()))
        return Exit.DIFFERENT if left else Exit.OK

    def document(self) -> dict[str, object]:
        """Return it as the report shows it."""
        return {
            "found": dict(self.found),
            "removed": dict(self.removed),
            "without_key": self.keyless,
            "recheck": None if self.recheck is None else self.recheck.verdict,
            "reasons": list(self.reasons),
        }


def delete_extra(  # noqa: PLR0917  # both sides, what is asked, and who is told
    source: Store,
    target: Store,
    options: CopyOptions,
    as_of: datetime,
    progress: Progress,
    stop: StopSwitch,
) -> ExtraRows:
    """Compare what was copied, and remove what the source does not have; a dry run only names it.

    Raises:
        InterruptedRunError: a signal asked for the stop; what was removed stays removed.
    """
    asked = VerifyOptions(
        entities=options.entities,
        tenants=options.tenants,
        as_of=as_of,
        ignored=options.ignored,
        subset=options.subset,
    )
    entities = select_entities(source.bulk, options.entities)
    with no_rows(entities) as named:
        run_verify(source, target, asked, progress, stop, named.take_extra)
        found, keyless = dict(sorted(named.to_remove.items())), named.keyless.total()
        if not options.execute or not found:
            return ExtraRows(found, {}, keyless, None)
        done = Repair(source, target, as_of, stop).run(entities, named, remove=True)
        report = run_verify(source, target, replace(asked, only=named), progress, stop)
    removed = dict(sorted(done.removed.items()))
    return ExtraRows(found, removed, keyless, report, tuple(done.reasons))
