"""Where the tokens of a state are: `[cls | registers | patches]`."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from itertools import pairwise

TOKEN_TYPES = ("cls", "registers", "patches")


@dataclass(frozen=True)
class TokenLayout:
    """Number of tokens of each type, in the order in which they stand in a state."""

    cls: int
    registers: int
    patches: int

    @property
    def total(self) -> int:
        return self.cls + self.registers + self.patches

    @property
    def prefix(self) -> int:
        """Tokens before the first patch."""
        return self.cls + self.registers

    def slices(self) -> dict[str, slice]:
        """Token type -> slice of the token axis; types the layout lacks are left out."""
        bounds = (0, self.cls, self.prefix, self.total)
        spans = dict(zip(TOKEN_TYPES, pairwise(bounds), strict=True))
        return {name: slice(a, b) for name, (a, b) in spans.items() if b > a}

    def to_dict(self) -> dict[str, int]:
        return asdict(self)
