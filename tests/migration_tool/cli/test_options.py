"""Options that every command takes, at any position; versions; completion; what lists of commands import."""

from __future__ import annotations

import json
import logging
import os
import re
import subprocess
import sys
from importlib.metadata import version
from typing import TYPE_CHECKING, Any, NamedTuple
from uuid import uuid4

import pytest
import typer

from tests.support import forked
from tests.support.copies import invoke, write_config
from twinstore_backfill.cli import running
from twinstore_backfill.cli.app import COMMANDS, app
from twinstore_backfill.cli.backfill import COMMANDS as OF_BACKFILL
from twinstore_backfill.cli.invocation import ADVANCED_OPTIONS, examples
from twinstore_backfill.cli.lazy_commands import _import_command, full_name
from twinstore_backfill.cli.version import version_lines
from twinstore_backfill.process import messages
from twinstore_backfill.process.messages import Messages, set_messages

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

SECRET = "pl4nted-s3cret"  # planted


@pytest.fixture(autouse=True)
def usual_messages() -> Iterator[None]:
    """Take the handler of the command line away again."""
    root = logging.getLogger()
    before, usual = (root.handlers[:], root.level), messages.message_settings()
    yield
    set_messages(usual)
    root.handlers[:], root.level = before


@pytest.fixture
def config(tmp_path: Path) -> Path:
    memory = {"Scheduler": "Memory", "Memory": {"Store": uuid4().hex}}
    return write_config(tmp_path / "settings.json", {"Persistence": memory})


def positions(option: Sequence[object], *words: str) -> list[list[object]]:
    """Return the words of a command with an option between any two of them."""
    return [[*words[:at], *option, *words[at:]] for at in range(len(words) + 1)]


def burst(*_given: object) -> None:
    """Fail as nothing should."""
    raise RuntimeError(f"lost postgresql://app:{SECRET}@db/twin")


