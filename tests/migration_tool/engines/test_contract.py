"""Every engine keeps the contract of engines; those of clusters on real ones, which run on this host."""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING

import pytest
from typing_extensions import override

from tests.support.certificates import OPENSSL, WITHOUT_OPENSSL, Certificates
from tests.support.clusters import DaskCluster, RayCluster, running
from twinstore.errors import ConfigurationError
from twinstore_backfill.engines import open_engine
from twinstore_backfill.engines.testing import EngineContract, Lender, echo

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


class Always:
    """What is no process, or belongs to the engine."""

    def __init__(self, url: str) -> None:
        self.url = url

    def kill(self) -> None:
        """Do nothing."""

    start = kill

    def resize(self, slots: int) -> None:
        """Do nothing."""


class TestProcesses(EngineContract):
    @override
    @pytest.fixture(scope="class")
    @classmethod
    def lender(cls) -> Lender:
        return Always("processes://2")


class TestWorkers(EngineContract):
    slots = 0

    @override
    @pytest.fixture(scope="class")
    @classmethod
    def lender(cls) -> Lender:
        return Always("workers://")


class OnDask:
    slots = 2

    @pytest.fixture(scope="class")
    @classmethod
    def lender(cls) -> Iterator[Lender]:
        with running(DaskCluster, cls.slots) as found:
            yield found


class TestDask(OnDask, EngineContract):
    repeats = True


@pytest.mark.long
class TestDaskWhoseProgramsComeAndGo(OnDask, EngineContract):
    repeats = restarts = resizes = True


@pytest.mark.long
@pytest.mark.skipif(find_spec("ray") is None, reason="Ray is not installed, so nothing was run on it.")
class TestRay(EngineContract):
    restarts = True
    # Its client tries for half a minute to connect again.
    seconds = 240

    @override
    @pytest.fixture(scope="class")
    @classmethod
    def lender(cls) -> Iterator[Lender]:
        with running(RayCluster, cls.slots) as found:
            yield found


@pytest.mark.long
@pytest.mark.skipif(OPENSSL is None, reason=WITHOUT_OPENSSL)
def test_a_dask_cluster_with_tls_is_reached_by_the_options_of_tls_alone(tmp_path: Path) -> None:
    certificates = Certificates(tmp_path)
    certificate = str(certificates.of_server("cluster"))
    words = "--protocol", "tls", "--tls-ca-file", str(certificates.authority), "--tls-cert", certificate
    with running(DaskCluster, 1, *words, "--tls-key", certificate) as cluster:
        options = (
            f"tls_ca_file={certificates.authority}&tls_client_cert={certificate}&tls_client_key={certificate}"
        )
        engine = open_engine(f"{cluster.url}?{options}")
        assert engine.submit(echo, 1).result(60) == (1,)
        engine.close()
        with pytest.raises(ConfigurationError, match="cannot be opened"):
            open_engine(cluster.url)
