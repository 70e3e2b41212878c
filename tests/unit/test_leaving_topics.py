"""What comes to a topic between the look at all that is here and the topic's turn to leave keeps it."""

import asyncio
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
_OTHER = HomeKey("topic", "trades")
_PATTERN = HomeKey("pattern", "*")


class Engine(EngineView):
    """An engine of topics, which it gives away whatever their subscriptions hold; somebody subscribes to all."""

    def __init__(self, *topics: str) -> None:
        self.statistics = {topic: {"messages": 0, "subscriptions": 1} for topic in topics or ("prices",)}
        self.durables: dict[str, dict[str, Any]] = {}
        self.left: list[HomeKey] = []
        self.told: list[str] = []
        self.closed: list[str] = []

    def rows(self, kind: str) -> dict[str, dict[str, Any]]:
        if kind == "durable":
            return self.durables
        if kind == "subscription":
            return {
                str(number): {"topic": topic, "statistics": {"consumers": 1, "messages": 0}}
                for number, topic in enumerate(["*", *self.statistics])
            }
        standing = {topic: found for topic, found in self.statistics.items() if HomeKey(kind, topic) not in self.left}
        topics = {
            topic: {"name": topic, "id": 16 + number, "statistics": dict(found)}
            for number, (topic, found) in enumerate(standing.items())
        }
        return topics if kind == "topic" else {}

    def row(self, key: HomeKey) -> dict[str, Any] | None:
        return self.rows(key.kind).get(key.name)

    def messages(self) -> int:
        return 0

    def leave(self, key: HomeKey, told: RefusedError) -> str:
        self.left.append(key)
        return ""

    def close_subscribers(self, topic: str, told: RefusedError) -> None:
        self.told.append(topic)

    def close_to_producers(self, key: HomeKey, reason: RefusedError | None) -> None:
        self.closed.append(key.name)


class Brokers(Homes):
    """Homes of which one is given away only after `meanwhile` has happened."""

    def __init__(self, meanwhile: Callable[[HomeKey], None], *keys: HomeKey, record: DrainRecord | None = None) -> None:
        live = Stored(BrokerRecord(addresses=[], version="1", incarnation="i", started_ms=1), 1, 1)
        self.name = "b1"
        self.view = View(Layout("c1"), brokers={"b0": live, "b1": live})
        for key in keys or (_TOPIC,):
            self.view.homes[key] = Stored(HomeRecord(broker="b1"), 1, 1)
        self.view.drains["b1"] = Stored(record or DrainRecord(), 1, 1)
        self.moved: list[HomeKey] = []
        self.doubtful: set[HomeKey] = set()
        self._meanwhile = meanwhile

    async def move(self, key: HomeKey, broker: str, leave: Callable[[], bool], *, is_bound: bool = False) -> bool:
        self._meanwhile(key)
        if not leave() or key in self.doubtful:
            return False
        self.moved.append(key)
        self.view.homes[key] = Stored(HomeRecord(broker=broker), 2, 1)
        return True

    @property
    def has_doubts(self) -> bool:
        return bool(self.doubtful)

    def is_leaving(self, key: HomeKey) -> bool:
        return key in self.doubtful

    def goes_to(self, key: HomeKey) -> str:
        return "b0" if self.is_leaving(key) else ""


@pytest.mark.parametrize("what", ["messages", "subscriptions"])
async def test_a_topic_stays_that_somebody_has_come_to_meanwhile(what: str) -> None:
    engine = Engine()

    def meanwhile(_: HomeKey) -> None:
        engine.statistics["prices"][what] += 1

    left = await _drain(Brokers(meanwhile), engine)
    assert (engine.left, engine.told, engine.closed) == ([], [], ["prices"])
    assert (left.destinations, left.waits_for) == (1, "topic 'prices' was in use just now, and is looked at once more")


async def test_a_topic_leaves_that_is_as_it_was_or_is_forced_to() -> None:
    engine = Engine()
    left = await _drain(Brokers(lambda _: None), engine)
    assert (engine.left, engine.told, left.destinations) == ([_TOPIC], ["prices"], 0)

    forced = Engine()

    def meanwhile(_: HomeKey) -> None:
        forced.statistics["prices"]["messages"] += 1

    force = DrainRecord(force=True)
    await _drain(Brokers(meanwhile, record=force), forced, force)
    assert forced.left == [_TOPIC]


async def test_a_pattern_goes_first_and_what_cannot_follow_it_takes_nothing_until_it_does() -> None:
    engine = Engine("prices", "trades")

    def meanwhile(key: HomeKey) -> None:
        if key == _OTHER:
            engine.statistics["trades"]["messages"] += 1

    homes = Brokers(meanwhile, _OTHER, _TOPIC, _PATTERN)
    left = await _drain(homes, engine)
    # A topic that can be opened at the new home finds there what hangs on the pattern.
    assert homes.moved == [_PATTERN, _TOPIC]
    assert engine.closed == ["prices", "trades"]
    # Who subscribes to the pattern misses nothing by going: what stayed takes nothing.
    assert sorted(engine.told) == ["*", "prices"]
    assert left.destinations == 1


