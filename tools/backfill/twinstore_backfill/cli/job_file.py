"""The options of a job file, as the defaults of the commands."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from types import MappingProxyType
from typing import Any, Final

from twinstore.errors import ConfigurationError
from twinstore_backfill.rules.job_file import JobFile, Table

# They change a store, or rest on what only the caller knows, so they are given with the command.
ONLY_ON_THE_COMMAND_LINE: Final = frozenset({"execute", "delete-extra", "resume"})
EXCHANGED: Final = {
    "from": "to",
    "to": "from",
    "source-config": "target-config",
    "target-config": "source-config",
}
# Commands that compare: whether both sides are equal under the rules has no direction.
READING: Final = frozenset({"verify", "diff", "recheck", "selftest"})
NONE: Final[Mapping[str, Collection[str]]] = MappingProxyType({})


def defaults(
    job: JobFile,
    commands: Mapping[str, Mapping[str, str]],
    flags: Collection[str] = (),
    multiple: Mapping[str, Collection[str]] = NONE,
) -> dict[str, Table]:
    """Return the value of each option by command and name of its parameter; a group holds its commands.

    Args:
        job: the content of the file.
        commands: by command the names of the parameters by those of the options.
        flags: the options that are on or off.
        multiple: by command the options that may be given more than once.

    Raises:
        ConfigurationError: a command or an option is unknown, or belongs on the command line, an option that
            is not a flag is true or false, or an option that is given once has several values.
    """
    for name in job.commands:
        if name not in commands:
            raise _unknown(job, f"[{name}]", "command", commands)
    every = {option for known in commands.values() for option in known}
    for option in job.options:
        _check(job, option, every)
    for name, table in job.commands.items():
        for option in table:
            _check(job, option, commands[name])
    for table in (job.options, *job.commands.values()):
        _check_flags(job, table, flags)
        _check_lists(job, table, {option for known in multiple.values() for option in known})
    made: dict[str, Table] = {}
    for name, known in commands.items():
        *group, command = name.split()
        place = made.setdefault(group[0], {}) if group else made
        place[command] = {
            known[option]: given
            for option, value in _exchanged(job, name).items()
            if option in known
            if (given := _given(value, repeatable=option in multiple.get(name, ()))) is not None
        }
    return made


def _exchanged(job: JobFile, command: str) -> Table:
    """Return the options of a command; if it writes and the job is reversed, with the sides exchanged."""
    options = {**job.options, **job.commands.get(command, {})}
    if not job.rules.reverse or command in READING:
        return options
    return {EXCHANGED.get(option, option): value for option, value in options.items()}


def _check(job: JobFile, option: str, known: Collection[str]) -> None:
    if option in ONLY_ON_THE_COMMAND_LINE:
        raise ConfigurationError(
            f"The job file {job.name}: give --{option} on the command line, where it is decided each time."
        )
    if option not in known:
        raise _unknown(job, option, "option", known)


def _check_flags(job: JobFile, table: Table, flags: Collection[str]) -> None:
    for option, value in table.items():
        # Taken for a number, it would count as 1 or 0.
        if isinstance(value, bool) and option not in flags:
            raise ConfigurationError(
                f"The job file {job.name}: {option} takes a value, not {str(value).lower()}."
            )


def _given(value: Any, *, repeatable: bool) -> Any:  # noqa: ANN401  # as TOML has it
    """Return a value as a command takes it; ``None`` where it takes one and there are several."""
    if isinstance(value, list) is repeatable:
        return value
    if repeatable:
        return [value]
    return value[0] if len(value) == 1 else None


def _check_lists(job: JobFile, table: Table, multiple: Collection[str]) -> None:
    for option, value in table.items():
        single = [] if isinstance(value, dict) else [value]
        values = value if isinstance(value, list) and option in multiple else single
        if (not values and value != []) or any(isinstance(item, (list, dict)) for item in values):
            raise ConfigurationError(f"The job file {job.name}: {option} takes one value, not {value!r}.")


def _unknown(job: JobFile, name: str, what: str, known: Iterable[str]) -> ConfigurationError:
    return ConfigurationError(
        f"The job file {job.name} has the unknown {what} {name}; known: {', '.join(sorted(known))}."
    )
