"""Methods of repositories and services as calls for any tenant, so that no method is forgotten.

Look-ups and lists are derived from the Protocols; what else a repository does its module writes out.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, TypeAlias

from twinstore.errors import DocumentDecodeError, DuplicateError, NotFoundError, ValidationError
from twinstore.testing.examples import NAME, OneOfEach
from twinstore.testing.instants import at
from twinstore.testing.signatures import fields_of, methods_of
from twinstore.testing.workspace import Workspace

if TYPE_CHECKING:
    from collections.abc import Iterator

    from twinstore.catalog.entity import Entity
    from twinstore.errors import TwinstoreError
    from twinstore.testing.examples import Example, ModuleExamples
    from twinstore.testing.signatures import ListMethod, Lookup, Method

__all__ = [
    "Step",
    "TenantCall",
    "Touch",
    "fatal_steps_of",
    "harmless_steps_of",
    "system_calls_of",
    "tenant_calls_of",
    "touches_of",
    "write_calls_of",
]

Step: TypeAlias = Callable[[object, Workspace, OneOfEach], object]
"""Does something in a session, with the workspace of its tenant and what is stored of that."""


@dataclass(frozen=True, slots=True)
class TenantCall:
    """One method called by a tenant about the rows of another.

    Attributes:
        name: repository and method.
        invoke: gets repositories, the calling tenant and the rows of the other one.
        answer: what the caller gets, or the error, when the rows belong to another tenant.
        bound: whether it may be called in a session and in a unit of work.
    """

    name: str
    invoke: Callable[[object, str, OneOfEach], object]
    answer: object
    bound: bool = True


@dataclass(frozen=True, slots=True)
class Touch:
    """A call that must meet the broken row of an entity.

    Attributes:
        method: the method.
        entity: whose row is broken.
        call: gets repositories, a tenant and its rows.
        repeatable: while no row is broken it succeeds as often as it is called.
        over_all: it is a list in system scope, which passes over the row and names it.
    """

    method: str
    entity: Entity
    call: Callable[[object, str, OneOfEach], object]
    repeatable: bool = False
    over_all: bool = False

    @property
    def name(self) -> str:
        """The entity and the method."""
        return f"{self.entity.name}-{self.method}"


def tenant_calls_of(module: ModuleExamples) -> Iterator[TenantCall]:
    """Yield the look-ups and lists that are about one tenant."""
    for item in module.examples:
        yield from questions_of(item, of_one_tenant=True)


def write_calls_of(module: ModuleExamples) -> Iterator[TenantCall]:
    """Yield the methods that take a model of a tenant, about the keys of another one."""
    for item in module.of_tenants:
        if item.writer is not None and item.shares_keys and names_owner(item.entity):
            yield TenantCall(f"{item.repository}.{item.writer}", partial(store_taken, item), DuplicateError)


def names_owner(entity: Entity) -> bool:
    """Whether a model says to whom its row belongs."""
    return entity.tenant_field in entity.identity


def store_taken(item: Example, session: object, tenant: str, one_of_each: OneOfEach) -> object:
    """Store a row of a tenant under the key of the other tenant's."""
    assert item.entity.tenant_field is not None
    owner = item.entity.identity[item.entity.tenant_field]
    return item.store(session, tenant, one_of_each.rows[item.entity].evolve(**{owner: tenant}))


def system_calls_of(module: ModuleExamples) -> Iterator[TenantCall]:
    """Yield the look-ups and lists that see all tenants, and what else only system scope reaches."""
    for item in module.examples:
        if item.is_owned:
            yield from questions_of(item, of_one_tenant=False)
    for item in module.of_the_system:
        yield from calls_of_the_system(item)


def questions_of(item: Example, *, of_one_tenant: bool) -> Iterator[TenantCall]:
    """Yield the look-ups and lists of an entity."""
    for lookup in item.lookups:
        if lookup.method.names_tenant is of_one_tenant:
            yield lookup_call(item, lookup)
    for listed in item.lists:
        if listed.method.names_tenant is of_one_tenant:
            yield list_call(item, listed)


def lookup_call(item: Example, lookup: Lookup) -> TenantCall:
    """Return a look-up of the row of the other tenant."""
    return TenantCall(
        f"{item.repository}.{lookup.method.name}",
        partial(asked, item, lookup),
        NotFoundError if lookup.required else None,
    )


