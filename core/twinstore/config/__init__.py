"""Settings: which driver answers for which module, and how it is reached.

Sources, later wins: defaults, one file (JSON, YAML or TOML), the environment, an explicit mapping.
Keys are hierarchical and compared without case: ``A:B`` in text, nested objects in files,
``A__B`` in the environment.
"""

from __future__ import annotations

from twinstore.config.loading import CONFIG_VARIABLE, ConfigSource, load_settings
from twinstore.config.settings import Settings

__all__ = ["CONFIG_VARIABLE", "ConfigSource", "Settings", "load_settings"]
