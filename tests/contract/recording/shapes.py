"""Which cases of the kit ``make test`` runs on a server: operations, rivals, few that send every statement.

Memory runs every case on every push, and ``make test-long`` runs every case on every driver. The cases in the
files ``*_cases.txt`` are few that, with those about rivals, sent every statement of every module when
`make statements` last recorded them.
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Final

from twinstore.testing import (
    AccessContract,
    IsolationContract,
    JoiningContract,
    ModuleContract,
    ResourceContract,
    SessionContract,
    StoreErrorContract,
    TransactionContract,
)
from twinstore.testing.contracts.access import AccessDefaultsContract
from twinstore.testing.contracts.access_rivals import AccessRivalContract
from twinstore.testing.contracts.access_units import AccessUnitContract
from twinstore.testing.contracts.initializer import InitializerContract
from twinstore.testing.contracts.races import RaceContract
from twinstore.testing.scheduler import (
    LockContract,
    SchedulerIsolationContract,
    SchedulerJoiningContract,
    SchedulerSessionContract,
    SchedulerTransactionContract,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = [
    "cases_file",
    "few_that_send_all",
    "is_about_answers",
    "is_about_connections",
    "is_covered",
    "is_listed",
]

ALWAYS: Final = (InitializerContract, RaceContract)
RIVALS: Final = re.compile("rival|race|claim|lease|lock|fire|at_once|outage|unavailable|migrat|numbers_go_on")
# How connections, sessions and transactions are used.
CONNECTIONS: Final = (
    AccessRivalContract,
    AccessUnitContract,
    IsolationContract,
    JoiningContract,
    LockContract,
    RaceContract,
    ResourceContract,
    SchedulerIsolationContract,
    SchedulerJoiningContract,
    SchedulerSessionContract,
    SchedulerTransactionContract,
    SessionContract,
    StoreErrorContract,
    TransactionContract,
)


def cases_file(store: str) -> Path:
    """Return the file that lists cases which send every statement of a driver."""
    return Path(__file__).with_name(f"{store}_cases.txt")


def is_covered(store: str, kit: type[object], test: str, case: str) -> bool:
    """Return whether other cases of ``make test`` send what this one sends and prove what it proves."""
    if issubclass(kit, AccessDefaultsContract):
        return True
    if not issubclass(kit, ModuleContract) or RIVALS.search(test):
        return False
    if any(test in vars(contract) for contract in ALWAYS):
        return False
    return not is_listed(store, kit, test, case)


def is_about_answers(kit: type[object], test: str, case: str) -> bool:
    """Return whether a case has the same outcome whatever connection or server its statements reach.

    Cases of the operations that have no variants stand for those that do.
    """
    if RIVALS.search(test) or is_about_connections(test):
        return False
    return bool(case) or not issubclass(kit, AccessContract)


def is_about_connections(test: str) -> bool:
    """Return whether a test is about how connections, sessions and transactions are used."""
    return any(test in vars(contract) for contract in CONNECTIONS)


def few_that_send_all(sent: Mapping[str, set[tuple[str, str]]]) -> list[str]:
    """Return few cases that send what those about rivals do not."""
    rivals = [texts for case, texts in sent.items() if RIVALS.search(case.partition("[")[0])]
    left = set[tuple[str, str]]().union(*sent.values()).difference(*rivals)
    found: list[str] = []
    while left:
        found.append(max(sorted(sent), key=lambda case: len(sent[case] & left)))
        left -= sent[found[-1]]
    return found


def is_listed(store: str, kit: type[object], test: str, case: str) -> bool:
    """Return whether a case is one of those that send every statement."""
    name = f"{kit.__name__}::{test}"
    return (f"{name}[{case}]" if case else name) in listed(store)


@cache
def listed(store: str) -> frozenset[str]:
    """Return the cases of a file; none if it does not exist, as before the first recording."""
    path = cases_file(store)
    names = frozenset(path.read_text("utf-8").split("\n")) - {""} if path.is_file() else frozenset[str]()
    assert names or not path.is_file(), f"{path} lists no case: write it by `make statements`"
    return names