def list_call(item: Example, listed: ListMethod) -> TenantCall:
    """Return a list that would show the row to its owner."""

    def invoke(session: object, tenant: str, one_of_each: OneOfEach) -> object:
        try:
            return tuple(listed(getattr(session, item.repository), tenant, one_of_each.value(item.entity)))
        except DocumentDecodeError:
            # A list over all tenants meets the rows that other tests have broken.
            return DocumentDecodeError

    return TenantCall(f"{item.repository}.{listed.method.name}", invoke, ())


def calls_of_the_system(item: Example) -> Iterator[TenantCall]:
    """Yield what else the repository of an entity does that only system scope reaches."""
    derived = {call.method.name for call in item.lookups} | {call.method.name for call in item.lists}
    for method in methods_of(item.protocol):
        if method.name not in derived:
            call = partial(call_aside, item, method)
            bound = method.name not in item.unbound
            yield TenantCall(f"{item.repository}.{method.name}", call, None, bound)


def call_aside(item: Example, method: Method, session: object, tenant: str, one_of_each: OneOfEach) -> object:
    """Call a method about a row that nobody has stored, before every instant, without waiting."""
    del one_of_each
    model = item.small(tenant, f"aside@{tenant}")
    fixed: dict[str, object] = {type(model).__name__: model}
    fixed |= {"datetime": at().replace(year=2), "timedelta": timedelta(0)}
    value = item.value(tenant, model)
    names = dict(zip(method.positional, fields_of(item.entity, method), strict=True))
    arguments = [
        fixed[kind] if kind in fixed else value(names[name])
        for name, kind in zip(method.positional, method.kinds, strict=True)
    ]
    return method.call(getattr(session, item.repository), tenant, arguments)


def touches_of(module: ModuleExamples) -> Iterator[Touch]:
    """Yield the look-ups of every repository, and the lists that must show the row."""
    for item in module.examples:
        for lookup in item.lookups:
            yield Touch(lookup.method.name, item.entity, partial(asked, item, lookup), repeatable=True)
        for listed in item.lists:
            # A list of all rows of nobody would meet the broken ones of other tests.
            plain = listed.method.name == "list" and item.is_owned
            shown = listed.sees_one_tenant or not item.is_owned
            if shown and (listed.fields or plain):
                call = partial(asked, item, listed)
                over_all = not listed.method.names_tenant
                yield Touch(listed.method.name, item.entity, call, repeatable=True, over_all=over_all)


def harmless_steps_of(module: ModuleExamples) -> Iterator[tuple[str, tuple[type[TwinstoreError], Step]]]:
    """Yield by name what look-ups refuse: a row that is absent, a text that is no key."""
    for item in module.of_tenants:
        for lookup in item.lookups:
            if lookup.required:
                yield f"absent {item.entity.singular}", (NotFoundError, partial(ask_absent, item, lookup))
            elif "str" in lookup.method.kinds:
                yield f"argument {item.entity.singular}", (ValidationError, partial(ask_blank, item, lookup))


def ask_absent(
    item: Example, lookup: Lookup, session: object, workspace: Workspace, one_of_each: OneOfEach
) -> object:
    """Look for a row that nobody has stored."""
    del one_of_each
    absent = item.small(workspace.tenant, workspace.id("absent"))
    return lookup(getattr(session, item.repository), workspace.tenant, item.value(workspace.tenant, absent))


def ask_blank(
    item: Example, lookup: Lookup, session: object, workspace: Workspace, one_of_each: OneOfEach
) -> object:
    """Look for a row by texts that are blank."""
    stored = one_of_each.value(item.entity)

    def blank(name: str) -> object:
        value = stored(name)
        return " " if isinstance(value, str) else value

    return lookup(getattr(session, item.repository), workspace.tenant, blank)


def fatal_steps_of(module: ModuleExamples) -> Iterator[tuple[str, Step]]:
    """Yield by name the writes under keys that another tenant has."""
    for item in module.of_tenants:
        if item.shares_keys and item.entity.parent is None:
            yield f"foreign {item.entity.singular}", partial(store_foreign, item)


def store_foreign(item: Example, session: object, workspace: Workspace, one_of_each: OneOfEach) -> object:
    """Store a row under the key of the other tenant's."""
    del one_of_each
    return item.store(session, workspace.tenant, item.small(workspace.tenant, workspace.elsewhere.id(NAME)))


def asked(
    item: Example, question: Lookup | ListMethod, session: object, tenant: str, one_of_each: OneOfEach
) -> object:
    """Ask a repository for the stored row."""
    return question(getattr(session, item.repository), tenant, one_of_each.value(item.entity))
