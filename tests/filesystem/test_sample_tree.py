from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Final, cast

from twinstore.storage.open import open_module

if TYPE_CHECKING:
    from twinstore.taskrunner.storage import TaskRunnerStorage

SAMPLE: Final = Path(__file__).parents[2] / "samples/taskrunner/filesystem"


def files(root: Path) -> dict[str, bytes]:
    """Return what stands in a tree, without the locks of its writers."""
    found = (path for path in root.rglob("*") if path.is_file() and path.suffix != ".lock")
    return {path.relative_to(root).as_posix(): path.read_bytes() for path in found}


def test_the_sample_tree_is_read_and_written_again_byte_for_byte(
    storage: TaskRunnerStorage, root: Path, tmp_path: Path
) -> None:
    shutil.copytree(SAMPLE, tmp_path / "sample")
    settings = {"Persistence": {"Filesystem": {"Root": str(tmp_path / "sample")}}}
    with open_module("taskrunner", "Filesystem", settings) as opened:
        sample = cast("TaskRunnerStorage", opened)
        runs = sample.pack_runs.list()
        assert len(runs) == 2
        for run in runs:
            storage.pack_runs.create(run)
            storage.pack_run_logs.append(sample.pack_run_logs.read(run.run_id))
            storage.pack_run_approvals.save(run.run_id, sample.pack_run_approvals.list(run.run_id))
            for artifact in sample.pack_artifacts.list(run.run_id):
                storage.pack_artifacts.upload(artifact)
    assert files(root) == files(SAMPLE) == files(tmp_path / "sample")
    assert any("%" in name for name in files(SAMPLE))
