"""What to do after a verification, and what is to be said of its direction."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from twinstore.config.keys import module_keys
from twinstore_backfill.report.texts import is_only_slow

if TYPE_CHECKING:
    from collections.abc import Sequence

    from twinstore_backfill.report.model import Check, Verdict
    from twinstore_backfill.verify.options import VerifyOptions
    from twinstore_backfill.verify.tasks import VerifyContext

__all__ = ["already_switched", "direction_warnings", "next_step"]

SLOW: Final = (
    "Look at the slow lists: is an index missing on the target, or are its statistics old? Then verify again."
)


def already_switched(options: VerifyOptions, context: VerifyContext) -> bool:
    """Whether the settings name the target, so that the service writes there and not to the source."""
    return options.switch == context.target.backend != context.source.backend


def direction_warnings(options: VerifyOptions, context: VerifyContext) -> tuple[str, ...]:
    """Say where a proof goes the wrong way."""
    if options.approval or not already_switched(options, context):
        return ()
    key, target = ":".join(module_keys(context.target.module).switch), context.target.backend
    source = context.source.backend
    back = (
        f"the way back is proved with --from {target} --to {source}"
        if context.source.storage.capabilities.bulk_target
        else f"nothing is copied back into {source}"
    )
    text = (
        f"{key} names {target} already, so the service writes to the target and the source stands still; "
        f"{back}."
    )
    return (text,)


def next_step(
    verdict: Verdict, options: VerifyOptions, context: VerifyContext, checks: Sequence[Check]
) -> str:
    """Say what to do now."""
    match verdict:
        case "FAIL":
            return _after_failure(options, checks)
        case "INCONCLUSIVE":
            return "Resolve what the reasons list, then verify again in full."
        case "PARTIAL" if options.only is not None:
            asked = options.entities or options.only.counts
            if not any(options.only.counts.get(name) for name in asked):
                return "This proves nothing, because no row was compared; verify again in full."
            return "This is proved for the rows that differed before; verify again in full."
        case "PARTIAL":
            return f"This is proved for what was asked only; verify without {', '.join(options.narrowing)}."
        case _:
            return _after_proof(options, context)


def _after_failure(options: VerifyOptions, checks: Sequence[Check]) -> str:
    if is_only_slow(checks):
        return SLOW
    if options.approval:
        return "Empty the target, or verify without --start-clean."
    return (
        "Look at what differs. `twinstore backfill repair` rewrites the rows that differences.ndjson names "
        "and, with `--delete-extra`, removes those that the source does not have. Then verify again in full."
    )


def _after_proof(options: VerifyOptions, context: VerifyContext) -> str:
    key, target = ":".join(module_keys(context.target.module).switch), context.target.backend
    if options.switch == target:
        return f"{key} already names {target}; there is nothing left to do."
    return f"Keep the writers stopped, set {key} to {target}, and start the service."
