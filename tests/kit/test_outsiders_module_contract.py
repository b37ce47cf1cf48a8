"""A module that is no more than a description, an example and two methods gets a kit like any other."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.support.distributions import LIBRARY, install_distribution
from tests.support.library.kit import LibraryContract
from twinstore_memory.testing import memory_deployments

if TYPE_CHECKING:
    from collections.abc import Iterator

    from twinstore.testing import BackendFactory


@pytest.fixture(scope="module")
def backend_factory(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BackendFactory]:
    with pytest.MonkeyPatch.context() as patch:
        install_distribution(patch, tmp_path_factory.mktemp("installed"), "acme-library", LIBRARY)
        yield memory_deployments


class TestLibrary(LibraryContract):
    """Books by id."""
