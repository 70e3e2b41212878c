"""Looks without cause: what no watch has told of is found by them, and put right."""

import asyncio

import pytest
from sterna_etcd import Claim, Etcd, EtcdSettings, KeyValue, Layout
from sterna_operator.keys import Key
from sterna_operator.looks import interval_s, until_due, weight
from sterna_operator.mirror import Mirror
from sterna_operator.settings import OperatorSettings, SettingsError
from sterna_operator.store import ClusterStore

from tests.etcds import RunningEtcd
from tests.operator.broker_double import BrokerDouble
from tests.operator.conftest import MakeOperator
from tests.operator.worlds import World
from tests.waiting import eventually

pytestmark = pytest.mark.slow_callbacks(30_000)

LAYOUT = Layout("shop")


async def test_a_key_that_is_gone_or_another_is_put_back_though_no_watch_tells_of_it(
    world: World, operator: MakeOperator
) -> None:
    world.make_cluster()
    running = operator(untold="orders", resync_s=1.0)
    async with BrokerDouble(world.etcd_urls, world.etcd_name):
        world.queue("orders", maxMessages=10)
        await world.ready("Queue", "orders")
        record = await world.configured("Queue", "orders")
        key = world.layout.config(Claim("Queue", "orders"))
        await world.client.delete(key)
        assert await world.configured("Queue", "orders") == record
        other = record.model_copy(update={"manifest": {**record.manifest, "spec": {"maxMessages": 99}}})
        await world.client.put(key, other.encode())

        async def is_restored() -> bool:
            return await world.config("Queue", "orders") == record

        await eventually(is_restored, timeout_s=30.0, what="the record as it was")
        await eventually(lambda: world.events("orders").count("DriftRepaired") == 2, timeout_s=30.0)
        await world.ready("Queue", "orders")
    assert "changes in etcd that the watch has not told of" in running.log


async def test_a_change_of_an_object_of_which_no_watch_tells_is_applied(world: World, operator: MakeOperator) -> None:
    world.make_cluster()
    running = operator(untold="orders", resync_s=1.0)
    async with BrokerDouble(world.etcd_urls, world.etcd_name):
        world.queue("orders", maxMessages=10)
        await world.ready("Queue", "orders")
        for limit in range(11, 31):
            world.queue("orders", maxMessages=limit)
            await world.ready("Queue", "orders")
            record = await world.configured("Queue", "orders")
            assert record.manifest["spec"]["maxMessages"] == limit
            # The answer to a write of the operator's own tells of it, too, where that crosses the change.
            if "a change that no watch told of" in running.log:
                break
    assert "a change that no watch told of" in running.log


@pytest.mark.parametrize(
    ("objects", "seconds"),
    [(0, 60.0), (1_000, 60.0), (3_000, 60.0), (6_000, 120.0), (10_000, 200.0), (30_000, 600.0), (75_000, 600.0)],
)
def test_few_objects_are_looked_at_every_minute_and_many_more_rarely(objects: int, seconds: float) -> None:
    assert interval_s(OperatorSettings(), objects) == seconds


def test_an_audit_counts_for_ten() -> None:
    kinds = ["Queue"] * 5 + ["AuditJob", "StoreSnapshot"]
    assert weight(Key(kind, "mq", f"n{number}") for number, kind in enumerate(kinds)) == 25


async def test_what_is_found_meanwhile_puts_the_first_look_off() -> None:
    """At a start nothing is known yet; a look at tens of thousands must not come in the middle of it."""
    known = iter([0])
    asked: list[int] = []

    def objects() -> int:
        asked.append(next(known, 20))
        return asked[-1]

    clock = asyncio.get_running_loop().time
    began = clock()
    await until_due(OperatorSettings(resync_s=0.05, resync_rate=100.0), objects)
    assert clock() - began >= 0.2
    assert asked[-1] == 20


def test_whoever_wants_looks_more_rarely_has_them_so() -> None:
    assert interval_s(OperatorSettings(resync_s=3_600.0), 75_000) == 3_600.0
    with pytest.raises(SettingsError, match="resync_rate"):
        OperatorSettings(resync_rate=0)


def _pair(name: str, revision: int) -> KeyValue:
    return KeyValue(LAYOUT.config(Claim("Queue", name)), b"{}", revision, revision, 1, 0)


class TestComparing:
    """A list of etcd beside a watch that goes on: the later word counts."""

    def mirror(self) -> Mirror:
        """Knows `a`, of revision 5, and `b`, of 9; the watch has come to 9."""
        made = Mirror(LAYOUT)
        for pair in (_pair("a", 5), _pair("b", 9)):
            made.put(pair.key, pair.value, pair.mod_revision)
        made.come_to(9)
        return made

    def test_what_is_gone_was_changed_or_is_new_is_told(self) -> None:
        mirror = self.mirror()
        found = [_pair("b", 10), _pair("c", 11)]
        gone = mirror.drop_missing(mirror.under(LAYOUT.configs), {pair.key for pair in found}, 11)
        assert [one.claim for one in gone] == [Claim("Queue", "a")]
        assert [one.claim for one in mirror.catch_up(found, 11)] == [Claim("Queue", "b"), Claim("Queue", "c")]
        assert mirror.catch_up(found, 11) == []

    def test_what_was_written_since_stays(self) -> None:
        mirror = self.mirror()
        assert [one.claim for one in mirror.drop_missing(mirror.under(LAYOUT.configs), (), 8)] == [Claim("Queue", "a")]
        assert mirror.has_config(Claim("Queue", "b"))
        assert mirror.catch_up([_pair("b", 7)], 8) == []

    def test_what_was_removed_since_does_not_rise_again(self) -> None:
        mirror = self.mirror()
        mirror.remove(_pair("a", 5).key, 12)
        mirror.come_to(12)
        assert mirror.catch_up([_pair("a", 5)], 11) == []
        assert not mirror.has_config(Claim("Queue", "a"))

    def test_other_prefixes_are_left_alone(self) -> None:
        mirror = self.mirror()
        assert mirror.under(LAYOUT.users) == []
        assert sorted(mirror.under(LAYOUT.configs)) == [_pair("a", 5).key, _pair("b", 9).key]


async def test_many_keys_are_compared_part_by_part_and_none_is_left_out(
    store: RunningEtcd, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sterna_operator.store._COMPARED_AT_ONCE", 3)
    settings = EtcdSettings.of_urls(store.urls)
    one = ClusterStore("looks", settings)
    names = [f"q-{number}" for number in range(10)] + ["q-ä", "q-𝄞"]
    keys = {name: one.layout.config(Claim("Queue", name)) for name in names}
    async with Etcd(settings) as client:
        for key in keys.values():
            await client.put(key, b"{}")
        try:
            one.start()
            await eventually(lambda: one.is_usable)
            assert await one.compare() == []
            # From here on the watch tells of nothing.
            monkeypatch.setattr(one.mirror, "take", lambda _: None)
            gone, came = ("q-0", "q-5", "q-ä"), ("aaa", "q-4x", "zzz")
            others = {keys.pop(name) for name in gone}
            for key in others:
                await client.delete(key)
            for name in came:
                key = keys[name] = one.layout.config(Claim("Queue", name))
                others.add(key)
                await client.put(key, b"{}")
            assert set(await one.compare()) == others
            assert set(one.mirror.under(one.layout.configs)) == set(keys.values())
            assert await one.compare() == []
        finally:
            await one.close()
