"""Which part is taken of what is too much for every run: drawn from a seed, so that other commits take other parts.

`SEED` in the environment says the seed; the same seed takes the same part. With STERNA_ALL=1, which `make test-all`
sets, everything is taken; with STERNA_SLOW=1, which CI sets on a machine that is twice as slow as usual (tools/ci.py),
half as much, since a run has its bound by the clock.
"""

import hashlib
import os
from collections.abc import Iterable
from typing import TypeVar

T = TypeVar("T")


def seed() -> int:
    """That of this run; 0 unless SEED says another."""
    text = os.environ.get("SEED", "") or "0"
    try:
        return int(text, 0)
    except ValueError:
        raise ValueError(f"SEED={text}: not a number") from None


def is_complete() -> bool:
    """Whether everything is taken."""
    return os.environ.get("STERNA_ALL") == "1"


def is_slow() -> bool:
    """Whether half of what is usually taken has to do."""
    return os.environ.get("STERNA_SLOW") == "1" and not is_complete()


def share(items: Iterable[T], one_in: int, name: str) -> list[T]:
    """About one in so many of the items, in their order, and at least one; `name` says of what they are.

    Each item belongs to one of so many parts, by its text alone: whether it is taken depends neither on the order nor
    on what else there is, which may differ from run to run. As many seeds in a row take everything.
    """
    given = list(items)
    if is_complete():
        return given
    one_in *= 2 if is_slow() else 1
    taken = [item for item in given if _part(item, one_in, name) == seed() % one_in]
    return taken or sorted(given, key=lambda item: _number(item, f"{name}/{seed()}"))[:1]


def _part(item: object, parts: int, name: str) -> int:
    return _number(item, name) % parts


def _number(item: object, name: str) -> int:
    return int.from_bytes(hashlib.sha256(f"{name}/{item!r}".encode()).digest()[:8])