async def test_a_pattern_stays_that_a_client_has_subscribed_to_durably_meanwhile() -> None:
    engine = Engine()

    def meanwhile(_: HomeKey) -> None:
        engine.durables["me/all"] = {"topic": "*", "origin": "dynamic", "statistics": {}}

    homes = Brokers(meanwhile, _TOPIC, _PATTERN)
    left = await _drain(homes, engine)
    assert (homes.moved, engine.told, engine.closed) == ([], [], ["prices"])
    assert left.waits_for == "pattern '*' has 1 durable subscription that clients made"


@pytest.mark.parametrize("to", ["prices", "*"])
async def test_a_topic_stays_that_a_client_has_come_to_durably_as_another_one_went(to: str) -> None:
    engine = Engine()

    def meanwhile(_: HomeKey) -> None:
        # There are as many as before.
        engine.durables["me/all"] = {"topic": to, "origin": "dynamic", "statistics": {}}

    homes = Brokers(meanwhile)
    left = await _drain(homes, engine)
    assert (homes.moved, engine.left, engine.closed) == ([], [], ["prices"])
    assert left.waits_for == "topic 'prices' has 1 durable subscription that clients made"


async def test_a_pattern_stays_of_which_a_topic_has_been_sent_something_meanwhile() -> None:
    engine = Engine("prices", "trades")

    def meanwhile(key: HomeKey) -> None:
        engine.statistics["trades"]["messages"] += key == _PATTERN

    homes = Brokers(meanwhile, _TOPIC, _OTHER, _PATTERN)
    left = await _drain(homes, engine)
    # Who reads it here would be sent to where the pattern lives.
    assert (homes.moved, engine.left, sorted(engine.closed)) == ([], [], ["prices", "trades"])
    assert left.waits_for == "topic 'trades' was in use just now, and is looked at once more"


async def test_what_matches_a_pattern_takes_nothing_while_nobody_knows_whether_that_has_gone() -> None:
    engine = Engine("prices", "trades")
    homes = Brokers(lambda _: None, _TOPIC, _OTHER, _PATTERN)
    homes.doubtful.add(_PATTERN)
    await _drain(homes, engine)
    # What was sent to a topic now, the new home's subscriptions to the pattern would miss.
    assert (homes.moved, sorted(engine.closed)) == ([], ["prices", "trades"])


async def test_nobody_waits_for_what_has_gone_after_it_was_in_doubt() -> None:
    homes = Brokers(lambda _: None, _TOPIC)
    drain = _drainer(homes, Engine())
    waiting = drain._shut[_TOPIC] = asyncio.Event()
    homes.doubtful.add(_TOPIC)
    await drain.step(ObjectSet({}), DrainRecord())
    assert drain.held_back(_TOPIC) is waiting
    homes.view.homes[_TOPIC] = Stored(HomeRecord(broker="b0"), 2, 1)
    await drain.step(ObjectSet({}), DrainRecord())
    assert waiting.is_set()
    assert drain.held_back(_TOPIC) is None


async def test_what_is_to_go_after_all_is_not_opened_by_what_was_taken_back_before() -> None:
    """Orders that follow each other quickly: while bridges are made to hold again the next one has come."""
    engine, record = Engine(), DrainRecord(closes_only=True)
    homes = Brokers(lambda _: None, record=record)
    drain = _drainer(homes, engine)
    assert (await drain.step(ObjectSet({}), record)).is_closed
    homes.view.drains.clear()
    drain.hold_again(ObjectSet({}))
    homes.view.drains["b1"] = Stored(record, 2, 2)
    drain.reopen()
    assert engine.closed == ["prices"]
    homes.view.drains.clear()
    drain.reopen()
    assert engine.closed == ["prices", "prices"]


async def test_what_was_not_begun_stays_when_the_order_is_taken_back() -> None:
    engine = Engine("prices", "trades")
    homes = Brokers(lambda _: homes.view.drains.clear(), _TOPIC, _OTHER)
    await _drain(homes, engine)
    assert homes.moved == [_TOPIC]


async def _drain(homes: Homes, engine: EngineView, record: DrainRecord | None = None) -> Any:
    return await _drainer(homes, engine).step(ObjectSet({}), record or DrainRecord())


def _drainer(homes: Homes, engine: EngineView) -> Drain:
    async def is_told(_: HomeKey) -> bool:
        return True

    objects = ObjectSet({})
    return Drain(homes, ClusterDesk(homes, lambda: objects, is_told), engine)
