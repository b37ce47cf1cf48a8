"""The known keys. Everything below the known top sections is checked against this tree."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from twinstore.config.entries import Entries, Entry, Path, fold
from twinstore.errors import ConfigurationError
from twinstore.options import ModuleOptions, SchedulerOptions, TaskRunnerOptions, TrackingOptions
from twinstore.plugins import did_you_mean, installed_backend_names

__all__ = [
    "MODULES",
    "TOP_SECTIONS",
    "ModuleKeys",
    "allowed_drivers",
    "canonical_driver",
    "check_keys",
    "module_keys",
]

# Sections of these are known even where their driver is not installed, since one file serves many hosts.
OWN_DRIVERS: Final = ("Filesystem", "Memory", "Mongo", "Postgres")


@dataclass(frozen=True, slots=True)
class Section:
    """What may stand below a key; ``drivers`` admits one open section per driver."""

    values: tuple[str, ...] = ()
    sections: Mapping[str, Section] = field(default_factory=dict[str, "Section"])
    drivers: bool = False


@dataclass(frozen=True, slots=True)
class ModuleKeys:
    """Where the settings of a module stand.

    Attributes:
        name: the module as its section is spelled.
        drivers: our own drivers that store it.
        options: model of its options.
        option_paths: where each option stands.
        mode: another spelling of the switch, where there is one.
    """

    name: str
    drivers: tuple[str, ...]
    options: type[ModuleOptions]
    option_paths: Mapping[str, Path]
    mode: Path = ()

    @property
    def switch(self) -> Path:
        """The key that names the driver."""
        return ("Persistence", self.name)

    @property
    def storage(self) -> Path:
        """The section that holds one section per driver."""
        return (self.name, "Storage")


TASK_RUNNER_STORAGE: Final = Section(("Mode", "LogRetentionDays"), drivers=True)
ROOT: Final = Section(
    sections={
        "Persistence": Section(("Scheduler", "Tracking", "TaskRunner"), drivers=True),
        "Scheduler": Section(
            sections={
                "Storage": Section(("RunRetentionDays", "ImpactRetentionDays"), drivers=True),
                "Workers": Section(("HeartbeatSeconds", "DeadAfterSeconds")),
            }
        ),
        "Tracking": Section(("StaleAfterSeconds",), {"Storage": Section(drivers=True)}),
        "TaskRunner": Section(sections={"Storage": TASK_RUNNER_STORAGE, "Tenancy": Section(("Enforced",))}),
        "Worker": Section(
            sections={
                "Storage": TASK_RUNNER_STORAGE,
                "TaskRunner": Section(sections={"Storage": TASK_RUNNER_STORAGE}),
            }
        ),
    }
)
TOP_SECTIONS: Final = frozenset(fold(ROOT.sections))
MODULES: Final[Mapping[str, ModuleKeys]] = {
    "scheduler": ModuleKeys(
        "Scheduler",
        ("Memory", "Mongo", "Postgres"),
        SchedulerOptions,
        {
            "run_retention_days": ("Scheduler", "Storage", "RunRetentionDays"),
            "impact_retention_days": ("Scheduler", "Storage", "ImpactRetentionDays"),
            "heartbeat_seconds": ("Scheduler", "Workers", "HeartbeatSeconds"),
            "dead_after_seconds": ("Scheduler", "Workers", "DeadAfterSeconds"),
        },
    ),
    "tracking": ModuleKeys(
        "Tracking",
        ("Memory", "Mongo", "Postgres"),
        TrackingOptions,
        {"stale_after_seconds": ("Tracking", "StaleAfterSeconds")},
    ),
    "taskrunner": ModuleKeys(
        "TaskRunner",
        OWN_DRIVERS,
        TaskRunnerOptions,
        {
            "log_retention_days": ("TaskRunner", "Storage", "LogRetentionDays"),
            "tenancy_enforced": ("TaskRunner", "Tenancy", "Enforced"),
        },
        mode=("TaskRunner", "Storage", "Mode"),
    ),
}


def module_keys(module: str) -> ModuleKeys:
    """Return where the settings of a module stand.

    Raises:
        ConfigurationError: there is no such module.
    """
    keys = MODULES.get(module.casefold())
    if keys is None:
        raise ConfigurationError(f"There is no module {module!r}; there are {', '.join(MODULES)}.")
    return keys


def allowed_drivers(keys: ModuleKeys) -> tuple[str, ...]:
    """Return the driver names a module may be switched to: our own for it, and every other installed one."""
    others = {name for name in installed_backend_names() if name not in OWN_DRIVERS}
    return tuple(sorted({*keys.drivers, *others}, key=str.casefold))


def canonical_driver(entry: Entry, keys: ModuleKeys) -> str:
    """Return the value of a switch in its proper spelling.

    Raises:
        ConfigurationError: it names no driver.
    """
    allowed = allowed_drivers(keys)
    if isinstance(entry.value, str):
        for name in allowed:
            if name.casefold() == entry.value.strip().casefold():
                return name
    hint = did_you_mean(str(entry.value), allowed)
    raise ConfigurationError(
        f"{entry.key} = {str(entry.value)[:60]!r} ({entry.source}) names no driver.{hint} "
        f"Allowed: {', '.join(allowed)}."
    )


def check_keys(entries: Entries) -> dict[Path, Entry]:
    """Return the entries with their keys in proper spelling.

    Raises:
        ConfigurationError: a key is unknown, or a value stands where a section is expected.
    """
    drivers = tuple(sorted({*OWN_DRIVERS, *installed_backend_names()}, key=str.casefold))
    found: dict[Path, Entry] = {}
    for path, entry in entries.items():
        proper = tuple(_spell(entry, drivers))
        found[path] = Entry(proper, entry.value, entry.source)
    return found


def _spell(entry: Entry, drivers: tuple[str, ...]) -> Iterator[str]:
    section = ROOT
    for depth, segment in enumerate(entry.path):
        last = depth + 1 == len(entry.path)
        name = _match(segment, (*section.sections, *section.values, *(drivers if section.drivers else ())))
        if name is None:
            raise _unknown(entry, depth, section, drivers)
        if last != (name in section.values):
            raise _misplaced(entry, depth, is_value=name in section.values)
        yield name
        if name not in section.values and name not in section.sections:
            yield from entry.path[depth + 1 :]
            return
        section = section.sections.get(name, section)


def _match(segment: str, names: tuple[str, ...]) -> str | None:
    return next((name for name in names if name.casefold() == segment.casefold()), None)


def _unknown(entry: Entry, depth: int, section: Section, drivers: tuple[str, ...]) -> ConfigurationError:
    allowed = (*section.values, *section.sections, *(drivers if section.drivers else ()))
    parent = ":".join(entry.path[:depth])
    return ConfigurationError(
        f"Unknown setting {entry.key} in {entry.source}.{did_you_mean(entry.path[depth], allowed)} "
        f"Allowed below {parent}: {', '.join(allowed)}."
    )


def _misplaced(entry: Entry, depth: int, *, is_value: bool) -> ConfigurationError:
    key = ":".join(entry.path[: depth + 1])
    problem = "is a single value, but has settings below it" if is_value else "is a section, but has a value"
    return ConfigurationError(f"{key} in {entry.source} {problem}.")
