"""Looks without cause: what no watch has told of is found by them, and put right."""

import pytest
from sterna_etcd import Claim, KeyValue, Layout
from sterna_operator.keys import Key
from sterna_operator.looks import interval_s, weight
from sterna_operator.mirror import Mirror
from sterna_operator.settings import OperatorSettings, SettingsError

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
        world.queue("orders", maxMessages=20)
        await world.ready("Queue", "orders")
        record = await world.configured("Queue", "orders")
        assert record.manifest["spec"]["maxMessages"] == 20
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
        gone = mirror.drop_missing(LAYOUT.configs, {pair.key for pair in found}, 11)
        assert [one.claim for one in gone] == [Claim("Queue", "a")]
        assert [one.claim for one in mirror.catch_up(found, 11)] == [Claim("Queue", "b"), Claim("Queue", "c")]
        assert mirror.catch_up(found, 11) == []

    def test_what_was_written_since_stays(self) -> None:
        mirror = self.mirror()
        assert [one.claim for one in mirror.drop_missing(LAYOUT.configs, (), 8)] == [Claim("Queue", "a")]
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
        assert mirror.drop_missing(LAYOUT.users, (), 11) == []
        assert mirror.has_config(Claim("Queue", "a"))
