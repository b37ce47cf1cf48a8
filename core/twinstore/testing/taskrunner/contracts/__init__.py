"""The contracts of the task runner, by subject."""
