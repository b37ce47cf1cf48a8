"""Settings: which driver answers for which module, and how it is reached.

Sources, later wins: defaults, one file (JSON, YAML or TOML), secret files, an environment file, the
environment, an explicit mapping or settings object. Keys are hierarchical and compared without case:
``A:B`` in text, nested objects in files, ``A__B`` in the environment and as the name of a secret file.
"""

from __future__ import annotations

from twinstore.config.loading import CONFIG_VARIABLE, ConfigPathLike, ConfigSource, load_settings
from twinstore.config.settings import Settings

__all__ = ["CONFIG_VARIABLE", "ConfigPathLike", "ConfigSource", "Settings", "load_settings"]
