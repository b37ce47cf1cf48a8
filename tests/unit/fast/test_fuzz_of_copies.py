"""What native code writes into a table of changed documents is what the client would send.

Only the names of models have another order in their JSON.
"""

from __future__ import annotations

from random import Random
from typing import Final

import pytest

from tests.unit.fast.fuzz import mutants, taken
from tests.unit.fast.hand_made import native_library
from tests.unit.fast.programs import programs
from tests.unit.fast.test_copy_rows import expected
from twinstore.fast.library import Buffer
from twinstore_mongo.bulk.records import native_documents
from twinstore_postgres.bulk.writer import native_columns

DOCUMENTS: Final = 250
LONG: Final = 40_000


@pytest.mark.parametrize("name", programs())
def test_rows_of_changed_documents_are_those_that_the_client_sends(name: str, long_form: bool) -> None:  # noqa: FBT001  # a fixture
    program = programs()[name]
    documents, columns = native_documents(program.entity), native_columns(program.entity)
    assert documents is not None
    assert columns is not None
    count = LONG if long_form else DOCUMENTS
    accepted = [item.raw for item in taken(program, list(mutants(program, Random(f"copies {name}"), count)))]
    read = documents.read(b"".join(accepted))
    assert read is not None
    assert not read.declined
    out = Buffer(native_library())
    assert columns.write(read.rows, out)
    assert out.tobytes() == b"".join(expected(program.entity, raw) for raw in accepted)
