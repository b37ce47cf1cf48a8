"""A job file says what options say; what runs at the end changes no exit code."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING

import pytest

from tests.support.copies import fill, invoke, memory_pair
from twinstore_backfill.outcome import Exit

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.support.copies import Answer, MemoryPair


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[MemoryPair]:
    """Return two stores that hold the same."""
    with memory_pair(tmp_path / "copy") as pair:
        fill(pair.source.storage)
        pair.copy()
        yield pair


def job_of(pair: MemoryPair, directory: Path, more: str = "") -> Path:
    *_, source, _, target = pair.sides
    job = directory / "job.toml"
    job.write_text(
        'module = "scheduler"\nfrom = "memory"\nto = "memory"\n'
        f'source-config = "{source}"\ntarget-config = "{target}"\n{more}'
    )
    return job


def verify(capsys: pytest.CaptureFixture[str], job: Path, *more: object) -> Answer:
    return invoke(capsys, "backfill", "--job-file", job, "verify", *more)


def test_options_come_from_the_file_and_the_command_line_goes_before_it(
    pair: MemoryPair, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    job = job_of(pair, tmp_path, f'format = "json"\n[verify]\nentity = ["runs"]\nout = "{tmp_path}/r"\n')
    answer = verify(capsys, job)
    assert (answer.code, answer.json["entities_asked"]) == (Exit.OK, ["runs"])
    assert (tmp_path / "r" / "parity-report.json").exists()
    assert verify(capsys, job, "--entity", "audit").json["entities_asked"] == ["audit"]


def test_the_settings_of_the_command_line_go_before_those_of_the_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    of_job, of_command, job = (tmp_path / name for name in ("of_job.json", "of_command.json", "job.toml"))
    job.write_text(f'module = "scheduler"\nto = "memory"\nconfig = "{of_job}"\n')
    words = ("backfill", "--job-file", job, "status")
    assert str(of_job) in invoke(capsys, *words).err
    for given in (("--config", of_command, *words), (*words, "--config", of_command)):
        assert str(of_command) in invoke(capsys, *given).err


def test_instants_may_be_those_of_toml_and_one_value_needs_no_list(
    pair: MemoryPair, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bounds = 'entity = "audit"\nkey-from = "acme"\nuntil = 2099-01-01T00:00:00+02:00\n'
    answer = verify(capsys, job_of(pair, tmp_path, f'format = "json"\n{bounds}'))
    assert (answer.code, answer.json["verdict"], answer.json["entities_asked"]) == (
        Exit.OK,
        "PARTIAL",
        ["audit"],
    )
    assert (answer.json["subset"]["key_from"], answer.json["subset"]["until"]) == (
        ["acme"],
        "2098-12-31T22:00:00+00:00",
    )


def test_what_takes_one_value_takes_that_of_a_list(
    pair: MemoryPair, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for text, code in (('"audit"', Exit.OK), ('["audit"]', Exit.OK), ('["audit", "runs"]', Exit.USAGE)):
        job = job_of(pair, tmp_path, f"entity = {text}\n")
        answer = invoke(capsys, "backfill", "--job-file", job, "diff", "--key", "acme-audit-1")
        assert answer.code == code, answer.err


def test_a_command_of_a_group_takes_its_options_from_the_file_too(
    pair: MemoryPair, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    # What is part of a job would else have to be said again, or another job is meant.
    more = 'format = "json"\n[quarantine.retry]\nkey-from = "acme"\n'
    answer = invoke(capsys, "backfill", "--job-file", job_of(pair, tmp_path, more), "quarantine", "retry")
    assert (answer.code, "mean the keys of one entity" in answer.json["error"]["message"]) == (
        Exit.USAGE,
        True,
    )


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("jobz = 2\n", "unknown option jobz"),
        ("[verify]\nmax-rate = 2\n", "unknown option max-rate"),
        ("[nothing]\njobs = 2\n", "unknown command [nothing]"),
        ("execute = true\n", "give --execute on the command line"),
        ("[copy]\ndelete-extra = true\n", "give --delete-extra on the command line"),
        ("[verify]\nresume = true\n", "give --resume on the command line"),
        ('jobs = "many"\n', "'--jobs'"),
        ("jobs = true\n", "jobs takes a value, not true"),
        ("jobs = \n", "is not valid TOML"),
        ('out = ["one", "two"]\n', "out takes one value"),
        ('entity = [["runs"]]\n', "entity takes one value"),
        ('[verify.out]\nx = "y"\n', "unknown command [verify out]"),
        ("since = 2025-10-01\n", "--since '2025-10-01'"),
        ("since = 2025-10-01T00:00:00\n", "has no offset"),
        ('[[drop]]\npath = "runs.legacy"\n', "line 6: [[drop]] needs reason"),
        (
            '[[drop]]\npath = "runs.state"\nreason = "r"\n',
            "line 6: [[drop]] runs.state: 'state' is a property",
        ),
        ('ignore-unknown = "runs.legacy"\n', "write each rule as a table that begins with [[drop]]"),
    ],
)
def test_a_file_that_says_what_no_option_can_is_refused(
    text: str, problem: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with memory_pair(tmp_path / "empty") as pair:
        answer = verify(capsys, job_of(pair, tmp_path, text))
    assert (answer.code, problem in answer.err) == (Exit.USAGE, True), answer.err


def test_a_file_that_is_not_there_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    answer = verify(capsys, tmp_path / "no.toml")
    assert (answer.code, "no.toml cannot be read" in answer.err) == (Exit.USAGE, True)


class TestOnFinish:
    def test_it_runs_with_the_exit_code_and_without_a_shell(
        self, pair: MemoryPair, tmp_path: Path, capfd: pytest.CaptureFixture[str]
    ) -> None:
        code = "import os, sys; print(os.environ['TWINSTORE_EXIT_CODE'], sys.argv[1:])"
        words = [sys.executable, "-c", code, "$HOME; false"]
        job = job_of(pair, tmp_path, f"on-finish = {json.dumps(words)}\n")
        answer = verify(capfd, job)
        assert (answer.code, "0 ['$HOME; false']" in answer.err) == (Exit.OK, True)
        answer = verify(capfd, job, "--entity", "nothing")
        assert (answer.code, "2 ['$HOME; false']" in answer.err) == (Exit.USAGE, True)

    @pytest.mark.parametrize(
        ("command", "said"),
        [("false", "ended with code 1"), ("/nothing/there", "could not be started: /nothing/there")],
    )
    def test_its_failure_is_said_and_changes_no_exit_code(  # fixtures and parameters
        self, command: str, said: str, pair: MemoryPair, tmp_path: Path, capfd: pytest.CaptureFixture[str]
    ) -> None:
        answer = verify(capfd, job_of(pair, tmp_path), "--on-finish", command)
        assert (answer.code, said in answer.err) == (Exit.OK, True)

    @pytest.mark.parametrize("command", ["", "'open"])
    def test_what_names_no_command_is_refused(
        self, command: str, pair: MemoryPair, tmp_path: Path, capfd: pytest.CaptureFixture[str]
    ) -> None:
        assert verify(capfd, job_of(pair, tmp_path), "--on-finish", command).code == Exit.USAGE
