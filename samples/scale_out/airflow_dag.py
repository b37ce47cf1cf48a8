"""Copy on four workers and verify, as tasks of Airflow 3. Settings: TWINSTORE_CONFIG of each machine."""

from airflow.providers.standard.hooks.subprocess import SubprocessHook
from airflow.sdk import DAG, BaseOperator
from airflow.sdk.exceptions import AirflowException, AirflowFailException

SIDES = ["--module", "scheduler", "--from", "mongo", "--to", "postgres"]
OUT = "/var/lib/migration"
COPY = ["backfill", "copy", *SIDES, "--engine", "workers://", "--out", f"{OUT}/copy", "--execute"]
WORK = ["backfill", "work", *SIDES, "--slots", "4", "--execute"]
VERIFY = ["backfill", "verify", *SIDES, "--require-cutover-ready", "--out", f"{OUT}/report"]
REPEATABLE = {4, 7, 143, -9}  # -9: killed


class Twinstore(BaseOperator):
    """A command, which is repeated if its exit code says that this can help."""

    def __init__(self, command, **options):
        super().__init__(**options)
        self.command = command

    def execute(self, context):
        self.hook = SubprocessHook()
        code = self.hook.run_command(["twinstore", *self.command]).exit_code
        if code:
            failure = AirflowException if code in REPEATABLE else AirflowFailException
            raise failure(f"{self.task_id} ended with {code}; see {OUT} and docs/errors.md.")

    def on_kill(self):
        self.hook.send_sigterm()  # a worker gives its ranges back


with DAG("migrate_scheduler_on_workers", schedule=None, max_active_runs=1) as dag:
    # Workers have no task after them: the exit code of the copy says whether everything is copied.
    Twinstore(task_id="copy", command=COPY, retries=3) >> Twinstore(task_id="verify", command=VERIFY)
    for number in range(4):
        Twinstore(task_id=f"work_{number}", command=WORK, retries=30, retry_delay=10)
