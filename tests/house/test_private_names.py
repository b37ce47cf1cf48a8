from __future__ import annotations

import ast

import pytest

from tests.support.private_names import uses

HERE = "core/twinstore/snippet.py"
# What is refused, and the text under which an exception would name it.
REFUSED = {
    "an attribute that no class of ours has": ("def f(pool):\n    pool._waiting", "pool._waiting"),
    "an attribute of an imported class": (
        "import pymongo\npymongo.MongoClient._select",
        "pymongo.MongoClient._select",
    ),
    "an attribute of an argument, whose name we use too": (
        (
            "from psycopg_pool import ConnectionPool\nclass A:\n    _closed = True\n"
            "def f(pool: ConnectionPool[object]):\n    pool._closed"
        ),
        "pool._closed",
    ),
    "the same by way of another name of the class": (
        (
            "from psycopg_pool import ConnectionPool\nPool = ConnectionPool[object]\n"
            "class A:\n    _closed = True\ndef f(pool: Pool):\n    pool._closed"
        ),
        "pool._closed",
    ),
    "an attribute of a new object, whose name we use too": (
        "import pymongo\nclass A:\n    _topology = None\nclient = pymongo.MongoClient()\nclient._topology",
        "client._topology",
    ),
    "an attribute of something unknown, whose name a client uses too": (
        "class A:\n    _topology = None\ndef f(client):\n    client._topology",
        "client._topology",
    ),
    "an attribute of a base class": (
        (
            "from psycopg_pool import ConnectionPool\nclass Pool(ConnectionPool):\n"
            "    def size(self):\n        return self._nconns"
        ),
        "self._nconns",
    ),
    "a value for an attribute of a base class": (
        (
            "from psycopg_pool import ConnectionPool\nclass Pool(ConnectionPool):\n"
            "    def stop(self):\n        self._closed = True"
        ),
        "self._closed",
    ),
    "a private method in place of one of a base class": (
        (
            "from psycopg_pool import ConnectionPool\nclass Base(ConnectionPool): ...\nclass Pool(Base):\n"
            "    def _start_workers(self): ..."
        ),
        "Pool._start_workers",
    ),
    "a public method in place of one of a client": (
        "import psycopg\nclass Patient(psycopg.Connection):\n    def wait(self, gen): ...",
        "Patient.wait",
    ),
    "a protocol that names what others define": (
        "from typing import Protocol\nclass Lock(Protocol):\n    def _is_owned(self): ...",
        "Lock._is_owned",
    ),
    "a dunder that is not documented": (
        "def f(model):\n    model.__pydantic_validator__",
        "model.__pydantic_validator__",
    ),
    "a name as text": ("def f(pool):\n    getattr(pool, '_waiting')", "getattr(pool, '_waiting')"),
    "a name as text for setattr": (
        "def f(pool):\n    object.__setattr__(pool, '_waiting', 1)",
        "object.__setattr__(pool, '_waiting', 1)",
    ),
    "a path as text": (
        "from operator import attrgetter\nattrgetter('client._topology')",
        "attrgetter('client._topology')",
    ),
    "a key of vars": ("def f(pool):\n    vars(pool)['_waiting']", "vars(pool)['_waiting']"),
    "a method that is patched": ("def f(c):\n    vars(c)['wait'] = 1", "vars(c)['wait']"),
    "a private option": ("import pymongo\npymongo.MongoClient(_pool_class=int)", "_pool_class="),
    "a class that is replaced": ("def f(c):\n    c.__class__ = int", "c.__class__"),
    "a frame": ("import sys\nsys._getframe()", "sys._getframe"),
    "the variables of a frame": ("def f(frame):\n    frame.f_locals", "frame.f_locals"),
    "the variables of a frame as text": ("def f(x):\n    getattr(x, 'f_locals')", "getattr(x, 'f_locals')"),
    "an undocumented module": ("from psycopg.generators import send", "psycopg.generators"),
    "an undocumented module, imported as a name": ("from pymongo import message", "pymongo.message"),
    "an undocumented module, imported by text": (
        "from importlib import import_module\nimport_module('psycopg.generators')",
        "psycopg.generators",
    ),
    "an undocumented module, reached as an attribute": (
        "import psycopg\npsycopg.generators.send",
        "psycopg.generators",
    ),
    "a module with an underscore": ("import yaml._yaml", "yaml._yaml"),
    "a private name that is imported": ("from httpx import _Private", "httpx._Private"),
    "a class that is not made to be derived from": (
        "import httpx\nclass A(httpx.Client): ...",
        "class A(httpx.Client)",
    ),
    "the logger of another library": (
        "import logging\nlogging.getLogger('psycopg.pool').addFilter(print)",
        "logging.getLogger('psycopg.pool')",
    ),
    "what a linter was told to overlook": ("def f(x):\n    x._y  # noqa: SLF001  # type: ignore", "x._y"),
}
ACCEPTED = {
    "a name of ours": "class A:\n    def __init__(self):\n        self._a = 1\ndef f(a: A):\n    a._a",
    "a slot of ours": "class A:\n    _a: int\ndef f(a):\n    getattr(a, '_a')",
    "a name of ours in a class that derives from one of another library": (
        "import psycopg\nclass A(psycopg.Connection):\n"
        "    def _ours(self): ...\n    def f(self):\n        self._ours()"
    ),
    "a name of ours that a client uses too": "class A:\n    _topology = None\ndef f(a: A):\n    a._topology",
    "names of tuples": "def f(t):\n    t._asdict(), t._replace(a=1), t._fields",
    "names of the standard library": (
        "import os, sys, threading\nos._exit(1)\nsys._current_frames()\nthreading._shutdown()"
    ),
    "names of the data model": (
        "def f(x):\n    x.__class__, x.__dict__['a'], x.__cause__, getattr(x, '__name__')"
    ),
    "a documented dunder": "class A:\n    @classmethod\n    def __pydantic_init_subclass__(cls): ...",
    "documented modules": (
        "from psycopg.rows import dict_row\nfrom pymongo import errors\nimport psycopg\npsycopg.sql.SQL"
    ),
    "documented bases": "from pydantic import BaseModel\nclass A(BaseModel):\n    def model_dump(self): ...",
    "loggers of ours": "import logging\nlogging.getLogger('twinstore.mongo').addFilter(print)",
    "attributes of ours": "class A:\n    def f(self):\n        vars(self)['a'] = 1",
}


@pytest.mark.parametrize(("code", "use"), REFUSED.values(), ids=REFUSED)
def test_a_private_name_of_another_library_is_refused(code: str, use: str) -> None:
    assert (HERE, use) in [(path, found) for path, _, found in uses({HERE: ast.parse(code)})]


@pytest.mark.parametrize("code", ACCEPTED.values(), ids=ACCEPTED)
def test_what_is_ours_or_documented_is_accepted(code: str) -> None:
    assert list(uses({HERE: ast.parse(code)})) == []


def test_names_of_two_packages_of_ours_are_separate() -> None:
    trees = {
        "backends/mongo/twinstore_mongo/client/connection.py": (
            "class Connection:\n    def close(self):\n        self._closed = True"
        ),
        "backends/postgres/twinstore_postgres/connection/target.py": (
            "import psycopg\nConnection = psycopg.Connection[int]"
        ),
    }
    assert list(uses({path: ast.parse(code) for path, code in trees.items()})) == []
