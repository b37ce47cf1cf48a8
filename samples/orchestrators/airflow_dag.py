"""Copy a module and verify it, as two tasks of Airflow 3. Settings: TWINSTORE_CONFIG of the worker."""

from pathlib import Path

from airflow.sdk import DAG, BaseOperator
from airflow.sdk.exceptions import AirflowFailException

from twinstore.migration import CancelToken, CopyOptions, Migration, VerifyOptions

OUT = Path("/var/lib/migration")
COPY = CopyOptions(execute=True, out=OUT / "copy")


class MigrationStep(BaseOperator):
    """A step of the migration, which fails unless its exit code is 0."""

    def execute(self, context):
        self.token = CancelToken()
        migration = Migration("mongo", "postgres", "scheduler")
        if self.task_id == "copy":
            run = migration.copy(COPY, cancel=self.token)
        else:
            run = migration.verify(VerifyOptions(require_ready=True), out=OUT / "report", cancel=self.token)
        if code := run.result().exit_code:
            raise AirflowFailException(f"{self.task_id} ended with {code}; see {OUT} and docs/errors.md.")

    def on_kill(self):
        self.token.cancel()  # stops at a safe point; the next try of the task resumes the copy


with DAG("migrate_scheduler", schedule=None, max_active_runs=1) as dag:
    MigrationStep(task_id="copy", retries=3) >> MigrationStep(task_id="verify")
