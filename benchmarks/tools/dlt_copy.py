"""Copies the runs with dlt: ``python -m benchmarks.tools.dlt_copy mongo database postgres directory``.

The source for MongoDB that dlt recommends is not a package: ``dlt init`` copies it from a repository on the
network. This resource yields what that one does, the documents of a cursor in batches; nested values stay
JSON.
"""

from __future__ import annotations

import sys
from contextlib import closing
from importlib import import_module
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

from pymongo import MongoClient

if TYPE_CHECKING:
    from collections.abc import Iterator

BATCH: Final = 1000
SCHEMA: Final = "dlt_bench"


def runs(url: str, database: str) -> Iterator[list[dict[str, Any]]]:
    """Yield the documents in batches."""
    with closing(MongoClient[dict[str, Any]](url)) as client:
        documents = client[database]["runs"].find(batch_size=BATCH)
        while batch := list(islice(documents, BATCH)):
            yield batch


def main() -> None:
    """Run a pipeline with dlt's defaults."""
    mongo, database, postgres, directory = sys.argv[1:]
    dlt = import_module("dlt")  # an optional library
    resource = dlt.resource(
        runs(mongo, database), name="runs", max_table_nesting=0, write_disposition="replace"
    )
    pipeline = dlt.pipeline(
        pipeline_name="bench",
        destination=dlt.destinations.postgres(postgres),
        dataset_name=SCHEMA,
        pipelines_dir=directory,
    )
    pipeline.run(resource).raise_on_failed_jobs()


if __name__ == "__main__":
    main()
