"""``twinstore init``: asks where both stores are, tests it without a write, and writes settings and a job."""

from __future__ import annotations

import os
import shlex
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, TypeVar
from urllib.parse import parse_qs, unquote, urlsplit

import typer

from twinstore.errors import ConfigurationError, TwinstoreError, ValidationError
from twinstore_backfill.cli.options import ModuleName, OnlyTenants
from twinstore_backfill.cli.output import emit_lines
from twinstore_backfill.process.secrets import REDACTOR
from twinstore_backfill.rules.model import toml_text

if TYPE_CHECKING:
    from twinstore.config import Settings
    from twinstore_backfill.stores import Store

T = TypeVar("T")
Table = dict[str, object]
SETTINGS, TARGET_SETTINGS, JOB_FILE = (
    Path(name) for name in ("settings.toml", "target.toml", "migration.toml")
)
HEAD: Final = "# Written by `twinstore init`. Passwords stay in the variables and files that are named here."
RULES: Final = "# Rules for what changes on the way, such as [[map]], [[drop]] or [[accept]], go below."
FROM_URL, TO_URL, OWNER_URL = "--from-url", "--to-url", "--to-owner-url"
QUESTIONS: Final = {
    "--module": "Module to move ({})",
    FROM_URL: "Source",
    TO_URL: "Target, with the role of the service",
    OWNER_URL: "Target, with the role that owns the tables",
    "--tenant": "Only some tenants, such as {} (Enter: all)",
    "--reports": "Directory for reports",
}
INTRODUCTION: Final = """\
Nothing is written to a database, and Ctrl-C leaves no file.
Name a store by its URL. If that holds a password, name a variable (env:NAME) or a file (file:PATH) with it.
"""
Reports = Annotated[Path | None, typer.Option("--reports", help="Directory for reports. Default: reports.")]


@dataclass(slots=True)
class Form:
    """The answers: those of options, and on a terminal those to questions.

    Attributes:
        given: by option.
        asks: whether there is a terminal.
    """

    given: dict[str, str | None]
    asks: bool

    def answer(self, option: str, detail: str = "", default: str | None = None) -> str:
        """Return the answer to a question."""
        text = self.given.get(option)
        if text is None and self.asks:
            question = QUESTIONS[option].format(detail)
            text = typer.prompt(question, default=default, err=True, show_default=bool(default)).strip()
        if not (text or default or "").isprintable():
            raise ValidationError(f"{option} has a character that cannot be printed; leave it out.")
        return text or default or ""

    def settle(self, make: Callable[[], T], *options: str) -> T:
        """Return what is made of some answers; on a terminal ask again until they are right."""
        while True:
            try:
                return make()
            except TwinstoreError as error:
                if not (self.asks and options):
                    raise
                typer.echo(f"  {' '.join(REDACTOR.clean(error.message).split())}", err=True)
            for option in options:
                self.given.pop(option, None)


@dataclass(frozen=True, slots=True)
class Side:
    """One store, as settings say it.

    Attributes:
        backend: its driver.
        section: the section of the driver.
        tenants: those that have rows there.
    """

    backend: str
    section: Table
    tenants: Sequence[str] = ()


def init(
    *,
    from_url: Annotated[
        str | None, typer.Option(FROM_URL, metavar="URL", help="Source: URL, env:NAME or file:PATH.")
    ] = None,
    to_url: Annotated[
        str | None,
        typer.Option(TO_URL, metavar="URL", help="Target, with the role that the service uses."),
    ] = None,
    to_owner_url: Annotated[
        str | None,
        typer.Option(OWNER_URL, metavar="URL", help="PostgreSQL: with the role that owns the tables."),
    ] = None,
    module: ModuleName = None,
    tenant: OnlyTenants = None,
    reports: Reports = None,
) -> None:
    """Ask for two stores, test them, and write settings and a job file.

    Nothing is written to a database, and no existing file is changed. A URL with a password is refused: name
    the variable or the file that holds it. Without a terminal the options must answer every question.
    """
    from twinstore.plugins.modules import built_modules

    given = {FROM_URL: from_url, TO_URL: to_url, OWNER_URL: to_owner_url, "--module": module}
    form = Form({**given, "--reports": str(reports) if reports else None}, sys.stdin.isatty())
    _refuse_existing()
    several = built_modules()[1:]
    if not form.asks:
        needed = [option for option in given if option != "--module" or several]
        _refuse_missing([option for option in needed if given[option] is None], to_url)
    if form.asks:
        typer.echo(INTRODUCTION, err=True)
    name = form.settle(lambda: _module(form, built_modules()), *(["--module"] if several else []))
    source = form.settle(lambda: _source(form, name), FROM_URL)
    target = form.settle(lambda: _target(form, name, source), TO_URL, OWNER_URL)
    tenants = form.settle(lambda: _tenants(form, source, tenant), *([] if tenant else ["--tenant"]))
    place = form.settle(lambda: form.answer("--reports", default="reports"), "--reports")
    _write(files_of(name, source, target, tenants, place))
    emit_lines(["", "Next:", f"  twinstore backfill run {JOB_FILE}"])


