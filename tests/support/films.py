"""A module of data alone: one file of models and descriptions, as a team writes that only moves data.

Indexes inside of fields and every form of retention are among them.
"""

from __future__ import annotations

from typing import Final

from twinstore.module import (
    CanonicalModel,
    Entity,
    Id,
    Index,
    Int64,
    Module,
    ModuleOptions,
    ModulePlugin,
    ModuleSettings,
    ModuleSpec,
    Name,
    Number,
    Parent,
    Retention,
    RetentionSeconds,
    RetentionUnit,
    StoreKind,
    Tenancy,
    Timestamp,
    text,
)


class Rating(CanonicalModel):
    """What viewers think of a film."""

    site: Name
    score: Number
    votes: Int64


class Role(CanonicalModel):
    """Who plays whom."""

    actor: Name
    part: Name


class Film(CanonicalModel):
    """A film."""

    id: Id
    title: Name
    genres: tuple[Name, ...] = ()
    rating: Rating | None = None
    roles: tuple[Role, ...] = ()
    updated_at: Timestamp


class Showing(CanonicalModel):
    """When a film is shown; the row is due for removal at ``ends_at``."""

    id: Id
    film_id: Id
    hall: Name
    ends_at: Timestamp


class Visit(CanonicalModel):
    """A visit of a page, which is kept for some seconds."""

    id: Id
    page: Name
    seen_at: Timestamp


class FilmsOptions(ModuleOptions):
    """What a host may tune.

    Attributes:
        remove_showings: whether showings that have ended are removed.
        keep_visits: for how many seconds visits are kept; 0 keeps them.
    """

    remove_showings: bool = False
    keep_visits: RetentionSeconds = 0


FILMS: Final = Entity(
    name="films",
    singular="film",
    module="films",
    model=Film,
    key_parts=(text("id"),),
    tenancy=Tenancy.none(),
    group="films",
    indexes=(
        Index(fields=("rating.site", "-rating.score", "title"), name="rating"),
        Index(fields=("genres",), name="genres"),
        Index(fields=("roles.actor",), name="actor"),
        Index(fields=("title", "roles.actor"), name="title_actor", stores=frozenset({StoreKind.DOCUMENTS})),
    ),
    dated="updatedAt",
)
SHOWINGS: Final = Entity(
    name="showings",
    singular="showing",
    module="films",
    model=Showing,
    key_parts=(text("id"),),
    tenancy=Tenancy.none(),
    group="films",
    parent=Parent(entity=FILMS, field="filmId"),
    indexes=(Index(fields=("endsAt",), name="ends", expires=True, stores=frozenset({StoreKind.DOCUMENTS})),),
    retention=Retention(field="endsAt", option="remove_showings", unit=RetentionUnit.INSTANT),
)
VISITS: Final = Entity(
    name="visits",
    singular="visit",
    module="films",
    model=Visit,
    key_parts=(text("id"),),
    tenancy=Tenancy.none(),
    group="films",
    indexes=(Index(fields=("seenAt",), name="seen", expires=True, stores=frozenset({StoreKind.DOCUMENTS})),),
    retention=Retention(field="seenAt", option="keep_visits", unit=RetentionUnit.SECONDS),
)
MODULE: Final[ModuleSpec[object]] = ModuleSpec(
    catalog=Module(name="films", entities=(FILMS, SHOWINGS, VISITS)), title="Films", package="films"
)
PLUGIN: Final = ModulePlugin(
    name="films",
    title="Films",
    settings=ModuleSettings(
        section="Films",
        options=FilmsOptions,
        option_paths={
            "remove_showings": ("Films", "RemoveShowings"),
            "keep_visits": ("Films", "KeepVisits"),
        },
    ),
    spec=lambda: MODULE,
)
