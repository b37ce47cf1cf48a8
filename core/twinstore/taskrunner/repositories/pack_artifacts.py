"""Artifacts of pack runs: recorded once for each name, final after the first move."""

from __future__ import annotations

from typing import TYPE_CHECKING

from typing_extensions import override

from twinstore.access.scope import id_argument
from twinstore.catalog.row import Row
from twinstore.catalog.tenancy import AllTenants
from twinstore.taskrunner import queries
from twinstore.taskrunner.catalog import PACK_ARTIFACTS
from twinstore.taskrunner.pack_artifacts import PackRunArtifact, PackRunArtifactUploader
from twinstore.taskrunner.repositories.base import TaskRunnerRepository
from twinstore.taskrunner.rules import artifacts as rules

if TYPE_CHECKING:
    from twinstore.access.protocol import ServerClock


class PackArtifacts(TaskRunnerRepository, PackRunArtifactUploader):
    """Implements :class:`~twinstore.taskrunner.pack_artifacts.PackRunArtifactUploader`."""

    @override
    def upload(
        self, artifact: PackRunArtifact, *, tenant_id: str | AllTenants | None = None
    ) -> PackRunArtifact:
        artifact = self._model(artifact, PackRunArtifact, "artifact")
        scope = self._admit_run(tenant_id, "upload")
        rules.check_upload(artifact)

        def recorded(stored: Row[PackRunArtifact] | None, now: ServerClock) -> Row[PackRunArtifact] | None:
            del now
            changes = rules.check_move(None if stored is None else stored.model, artifact)
            return Row(artifact) if changes else None

        self._change(PACK_ARTIFACTS, scope, (artifact.run_id, artifact.name), recorded)
        return artifact

    @override
    def get(
        self, run_id: str, name: str, *, tenant_id: str | AllTenants | None = None
    ) -> PackRunArtifact | None:
        scope = self._admit_run(tenant_id, "get")
        return self._get(PACK_ARTIFACTS, scope, (id_argument(run_id, "run_id"), id_argument(name, "name")))

    @override
    def get_required(
        self, run_id: str, name: str, *, tenant_id: str | AllTenants | None = None
    ) -> PackRunArtifact:
        found = self.get(run_id, name, tenant_id=tenant_id)
        return self._required(found, PACK_ARTIFACTS, f"{run_id.strip()}:{name.strip()}")

    @override
    def list(self, run_id: str, *, tenant_id: str | AllTenants | None = None) -> tuple[PackRunArtifact, ...]:
        scope = self._admit_run(tenant_id, "list")
        return self._every(PACK_ARTIFACTS, queries.artifacts(scope, id_argument(run_id, "run_id")))
