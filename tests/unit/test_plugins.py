from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from importlib import metadata
from pathlib import Path
from textwrap import dedent

import pytest

from twinstore.errors import ConfigurationError
from twinstore.plugins.backend import BackendSpec
from twinstore.plugins.drivers import GUIDE, BackendInfo, installed_backend_names, list_backends, load_backend
from twinstore.storage.open import open_module

Install = Callable[..., None]

PLUGIN = """
from twinstore.plugins.settings import BackendSettings
from twinstore.plugins.backend import BackendSpec
from twinstore.plugins.drivers import hookimpl

def factory(request):
    raise RuntimeError("nobody opened this driver")

@hookimpl
def twinstore_register_backend():
    return BackendSpec(
        name="{name}", schemes=("x",), api_version={api_version}, settings=BackendSettings, factory=factory,
        modules=frozenset({{"scheduler", "tracking"}}), extra="{extra}", requires={requires},
    )
"""


def plugin(
    name: str = "Cask", *, api_version: object = 2, extra: str = "client", requires: str = "()"
) -> str:
    return PLUGIN.format(name=name, api_version=api_version, extra=extra, requires=requires)


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Install]:
    """Install a real distribution: a module next to a dist-info folder, on sys.path."""
    modules: list[str] = []

    def add(
        distribution: str, source: str, *, entry: str = "cask", module: str = "", value: str = ""
    ) -> None:
        module = module or distribution.replace("-", "_") + "_plugin"
        site = tmp_path / distribution
        info = site / f"{distribution.replace('-', '_')}-1.2.dist-info"
        info.mkdir(parents=True)
        metadata = f"Metadata-Version: 2.1\nName: {distribution}\nVersion: 1.2\nProvides-Extra: client\n"
        (info / "METADATA").write_text(metadata)
        (info / "entry_points.txt").write_text(f"[twinstore.backends]\n{entry} = {value or module}\n")
        (site / f"{module}.py").write_text(dedent(source))
        monkeypatch.syspath_prepend(str(site))
        modules.append(module)

    yield add
    for module in modules:
        sys.modules.pop(module, None)


def failure(name: str, *, module: str | None = None) -> ConfigurationError:
    with pytest.raises(ConfigurationError) as caught:
        load_backend(name, module=module)
    return caught.value


def listed(name: str) -> list[BackendInfo]:
    return [info for info in list_backends() if info.name.casefold() == name]


@pytest.mark.parametrize("name", ["cask", "Cask", "CASK"])
def test_a_driver_is_loaded_by_name_without_regard_to_case(install: Install, name: str) -> None:
    install("cask-driver", plugin())
    spec = load_backend(name, module="scheduler")
    assert isinstance(spec, BackendSpec)
    assert spec.name == "Cask"
    assert "cask" in installed_backend_names()
    assert listed("cask") == [
        BackendInfo(
            name="cask",
            distribution="cask-driver",
            version="1.2",
            state="ready",
            modules=("scheduler", "tracking"),
        )
    ]


def test_an_entry_point_may_name_an_object_inside_a_module(install: Install) -> None:
    source = (
        plugin()
        + "\nclass Holder:\n    twinstore_register_backend = staticmethod(twinstore_register_backend)\n"
    )
    install("cask-driver", source, value="cask_driver_plugin:Holder")
    assert load_backend("cask").name == "Cask"


def test_only_the_configured_driver_is_imported(install: Install) -> None:
    install("cask-driver", plugin())
    install("bad-driver", "raise RuntimeError('imported')", entry="bad")
    load_backend("cask")
    assert "cask_driver_plugin" in sys.modules
    assert "bad_driver_plugin" not in sys.modules


def test_an_unknown_name_gets_near_matches_and_the_list(install: Install) -> None:
    install("cask-driver", plugin())
    error = failure("caks")
    assert "Unknown driver 'caks'. Did you mean cask?" in error.message
    assert "Mongo, Postgres" in error.message
    assert error.driver == "caks"


def test_two_distributions_claiming_one_name_are_refused_even_when_the_case_differs(install: Install) -> None:
    install("cask-driver", plugin())
    install("other-driver", plugin(), entry="CASK")
    error = failure("cask")
    assert "registered more than once" in error.message
    assert "cask-driver 1.2" in error.message
    assert "other-driver 1.2" in error.message
    assert "Uninstall all but one" in error.message
    assert [info.state for info in listed("cask")] == ["broken", "broken"]