def _refuse_existing() -> None:
    for path in (SETTINGS, TARGET_SETTINGS, JOB_FILE):
        if os.path.lexists(path):
            raise ValidationError(f"{path} exists and is not overwritten; move it, or use another folder.")


def _refuse_missing(missing: Sequence[str], to_url: str | None) -> None:
    """Refuse to go on without an answer."""
    if to_url is not None and OWNER_URL in missing and not _has_owner(to_url):
        missing = [option for option in missing if option != OWNER_URL]
    if missing:
        raise ValidationError(
            f"There is no terminal to ask on; give {', '.join(missing)}"
            f"{f' ({OWNER_URL} for PostgreSQL only)' if OWNER_URL in missing else ''}."
        )


def _has_owner(url: str) -> bool:
    """Return whether the driver of a URL has a separate role for migrations."""
    from twinstore.config.files import read_elsewhere
    from twinstore.plugins.drivers import list_backends, load_backend

    scheme = read_elsewhere(url, os.environ, TO_URL).partition(":")[0].casefold()
    name = next((info.name for info in list_backends() if scheme in info.schemes), None)
    return name is not None and "owner_connection_string" in load_backend(name).settings.model_fields


def _module(form: Form, known: Sequence[str]) -> str:
    from twinstore_backfill.stores import resolve_module

    return resolve_module(form.answer("--module", ", ".join(known)) if known[1:] else None)


def _source(form: Form, module: str) -> Side:
    from twinstore_backfill.stores import inspect_source

    url = _without_password(form.answer(FROM_URL))
    side = _side(url, module)
    with _opened(module, side, read_only=True) as store:
        inspect_source(store)
        return Side(side.backend, side.section, sorted(_report(store)))


def _target(form: Form, module: str, source: Side) -> Side:
    from twinstore_backfill.migration import Migration
    from twinstore_backfill.migration import Side as Place
    from twinstore_backfill.stores import is_migrated, preflight, refuse_same_store

    url = _without_password(form.answer(TO_URL))
    side = _side(url, module)
    owner = _without_password(form.answer(OWNER_URL)) if _has_owner(url) else None
    if owner is not None:
        side.section.update(_roles(url, owner))
    before, after = (Place(item.backend, _settings(module, item)) for item in (source, side))
    with Migration(before, after, module).opened() as (left, right):
        refuse_same_store(left.bulk, right.bulk)
        # Connects with the owner role.
        right.storage.initializer.status()
        if owner is not None:
            _refuse_other_database(module, owner, right)
        if is_migrated(right):
            preflight(right.storage.check_ready)
            _report(right)
        else:
            typer.echo(f"  {_named(right)}: its schema will be created or upgraded.", err=True)
    return side


def _refuse_other_database(module: str, owner: str, target: Store) -> None:
    side = _side(owner, module)
    with _opened(module, side, read_only=True) as store:
        if store.bulk.instance != target.bulk.instance:
            raise ConfigurationError(
                f"{OWNER_URL} leads to {store.bulk.place}, and {TO_URL} to {target.bulk.place}; "
                "name the same database."
            )


def _tenants(form: Form, source: Side, given: Sequence[str] | None) -> list[str]:
    """Return the tenants to move, none for all."""
    named = [tenant for tenant in source.tenants if tenant and not tenant.startswith(":")]
    found = list(given or ())
    if not found and form.asks and len(named) > 1:
        found = _words(form.answer("--tenant", shlex.quote(named[0]), default=""))
    if unknown := [tenant for tenant in found if tenant not in named]:
        raise ValidationError(f"The source has no rows of tenant {unknown[0]!r}; check the spelling.")
    if found:
        typer.echo("  Of some tenants the best verdict is PARTIAL.", err=True)
    return found


def _words(text: str) -> list[str]:
    try:
        return shlex.split(text)
    except ValueError as error:
        raise ValidationError(f"--tenant: {error}.") from None


def _without_password(url: str) -> str:
    from twinstore.runtime.secrets import mask_secret_url

    if mask_secret_url(url) != url:
        raise ConfigurationError(
            "The URL holds a password, which no settings file should have. Put the URL into a variable or a "
            "file, and give env:NAME or file:PATH."
        )
    return url


def _side(url: str, module: str) -> Side:
    """Return the side of a URL; secrets and user of it are shown nowhere."""
    from twinstore.config import load_settings
    from twinstore_backfill.stores import url_settings

    backend, _ = url_settings(url, module, load_settings({}, environ={}))
    return Side(backend, {"ConnectionString": url})


