"""``twinstore dev``: for authors of modules and developers of twinstore itself, in a checkout."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from pathlib import Path
from shutil import rmtree
from typing import TYPE_CHECKING, Annotated, Final

import typer

from twinstore.errors import ConfigurationError, MigrationError, ValidationError
from twinstore_backfill.cli.invocation import CommandGroup, common
from twinstore_backfill.cli.options import Backend
from twinstore_backfill.process.files import wrap_write_errors, write_atomic
from twinstore_backfill.process.messages import warn

if TYPE_CHECKING:
    from twinstore.migrations.migration import MigrationDraft
    from twinstore.plugins.module_spec import ModuleSpec
    from twinstore_backfill.stores import Store


WORDS: Final = re.compile(r"[a-z][a-z0-9]*(?:_[a-z0-9]+)*")
NUMBER: Final = re.compile(r"(\d{3})_.+")
# Those from 100 on run only when an operator asks for them.
RELEASES: Final = 100
NEXT: Final = """\
  cd {path}
  pip install --editable '.[test]'
  twinstore dev migration {name} create_{name}
{aio}  pytest"""
AIO: Final = "  twinstore dev aio {name}\n"

app = typer.Typer(
    cls=CommandGroup, help="Tools for the author of a module, in a checkout of it.", no_args_is_help=True
)


@app.callback()
def commands() -> None:
    """Keep the group a group."""


@app.command("new")
def first_module(
    what: Annotated[str, typer.Argument(help="What to begin: module.")],
    name: Annotated[str, typer.Argument(help="Name of module and package, such as notes.")],
    entity: Annotated[list[str], typer.Option("--entity", help="One of its rows, such as note. Repeatable.")],
    out: Annotated[Path, typer.Option("--out", help="Folder in which the project is created.")] = Path(),
    data_only: Annotated[  # noqa: FBT002  # Typer makes a flag of it
        bool,
        typer.Option("--data-only", help="Without repositories: for data that is only migrated and copied."),
    ] = False,
) -> None:
    """Write a module that stores entities of a tenant by id, or data alone: a project with its tests."""
    from twinstore_backfill.new_module import new_module

    if what != "module":
        raise ValidationError(f"twinstore dev new begins a module, not {what!r}.")
    files = new_module(name, entity, out, data_only=data_only)
    try:
        for path, text in files.items():
            _write(path, text)
    except BaseException:
        # It was absent before, and a part of it would refuse the next attempt.
        rmtree(out / name, ignore_errors=True)
        raise
    typer.echo(f"Wrote {len(files)} files in {out / name}. Change the models, then run:")
    typer.echo(NEXT.format(path=out / name, name=name, aio="" if data_only else AIO.format(name=name)))


@app.command()
def migration(
    module: Annotated[str, typer.Argument(help="Module, or twinstore for the ledger of copies.")],
    words: Annotated[str, typer.Argument(help="What it does, such as create_workers.")] = "",
    backend: Annotated[str | None, typer.Option("--backend", help="Only this driver.")] = None,
    check: Annotated[bool, typer.Option("--check", help="Only check; exit 1 if one is missing.")] = False,  # noqa: FBT002  # Typer makes a flag of it
) -> None:
    """Write the next migration of a module: what its descriptions ask for and no shipped one makes."""
    spec = described_module(module)
    if not check and not WORDS.fullmatch(words):
        raise ValidationError(
            f"A migration is named by what it does, in words such as create_workers, not {words!r}."
        )
    drafts = drafts_of(spec, backend)
    # Before anything is written: a missing object looks the same as one that is made in another way.
    check_contradictions(spec, drafts)
    missing = [draft for draft in drafts if draft.text is not None]
    if not check:
        check_repetitions(spec, missing)
    if not missing:
        typer.echo(f"The migrations of {spec.name} make everything that its descriptions ask for.")
    for draft in missing:
        if check:
            typer.echo(f"The migrations of {spec.name} for {draft.folder} lack:\n{draft.text}")
        else:
            typer.echo(f"Wrote {written(spec, draft, words)}. Read it before you use it.")
    if check and missing:
        raise typer.Exit(1)


@app.command()
def schema(
    context: typer.Context,
    module: Annotated[str, typer.Argument(help="Module.")],
    backend: Backend = None,
    check: Annotated[bool, typer.Option("--check", help="Only check; exit 1 if it is stale.")] = False,  # noqa: FBT002  # Typer makes a flag of it
) -> None:
    """Write the schema that a server has after all migrations of a module, into the file next to them.

    The settings name a development server on which all of them are applied.
    """
    from twinstore_backfill.stores import open_store

    settings = common(context).settings()
    name = backend or settings.backend_name(module)
    with open_store(module, name, settings) as store:
        path, text = snapshot_file(store)
    if path.is_file() and path.read_text("utf-8") == text:
        typer.echo(f"{path} is current.")
    elif check:
        typer.echo(f"{path} is not current. Run: twinstore dev schema {module}")
        raise typer.Exit(1)
    else:
        _write(path, text)
        typer.echo(f"Wrote {path}.")


def snapshot_file(store: Store) -> tuple[Path, str]:
    """Return path and text of the snapshot of a store.

    Raises:
        ConfigurationError: its driver has none, or the package of the module is not a folder.
        MigrationError: not all migrations are applied.
    """
    from twinstore.migrations.migration import MigrationState, TakesSnapshots
    from twinstore.plugins.modules import module_spec

    initializer = store.storage.initializer
    if not isinstance(initializer, TakesSnapshots):
        raise ConfigurationError(
            f"{store.backend} has no snapshot of its schema; choose another driver with --backend."
        )
    pending = [item.name for item in initializer.status() if item.state is MigrationState.PENDING]
    if pending:
        raise MigrationError(
            f"Migrations of {store.module} are pending: {', '.join(pending)}. A snapshot shows all of them; "
            "run `twinstore migrate run --category release` on this server first.",
            module=store.module,
        )
    snapshot = initializer.snapshot()
    return migrations_folder(module_spec(store.module), snapshot.folder) / snapshot.name, snapshot.text


@app.command()
def aio(
    module: Annotated[str, typer.Argument(help="Module.")],
    check: Annotated[bool, typer.Option("--check", help="Only check; exit 1 if one is stale.")] = False,  # noqa: FBT002  # Typer makes a flag of it
) -> None:
    """Write the classes of a module for asyncio: the package aio inside the package of the module."""
    from twinstore.codegen.aio import aio_files
    from twinstore.plugins.modules import module_spec

    spec = module_spec(module)
    write(f"{spec.package}.aio", aio_files(spec), f"twinstore dev aio {spec.name}", check=check)


def write(package: str, wanted: dict[Path, str], command: str, *, check: bool) -> None:
    """Write the files of a generated package, or end with 1 where they are not current."""
    from twinstore.codegen.files import update_files

    stale = update_files(wanted, check=check)
    if not stale:
        typer.echo(f"{package} is current.")
    elif not check:
        typer.echo(f"Wrote {len(wanted)} files of {package}.")
    else:
        typer.echo(f"{package} is not current. Run: {command}")
        raise typer.Exit(1)


@app.command()
def sql(
    module: Annotated[
        str, typer.Argument(help="Module, or twinstore for the ledger of copies. Default: all of them.")
    ] = "",
    backend: Annotated[
        str | None, typer.Option("--backend", "--driver", help="Only this driver, for example Postgres.")
    ] = None,
    entity: Annotated[
        str | None, typer.Option("--entity", help="Only statements about this entity, for example runs.")
    ] = None,
) -> None:
    """Print the statements that the drivers send, each under its name.

    They are recorded from a run of the contract kit and shipped with the module; nothing is connected.
    """
    from twinstore.ledger import LEDGER_MODULE
    from twinstore.plugins.drivers import installed_backend_names, load_backend
    from twinstore.plugins.modules import complete_modules
    from twinstore.plugins.statements import statements_file, statements_of

    specs = [described_module(module)] if module else [*complete_modules(), LEDGER_MODULE]
    names = installed_backend_names() if backend is None else (load_backend(backend).name,)
    found = [
        (spec, name, statements_of(spec, name.casefold()))
        for spec in specs
        for name in names
        if statements_file(spec, name.casefold()).is_file()
    ]
    shown = [
        (f"-- {spec.name} on {name}", part)
        for spec, name, statements in found
        if (part := [item for item in statements if entity in {None, item.entity}])
    ]
    if not shown:
        raise refused_statements(names, {item.entity for *_, part in found for item in part}, entity)
    for title, part in shown:
        typer.echo("\n\n".join((title, *(f"-- {item.name}\n{item.text}" for item in part), "")))


def refused_statements(
    names: Sequence[str], known: Collection[str], entity: str | None
) -> ConfigurationError:
    """Return why no statement can be printed."""
    drivers = ", ".join(names)
    if not known:
        return ConfigurationError(
            f"No statements of {drivers} are recorded for this module. In a checkout, `make statements` "
            "records those of the drivers in it."
        )
    return ConfigurationError(
        f"No statement of {drivers} is about an entity {entity!r}; recorded are those of "
        f"{', '.join(sorted(known))}."
    )


def described_module(name: str) -> ModuleSpec[object]:
    """Return a module by name; the ledger of copies is one that no settings name."""
    from twinstore.ledger import LEDGER_MODULE
    from twinstore.plugins.modules import module_spec

    if name == LEDGER_MODULE.name:
        return LEDGER_MODULE
    return module_spec(name)


def drafts_of(spec: ModuleSpec[object], backend: str | None) -> list[MigrationDraft]:
    """Return what each driver that has migrations would add."""
    from twinstore.plugins.drivers import load_backend

    names = usable_backends() if backend is None else (backend,)
    found = [load_backend(name).draft for name in names]
    drafts = [draft(spec) for draft in found if draft is not None]
    if not drafts:
        raise ConfigurationError(f"No driver of {', '.join(names)} has migrations to write.")
    return drafts


def usable_backends() -> tuple[str, ...]:
    """Return the names of the installed drivers that can be loaded; a warning names each other one."""
    from twinstore.plugins.drivers import list_backends

    found = list_backends()
    for info in found:
        if info.state != "ready":
            warn(f"Skipped the driver {info.name}: {info.detail}")
    return tuple(info.name for info in found if info.state == "ready")


def check_contradictions(spec: ModuleSpec[object], drafts: list[MigrationDraft]) -> None:
    """Refuse a description that a shipped migration contradicts: no further one can be derived then."""
    found = [f"{draft.folder}: {sentence}" for draft in drafts for sentence in draft.contradictions]
    if found:
        raise MigrationError(
            f"Shipped migrations of {spec.name} contradict its descriptions. {' '.join(found)} "
            "Restore the description, or write the migration by hand.",
            module=spec.name,
        )


def check_repetitions(spec: ModuleSpec[object], missing: list[MigrationDraft]) -> None:
    """Refuse to repeat what an earlier file creates already: the snapshot was not written since that file."""
    found = [f"{draft.folder}/{name}" for draft in missing for name in draft.repeats]
    if found:
        raise MigrationError(
            f"The snapshot of the schema of {spec.name} is older than {', '.join(found)}: a further file "
            f"would repeat what is in there. Apply it with `twinstore migrate run --module {spec.name}` on a "
            f"development server, write the snapshot with `twinstore dev schema {spec.name}`, and run this "
            "command again; or write the migration by hand.",
            module=spec.name,
        )


def migrations_folder(spec: ModuleSpec[object], store: str) -> Path:
    """Return the folder with the migrations of a module for a kind of store.

    Raises:
        ConfigurationError: it is not a folder.
    """
    folder = spec.migrations(store)
    if not isinstance(folder, Path):
        raise ConfigurationError(f"The migrations in {folder} cannot be written; work in a checkout.")
    return folder


def written(spec: ModuleSpec[object], draft: MigrationDraft, words: str) -> Path:
    """Write a migration under the number after the last one and return its path."""
    folder = migrations_folder(spec, draft.folder)
    with wrap_write_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
    numbers = [int(match[1]) for file in folder.iterdir() if (match := NUMBER.fullmatch(file.name))]
    # Released files keep their numbers, so the next one goes behind all of them.
    number = max((number for number in numbers if number < RELEASES), default=0) + 1
    path = folder / f"{number:03}_{words}{draft.suffix}"
    _write(path, draft.text or "")
    return path


def _write(path: Path, text: str) -> None:
    """Write a file as a whole: half of a migration would be applied as if it were all of it.

    Raises:
        FileError: the system refuses.
    """
    with wrap_write_errors(path):
        write_atomic(path, text.encode())
