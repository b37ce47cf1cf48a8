"""What a write of an artifact's record must satisfy."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from twinstore.access.errors import invalid_transition
from twinstore.errors import ValidationError
from twinstore.taskrunner.enums import PackArtifactStatus
from twinstore.taskrunner.states import ARTIFACT_MOVES

if TYPE_CHECKING:
    from twinstore.taskrunner.pack_artifacts import PackRunArtifact

ENTITY: Final = "pack_artifacts"
MATERIALIZED_TYPE: Final = "object"


def check_upload(artifact: PackRunArtifact) -> None:
    """Refuse a record that lacks what its status needs."""
    match artifact.status:
        case PackArtifactStatus.COPIED if not artifact.stored_path:
            raise _incomplete(artifact, "storedPath is required: where it was copied to")
        case PackArtifactStatus.SKIPPED if not artifact.notes:
            raise _incomplete(artifact, "notes are required: why")
        case PackArtifactStatus.MATERIALIZED if artifact.type != MATERIALIZED_TYPE:
            raise _incomplete(
                artifact,
                f"only type {MATERIALIZED_TYPE!r} is materialized, not {artifact.type!r}; copy others",
            )
        case _:
            pass


def check_move(stored: PackRunArtifact | None, artifact: PackRunArtifact) -> bool:
    """Return whether the write changes anything; raise when the stored record is final."""
    if stored is None:
        return True
    if stored == artifact:
        return False
    if not ARTIFACT_MOVES[stored.status]:
        raise invalid_transition(
            ENTITY,
            "pack artifact",
            f"{artifact.run_id}:{artifact.name}",
            (stored.status, artifact.status),
            f"the record of a {stored.status} artifact never changes",
        )
    return True


def _incomplete(artifact: PackRunArtifact, why: str) -> ValidationError:
    return ValidationError(
        f"Pack artifact {artifact.name!r} of run {artifact.run_id!r} is {artifact.status}: {why}.",
        entity=ENTITY,
        key=f"{artifact.run_id}:{artifact.name}",
    )