def _roles(url: str, owner: str) -> Table:
    """Return what settings say of the roles of PostgreSQL."""
    user = _user(url)
    if _user(owner) == user:
        raise ConfigurationError(
            f"{TO_URL} and {OWNER_URL} name one role, and row-level security does not bind an owner. Name "
            "the two roles; if the one of the service is missing, an administrator must run: CREATE ROLE "
            "twinstore_app LOGIN PASSWORD '...';"
        )
    return {"OwnerConnectionString": owner, "ApplicationRole": user}


def _user(url: str) -> str:
    from twinstore.config.files import read_elsewhere

    text = read_elsewhere(url, os.environ, "the url")
    try:
        parts = urlsplit(text)
        user = unquote(parts.username or "") or parse_qs(parts.query).get("user", [""])[-1]
    except ValueError:
        user = ""
    if not user:
        raise ConfigurationError("The URL names no role; write it as postgresql://ROLE@host/database.")
    return user


@contextmanager
def _opened(module: str, side: Side, *, read_only: bool = False) -> Iterator[Store]:
    from twinstore_backfill.stores import open_store

    with open_store(module, side.backend, _settings(module, side), read_only=read_only) as store:
        yield store


def _settings(module: str, side: Side) -> Settings:
    """Return settings of one side, as later commands read them from the files.

    Raises:
        ConfigurationError: the environment would win over the files.
    """
    from twinstore.config import CONFIG_VARIABLE, load_settings

    # Of the file that is written, and not of that of the service.
    environ = {name: value for name, value in os.environ.items() if name != CONFIG_VARIABLE}
    set_elsewhere = load_settings({}, environ=environ).backend_section(module, side.backend)
    if names := {name.casefold() for name in set_elsewhere} & {name.casefold() for name in side.section}:
        raise ConfigurationError(
            f"The environment sets {', '.join(sorted(names))} of {side.backend}, which wins over a settings "
            "file; unset it."
        )
    return load_settings(_document(module, side), environ=environ)


def _document(module: str, *sides: Side) -> Table:
    """Return the content of a settings file; its switch names the first side."""
    from twinstore.plugins.modules import module_plugins

    _, switch = module_plugins()[module].settings.switch
    return {"Persistence": {switch: sides[0].backend, **{side.backend: side.section for side in sides}}}


def _report(store: Store) -> Counter[str]:
    """Show where a store is and what it holds; return its rows by tenant."""
    from twinstore_backfill.report.texts import largest
    from twinstore_backfill.stores import select_entities

    rows, tenants = Counter[str](), Counter[str]()
    for entity in select_entities(store.bulk, ()):
        found = store.bulk.counts(entity)
        rows[entity.name] += sum(found.values())
        tenants.update(found)
    typer.echo(f"  {_named(store)}: {largest(rows)}.", err=True)
    return tenants


def _named(store: Store) -> str:
    return f"{store.bulk.place}, version {store.storage.capabilities.server_version}"


def files_of(
    module: str, source: Side, target: Side, tenants: Sequence[str], reports: str
) -> Mapping[Path, str]:
    """Return the content of the files by name; both sides are in one file of settings if it can hold them."""
    same = source.backend == target.backend
    settings = {SETTINGS: _document(module, source, *(() if same else (target,)))}
    if same:
        settings[TARGET_SETTINGS] = _document(module, target)
    job: Table = {"module": module, "config": str(SETTINGS)}
    if same:
        job["target-config"] = str(TARGET_SETTINGS)
    job |= {"from": source.backend, "to": target.backend, "reports": reports}
    if tenants:
        job["tenant"] = list(tenants)
    texts = {path: "\n".join((HEAD, *_toml_lines(table), "")) for path, table in settings.items()}
    return {**texts, JOB_FILE: "\n".join((HEAD, *_toml_lines(job), "", RULES, ""))}


def _toml_lines(table: Table, *path: str) -> Iterator[str]:
    """Yield the lines of a table whose names need no quotes."""
    inner = {name: value for name, value in table.items() if isinstance(value, dict)}
    if path:
        yield from ("", f"[{'.'.join(path)}]")
    yield from (f"{name} = {_toml(value)}" for name, value in table.items() if name not in inner)
    for name, value in inner.items():
        yield from _toml_lines(value, *path, name)


def _toml(value: object) -> str:
    return f"[{', '.join(map(_toml, value))}]" if isinstance(value, list) else toml_text(str(value))


def _write(files: Mapping[Path, str]) -> None:
    """Make new files, all or none."""
    made: list[Path] = []
    for path, text in files.items():
        try:
            with path.open("xb") as file:
                made.append(path)
                file.write(text.encode())
        except OSError as error:
            for other in made:
                with suppress(OSError):
                    other.unlink()
            raise ConfigurationError(
                f"{path.absolute()} cannot be made: {error.strerror}. Nothing was written; make room, or run "
                "the command in another directory."
            ) from None
    emit_lines([f"Written: {', '.join(map(str, files))}."])
