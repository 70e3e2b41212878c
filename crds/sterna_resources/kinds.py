"""The kinds of resources, by name: the one list that readers, schemas and commands go through."""

import difflib

from sterna_resources.bridge import Bridge
from sterna_resources.broker import Broker
from sterna_resources.durable_subscription import DurableSubscription
from sterna_resources.queue import Queue
from sterna_resources.resource import Resource
from sterna_resources.topic import Topic

KINDS: dict[str, type[Resource]] = {
    "Queue": Queue,
    "Topic": Topic,
    "Bridge": Bridge,
    "DurableSubscription": DurableSubscription,
    "Broker": Broker,
}


def suggestion(word: str, known: list[str]) -> str:
    """`; did you mean X?` when a known word is close, otherwise nothing."""
    by_lower = {name.lower(): name for name in known}
    close = difflib.get_close_matches(word.lower(), by_lower, n=1, cutoff=0.6)
    return f"; did you mean {by_lower[close[0]]}?" if close else ""
