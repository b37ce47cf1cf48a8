"""The task runner: pack runs with their logs, artifacts and approvals."""
