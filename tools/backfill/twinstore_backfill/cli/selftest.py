"""``twinstore backfill selftest``."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from twinstore.errors import ValidationError
from twinstore_backfill.cli.invocation import register_secrets
from twinstore_backfill.cli.options import (
    IgnoreUnknown,
    OnlyEntities,
    OutputOptions,
    Sides,
    rules_option,
)
from twinstore_backfill.cli.output import emit, table
from twinstore_backfill.process.files import json_text, wrap_write_errors, write_atomic
from twinstore_backfill.process.stopping import stop_on_signals

if TYPE_CHECKING:
    from rich.console import RenderableType

    from twinstore.config import Settings
    from twinstore_backfill.report.failures import Failure
    from twinstore_backfill.stores import Store


JSON = "selftest-report.json"
MARKDOWN = "selftest-report.md"
FILES = (JSON, MARKDOWN)


def selftest(
    *,
    sides: Sides,
    scratch: Annotated[
        Path | None,
        typer.Option(
            "--scratch",
            help="Settings file that names two empty databases. Default: servers started for the test.",
        ),
    ] = None,
    sample: Annotated[int, typer.Option("--sample", help="Rows to sample of each entity.")] = 200,
    seed: Annotated[int, typer.Option("--seed", help="Seed that chooses them.")] = 0,
    entities: OnlyEntities = None,
    ignore_unknown: IgnoreUnknown = None,
    thorough: Annotated[
        bool,
        typer.Option(
            "--thorough",
            help="Also plant every corruption alone; takes about 15 minutes for 4,000 of them.",
        ),
    ] = False,
    out: Annotated[
        Path | None, typer.Option("--out", help="Directory for the report as JSON and Markdown.")
    ] = None,
    shown: OutputOptions,
) -> None:
    """Corrupt a sample in every known way, and count what verify finds."""
    from twinstore.config import load_settings
    from twinstore_backfill.report.failures import report_failures
    from twinstore_backfill.selftest.engine import SelftestOptions, check_drivers, open_scratch, run_selftest
    from twinstore_backfill.selftest.report import document_of, markdown
    from twinstore_backfill.stores import open_store

    # From here on, so that the files of --out agree with the exit code at every moment.
    with report_failures(out, FILES, _failure_file), stop_on_signals() as stop:
        migration = sides.migration(rules_option(sides.context, ignore_unknown))
        name = migration.module
        options = SelftestOptions(
            sample=sample,
            seed=seed,
            thorough=thorough,
            entities=tuple(entities or ()),
            rules=migration.rules,
        )
        source, target = migration.source, migration.target
        check_drivers(name, (source.backend, target.backend))
        origin = open_store(name, source.backend, source.settings, read_only=True)
        with origin as rows, scratch_settings(scratch) as settings:
            if scratch is not None:
                drivers = name, source.backend, target.backend
                require_separate_databases(settings, rows, drivers, load_settings(target.settings))
            with (
                open_scratch(name, source.backend, settings) as left,
                open_scratch(name, target.backend, settings) as right,
                shown.progress("selftest") as progress,
            ):
                outcome = run_selftest(rows, left, right, options, progress, stop)
            report = document_of(outcome, options, rows.described(), name)
        if out is not None:
            with wrap_write_errors(out):
                write_atomic(out / JSON, json_text(report))
                write_atomic(out / MARKDOWN, markdown(report).encode())
        emit(shown.output, report, *_texts(report, out), saved=out)
    raise typer.Exit(report["exit_code"])


def _failure_file(failure: Failure) -> dict[str, bytes]:
    from twinstore_backfill.selftest.report import FORMAT

    return {JSON: json_text({"format": FORMAT, **failure.document()})}


@contextmanager
def scratch_settings(file: Path | None) -> Iterator[Settings]:
    """Yield the settings of the scratch databases: those of a file, or of servers that run until the end."""
    from twinstore.config import load_settings
    from twinstore_backfill.selftest.engine import embedded_settings

    if file is None:
        with embedded_settings() as settings:
            yield register_secrets(settings)
    else:
        # The environment may name the databases of the service, which must not be used for this.
        yield register_secrets(load_settings(file, environ={}))


def require_separate_databases(
    scratch: Settings, source: Store, names: tuple[str, str, str], target: Settings
) -> None:
    """Refuse scratch databases that are the source, or the target where the settings name one.

    Args:
        scratch: the settings of the scratch databases.
        source: the source.
        names: module, driver of the source and driver of the target.
        target: the settings of the target.

    Raises:
        ValidationError: names the place.
    """
    from twinstore.plugins.drivers import load_backend
    from twinstore_backfill.stores import open_store

    module, first, second = names
    known = {source.bulk.identity}
    if target.backend_section(module, load_backend(second, module=module).name):
        with open_store(module, second, target, read_only=True) as store:
            known.add(store.bulk.identity)
    for backend in (first, second):
        with open_store(module, backend, scratch, read_only=True) as store:
            if store.bulk.identity in known:
                raise ValidationError(
                    f"The scratch database {store.bulk.place} is the source or the target itself; name "
                    "another one."
                )


def _texts(report: dict[str, Any], out: Path | None) -> Iterator[RenderableType]:
    from twinstore_backfill.selftest.report import headline

    yield table(
        ("entity", "sampled", "made", "unreadable"),
        [(item["entity"], item["sampled"], item["made"], item["unreadable"]) for item in report["entities"]],
    )
    for store in report["stores"]:
        kinds = [(kind, counts["planted"], counts["found"]) for kind, counts in store["by_kind"].items()]
        yield table(("kind", "planted", "found"), kinds, f"{store['source']} to {store['target']}")
    yield from (f"Not tested: {name} (no rows in the source)." for name in report["untested"])
    yield from report["problems"]
    yield headline(report)
    if out is not None:
        yield f"Reports: {out}/{JSON} and .md."