def test_one_distribution_seen_twice_on_the_path_is_no_conflict(
    install: Install, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install("cask-driver", plugin())
    copy = tmp_path / "copy"
    shutil.copytree(tmp_path / "cask-driver", copy)
    monkeypatch.syspath_prepend(str(copy))
    assert load_backend("cask").name == "Cask"


@pytest.mark.parametrize(
    ("source", "kind", "text"),
    [
        ("import nowhere_to_be_found", ModuleNotFoundError, "No module named 'nowhere_to_be_found'"),
        ("def broken(:", SyntaxError, "SyntaxError"),
        ("raise SystemExit(3)", SystemExit, "SystemExit: 3"),
        ("raise RuntimeError", RuntimeError, "(RuntimeError)"),
    ],
)
def test_an_import_failure_keeps_its_cause(
    install: Install, source: str, kind: type[BaseException], text: str
) -> None:
    install("cask-driver", source)
    error = failure("cask")
    assert isinstance(error.__cause__, kind)
    assert "cannot be imported" in error.message
    assert text in error.message
    assert listed("cask")[0].state == "broken"
    assert listed("cask")[0].detail == error.message


def test_an_entry_point_to_a_missing_attribute_is_an_import_failure(install: Install) -> None:
    install("cask-driver", plugin(), value="cask_driver_plugin:Missing")
    assert isinstance(failure("cask").__cause__, AttributeError)


def test_a_missing_extra_names_the_pip_line_before_the_factory_is_called(install: Install) -> None:
    install("cask-driver", plugin(requires="('json', 'cask_client', 'cask_client.inner')"))
    error = failure("cask")
    assert "needs cask_client and cask_client.inner, which are not installed" in error.message
    assert error.message.endswith("pip install 'cask-driver[client]'")
    info = listed("cask")[0]
    assert (info.state, info.modules) == ("missing extra", ("scheduler", "tracking"))
    assert info.detail == error.message


@pytest.mark.parametrize(
    ("extra", "requirement"), [("mongo", "twinstore[mongo]"), ("cask-client-kit", "cask-client-kit")]
)
def test_an_extra_of_twinstore_and_a_plain_distribution_can_be_the_remedy(
    install: Install, extra: str, requirement: str
) -> None:
    install("cask-driver", plugin(extra=extra, requires="('cask_client',)"))
    assert failure("cask").message.endswith(f"pip install '{requirement}'")


@pytest.mark.parametrize(
    ("version", "remedy"),
    [
        (3, "Upgrade twinstore."),
        (1, "Upgrade cask-driver. What its author has to change is in docs/writing-a-driver.md."),
        (0, "Upgrade cask-driver. What its author has to change is in docs/writing-a-driver.md."),
    ],
)
def test_an_interface_version_outside_the_window_says_what_to_upgrade(
    install: Install, version: int, remedy: str
) -> None:
    install("cask-driver", plugin(api_version=version))
    error = failure("cask")
    assert f"version {version} of the driver interface; this twinstore supports 2. " in error.message
    assert error.message.endswith(remedy)


def test_the_page_that_an_author_is_sent_to_is_there() -> None:
    page = Path(__file__).parents[2] / GUIDE
    assert "version 2 of the driver interface" in page.read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("field", "value", "problem"),
    [
        ("api_version", "'2'", "api_version should be a whole number, not '2'"),
        ("api_version", "True", "api_version should be a whole number, not True"),
        ("schemes", "'x'", "schemes should be a tuple of one or more texts, not 'x'"),
        ("schemes", "()", "schemes should be a tuple of one or more texts, not ()"),
        ("settings", "dict", "settings should be a class that inherits BackendSettings, not <class 'dict'>"),
        ("factory", "None", "factory should be a function of one argument, the OpenRequest, not None"),
        ("factory", "lambda: None", "factory should be a function of one argument, the OpenRequest"),
        ("extra", "''", "extra should be a text, not ''"),
        ("requires", "'json'", "requires should be a tuple of texts, not 'json'"),
        ("modules", "['scheduler']", "modules should be None or a frozenset of texts, not ['scheduler']"),
        ("modules", "'scheduler'", "modules should be None or a frozenset of texts, not 'scheduler'"),
        ("draft", "1", "draft should be None or a function, not 1"),
        ("name", "3", "name should be a text, not 3"),
    ],
)
def test_a_field_of_the_description_with_another_type_is_named(
    install: Install, field: str, value: str, problem: str
) -> None:
    described = plugin().replace("return BackendSpec(", "return replace(BackendSpec(")
    source = f"from dataclasses import replace\n{described.rstrip()[:-1]}), {field}={value})\n"
    install("cask-driver", source)
    install("other-driver", plugin(name="Other"), entry="other")
    error = failure("cask")
    assert f"describes itself wrongly: {problem}" in error.message
    assert listed("cask")[0].state == "broken"
    assert listed("other")[0].state == "ready"


def test_a_misspelt_module_is_a_warning_of_the_list(install: Install) -> None:
    install("cask-driver", plugin().replace("tracking", "schedular"))
    (info,) = listed("cask")
    assert info.state == "ready"
    assert "the module 'schedular', which does not exist. Did you mean scheduler?" in info.detail


def opening() -> ConfigurationError:
    with pytest.raises(ConfigurationError) as caught:
        open_module("scheduler", "cask", {})
    return caught.value


