"""Copy on four workers and verify, as a flow of Prefect 3. Settings: TWINSTORE_CONFIG of each machine."""

import subprocess

from prefect import flow, task

SIDES = ["--module", "scheduler", "--from", "mongo", "--to", "postgres"]
OUT = "/var/lib/migration"
COPY = ["backfill", "copy", *SIDES, "--engine", "workers://", "--out", f"{OUT}/copy", "--execute"]
WORK = ["backfill", "work", *SIDES, "--slots", "4", "--execute"]
VERIFY = ["backfill", "verify", *SIDES, "--require-cutover-ready", "--out", f"{OUT}/report"]
REPEATABLE = {4, 7, 143, -9}  # -9: killed


def repeatable(task, run, state):
    """Return whether the exit code says that a repetition can help."""
    error = state.result(raise_on_failure=False)
    return isinstance(error, subprocess.CalledProcessError) and error.returncode in REPEATABLE


@task(retries=30, retry_delay_seconds=10, retry_condition_fn=repeatable)
def twinstore(command):
    subprocess.run(["twinstore", *command], check=True)


@flow
def migrate_scheduler(workers=4):
    working = [twinstore.submit(WORK) for _ in range(workers)]
    twinstore(COPY)
    twinstore(VERIFY)
    for worker in working:
        worker.wait()  # whether everything is copied, the exit code of the copy has said


if __name__ == "__main__":
    migrate_scheduler()
