"""All contracts of the access in one class."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from twinstore.testing.contracts.access_appending import AccessAppendContract
from twinstore.testing.contracts.access_changing import AccessChangeContract, AccessMomentContract
from twinstore.testing.contracts.access_keys import AccessKeysContract
from twinstore.testing.contracts.access_marking import AccessMarkContract, AccessRemoveContract
from twinstore.testing.contracts.access_reading import (
    AccessCountContract,
    AccessFindContract,
    AccessListContract,
)
from twinstore.testing.contracts.access_rivals import AccessRivalContract
from twinstore.testing.contracts.access_units import AccessUnitContract
from twinstore.testing.contracts.access_unreadable import AccessUnreadableContract
from twinstore.testing.contracts.access_writing import AccessInsertContract, AccessPutContract
from twinstore.testing.defaults import MODULE_BY_DEFAULTS

if TYPE_CHECKING:
    from twinstore.access.protocol import Access
    from twinstore.plugins.module_spec import ModuleSpec

__all__ = ["AccessContract", "AccessDefaultsContract"]


class AccessContract(
    AccessFindContract,
    AccessListContract,
    AccessCountContract,
    AccessKeysContract,
    AccessInsertContract,
    AccessPutContract,
    AccessChangeContract,
    AccessMomentContract,
    AccessMarkContract,
    AccessAppendContract,
    AccessRemoveContract,
    AccessRivalContract,
    AccessUnreadableContract,
    AccessUnitContract,
):
    """What :class:`~twinstore.access.protocol.Access` does for any entity, whatever its description says."""


class AccessDefaultsContract(AccessContract):
    """The same of a driver that overrides none of the operations that have a default."""

    module: ClassVar[ModuleSpec[Access]] = MODULE_BY_DEFAULTS
    amends_unreadable = False
