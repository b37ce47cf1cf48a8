"""Options of the modules: what a host may tune whichever driver answers, and where the settings say it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, get_origin

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

__all__ = ["ConfigPath", "Days", "ModuleOptions", "ModuleSettings", "RetentionSeconds", "Seconds"]


# expireAfterSeconds of a MongoDB TTL index ends at 2,147,483,647 seconds.
MAX_RETENTION_DAYS = 24_855
MAX_SECONDS = 2_147_483_647

# A key of the settings, section by section.
ConfigPath = tuple[str, ...]


def refuse_bool(value: object) -> object:
    """Refuse ``true`` where a number is meant; pydantic would read it as 1."""
    if isinstance(value, bool):
        raise ValueError("must be a whole number, not true or false")  # noqa: TRY004  # pydantic turns ValueError, not TypeError, into its own error
    return value


Days = Annotated[int, BeforeValidator(refuse_bool), Field(ge=0, le=MAX_RETENTION_DAYS)]
Seconds = Annotated[int, BeforeValidator(refuse_bool), Field(ge=1, le=MAX_SECONDS)]
RetentionSeconds = Annotated[int, BeforeValidator(refuse_bool), Field(ge=0, le=MAX_SECONDS)]


class ModuleOptions(BaseModel):
    """Base of the options of a module: immutable, unknown names are refused."""

    model_config = ConfigDict(frozen=True, extra="forbid")


@dataclass(frozen=True, slots=True, kw_only=True)
class ModuleSettings:
    """The location of the settings of a module. A key not named here or by a driver is unknown.

    Attributes:
        section: the module as its section and its switch are spelled, for example ``Library``.
        drivers: the drivers of this distribution that store it; those of others may store every module.
        options: model of its options.
        option_paths: by option, the key below the section; an option that is a mapping has a section there.
        mode: another spelling of the switch, where there is one.
        roles: by role of a process, the sections that this process reads in place of ``<section>:Storage``.
        spellings: other spellings of keys of drivers below ``<section>:Storage``, each with the key it
            means: ``("Mongo", "BooksCollection")`` for ``("Mongo", "Collections", "books")``.
    """

    section: str
    drivers: tuple[str, ...] = ("Memory", "Mongo", "Postgres")
    options: type[ModuleOptions] = ModuleOptions
    option_paths: Mapping[str, ConfigPath] = field(default_factory=dict[str, ConfigPath])
    mode: ConfigPath = ()
    roles: Mapping[str, tuple[ConfigPath, ...]] = field(default_factory=dict[str, tuple[ConfigPath, ...]])
    spellings: Mapping[ConfigPath, ConfigPath] = field(default_factory=dict[ConfigPath, ConfigPath])

    def __post_init__(self) -> None:
        """Refuse what the settings could not be read by; met by the author of the module only."""
        if not self.section.isidentifier() or self.section.casefold() == "persistence":
            raise ValueError(
                f"the section of a module is an identifier other than Persistence, not {self.section!r}"
            )
        if set(self.option_paths) != set(self.options.model_fields):
            raise ValueError(f"option_paths of {self.section} names other options than its model has")
        # One top section for each module: it distinguishes the keys of an application from ours.
        for path in (*self.option_paths.values(), self.mode or self.storage):
            if path[0] != self.section or len(path) == 1:
                raise ValueError(f"{':'.join(path)} does not stand below {self.section}")

    @property
    def switch(self) -> ConfigPath:
        """The key that names the driver."""
        return ("Persistence", self.section)

    @property
    def storage(self) -> ConfigPath:
        """The section that holds one section per driver."""
        return (self.section, "Storage")

    def is_section(self, option: str) -> bool:
        """Whether an option is a mapping, so that its path is a section."""
        return get_origin(self.options.model_fields[option].annotation) in {dict, Mapping}
