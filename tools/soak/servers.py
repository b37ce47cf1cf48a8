"""The servers of a soak: the faults that each can have, and what it reports about its clients."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import tempfile
import time
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from multiprocessing import Pipe
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any, Final

from pymongo import MongoClient
from pymongo.errors import PyMongoError

import twinstore_embedded
from tests.support.claiming import forked
from tests.support.databases import without_retention
from tests.support.outages import IN_MEMORY, MongoOutages, PostgresOutages, await_all
from tests.support.proxies import TORN, CountingProxy
from tests.support.servers import mongo_config, postgres_config, postgres_url
from tools.soak.faults import fill, small_disk, stall_process
from tools.soak.plan import NETWORK, Fault
from tools.soak.separable import PORT, can_separate, separable_set
from tools.soak.service import mongo_watch, postgres_watch
from twinstore.errors import ConfigurationError, UnavailableError
from twinstore_embedded.mongod import find_home
from twinstore_embedded.postgres import find_postgres_server
from twinstore_embedded.roles import DATABASE as NAME

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from multiprocessing.connection import Connection

    from tools.soak.service import Watch

    Outage = Callable[[Callable[[], object]], None]

HOST: Final = "127.0.0.1"


@dataclass(frozen=True, slots=True)
class Proxy:
    """A process that forwards bytes, stalls or cuts connections; one process at a time gives it orders.

    It is a process because workers are forked: resources held by threads would be held forever in the copies.

    Attributes:
        port: where clients connect.
        orders: the orders that it receives.
    """

    port: int
    orders: Connection[Any, Any]

    def stall(self, meanwhile: Callable[[], object]) -> None:
        """Take connections and bytes for a while, and pass nothing on."""
        self.during("stall", meanwhile)

    def cut(self, meanwhile: Callable[[], object]) -> None:
        """End connections at random for a while, in the middle of what is passed on."""
        self.during("cut", meanwhile)

    def during(self, what: str, meanwhile: Callable[[], object]) -> None:
        """Let something of a name happen for a while."""
        self._order(what)
        try:
            meanwhile()
        finally:
            self._order("flow")

    def _order(self, what: str) -> None:
        self.orders.send(what)
        self.orders.recv()


@contextmanager
def proxy_of(server_port: int, seed: str) -> Iterator[Proxy]:
    """Run a proxy before a server of this machine for the length of the block."""
    orders, inside = Pipe()

    def relay() -> None:
        # With its own copy it would not notice that no other process has one any more.
        orders.close()
        with suppress(EOFError), CountingProxy(socket.AF_INET, (HOST, server_port)) as wire:
            inside.send(wire.port)
            while what := inside.recv():
                obey(wire, what, Random(seed))
                inside.send(what)

    child = forked(relay)
    inside.close()
    try:
        yield Proxy(orders.recv(), orders)
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


# By name, what happens to the network.
LATE, LOSSY, NARROW, HALF_OPEN, RESET, GONE = "late", "lossy", "narrow", "half open", "reset", "gone"
WAYS: Final = (LATE, LOSSY, NARROW, HALF_OPEN, RESET, GONE)
DELAY_SECONDS: Final = 0.2
BYTES_A_SECOND: Final = 10_000


def obey(wire: CountingProxy, what: str, random: Random) -> None:
    """Let a proxy pass connections on in one way, and in no other."""
    if what == "flow" and wire.mute:
        # What was lost does not come again.
        wire.cut()
    wire.torn = random if what in {"cut", RESET} else None
    wire.tearing = 1.0 if what == RESET else TORN
    wire.lossy = random if what == LOSSY else None
    # Each way takes as long.
    wire.latency = 2 * DELAY_SECONDS if what == LATE else 0.0
    wire.rate = BYTES_A_SECOND if what == NARROW else None
    wire.mute = what == HALF_OPEN
    (wire.flowing.clear if what == "stall" else wire.flowing.set)()
    (wire.cut if what == GONE else wire.restore)()


DATABASES: Final = ("mongo", "mongo-set", "postgres")
DATABASE: Final = "soak"
# On a busy machine a primary that lives may be silent for a second, and nothing was planned for its loss.
ELECTION_MS: Final = 3000
# Shorter than the longest stall, so that calls end inside one as well as outlast it.
CALL_MS: Final = 6000
SELECTION_MS: Final = 1000
LIFETIME_SECONDS: Final = 3
# From the end of the room to the end of a server that does without none.
DYING_SECONDS: Final = 0.5
ATTEMPTS: Final = 3


@dataclass(frozen=True, slots=True)
class Server:
    """A server that a soak uses.

    Attributes:
        settings: of a store on it, as workers and services open it.
        kinds: what may happen to it, by name; each calls what it is given while it lasts, and ends when the
            server serves again.
        watch: what it reports about connections and transactions.
        left_out: the faults that were asked for and that it cannot have, and why.
    """

    settings: dict[str, Any]
    kinds: Mapping[str, Outage]
    watch: Watch
    left_out: tuple[str, ...] = ()


@contextmanager
def own_server(name: str, faults: frozenset[Fault], pool: int, seed: int) -> Iterator[Server]:
    """Run a server for the length of the block, its data in memory where there is room.

    Args:
        name: one of ``DATABASES``.
        faults: what may happen.
        pool: how many connections a storage has at most.
        seed: decides where connections are cut.
    """
    parent = IN_MEMORY if os.access(IN_MEMORY, os.W_OK) else None
    # Not tmp_path: pytest closes its parents to the user that PostgreSQL runs as under root.
    directory = Path(tempfile.mkdtemp(prefix="twinstore-soak-", dir=parent))
    directory.chmod(0o711)
    with ExitStack() as stack:
        stack.callback(shutil.rmtree, directory)
        disk = Fault.DISK in faults and name != "mongo-set" and stack.enter_context(small_disk(directory))
        stack.callback(twinstore_embedded.stop, directory)
        if name == "mongo-set" and Fault.NETWORK in faults:
            yield _separable_set(directory, faults, pool, stack)
        elif name == "mongo-set":
            yield _mongo_set(directory, faults, pool)
        elif name == "mongo":
            yield _mongo(directory, faults, pool, stack, f"{seed}/cuts", disk=disk)
        else:
            yield _postgres(directory, faults, pool, stack, f"{seed}/cuts", disk=disk)


def _postgres(
    directory: Path, faults: frozenset[Fault], pool: int, stack: ExitStack, seed: str, *, disk: bool
) -> Server:
    server = twinstore_embedded.start_postgres(directory, owned=True)
    proxy = stack.enter_context(proxy_of(server.port, seed))
    kinds = dict(PostgresOutages(server).kinds) if Fault.KILL in faults else {}

    def find() -> int | None:
        found = find_postgres_server(directory)
        return None if found is None else found.pid

    kinds |= _through(proxy, faults) | _of_process(find, faults)
    if disk:
        kinds["full disk"] = partial(filled, directory, server.resume)
    settings = postgres_config(server.app_url(), server.owner_url())
    # All of them, those that a killed process has left too.
    watch = postgres_watch(server.superuser_url(database=NAME))
    return Server(_limited(settings, pool, proxy), kinds, watch, _skipped_faults(faults, disk=disk))


def _mongo(
    directory: Path, faults: frozenset[Fault], pool: int, stack: ExitStack, seed: str, *, disk: bool
) -> Server:
    server = twinstore_embedded.start_mongo(directory, owned=True)
    proxy = stack.enter_context(proxy_of(server.port, seed))

    def killed(meanwhile: Callable[[], object]) -> None:
        server.halt()
        meanwhile()
        server.resume()

    kinds: dict[str, Outage] = {"killed": killed} if Fault.KILL in faults else {}
    kinds |= _through(proxy, faults) | _of_process(partial(find_home, server.home), faults)
    if disk:
        kinds["full disk"] = partial(filled, directory, server.resume)
    settings = _limited(mongo_config(server.url, DATABASE), pool, proxy)
    kinds = _ending_transactions(kinds, [(HOST, server.port)])
    return Server(settings, kinds, mongo_watch(server.url), _skipped_faults(faults, disk=disk))


def _mongo_set(directory: Path, faults: frozenset[Fault], pool: int) -> Server:
    members = twinstore_embedded.start_mongo_set(directory, election_ms=ELECTION_MS, owned=True)
    kinds = dict(MongoOutages(members).kinds) if Fault.KILL in faults else {}
    if Fault.STALL in faults:

        def stalled(meanwhile: Callable[[], object]) -> None:
            await_all(members)
            stall_process(partial(find_home, members.homes[members.primary()]), meanwhile)
            members.primary()

        kinds["stalled primary"] = stalled
    left_out = tuple(
        f"{fault}: shown on the set of one node" for fault in sorted(faults & {Fault.CUT, Fault.DISK})
    )
    settings = _limited(mongo_config(members.url, DATABASE), pool, None)
    places = [(HOST, port) for port in members.ports]
    return Server(settings, _ending_transactions(kinds, places), mongo_watch(members.url), left_out)


def _separable_set(directory: Path, faults: frozenset[Fault], pool: int, stack: ExitStack) -> Server:
    """Run a set whose members are separated from each other, and nothing else happens to them."""
    left_out = [
        f"{fault}: shown without {Fault.NETWORK}"
        for fault in sorted(faults & {Fault.CUT, Fault.DISK, Fault.KILL, Fault.STALL})
    ]
    if not can_separate():
        raise ConfigurationError(
            "Members of a set are separated by root, who has the programs ip and setpriv."
        )
    members = stack.enter_context(separable_set(directory, election_ms=ELECTION_MS))
    kinds = {f"{NETWORK}{name}": kind for name, kind in members.kinds.items()}
    settings = _limited(mongo_config(members.url, DATABASE), pool, None)
    places = [(address, PORT) for address in members.addresses]
    limited = _ending_transactions(kinds, places)
    return Server(settings, limited, mongo_watch(members.url), tuple(left_out))


def _ending_transactions(kinds: Mapping[str, Outage], places: Sequence[tuple[str, int]]) -> dict[str, Outage]:
    """Let servers end the transactions of killed processes in seconds, also after they were started again.

    By default they keep them for a minute and more, and a call of the soak waits for 6 s.
    """

    def limit() -> None:
        for host, port in places:
            with (
                suppress(PyMongoError),
                MongoClient[dict[str, object]](host, port, directConnection=True) as client,
            ):
                client.admin.command("setParameter", 1, transactionLifetimeLimitSeconds=LIFETIME_SECONDS)

    def limited(kind: Outage, meanwhile: Callable[[], object]) -> None:
        kind(meanwhile)
        limit()

    limit()
    return {name: partial(limited, kind) for name, kind in kinds.items()}


def _through(proxy: Proxy, faults: frozenset[Fault]) -> dict[str, Outage]:
    """Return what happens on the way to the server."""
    found: dict[str, Outage] = {}
    if Fault.STALL in faults:
        found["stalled network"] = proxy.stall
    if Fault.CUT in faults:
        found["cut connections"] = proxy.cut
    if Fault.NETWORK in faults:
        found |= {f"{NETWORK}{way}": partial(proxy.during, way) for way in WAYS}
    return found


def _of_process(find: Callable[[], int | None], faults: frozenset[Fault]) -> dict[str, Outage]:
    return {"stalled server": partial(stall_process, find)} if Fault.STALL in faults else {}


def filled(directory: Path, resume: Callable[[], object], meanwhile: Callable[[], object]) -> None:
    """Fill the disk of a server for a while, and let the server serve again."""
    fill(directory, meanwhile)
    # Without room a server may end itself; one that lives is left alone, and one that is dying lives yet.
    for _ in range(ATTEMPTS):
        with suppress(UnavailableError):
            resume()
            time.sleep(DYING_SECONDS)
    resume()


def _skipped_faults(faults: frozenset[Fault], *, disk: bool) -> tuple[str, ...]:
    return ("disk: no file system can be mounted here",) if Fault.DISK in faults and not disk else ()


def _limited(settings: dict[str, Any], pool: int, proxy: Proxy | None) -> dict[str, Any]:
    """Return the settings of a store with small limits, that is reached through the proxy."""
    persistence = dict(settings["Persistence"])
    if "Postgres" in persistence:
        own = persistence["Postgres"]
        url = own["ConnectionString"]
        changed = url if proxy is None else postgres_url(url, host=HOST, port=str(proxy.port))
        limits = {"PoolMax": pool, "StatementTimeoutMs": CALL_MS}
        persistence["Postgres"] = {**own, **limits, "ConnectionString": changed}
    else:
        own = persistence["Mongo"]
        limits_of_client = f"maxPoolSize={pool}&timeoutMS={CALL_MS}&serverSelectionTimeoutMS={SELECTION_MS}"
        url = own["ConnectionString"]
        # Directly: the member would announce its own address, which bypasses the proxy.
        changed = url if proxy is None else f"mongodb://{HOST}:{proxy.port}/?directConnection=true"
        persistence["Mongo"] = {**own, "ConnectionString": f"{changed}&{limits_of_client}"}
    return without_retention({**settings, "Persistence": persistence})
