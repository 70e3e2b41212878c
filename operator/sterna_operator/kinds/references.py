"""Which other objects an object needs before brokers would take it, and which of them are not there.

A destination may exist as an entry of its own, or be allowed by one with a wildcard; a pattern needs nothing, since it
stands for whatever there will be.
"""

from dataclasses import dataclass
from typing import Protocol

from sterna_resources.names import is_pattern
from sterna_resources.store import SYSTEM_STORES


@dataclass(frozen=True)
class Needs:
    """What is needed: destinations as (kind, name), kinds being Queue and Topic, and stores by name."""

    destinations: tuple[tuple[str, str], ...] = ()
    stores: tuple[str, ...] = ()


class Claims(Protocol):
    """The part of a cluster's mirror that is needed."""

    def claims(self, kind: str) -> list[str]:
        """What objects of a kind claim."""


def missing(claims: Claims, needs: Needs) -> tuple[str, ...]:
    """What is needed and not there, as people call it."""
    stores = {*SYSTEM_STORES, *(claims.claims("Store") if needs.stores else ())}
    found = [f"Store {store}" for store in needs.stores if store not in stores]
    names: dict[str, list[str]] = {}
    for kind, name in needs.destinations:
        if is_pattern(name):
            continue
        if kind not in names:
            names[kind] = claims.claims(kind)
        if not any(one == name or (is_pattern(one) and matches(one, name)) for one in names[kind]):
            found.append(f"{kind} {name}")
    return tuple(found)


def matches(pattern: str, name: str) -> bool:
    """Whether a pattern covers a name: `*` is one element, a last `>` one or more (EMS-DEST-A45)."""
    wanted, given = pattern.split("."), name.split(".")
    for index, element in enumerate(wanted):
        if element == ">":
            return len(given) > index
        if index >= len(given) or element not in ("*", given[index]):
            return False
    return len(wanted) == len(given)