@pytest.mark.parametrize(
    ("body", "problem"),
    [
        ("raise RuntimeError('at s3cr3t@host')", "failed with RuntimeError; see the cause"),
        ("return request.nothing", "failed with AttributeError; see the cause"),
        ("return None", "returned NoneType, which is not a ModuleBackend: it lacks bind, bulk, capabilities"),
        (
            "return Half()",
            "returned Half, which is not a ModuleBackend: it lacks bulk, capabilities, check_ready",
        ),
    ],
)
def test_a_factory_that_fails_or_returns_no_backend_is_named(
    install: Install, body: str, problem: str
) -> None:
    half = "\nclass Half:\n    def bind(self, handle, scope): ...\n"
    install("cask-driver", plugin().replace('raise RuntimeError("nobody opened this driver")', body) + half)
    error = opening()
    assert problem in error.message
    assert "s3cr3t" not in error.message
    assert (error.driver, error.module) == ("Cask", "scheduler")
    assert (error.__cause__ is not None) == ("failed" in problem)


def test_an_error_of_ours_leaves_a_factory_as_it_is(install: Install) -> None:
    source = plugin().replace("raise RuntimeError", "raise ConfigurationError")
    install("cask-driver", f"from twinstore.errors import ConfigurationError\n{source}")
    assert opening().message == "nobody opened this driver"


def test_the_error_for_an_entry_point_that_names_the_hook_says_to_name_the_module(install: Install) -> None:
    install("cask-driver", plugin(), value="cask_driver_plugin:twinstore_register_backend")
    assert "must name the module alone, without :twinstore_register_backend" in failure("cask").message


def test_the_error_for_a_hook_with_an_extra_argument_names_it(install: Install) -> None:
    install("cask-driver", plugin().replace("register_backend():", "register_backend(path):"))
    assert "Argument(s) {'path'} are declared in the hookimpl" in failure("cask").message


def test_the_error_for_a_client_library_imported_at_the_top_says_where_to_import_it(install: Install) -> None:
    install("cask-driver", f"import cask_client\n{plugin(requires=repr(('cask_client',)))}")
    assert "its factory should import the client library, not its plug-in" in failure("cask").message


@pytest.mark.parametrize(
    ("source", "problem"),
    [
        (
            plugin().replace("def twinstore_register_backend", "def twinstore_register_backends"),
            "unknown hook 'twinstore_register_backends'",
        ),
        (plugin().replace("register_backend():", "register_backend(path):"), "does not implement the hook"),
        (plugin().replace("@hookimpl", ""), "has no function twinstore_register_backend marked"),
        ("", "has no function twinstore_register_backend marked"),
        (plugin().replace("return BackendSpec", "return dict"), "returned dict"),
        (plugin().replace("return BackendSpec", "BackendSpec"), "returned NoneType"),
        (plugin(requires="undefined_name"), "failed in twinstore_register_backend (NameError"),
        (plugin(name="Barrel"), "describes itself as 'Barrel'"),
    ],
)
def test_a_plug_in_that_answers_wrongly_says_how(install: Install, source: str, problem: str) -> None:
    install("cask-driver", source)
    error = failure("cask")
    assert problem in error.message
    assert "cask-driver 1.2: cask_driver_plugin" in error.message
    assert listed("cask")[0].state == "broken"


def test_a_module_that_the_driver_does_not_store_is_refused(install: Install) -> None:
    install("cask-driver", plugin())
    error = failure("cask", module="taskrunner")
    assert "does not store the module 'taskrunner', only scheduler, tracking" in error.message


def test_a_broken_driver_does_not_take_the_list_down(install: Install) -> None:
    install("bad-driver", "raise RuntimeError('broken')", entry="bad")
    install("cask-driver", plugin())
    assert [info.state for info in listed("bad")] == ["broken"]
    assert [info.state for info in listed("cask")] == ["ready"]
    names = [info.name.casefold() for info in list_backends()]
    assert names == sorted(names)


NO_CLIENTS = """
import sys
class Blocker:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {"pymongo", "psycopg", "psycopg_pool", "bson"}:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Blocker())
from twinstore.plugins.drivers import list_backends
for info in list_backends():
    print(f"{info.name}|{info.state}|{info.detail}")
"""


def test_the_list_works_without_any_client_library() -> None:
    command = [sys.executable, "-W", "error", "-c", NO_CLIENTS]
    lines = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    assert {line.split("|")[0] for line in lines} >= {"Memory", "Mongo", "Postgres"}


@pytest.mark.parametrize("name", ["mongo", "postgres"])
def test_our_own_driver_without_its_client_library_is_a_missing_extra(name: str) -> None:
    command = [sys.executable, "-W", "error", "-c", NO_CLIENTS]
    lines = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    line = next(line for line in lines if line.casefold().startswith(name))
    assert line.split("|")[1] == "missing extra"
    assert line.endswith(f"pip install 'twinstore[{name}]'")


def test_a_driver_is_loaded_again_without_reading_what_is_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    found = load_backend("Memory")

    def read() -> None:
        pytest.fail("each storage that is opened would read the files of every distribution")

    monkeypatch.setattr(metadata, "distributions", read)
    assert load_backend("Memory") == found
