"""Copy a module and verify it, as a job of Dagster. Settings: TWINSTORE_CONFIG of the worker."""

from pathlib import Path

from dagster import Failure, In, Nothing, OpExecutionContext, Out, job, op

from twinstore.migration import CopyOptions, Migration, VerifyOptions

OUT = Path("/var/lib/migration")
COPY = CopyOptions(execute=True, out=OUT / "copy")


def follow(context, run):
    """Log the progress. When Dagster interrupts the op, leaving the loop cancels the run."""
    for event in run:
        context.log.info(f"{event.part}: {event.done:,} of {event.total:,}")
    if code := run.result().exit_code:
        raise Failure(f"{context.op.name} ended with {code}; see {OUT} and docs/errors.md.")


@op(out={"copied": Out(Nothing)})
def copy(context: OpExecutionContext):
    follow(context, Migration("mongo", "postgres", "scheduler").copy(COPY))


@op(ins={"copied": In(Nothing)})
def verify(context: OpExecutionContext):
    options = VerifyOptions(require_ready=True)
    follow(context, Migration("mongo", "postgres", "scheduler").verify(options, out=OUT / "report"))


@job
def migrate_scheduler():
    verify(copy())
