"""Command lines in the pages exist, with the options and values they show; files of settings load."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

from docs.parts.commands import Command, Parameter, choices, root_command, subcommands
from tests.docs.pages import ROOT, TUTORIALS, Block, all_blocks
from twinstore import load_settings

if TYPE_CHECKING:
    from collections.abc import Callable

PROMPT: Final = re.compile(r"^\$ (?P<line>.+)$", re.MULTILINE)
# From an index, from the checkout, or from the file that a build makes, whatever its version.
PACKAGE: Final = re.compile(r"(twinstore|\.|\$\(ls (\S*/)?twinstore-\*\.whl\))\[")
VARIABLE: Final = re.compile(r"(?P<name>\w+)=(?P<value>.*)")
HELP: Final = frozenset({"--help", "-h"})
# A tutorial is replayed, line by line.
LINES: Final = [
    (block, match["line"])
    for block in all_blocks("console")
    if block.page not in TUTORIALS
    for match in PROMPT.finditer(block.body)
]


def check_twinstore(words: Sequence[str]) -> None:
    """Walk down the commands; each must know every option and accept its value, and none may be missing."""
    command, given, rest = root_command(), set[str](), list(words)
    while rest:
        word = rest.pop(0)
        if word in HELP:
            return
        if word.startswith("-"):
            option = known_options(command)[word]
            given.add(option.name)
            if not getattr(option, "is_flag", False):
                check_value(command, option, rest.pop(0))
        elif inner := subcommands(command):
            check_required(command, given)
            command, given = inner[word], set()
        else:
            assert has_arguments(command), f"{word!r} is one too many"
    assert not subcommands(command), f"{' '.join(words)} names a group only"
    # The job file may set a required option.
    if "--job-file" not in words:
        check_required(command, given)


def known_options(command: Command) -> Mapping[str, Parameter]:
    """Return the options of a command by each of their names."""
    return {name: item for item in command.params for name in (*item.opts, *item.secondary_opts)}


def has_arguments(command: Command) -> bool:
    return any(item.param_type_name == "argument" for item in command.params)


def check_required(command: Command, given: set[str]) -> None:
    missing = {item.name for item in command.params if item.required} - given
    assert not missing or has_arguments(command), missing


def check_value(command: Command, option: Parameter, value: str) -> None:
    allowed = choices(command, option)
    assert not allowed or value in allowed, f"{option.opts[0]} takes {allowed}"


def check_make(words: Sequence[str]) -> None:
    """Check that the targets exist; without one make lists them."""
    makefile = (ROOT / "Makefile").read_text("utf-8")
    for word in words:
        assert "=" in word or re.search(rf"^{word}:", makefile, re.MULTILINE), word


def check_pip(words: Sequence[str]) -> None:
    """Check that the extras exist (test_names looks at each of them)."""
    assert words[0] == "install"
    assert all(PACKAGE.match(word) for word in words[1:])


def check_python(words: Sequence[str]) -> None:
    """Check that a script or module of the repository exists; ``service.py`` is the reader's own."""
    if words[0] == "-m":
        assert find_spec(words[1]) is not None
        return
    assert words[0] == "service.py" or (ROOT / words[0]).is_file()


def check_folder(words: Sequence[str]) -> None:
    """Check that a folder of the repository exists."""
    assert (ROOT / words[0]).is_dir()


def check_shell(words: Sequence[str]) -> None:
    """Check that a script of the repository exists."""
    assert (ROOT / words[0]).is_file()


def check_docker(words: Sequence[str]) -> None:
    """Check files, targets and services; there is no engine to ask for the rest."""
    file = ROOT / words[words.index("-f") + 1]
    text = file.read_text("utf-8")
    assert words[0] in {"build", "compose"}
    if words[0] == "build":
        target = words[words.index("--target") + 1] if "--target" in words else "tools"
        assert f" AS {target}\n" in text
        assert words[-1] == "."
    if words[-3:-1] == ["run", "--rm"]:
        assert f"\n  {words[-1]}:\n" in text


def check_kubectl(words: Sequence[str]) -> None:
    """Check that manifests exist, and what is made of them."""
    if "-f" in words:
        assert (ROOT / words[words.index("-f") + 1]).is_file()
    for kind, name in (word.split("/") for word in words if word.startswith(("job/", "deployment/"))):
        folders = "samples/deploy/kubernetes", "samples/scale_out"
        manifests = (path for folder in folders for path in (ROOT / folder).glob("*.yaml"))
        made = f"kind: {kind.title()}\nmetadata:\n  name: {name}\n"
        assert any(made in path.read_text("utf-8") for path in manifests), name


CHECKS: Final[dict[str, Callable[[Sequence[str]], None]]] = {
    "cd": check_folder,
    "docker": check_docker,
    "kubectl": check_kubectl,
    "make": check_make,
    "pip": check_pip,
    "python": check_python,
    "sh": check_shell,
    "twinstore": check_twinstore,
}


def assignments(words: list[str]) -> Iterator[tuple[str, str]]:
    """Take the variables off the front of a line."""
    while words and (match := VARIABLE.fullmatch(words[0])):
        words.pop(0)
        yield match["name"], match["value"]


def check(block: Block, line: str) -> None:
    """Check that what a line of a page calls exists."""
    words = shlex.split(line, comments=True)
    # The settings that `twinstore up` writes name three, so without one the command would be refused. The
    # generated examples of each command know no module, and their page says when one is needed.
    one = re.search(r"\btwinstore (--\S+ \S+ )*(config check|migrate \w+|smoke|purge)\b", line)
    assert "--module" in words or block.place.startswith("docs/cli.md") or not one, "it names no module"
    if words[0] == "export":
        words = words[1:]
    variables = dict(assignments(words))
    variables.pop("TWINSTORE_CONFIG", None)
    if words[:1] == ["docker"]:
        compose = (ROOT / words[words.index("-f") + 1]).read_text("utf-8")
        assert all(f"${{{name}:-" in compose for name in variables)
        variables.clear()
    assert load_settings(environ=variables).entries or not variables, "the variables name no setting"
    if words:
        CHECKS[words[0]](words[1:])


def test_every_command_line_in_a_page_exists_and_names_its_module() -> None:
    wrong: list[str] = []
    for block, line in LINES:
        try:
            check(block, line)
        except (AssertionError, KeyError, ValueError) as error:
            wrong.append(f"{block.place}: {line}: {error!r}")
    assert wrong == []
    assert len(LINES) > 100


@pytest.mark.parametrize(
    "line",
    [
        "backfill",
        "backfill copy --frm mongo",
        "up --only oracle",
        "backfill diff --from Mongo --to Postgres",
        "no-such",
    ],
)
def test_a_wrong_command_line_is_noticed(line: str) -> None:
    with pytest.raises((AssertionError, KeyError)):
        check_twinstore(line.split())


def with_settings(language: str) -> list[Block]:
    return [block for block in all_blocks(language) if "Persistence__" in block.body]


def test_environment_files_load(tmp_path: Path) -> None:
    blocks = with_settings("ini")
    assert blocks
    for block in blocks:
        (tmp_path / ".env").write_text(block.body)
        settings = load_settings(env_file=tmp_path / ".env", environ={})
        assert settings.problems() == ()
        assert "${" not in str([entry.value for entry in settings.entries.values()])


def test_names_of_secret_files_are_keys(tmp_path: Path) -> None:
    names = [Path(line).name for block in with_settings("text") for line in block.body.splitlines()]
    assert names
    for name in names:
        (tmp_path / name).write_text("postgresql://host/db")
    assert len(load_settings(secrets_dir=tmp_path, environ={}).entries) == len(names)
