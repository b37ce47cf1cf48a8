"""What stands around the access of a driver hands every operation on."""

from __future__ import annotations

import inspect

import pytest

from twinstore.access import Access
from twinstore.apart import ApartAccess
from twinstore.guard import GuardedAccess
from twinstore.serial import SerialAccess


@pytest.mark.parametrize("wrapper", [GuardedAccess, SerialAccess, ApartAccess])
def test_a_wrapper_has_every_operation_of_its_own(wrapper: type[Access]) -> None:
    operations = {name for name, _ in inspect.getmembers(Access, inspect.isfunction) if name[0] != "_"}
    assert operations - vars(wrapper).keys() == set()
