"""What a self-test is asked to do."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from twinstore.errors import ValidationError

if TYPE_CHECKING:
    from twinstore_backfill.ignoring import IgnoredPath

__all__ = ["SelftestOptions"]


@dataclass(frozen=True, slots=True, kw_only=True)
class SelftestOptions:
    """Options of a self-test.

    Attributes:
        sample: rows of each entity to take from the source, spread over the tenants.
        seed: chooses them; the same seed chooses the same rows.
        thorough: plant every corruption once more alone, not only one of each kind.
        entities: corrupt only these; empty for all. The others are sampled, copied and compared as well.
        ignored: unknown properties of the source that the sample is taken without.
    """

    sample: int = 200
    seed: int = 0
    thorough: bool = False
    entities: tuple[str, ...] = ()
    ignored: tuple[IgnoredPath, ...] = ()

    def corrupts(self, entity: str) -> bool:
        """Whether an entity is one of those to corrupt."""
        return not self.entities or entity in self.entities

    def __post_init__(self) -> None:
        """Refuse a sample of nothing."""
        if self.sample < 1:
            raise ValidationError(f"--sample should be at least 1, not {self.sample}.")
