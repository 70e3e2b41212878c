"""How destinations and kinds are written on the command line.

A destination is `queue:NAME` or `topic:NAME`; a bare name is a queue. Kinds are written as people say them: `queue`,
`queues`, `q`.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Literal, TypeVar

from sterna.cli.exits import usage
from sterna.errors import NoSuchSubscriptionError

if TYPE_CHECKING:
    from sterna.admin import Admin

T = TypeVar("T")

DestinationKind = Literal["queue", "topic"]

# What `get`, `delete` and `purge` accept for each kind of resource; the first is the one shown in messages.
_ALIASES: dict[str, tuple[str, ...]] = {
    "Queue": ("queue", "queues", "q"),
    "Topic": ("topic", "topics", "t"),
    "Bridge": ("bridge", "bridges"),
    "DurableSubscription": ("durable", "durables", "durablesubscription", "durablesubscriptions"),
    "Store": ("store", "stores"),
    "ConnectionFactory": ("factory", "factories", "connectionfactory", "connectionfactories"),
    "Broker": ("broker", "brokers"),
    "Connection": ("connection", "connections"),
    "Statistics": ("statistics", "stats"),
}


@dataclass(frozen=True, slots=True)
class DestinationName:
    """A destination as the command line names it."""

    kind: DestinationKind
    name: str

    def __str__(self) -> str:
        return f"{self.kind}:{self.name}"


def destination(text: str) -> DestinationName:
    """Read `queue:NAME`, `topic:NAME` or `NAME` (a queue)."""
    kind, colon, name = text.partition(":")
    if colon and kind in ("queue", "q"):
        found = DestinationName("queue", name)
    elif colon and kind in ("topic", "t"):
        found = DestinationName("topic", name)
    else:
        found = DestinationName("queue", text)
    if not found.name:
        raise usage(f"'{text}' names no destination", "write queue:NAME or topic:NAME; a bare NAME is a queue")
    return found


def resource_kind(text: str, *, among: tuple[str, ...] = tuple(_ALIASES)) -> str:
    """The kind of resource that a word means, of those that a command takes."""
    word = text.lower()
    for kind in among:
        if word in _ALIASES[kind]:
            return kind
    names = ", ".join(_ALIASES[kind][0] for kind in among)
    raise usage(f"'{text}' is no kind of resource here", f"one of: {names}{_suggestion(word, among)}")


def durable_key(kind: str, name: str, client_id: str) -> str:
    """How the admin service names a durable: with its client id before it, if it has one (EMS-DEST-B17).

    So it is in listings, too, from which the whole of it may be taken.
    """
    return name if kind != "DurableSubscription" or (not client_id and "/" in name) else f"{client_id}/{name}"


async def by_any_name(kind: str, name: str, ask: Callable[[str], Awaitable[T]]) -> T:
    """Asks for a resource by its name; a shared durable subscription without a client id may lack its slash.

    Listings show it as `/NAME`, and whoever made it knows it as `NAME`, which may be a configured one's object, too:
    that is asked for first.
    """
    try:
        return await ask(name)
    except NoSuchSubscriptionError as missing:
        if kind != "DurableSubscription" or "/" in name:
            raise
        try:
            return await ask(durable_key(kind, name, ""))
        except NoSuchSubscriptionError:
            raise missing from None


async def durable_of(client: "Admin", name: str, client_id: str) -> tuple[str, str]:
    """Client id and name of a durable subscription, of which somebody has named either, or its object where it is one.

    Raises:
        NoSuchSubscriptionError: there is none.
    """
    kind = "DurableSubscription"
    if not client_id and "/" not in name:
        found = await by_any_name(kind, name, partial(client.resource, kind))
        if "/" not in found.name:
            # It was found as an object, which says what it is.
            spec = found.manifest.get("spec", {})
            return spec.get("clientId", ""), spec.get("name") or found.name
        name = found.name
    owner, _, own = durable_key(kind, name, client_id).partition("/")
    return owner, own


def spoken(kind: str) -> str:
    """The word for a kind in sentences: "queue", "durable"."""
    return _ALIASES[kind][0]


def _suggestion(word: str, among: tuple[str, ...]) -> str:
    import difflib

    close = difflib.get_close_matches(word, [alias for kind in among for alias in _ALIASES[kind]], n=1)
    return f" (did you mean {close[0]}?)" if close else ""
