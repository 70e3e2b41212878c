"""What comes to a topic between the look at all that is here and the topic's turn to leave keeps it."""

from collections.abc import Callable
from typing import Any

import pytest
from sterna_broker.cluster.desk import ClusterDesk
from sterna_broker.cluster.draining import Drain
from sterna_broker.cluster.homes import Homes
from sterna_broker.cluster.upkeep import EngineView
from sterna_broker.cluster.view import Stored, View
from sterna_broker.configuration.objects import ObjectSet
from sterna_broker.refusals import RefusedError
from sterna_etcd import HomeKey, Layout
from sterna_etcd.records import BrokerRecord, DrainRecord, HomeRecord

_TOPIC = HomeKey("topic", "prices")


class Engine(EngineView):
    """An engine of one topic, which it gives away whatever its subscriptions hold."""

    def __init__(self) -> None:
        self.statistics = {"messages": 0, "subscriptions": 1}
        self.left: list[HomeKey] = []
        self.told: list[str] = []

    def rows(self, kind: str) -> dict[str, dict[str, Any]]:
        return {"prices": {"name": "prices", "id": 16, "statistics": dict(self.statistics)}} if kind == "topic" else {}

    def row(self, key: HomeKey) -> dict[str, Any] | None:
        return self.rows(key.kind).get(key.name)

    def leave(self, key: HomeKey, told: RefusedError) -> str:
        self.left.append(key)
        return ""

    def close_subscribers(self, topic: str, told: RefusedError) -> None:
        self.told.append(topic)

    def close_to_producers(self, key: HomeKey, reason: RefusedError | None) -> None:
        pass


class Brokers(Homes):
    """Homes of which one is given away only after `meanwhile` has happened."""

    def __init__(self, meanwhile: Callable[[], None]) -> None:
        live = Stored(BrokerRecord(addresses=[], version="1", incarnation="i", started_ms=1), 1, 1)
        self.name = "b1"
        self.view = View(Layout("c1"), brokers={"b0": live, "b1": live})
        self.view.homes[_TOPIC] = Stored(HomeRecord(broker="b1"), 1, 1)
        self.view.drains["b1"] = Stored(DrainRecord(), 1, 1)
        self._meanwhile = meanwhile

    async def move(self, key: HomeKey, broker: str, leave: Callable[[], bool]) -> bool:
        self._meanwhile()
        if not leave():
            return False
        self.view.homes[key] = Stored(HomeRecord(broker=broker), 2, 1)
        return True


@pytest.mark.parametrize("what", ["messages", "subscriptions"])
async def test_a_topic_stays_that_somebody_has_come_to_meanwhile(what: str) -> None:
    engine = Engine()

    def meanwhile() -> None:
        engine.statistics[what] += 1

    homes = Brokers(meanwhile)
    left = await _drain(homes, engine, DrainRecord())
    assert (engine.left, engine.told) == ([], [])
    assert (left.destinations, left.waits_for) == (1, "topic 'prices' was in use just now, and is looked at once more")


async def test_a_topic_leaves_that_is_as_it_was_or_is_forced_to() -> None:
    engine = Engine()
    left = await _drain(Brokers(lambda: None), engine, DrainRecord())
    assert (engine.left, engine.told, left.destinations) == ([_TOPIC], ["prices"], 0)

    forced = Engine()

    def meanwhile() -> None:
        forced.statistics["messages"] += 1

    await _drain(Brokers(meanwhile), forced, DrainRecord(force=True))
    assert forced.left == [_TOPIC]


async def _drain(homes: Homes, engine: EngineView, record: DrainRecord) -> Any:
    async def is_told(_: HomeKey) -> bool:
        return True

    objects = ObjectSet({})
    return await Drain(homes, ClusterDesk(homes, lambda: objects, is_told), engine).step(objects, record)
