"""The contracts of the task runner, one module per topic."""