@pytest.mark.parametrize("words", positions(["--debug"], "backends", "--format=text"))
def test_debug_shows_where_at_any_position(
    words: list[object], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("twinstore.plugins.drivers.list_backends", burst)
    answer = invoke(capsys, *words)
    assert (answer.code, "Traceback" in answer.err) == (4, True)
    assert SECRET not in answer.err


@pytest.mark.parametrize("at", range(4))
def test_a_settings_file_may_be_named_at_any_position(
    at: int, config: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = positions(["--config", config], "migrate", "status", "--module=scheduler")[at]
    assert invoke(capsys, *words).code == 0


@pytest.mark.parametrize("option", ["--config", "--env-file", "--secrets-dir"])
def test_a_path_given_twice_is_refused_at_any_two_positions(
    option: str, config: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["migrate", "status", "--module=scheduler"]
    for first in range(len(words) + 1):
        for second in range(first, len(words) + 1):
            given = [
                *words[:first],
                option,
                config,
                *words[first:second],
                f"{option}={config}",
                *words[second:],
            ]
            answer = invoke(capsys, *given)
            refused = f"'{option}': given more than once, and only one would be read; give it once."
            assert (answer.code, answer.out, refused in answer.err) == (2, "", True)


def test_debug_as_a_value_is_none(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    answer = invoke(capsys, "--config", config, "purge", "--module", "scheduler", "--tenant", "--debug:x")
    assert (answer.code, "Traceback" in answer.err) == (2, False)


@pytest.mark.parametrize(
    "words", [["nope"], ["backfill", "copy"], ["backends", "--nope"], ["--nope", "backends"]]
)
@pytest.mark.parametrize("front", [True, False])
def test_a_usage_error_never_shows_a_traceback(
    words: list[str], capsys: pytest.CaptureFixture[str], *, front: bool
) -> None:
    answer = invoke(capsys, *(["--debug", *words] if front else [*words, "--debug"]))
    assert (answer.code, answer.err.count("\n")) == (2, 1)
    assert re.search(r"\S\. See `twinstore( \w+)* --help`\.$", answer.err.strip())


class TestLogFormat:
    @pytest.mark.parametrize("words", positions(["--log-format", "json"], "backfill", "plan"))
    def test_of_json_makes_every_line_on_stderr_an_object(
        self, words: list[object], capsys: pytest.CaptureFixture[str]
    ) -> None:
        answer = invoke(capsys, *words)
        (said,) = map(json.loads, answer.err.splitlines())
        assert list(said)[:4] == ["time", "level", "logger", "message"]
        assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", said["time"])
        assert (said["level"], said["code"], said["exit_code"]) == ("error", "usage", 2)

    def test_keeps_the_result_on_stdout(self, capsys: pytest.CaptureFixture[str]) -> None:
        answer = invoke(capsys, "backends", "--format", "json", "--log-format", "json")
        assert (answer.code, answer.err, "backends" in answer.json) == (0, "", True)

    def test_holds_what_a_record_was_given_and_no_secret(self, capsys: pytest.CaptureFixture[str]) -> None:
        set_messages(Messages(logging.INFO, messages.LogFormat.JSON))
        url = f"mongodb://u:{SECRET}@h/db"
        logging.getLogger("twinstore.x").info("at %s", url, extra={"operation": "get", "places": [url, {1}]})
        try:
            burst()
        except RuntimeError:
            logging.getLogger("twinstore.x").exception("lost")
        first, second = capsys.readouterr().err.splitlines()
        assert json.loads(first) | {"time": ""} == {
            "time": "",
            "level": "info",
            "logger": "twinstore.x",
            "message": "at mongodb://u:***@h/db",
            "operation": "get",
            "places": ["mongodb://u:***@h/db", [1]],
        }
        assert "RuntimeError" in json.loads(second)["traceback"]
        assert SECRET not in first + second

    def test_prints_the_traceback_of_a_failure_inside_its_object(
        self, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("twinstore.plugins.drivers.list_backends", burst)
        (line,) = invoke(capsys, "backends", "--debug", "--log-format", "json").err.splitlines()
        assert "Traceback" in json.loads(line)["traceback"]
        assert SECRET not in line


@pytest.mark.parametrize(
    ("options", "level"),
    [
        ((), logging.WARNING),
        (("--quiet",), logging.ERROR),
        (("-q", "--log-level", "info"), logging.INFO),
        (("--debug",), logging.DEBUG),
        (("--debug", "--log-level", "warning"), logging.WARNING),
    ],
)
def test_the_level_of_the_log_can_be_chosen(
    options: tuple[str, ...], level: int, capsys: pytest.CaptureFixture[str]
) -> None:
    assert invoke(capsys, "backends", *options).code == 0
    assert logging.getLogger().level == level


def test_quiet_leaves_errors_and_results(capsys: pytest.CaptureFixture[str]) -> None:
    set_messages(Messages(quiet=True))
    messages.warn("no matter")
    assert capsys.readouterr().err == ""
    assert "Postgres" in invoke(capsys, "-q", "backends").out
    assert invoke(capsys, "-q", "nope").err.startswith("error: ")


class TestVersion:
    def test_names_everything_that_is_installed(self, capsys: pytest.CaptureFixture[str]) -> None:
        answer = invoke(capsys, "--version")
        assert (answer.code, answer.err) == (0, "")
        lines = answer.out.splitlines()
        assert re.fullmatch(r"twinstore \d+\.\d+\.\d+\S*", lines[0])
        assert lines[1].startswith("Python 3.")
        assert f"driver mongo: pymongo {version('pymongo')}" in lines
        assert f"psycopg {version('psycopg')}" in lines[-1]

    def test_imports_no_client_library(self) -> None:
        code = (
            "import sys\nfrom twinstore_backfill.cli import main\nassert main(['--version']) == 0\n"
            "print([name for name in ('pymongo', 'psycopg', 'pydantic', 'yaml') if name in sys.modules])"
        )
        done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
        assert done.stdout.splitlines()[-1] == "[]"

    def test_says_of_a_client_library_that_it_is_missing(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def without_pymongo(name: str) -> object:
            if name == "pymongo":
                raise PackageNotFoundError(name)
            return found(name)

        from importlib.metadata import PackageNotFoundError  # noqa: PLC0415
        from importlib.metadata import distribution as found  # noqa: PLC0415

        monkeypatch.setattr("twinstore_backfill.cli.version.distribution", without_pymongo)
        assert "driver mongo: pymongo is not installed" in list(version_lines())


def imported_by_help(*several: tuple[str, ...]) -> set[str]:
    """Return the modules that a process has imported after the help of some commands."""
    code = (
        "import sys\nfrom twinstore_backfill.cli import main\n"
        f"assert not any(main([*words, '--help']) for words in {several!r})\nprint(*sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    return set(done.stdout.splitlines()[-1].split())


class TestLists:
    """Lists of commands import none of them, and say the same as the commands."""

    @pytest.mark.parametrize(
        ("name", "place"), [*COMMANDS.items(), *OF_BACKFILL.items()], ids=[*COMMANDS, *OF_BACKFILL]
    )
    def test_show_what_a_command_says_of_itself(self, name: str, place: tuple[str, str]) -> None:
        command: Any = _import_command(place[0], name)
        assert " ".join(command.help.split("\n\n")[0].split()) == place[1]

    @pytest.mark.parametrize("group", [(), ("backfill",)])
    def test_import_no_command(self, group: tuple[str, ...]) -> None:
        commands = OF_BACKFILL if group else COMMANDS
        known = {full_name(place.partition(":")[0]) for place, _ in commands.values()}
        assert not imported_by_help(group) & known

    def test_help_of_a_command_imports_nothing_that_the_command_runs(self) -> None:
        words = [(name,) for name in COMMANDS] + [("backfill", name) for name in OF_BACKFILL]
        words += [("config", "check"), ("dev", "sql"), ("migrate", "run")]
        heavy = ("pydantic", "twinstore.config", "twinstore.models", "twinstore_backfill.stores")
        assert [name for name in imported_by_help(*words) if name.startswith(heavy)] == []

    def test_help_of_a_group_names_each(self, capsys: pytest.CaptureFixture[str]) -> None:
        for group, commands in (((), COMMANDS), (("backfill",), OF_BACKFILL)):
            shown = invoke(capsys, *group, "-h").out
            assert all(re.search(rf"^│ {name} ", shown, re.MULTILINE) for name in commands)


@pytest.fixture
def shell(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., Answered]:
    """Ask as a shell does when the user presses Tab at the end of a line."""

    def ask(kind: str, line: str = "", action: str = "get-args", asked: str = "complete") -> Answered:
        monkeypatch.setenv("_TWINSTORE_COMPLETE", f"{asked}_{kind}")
        monkeypatch.setenv("COMP_WORDS", line)
        monkeypatch.setenv("COMP_CWORD", str(len(line.split(" ")) - 1))
        monkeypatch.setenv("_TYPER_COMPLETE_ARGS", line)
        monkeypatch.setenv("_TYPER_COMPLETE_FISH_ACTION", action)
        code = running.main()
        said = capsys.readouterr()
        assert said.err == ""
        return Answered(code, said.out)

    return ask


class Answered(NamedTuple):
    """The answer of the program to a shell."""

    code: int
    out: str


class TestCompletion:
    @pytest.mark.parametrize(
        ("line", "offered"),
        [
            ("twinstore ba", ["backfill", "backends"]),
            ("twinstore backfill re", ["recheck", "repair", "report", "resume"]),
            ("twinstore --ver", ["--version"]),
            ("twinstore backfill copy --on-c", ["--on-conflict"]),
            ("twinstore backfill copy --on-conflict o", ["overwrite"]),
            ("twinstore backfill verify --from M", ["Memory", "Mongo"]),
            ("twinstore smoke --backend m", ["memory", "mongo"]),
            ("twinstore backfill verify --module t", ["taskrunner", "tracking"]),
            ("twinstore backfill verify --module scheduler --entity ru", ["run_summaries", "runs"]),
            ("twinstore backfill verify --module nope --entity r", []),
            ("twinstore backfill report --format ju", ["junit"]),
        ],
    )
    def test_offers_names_and_values(
        self, line: str, offered: list[str], shell: Callable[..., Answered]
    ) -> None:
        assert shell("bash", line).out.split() == offered

    def test_speaks_to_each_shell(self, shell: Callable[..., Answered]) -> None:
        assert '"backends":"List the installed drivers' in shell("zsh", "twinstore backe").out
        assert shell("fish", "twinstore backe").out.startswith("backends\tList the installed")
        assert shell("fish", "twinstore backe", "is-args").code == 0
        assert shell("fish", "twinstore zzz", "is-args").code == 1

    @pytest.mark.parametrize("kind", ["bash", "zsh", "fish"])
    def test_gives_each_shell_its_script(self, kind: str, shell: Callable[..., Answered]) -> None:
        answer = shell(kind, asked="source")
        assert (answer.code, f"_TWINSTORE_COMPLETE=complete_{kind}" in answer.out) == (0, True)

    def test_shows_nothing_of_a_failure(
        self, shell: Callable[..., Answered], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("twinstore_backfill.cli.options.entry_points", burst)
        assert shell("bash", "twinstore backfill verify --from M") == (1, "")

    def test_works_in_a_real_shell(self, tmp_path: Path, shell: Callable[..., Answered]) -> None:
        script = tmp_path / "completion.bash"
        script.write_text(shell("bash", asked="source").out)
        program = tmp_path / "twinstore"
        program.write_text(f'#!/bin/sh\nexec {sys.executable} -m twinstore_backfill "$@"\n')
        program.chmod(0o755)
        lines = (
            f"source {script}",
            "COMP_WORDS=(twinstore migrate st); COMP_CWORD=2",
            f"_twinstore_completion {program} st migrate",
            'echo "${COMPREPLY[*]}"',
        )
        done = subprocess.run(
            ["bash", "--norc", "-c", "\n".join(lines)],  # noqa: S607  # whichever bash there is
            check=True,
            capture_output=True,
            text=True,
        )
        assert (done.stdout, done.stderr) == ("status\n", "")


def leaves(command: Any, *path: str) -> Iterator[str]:  # noqa: ANN401  # Typer's copy of click is private
    """Yield the commands that do something, by their full names."""
    inner = getattr(command, "commands", {})
    for name, item in inner.items():
        yield from leaves(item, *path, name)
    if not inner:
        yield " ".join(path)


def test_the_help_of_every_command_shows_how_to_call_it(capsys: pytest.CaptureFixture[str]) -> None:
    names = list(leaves(typer.main.get_command(app)))
    assert [name for name in names if not examples(name)] == []
    shown = invoke(capsys, "backfill", "rate", "--help").out
    assert "Examples:" in shown
    assert all(line in shown for line in examples("backfill rate"))


@pytest.mark.parametrize("columns", [40, 80, 200])
def test_help_breaks_no_name_of_an_option(
    columns: int, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    for words in ((), ("backfill", "copy")):
        shown = invoke(capsys, *words, "--help").out
        assert "…" not in shown
        # click goes no lower.
        assert max(map(len, shown.splitlines())) <= max(columns, 50)
        assert {"--config", "--log-format"} <= set(shown.split()) or words
        assert "--on-conflict" in shown.split() or not words


def test_help_shows_at_most_14_options_and_help_all_every_one(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    advanced = set[str]()
    for name in leaves(typer.main.get_command(app)):
        shown, everything = (invoke(capsys, *name.split(), f"--help{end}").out for end in ("", "-all"))
        options, every = (
            re.findall(r"^│ [* ]{0,3}(--[\w-]+)", text, re.MULTILINE) for text in (shown, everything)
        )
        more = set(every) - set(options)
        assert len(options) <= 14
        assert len(shown.splitlines()) <= 46
        assert (f"More options: twinstore {name} --help-all" in " ".join(shown.split())) is bool(more)
        advanced |= more
    assert advanced == set(ADVANCED_OPTIONS.split())


def test_every_command_takes_every_common_option() -> None:
    root: Any = typer.main.get_command(app)
    wanted = {"--config", "--debug", "--quiet", "-q", "--log-level", "--log-format"}

    def check(command: Any) -> None:  # noqa: ANN401  # Typer's copy of click is private
        names = [name for item in command.params for name in item.opts]
        assert wanted <= set(names), command.name
        assert len(names) == len(set(names)), command.name
        for inner in getattr(command, "commands", {}).values():
            check(inner)

    check(root)


@pytest.mark.parametrize(
    "words", ["--help", "--version", "backends", "down", "down --format json", "--show-completion"]
)
def test_output_that_is_not_read_to_its_end_is_no_failure(words: str, tmp_path: Path) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    done = forked.run(["-m", "twinstore_backfill", *words.split()], stdout=writing, cwd=tmp_path)
    os.close(writing)
    assert (done.returncode, done.stderr) == (0, "")
