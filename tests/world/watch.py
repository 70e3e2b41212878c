"""What must hold at every moment, looked at once a second of the world: what a broker has is what there is.

- A connection that the broker's engine has is one of the network's, or ended a moment ago.
- What a broker knows to live on another one is used by nobody there, and gets no more messages.
- Messages do not go out and come back, again and again, without anybody's getting on.
- Of two brokers of one name that are in touch with etcd one stops.
- Who says that nothing is left on it, and is to be emptied, has no messages.
"""

from __future__ import annotations

import asyncio
from typing import Any, Final

from sterna_etcd import HomeKey

from tests.world.brokers import Broker
from tests.world.clusters import Cluster
from tests.world.loop import SimulatedLoop
from tests.world.network import Network

#: What an administrator sees of a broker's destinations.
Rows = list[dict[str, Any]]

#: How long a broker may take to notice, or to carry out, what it knows.
_NOTICE_S: Final = 5.0
_ROUNDS_S: Final = 12.0
_RIVALS_S: Final = 25.0

_CIRCLE: Final = 500
"""So many deliveries within a second, none of which is acknowledged, are the same messages."""


class Watch:
    """See the module. `found`: each thing once, in the order in which it was seen."""

    def __init__(self, loop: SimulatedLoop, network: Network, brokers: list[Broker]) -> None:
        self.found: dict[str, None] = {}
        self.cluster: Cluster | None = None
        self._loop = loop
        self._network = network
        self._brokers = brokers
        self._since: dict[tuple[Any, ...], float] = {}
        self._seen: dict[tuple[Any, ...], float] = {}
        self._figures: dict[tuple[Any, ...], tuple[int, int]] = {}
        self._messages: dict[tuple[Any, ...], int] = {}

    async def run(self) -> None:
        """Until it is cancelled."""
        while True:
            await asyncio.sleep(1.0)
            self._seen = {}
            for broker in self._brokers:
                if broker.is_running:
                    self._look_at_connections(broker)
                    rows = {"queue": broker.listed("queue")}
                    self._look_for_circles(broker, rows["queue"])
                    if broker.node is not None and broker.node.member is not None:
                        rows["topic"] = broker.listed("topic")
                        self._look_at_homes(broker, rows)
                        self._look_at_emptying(broker, rows)
            self._look_for_rivals()
            # What was not so any more begins anew.
            self._since = self._seen

    def _for_s(self, *what: Any) -> float:
        """For how long this has been so, looked at each second."""
        since_s = self._seen[what] = self._since.get(what, self._loop.time())
        return self._loop.time() - since_s

    def _look_at_connections(self, broker: Broker) -> None:
        here = {
            link.peer for link in self._network.links if link.server.process is broker.process and not link.server_knows
        }
        for row in broker.connections():
            peer = str(row.get("peer", ""))
            if peer.startswith("internal:") or peer in here:
                continue
            if self._for_s("gone", broker, peer) > _NOTICE_S:
                self.found[f"{broker.name} keeps a connection that has ended: {row['client_id']} at {peer}"] = None

    def _look_for_circles(self, broker: Broker, queues: Rows) -> None:
        """Whether messages are handed out and come back, again and again, and nobody is done with any."""
        for row in queues:
            figures = row["statistics"]
            what = (broker.process, row["id"])
            now = (int(figures["delivered_total"]), int(figures["acknowledged_total"]))
            before = self._figures.get(what, now)
            self._figures[what] = now
            if now[0] - before[0] > _CIRCLE and now[1] == before[1]:
                self.found[f"messages of the queue {row['name']} go in a circle on {broker.name}"] = None

    def _look_at_homes(self, broker: Broker, rows: dict[str, Rows]) -> None:
        assert broker.node is not None
        assert broker.node.member is not None
        link = broker.node.member.link
        if link.fault is not None:
            return
        for kind, listed in rows.items():
            for row in listed:
                key = HomeKey(kind, row["name"])
                home = link.view.home(key.kind, key.name)
                if home in (None, broker.name):
                    continue
                figures = row["statistics"]
                what = ("away", broker.process, key, row["id"])
                known_s = self._for_s(*what)
                if known_s <= _ROUNDS_S:
                    self._messages[what] = _held(figures)
                    continue
                consumers = int(figures.get("consumers", 0))
                if kind == "topic" and consumers:
                    consumers -= _at_work(broker, key.name)
                if figures.get("producers") or consumers:
                    self.found[f"{broker.name} serves the {kind} {key.name}, which lives on {home}"] = None
                if _held(figures) > self._messages[what]:
                    self.found[f"{broker.name} takes messages of the {kind} {key.name}, which lives on {home}"] = None

    def _look_at_emptying(self, broker: Broker, rows: dict[str, Rows]) -> None:
        """Whether it says that nothing is left on it, upon which its machine goes, while it has messages."""
        assert broker.node is not None
        member = broker.node.member
        assert member is not None
        left = member.draining
        if member.link.fault is not None or left is None or left.destinations or left.messages:
            return
        for kind, listed in rows.items():
            for row in listed:
                name = str(row["name"])
                if not int(row["statistics"].get("messages", 0)) or name.startswith("$TMP$"):
                    continue
                if self._for_s("kept", broker.process, kind, row["id"]) > _ROUNDS_S:
                    self.found[f"{broker.name} says that it is empty, and has messages of the {kind} {name}"] = None

    def _look_for_rivals(self) -> None:
        by_name: dict[str, list[Broker]] = {}
        for broker in self._brokers:
            member = broker.node.member if broker.is_running and broker.node is not None else None
            if member is not None and member.link.fault is None:
                by_name.setdefault(broker.name, []).append(broker)
        for name, several in by_name.items():
            starts = tuple(broker.process for broker in several)
            if len(several) > 1 and self._for_s("rivals", *starts) > _RIVALS_S:
                self.found[f"{len(several)} brokers of the name {name} serve side by side"] = None


def _at_work(broker: Broker, topic: str) -> int:
    """How many have in hand what a durable subscription to a topic holds here; they stay until they are done."""
    durables = (row["statistics"] for row in broker.listed("durable") if row["topic"] == topic)
    return sum(int(one["consumers"]) for one in durables if int(one["delivered_messages"]))


def _held(figures: dict[str, Any]) -> int:
    """How many messages there are, with those that wait for a commit or to come again: no more are taken with these."""
    return sum(int(figures.get(name, 0)) for name in ("messages", "pending_messages", "redelivery_delayed_messages"))
