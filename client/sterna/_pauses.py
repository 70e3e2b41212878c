"""How long it is waited before the same is tried again: a name that is moving, what the broker cannot do for now."""

from __future__ import annotations

from typing import Final

#: How often a name is followed that is moving at this moment, before that takes longer, and the longest pause between.
HOPS_MAX: Final = 25
_PAUSE_S: Final = 0.02
_PAUSE_S_MAX: Final = 0.5


def pause_s(hop: int) -> float:
    """How long to wait before the next try; the first step is taken at once."""
    return min(_PAUSE_S * 2 ** (hop - 1), _PAUSE_S_MAX) if hop else 0.0
