"""The task runner; this release knows its settings only."""
