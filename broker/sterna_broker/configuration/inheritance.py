"""The properties that hold for a destination: its own, and what it inherits from wildcard entries (EMS-DEST-A47).

All entries that match stand side by side: none is nearer than another. What a destination writes itself stands; where
it is
silent, several entries are combined property by property:

| property | several entries |
|---|---|
| expirationMs, maxMessages, maxBytes, flowControlBytes, maxRedelivery | the smallest limit there is (0 is none) |
| redeliveryDelayMs | the same |
| prefetch | the largest number; `none` only if no entry has a number (EMS-DEST-A30) |
| overflowPolicy | rejectIncoming, else discardOld, else default (EMS-DEST-A25) |
| deadLetterQueue | the first by name |
| exclusive, senderName, senderNameEnforced, secure | once given it stays, whatever the destination writes |
| store | all must agree; `checks` has refused those that do not (EMS-DEST-A43) |

An expiration that is written as 0 means "for ever" and differs from none; a destination's own `prefetch: 0` and
`overflowPolicy: default` mean "inherit".
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

Kind = Literal["queue", "topic"]
Parents = Sequence[tuple[str, dict[str, Any]]]

FAILSAFE = "$sys.failsafe"
DEFAULT_PREFETCH = {"queue": 5, "topic": 64}

# Where a value comes from, beside the pattern of an entry.
OWN, DEFAULT = "own", "default"


@dataclass(frozen=True)
class Effective:
    """What holds for one destination, as the engine takes it, and where each value comes from."""

    values: dict[str, Any]
    sources: dict[str, str]

    def explained(self) -> dict[str, dict[str, Any]]:
        """For people: each property with its value and its source (`own`, `default` or an entry's pattern)."""
        return {
            name: {"value": "none" if name == "prefetch" and value == 0 else value, "from": self.sources[name]}
            for name, value in self.values.items()
        }


_Choice = tuple[Any, str] | None
_Combine = Callable[[str, dict[str, Any], Parents], _Choice]


def effective(kind: Kind, own: dict[str, Any], parents: Parents) -> Effective:
    """Combines what was written for a destination with what the entries that match it say."""
    values: dict[str, Any] = {}
    sources: dict[str, str] = {}
    for name, (combine, default) in _RULES.items():
        if name in _QUEUE_ONLY and kind == "topic":
            continue
        choice = combine(name, own, parents)
        if choice is None:
            choice = (DEFAULT_PREFETCH[kind] if name == "prefetch" else default, DEFAULT)
        values[name], sources[name] = choice
    return Effective(values, sources)


def _limit(name: str, own: dict[str, Any], parents: Parents) -> _Choice:
    if name in own:
        return own[name], OWN
    given = [(entry[name], pattern) for pattern, entry in parents if name in entry]
    limits = [choice for choice in given if choice[0] != 0]
    return min(limits or given, default=None, key=lambda choice: choice[0])


def _prefetch(name: str, own: dict[str, Any], parents: Parents) -> _Choice:
    if own.get(name, 0) != 0:
        return _number(own[name]), OWN
    given = [(_number(entry[name]), pattern) for pattern, entry in parents if entry.get(name, 0) != 0]
    return max(given, default=None, key=lambda choice: choice[0])


def _number(prefetch: Any) -> int:
    """The engine's 0 is the manifests' `none`, which so is smaller than any number."""
    return 0 if prefetch == "none" else int(prefetch)


def _overflow(name: str, own: dict[str, Any], parents: Parents) -> _Choice:
    if own.get(name, "default") != "default":
        return own[name], OWN
    for policy in ("rejectIncoming", "discardOld"):
        for pattern, entry in parents:
            if entry.get(name) == policy:
                return policy, pattern
    return None


def _flag(name: str, own: dict[str, Any], parents: Parents) -> _Choice:
    if own.get(name):
        return True, OWN
    for pattern, entry in parents:
        if entry.get(name):
            return True, pattern
    return (False, OWN) if name in own else None


def _agreed(name: str, own: dict[str, Any], parents: Parents) -> _Choice:
    if name in own:
        return own[name], OWN
    return next(((entry[name], pattern) for pattern, entry in parents if name in entry), None)


def _first(name: str, own: dict[str, Any], parents: Parents) -> _Choice:
    if name in own:
        return own[name], OWN
    return min(((entry[name], pattern) for pattern, entry in parents if name in entry), default=None)


_QUEUE_ONLY = {"maxRedelivery", "redeliveryDelayMs", "deadLetterQueue", "exclusive"}
_RULES: dict[str, tuple[_Combine, Any]] = {
    "expirationMs": (_limit, None),
    "maxMessages": (_limit, 0),
    "maxBytes": (_limit, 0),
    "flowControlBytes": (_limit, 0),
    "overflowPolicy": (_overflow, "default"),
    "prefetch": (_prefetch, None),
    "maxRedelivery": (_limit, 0),
    "redeliveryDelayMs": (_limit, 0),
    "deadLetterQueue": (_first, ""),
    "exclusive": (_flag, False),
    "senderName": (_flag, False),
    "senderNameEnforced": (_flag, False),
    "secure": (_flag, False),
    "store": (_agreed, FAILSAFE),
}
