"""What the repositories of the task runner decide, as functions of models alone."""
