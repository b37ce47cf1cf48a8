"""A job file: the options of the commands in one TOML file that is reviewed and kept.

    from = "Mongo"                      # for every command that has this option
    to = "Postgres"
    on-finish = ["notify", "ops"]

    [copy]                              # for one command
    jobs = 4

    [[drop]]                            # a rule: a decision about data, so it needs a reason
    path = "runs.legacy"
    reason = "left by the old importer, nobody reads it"

    [[ignore-field]]                    # the same for a field that is copied and not compared
    path = "runs.stats.queued"
    reason = "recounted by the new service"

The command line takes precedence over the file.
"""

from __future__ import annotations

import shlex
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import date, time
from pathlib import Path
from typing import Any, Final

from twinstore.errors import ConfigurationError
from twinstore_backfill.rules.model import NO_RULES, JobRules

IGNORED_FIELDS: Final = "ignore-field"
ON_FINISH: Final = "on-finish"
REVERSE: Final = "reverse"
Table = dict[str, Any]


@dataclass(frozen=True, slots=True)
class JobFile:
    """The content of a job file.

    Attributes:
        name: where it was read.
        options: by name of the option, without its dashes, for every command that has it.
        commands: the same for one command each; one of a group is named with a blank: quarantine retry.
        rules: what changes on the way, and what is accepted.
        field_reasons: by path of a field that is not compared, why that is right.
    """

    name: str
    options: Table = field(default_factory=dict[str, Any])
    commands: Mapping[str, Table] = field(default_factory=dict[str, Table])
    rules: JobRules = NO_RULES
    field_reasons: Mapping[str, str] = field(default_factory=dict[str, str])


def read_job_file(path: Path) -> JobFile:
    """Return the content of a file.

    Raises:
        ConfigurationError: it cannot be read, is not TOML, or holds a value that no option can have.
    """
    try:
        text = path.read_text(encoding="utf-8-sig")
        document = tomllib.loads(text)
    except OSError as error:
        raise ConfigurationError(f"The job file {path} cannot be read: {error.strerror}.") from None
    # Also a number of 5,000 digits, and tables in each other without an end.
    except (ValueError, RecursionError) as error:
        raise ConfigurationError(f"The job file {path} is not valid TOML: {error}.") from None
    reverse = document.pop(REVERSE, False)
    if not isinstance(reverse, bool):
        raise ConfigurationError(f"The job file {path}: {REVERSE} is true or false, not {reverse!r}.")
    field_reasons = dict(_reasons(document.pop(IGNORED_FIELDS, []), IGNORED_FIELDS, str(path)))
    from twinstore_backfill.rules.reading import is_rule_table, read_rules  # noqa: PLC0415  # it imports models

    found = {name: document.pop(name) for name in list(document) if is_rule_table(name, document[name])}
    rules = read_rules(found, text, str(path))
    tables = {name: value for name, value in document.items() if isinstance(value, dict)}
    options = {name: value for name, value in document.items() if name not in tables}
    return JobFile(
        str(path),
        _plain(options),
        {name: _plain(table) for name, table in _by_command(tables)},
        replace(rules, reverse=reverse),
        field_reasons,
    )


def _reasons(found: object, option: str, name: str) -> Iterator[tuple[str, str]]:
    for item in found if isinstance(found, list) else [found]:
        path, reason = (
            (item.get(part) for part in ("path", "reason")) if isinstance(item, dict) else (None, None)
        )
        if not (isinstance(path, str) and isinstance(reason, str) and path and reason.strip()):
            raise ConfigurationError(
                f"The job file {name}: each [[{option}]] needs a path, such as runs.legacy, and a reason."
            )
        yield path, reason.strip()


def _by_command(tables: Mapping[str, Table]) -> Iterator[tuple[str, Table]]:
    """Yield the options of each command: ``[quarantine.retry]`` is a table in another one."""
    for name, table in tables.items():
        within = {part: value for part, value in table.items() if isinstance(value, dict)}
        yield from ((f"{name} {part}", value) for part, value in within.items())
        if rest := {option: value for option, value in table.items() if option not in within}:
            yield name, rest


def _plain(table: Table) -> Table:
    """Return options with those that are text on the command line as this text: words, and instants."""
    plain = {
        option: value.isoformat() if isinstance(value, (date, time)) else value
        for option, value in table.items()
    }
    words = table.get(ON_FINISH)
    return {**plain, ON_FINISH: shlex.join(map(str, words))} if isinstance(words, list) else plain
