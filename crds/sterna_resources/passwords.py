"""Passwords at rest: argon2id hashes, made in one place and read by the same rules everywhere.

Whoever keeps a password (`sterna hash-password`, the operator for a Secret) makes its hash here; the broker checks
hashes for shape and cost here before it believes them, since a hash names the work that checking it takes: a single
one that asks for gigabytes would stop a broker.

The cost follows the common advice for argon2id with little memory: 19 MiB, two passes, one lane. More memory would
mean fewer checks at once, and a broker that restarts has to check all its clients.
"""

import re
from dataclasses import dataclass

MEMORY_KIB = 19_456
PASSES = 2
LANES = 1

MEMORY_KIB_MAX = 262_144
PASSES_MAX = 10
LANES_MAX = 8
HASH_CHARACTERS_MAX = 512

# EMS-SEC-B06.
USER_CHARACTERS_MAX = 255
PASSWORD_CHARACTERS_MAX = 4_096

_SHAPE = re.compile(
    r"\$argon2id\$v=19\$m=(?P<memory>\d{1,9}),t=(?P<passes>\d{1,4}),p=(?P<lanes>\d{1,4})"
    r"\$(?P<salt>[A-Za-z0-9+/]{11,86})\$(?P<digest>[A-Za-z0-9+/]{22,171})"
)


@dataclass(frozen=True, order=True)
class Cost:
    """The work that a hash asks for."""

    memory_kib: int = MEMORY_KIB
    passes: int = PASSES
    lanes: int = LANES


class HashError(ValueError):
    """A text that is no usable hash. The reason never repeats it: it may be a password that got there by mistake."""


def hash_password(password: str, cost: Cost | None = None) -> str:
    """The argon2id hash of a password, with a salt of its own; takes some tens of milliseconds.

    Raises:
        ValueError: the password is empty or too long.
    """
    if not password:
        raise ValueError("the password is empty")
    if len(password) > PASSWORD_CHARACTERS_MAX:
        raise ValueError(f"the password is longer than {PASSWORD_CHARACTERS_MAX} characters")
    # Late: reading hashes, which is what most of us do, needs no library.
    from argon2 import PasswordHasher, Type

    chosen = cost or Cost()
    hasher = PasswordHasher(
        time_cost=chosen.passes, memory_cost=chosen.memory_kib, parallelism=chosen.lanes, type=Type.ID
    )
    return hasher.hash(password)


def cost_of(text: str) -> Cost:
    """The cost of a hash.

    Raises:
        HashError: it is no argon2id hash of version 19, or asks for more than anybody may.
    """
    found = _SHAPE.fullmatch(text) if len(text) <= HASH_CHARACTERS_MAX else None
    if found is None:
        raise HashError("is no argon2id hash ($argon2id$v=19$m=…,t=…,p=…$…$…): make one with 'sterna hash-password'")
    cost = Cost(int(found["memory"]), int(found["passes"]), int(found["lanes"]))
    bounds = Cost(MEMORY_KIB_MAX, PASSES_MAX, LANES_MAX)
    for name in ("memory_kib", "passes", "lanes"):
        if getattr(cost, name) > getattr(bounds, name):
            raise HashError(f"asks for {name} {getattr(cost, name)}, at most {getattr(bounds, name)} is allowed")
    if cost.lanes < 1 or cost.passes < 1 or cost.memory_kib < 8 * cost.lanes:
        raise HashError("asks for less memory, passes or lanes than argon2 has")
    return cost


def user_fault(name: str) -> str | None:
    """What is wrong with the name of a user; None: nothing (EMS-SEC-B06)."""
    if not name:
        return "is empty"
    if len(name) > USER_CHARACTERS_MAX:
        return f"is longer than {USER_CHARACTERS_MAX} characters"
    if ":" in name:
        return "holds a colon, which separates user and password where both stand in one text"
    if not name.isprintable():
        return "holds control characters"
    return None
