"""An engine is opened by its URL; without its client library, one line has the command that installs it."""

from __future__ import annotations

import subprocess
import sys
from typing import Final

import pytest

from twinstore.errors import ConfigurationError, ValidationError
from twinstore_backfill.engines import open_engine

WITHOUT: Final = """
import sys

class Blocker:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {"distributed", "ray"}:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Blocker())

import twinstore_backfill, twinstore_backfill.engines
from twinstore.errors import ConfigurationError
for url in "dask://x:1", "ray://x:1":
    try:
        twinstore_backfill.engines.open_engine(url)
    except ConfigurationError as error:
        print(error)
"""


def test_without_its_extra_an_engine_names_the_command_that_installs_it() -> None:
    command = [sys.executable, "-W", "error", "-c", WITHOUT]
    lines = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    assert [line.rpartition("Run: ")[2] for line in lines] == [
        f"pip install 'twinstore[{extra}]'" for extra in ("dask", "ray")
    ]


@pytest.mark.parametrize(
    "url",
    [
        "processes",
        "processes://",
        "processes://0",
        "processes://1025",
        "processes://two",
        "processes://2?a=b",
        "workers://host",
        "workers://?a=b",
        "dask://",
        "dask://host:8786?password=hunter2",
        "dask://host:8786?tls_ca_file=/etc/hunter2",
    ],
)
def test_an_address_that_cannot_be_read_is_refused_without_a_secret(url: str) -> None:
    with pytest.raises(ValidationError) as refused:
        open_engine(url)
    assert url.partition(":")[0] in str(refused.value)
    assert "hunter2" not in str(refused.value)


def test_an_unknown_engine_is_refused_with_those_that_are_installed() -> None:
    with pytest.raises(ConfigurationError, match=r"Unknown engine 'dusk'\. Did you mean dask\?.*processes"):
        open_engine("dusk://host:8786")
