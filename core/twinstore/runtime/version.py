"""The version of this package: that of the installed distribution.

An editable installation has the version of the commit that it was made on, until it is made again.
"""

from __future__ import annotations

from importlib.metadata import version
from typing import Final

__version__: Final = version("twinstore")
