"""What the library stores."""

from __future__ import annotations

from typing import Final

from acme_library.books import Book
from acme_library.copies import Copy
from acme_library.subjects import Subject
from twinstore.module import (
    Entity,
    Index,
    IsPresent,
    Module,
    Parent,
    Retention,
    Tenancy,
    int64,
    text,
)

BOOKS: Final = Entity(
    name="books",
    singular="book",
    module="library",
    model=Book,
    key_parts=(text("id"),),
    tenancy=Tenancy.required(),
    group="books",
    indexes=(
        Index(fields=("tenantId", "-boughtAt", "id"), name="tenant_bought"),
        Index(fields=("goneAt", "id"), name="gone", where=(IsPresent("goneAt"),)),
    ),
    retention=Retention(field="goneAt", option="keep_days"),
    dated="boughtAt",
)
COPIES: Final = Entity(
    name="copies",
    singular="copy",
    module="library",
    model=Copy,
    key_parts=(text("bookId"), int64("number")),
    tenancy=Tenancy.through_parent(),
    parent=Parent(entity=BOOKS, field="bookId"),
    group="books",
    indexes=(Index(fields=("tag",), name="tag", unique=True, noun="tag"),),
)
SUBJECTS: Final = Entity(
    name="subjects",
    singular="subject",
    module="library",
    model=Subject,
    key_parts=(text("scheme"), int64("number")),
    tenancy=Tenancy.none(),
    group="subjects",
)

LIBRARY: Final = Module(name="library", entities=(BOOKS, COPIES, SUBJECTS))
