"""The rules of a job as a copy applies them; a verification has other code for the same rules."""

from twinstore_backfill.copy.rules.backwards import backward_changes
from twinstore_backfill.copy.rules.changes import copier_changes

__all__ = ["backward_changes", "copier_changes"]
