"""What bridges tie together and lives on several brokers comes together by itself, and nothing is lost by it."""

from __future__ import annotations

import asyncio
from random import Random
from typing import Any

import pytest
import sterna
from sterna import errors
from sterna_etcd import Claim, HomeKey
from sterna_etcd.records import ConfigRecord, Deleting, ObjectStatus

from tests.support.refusing_etcd import AttentiveEtcd, SilentEtcd
from tests.world.clusters import LAYOUT, OWNER, Cluster, document
from tests.world.stage import Stage, staged
from tests.world.test_clusters import drained
from tests.world.test_groups import instead
from tests.world.test_homes import held
from tests.world.test_torn_groups import until_open

_ENDS = {"source": "b0", "target": "b1"}


async def apart(stage: Stage, ends: dict[str, str], *, brokers: int = 2) -> Cluster:
    """Queues that live on these brokers, which no manifest names any more."""
    cluster = await stage.cluster(*(f"b{number}" for number in range(brokers)))
    await cluster.allow_all()
    for name, broker in ends.items():
        await cluster.placed(name, broker)
    for name in ends:
        await cluster.apply("Queue", name)
    await cluster.until(lambda: {name: _holder(cluster, name) for name in ends} == ends)
    await asyncio.sleep(2)
    return cluster


def _holder(cluster: Cluster, name: str) -> str:
    return next((broker for broker in cluster.brokers if name in held(cluster, broker)), "")


async def bridge(cluster: Cluster, name: str, source: str, *targets: str) -> Claim:
    """A bridge between queues."""
    return await cluster.apply(
        "Bridge", name, source={"queue": source}, targets=[{"queue": target} for target in targets]
    )


async def says(cluster: Cluster, claim: Claim, state: str) -> str | None:
    """What a broker says of an object that is in this state, if one does."""
    for pair in (await cluster.client.list_all(LAYOUT.object_statuses_of(claim))).values:
        status = ObjectStatus.decode(pair.key, pair.value)
        if status.state == state:
            return status.message or state
    return None


async def homes(cluster: Cluster, *names: str) -> list[str]:
    """Where queues live."""
    return [await cluster.home("queue", name) for name in names]


@staged
async def test_the_target_comes_to_its_source_and_the_bridge_holds(stage: Stage) -> None:
    cluster = await apart(stage, _ENDS)
    connection = await stage.connect(cluster.brokers["b1"])
    producer = await connection.producer("target")  # which keeps nothing there
    claim = await bridge(cluster, "over", "source", "target")
    await cluster.until(lambda: says(cluster, claim, "applied"), timeout_s=10)
    assert await homes(cluster, "source", "target") == ["b0", "b0"]
    await connection.send("source", "copied")
    await producer.send("by itself")
    assert await drained(connection, "target") == ["copied", "by itself"]
    await connection.close()


@staged
async def test_what_holds_a_message_or_is_consumed_stays_open_and_says_so_until_that_is_over(stage: Stage) -> None:
    cluster = await apart(stage, _ENDS)
    connection = await stage.connect(cluster.brokers["b1"])
    await connection.send("target", "before")
    claim = await bridge(cluster, "over", "source", "target")
    told = await cluster.until(lambda: says(cluster, claim, "refused"))
    assert "queue 'target' on b1; what of that holds no message" in told
    await cluster.until(lambda: _warned(cluster, "b1", "queue 'target' is to live on b0", "holds 1 message here"))
    await asyncio.sleep(20)
    await connection.send("target", "meanwhile", timeout=2)
    consumer = await connection.consumer("target")
    for body in ("before", "meanwhile"):
        message = await consumer.receive(5)
        assert message is not None
        assert message.body == body
        await message.acknowledge()
    await cluster.until(lambda: _warned(cluster, "b1", "queue 'target'", "is being consumed here"))
    await asyncio.sleep(20)
    assert await homes(cluster, "source", "target") == ["b0", "b1"]
    await consumer.close()
    await cluster.until(lambda: says(cluster, claim, "applied"), timeout_s=10)
    assert not await _warned(cluster, "b1", "target")
    await connection.close()


async def _warned(cluster: Cluster, broker: str, *texts: str) -> bool:
    status = await cluster.status(broker)
    return status is not None and any(all(text in warning for text in texts) for warning in status.warnings)


@staged
async def test_ends_whose_manifests_name_two_brokers_stay_and_one_that_names_its_home_is_come_to(stage: Stage) -> None:
    cluster = await apart(stage, _ENDS)
    for name, broker in _ENDS.items():
        await cluster.apply("Queue", name, broker=broker)
    claim = await bridge(cluster, "over", "source", "target")
    await cluster.until(lambda: says(cluster, claim, "refused"))
    await asyncio.sleep(20)
    assert await homes(cluster, "source", "target") == ["b0", "b1"]
    await cluster.apply("Queue", "source")
    await cluster.until(lambda: says(cluster, claim, "applied"), timeout_s=10)
    assert await homes(cluster, "source", "target") == ["b1", "b1"]


@staged
async def test_topics_of_a_durable_subscription_come_together(stage: Stage) -> None:
    cluster = await stage.cluster("b0", "b1")
    await cluster.allow_all()
    for name, broker in (("news.a", "b0"), ("news.b", "b1")):
        await cluster.apply("Topic", name, broker=broker)
        await cluster.until_home("topic", name, broker)
        await cluster.apply("Topic", name)
    await asyncio.sleep(2)
    claim = await cluster.apply("DurableSubscription", "all", "reader/all", topic="news.*", clientId="reader")
    await cluster.until(lambda: says(cluster, claim, "applied"), timeout_s=10)
    assert [await cluster.home("topic", name) for name in ("news.a", "news.b")] == ["b0", "b0"]


@pytest.mark.parametrize("seed", range(12))
def test_bridges_that_share_ends_converge_wherever_these_are_and_nothing_goes_to_and_fro(seed: int) -> None:
    @staged
    async def shown(stage: Stage) -> None:
        random = Random(f"bridges {seed}")
        names = [f"q{number}" for number in range(7)]
        cluster = await apart(stage, {name: f"b{random.randrange(3)}" for name in names}, brokers=3)
        claims = []
        for number in range(6):
            source, *targets = random.sample(names, random.randint(2, 3))
            claims.append(await bridge(cluster, f"bridge-{random.randrange(99)}-{number}", source, *targets))
            await asyncio.sleep(random.random() * 0.05)
        for claim in claims:
            await cluster.until(lambda: says(cluster, claim, "applied"))  # noqa: B023 - awaited here
        before = await homes(cluster, *names)
        revisions = [(await cluster.client.get(LAYOUT.home("queue", name))).found for name in names]
        await asyncio.sleep(30)
        assert await homes(cluster, *names) == before
        assert [(await cluster.client.get(LAYOUT.home("queue", name))).found for name in names] == revisions
        await until_open(cluster, *cluster.brokers)

    shown()


class _Senders:
    """Send to queues one message after the other; each that was confirmed is to be had, and each copy once."""

    def __init__(self, stage: Stage, cluster: Cluster, names: list[str]) -> None:
        self.confirmed: dict[str, list[str]] = {name: [] for name in names}
        self._stage = stage
        self._cluster = cluster
        self._is_over = False
        self._tasks: list[asyncio.Task[None]] = []

    async def start(self) -> None:
        for number, name in enumerate(self.confirmed):
            at = list(self._cluster.brokers.values())[number % len(self._cluster.brokers)]
            connection = await self._stage.connect(at)
            self._tasks.append(asyncio.create_task(self._send(connection, name)))

    async def _send(self, connection: sterna.Connection, name: str) -> None:
        number = 0
        while not self._is_over:
            number += 1
            try:
                await connection.send(name, f"{name} {number}", timeout=30)
            except errors.SternaError:
                continue
            self.confirmed[name].append(f"{name} {number}")
            await asyncio.sleep(self._stage.random.random() * 0.3)
        await connection.close()

    async def end(self) -> None:
        self._is_over = True
        await asyncio.gather(*self._tasks)


async def _emptied(connection: sterna.Connection, name: str) -> list[Any]:
    found = []
    async with asyncio.timeout(60):
        consumer = await connection.consumer(name)
        while (message := await consumer.receive(3)) is not None:
            found.append(message.body)
            await message.acknowledge()
        await consumer.close()
    return found


async def _consuming(connection: sterna.Connection, name: str, found: list[Any], is_over: asyncio.Event) -> None:
    """Now and then empties a queue, so that it can go."""
    while not is_over.is_set():
        try:
            found += await _emptied(connection, name)
        except errors.SternaError:
            continue
        await asyncio.sleep(1)


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("kills", [False, True])
def test_what_is_confirmed_meanwhile_is_there_whoever_is_killed(kills: bool, seed: int) -> None:
    """Messages are sent to a source and to two targets, of which one is a source itself, while all come together."""

    @staged
    async def shown(stage: Stage) -> None:
        random = Random(f"killed {seed}")
        ends = {"source": "b0", "target": "b1", "before": "b1", "other": "b2"}
        cluster = await apart(stage, ends, brokers=3)
        connection = await stage.connect(cluster.brokers["b0"])
        senders = _Senders(stage, cluster, ["target", "before", "other"])
        await senders.start()
        claims = [
            await bridge(cluster, "x-into", "before", "target"),
            await bridge(cluster, "over", "source", "target", "other"),
        ]
        await asyncio.sleep(random.random() * 3)
        found: dict[str, list[Any]] = {name: [] for name in ends}
        is_over = asyncio.Event()
        consuming = [asyncio.create_task(_consuming(connection, name, found[name], is_over)) for name in ends]
        for _ in range(4 if kills else 0):
            await asyncio.sleep(random.random() * 2)
            broker = cluster.brokers[random.choice(["b0", "b1", "b2"])]
            broker.kill(power=random.random() < 0.5)
            await asyncio.sleep(random.random())
            await broker.start()
        await asyncio.sleep(5)
        await senders.end()
        is_over.set()
        await asyncio.gather(*consuming)
        for claim in claims:
            await cluster.until(lambda: says(cluster, claim, "applied"), timeout_s=120)  # noqa: B023 - awaited here
        await until_open(cluster, *cluster.brokers)
        for name in ends:
            found[name] += await _emptied(connection, name)
        for name, confirmed in senders.confirmed.items():
            assert set(confirmed) <= set(found[name]), name
        assert len(set(await homes(cluster, *ends))) == 1
        await connection.send("source", "copied at last")
        assert await _emptied(connection, "other") == ["copied at last"]
        await connection.close()

    shown()


@staged
async def test_what_is_sent_to_one_while_another_leaves_stays_with_it_and_both_are_open(stage: Stage) -> None:
    """Of two targets one is in doubt, as etcd does not say whether it has taken it: that closes no other one."""
    cluster = await apart(stage, {"source": "b0", "one": "b1", "two": "b1"})
    etcd = instead(cluster, HomeKey("queue", "one"), refuses=False)
    connection = await stage.connect(cluster.brokers["b1"])
    claim = await bridge(cluster, "over", "source", "one", "two")
    await cluster.until(lambda: cluster.member("b1").homes.has_doubts)
    await connection.send("two", "meanwhile", timeout=5)
    sending = asyncio.create_task(connection.send("one", "once", timeout=60))
    await asyncio.sleep(5)
    await connection.send("two", "later", timeout=5)
    assert not sending.done()
    assert await homes(cluster, "one", "two") == ["b1", "b1"]
    etcd.has_room = True
    await sending
    await cluster.until_home("queue", "one", "b0")
    assert await drained(connection, "two") == ["meanwhile", "later"]
    await cluster.until(lambda: says(cluster, claim, "applied"))
    assert await drained(connection, "one") == ["once"]
    await until_open(cluster, "b0", "b1")
    await connection.close()


@staged
async def test_an_etcd_that_has_no_room_leaves_all_as_it_was_and_is_asked_more_and_more_rarely(stage: Stage) -> None:
    cluster = await apart(stage, _ENDS)
    etcd = instead(cluster, HomeKey("queue", "target"), refuses=True)
    connection = await stage.connect(cluster.brokers["b1"])
    claim = await bridge(cluster, "over", "source", "target")
    await asyncio.sleep(300)
    assert 5 <= etcd.asked <= 12
    await connection.send("target", "here", timeout=5)
    assert await drained(connection, "target") == ["here"]
    etcd.has_room = True
    await cluster.until(lambda: says(cluster, claim, "applied"), timeout_s=70)
    await connection.close()


async def _chained(stage: Stage) -> Cluster:
    """A bridge that holds on b1, from before to target; target is to go to b0, where another one begins."""
    cluster = await apart(stage, {"source": "b0", "before": "b1", "target": "b1"})
    claim = await bridge(cluster, "x-into", "before", "target")
    await cluster.until(lambda: says(cluster, claim, "applied"))
    return cluster


@pytest.mark.parametrize("is_over", [False, True])
def test_a_bridge_misses_no_copy_while_it_moves_along(is_over: bool) -> None:
    """`is_over`: the broker is killed between the two."""

    @staged
    async def shown(stage: Stage) -> None:
        cluster = await _chained(stage)
        member = cluster.member("b1")
        path = member.homes.view.layout.home("queue", "target")
        if is_over:
            member.homes._etcd = SilentEtcd(member.homes._etcd, path)  # type: ignore[assignment]
        connections = [await stage.connect(cluster.brokers["b0"]) for _ in range(10)]
        claim = await bridge(cluster, "over", "source", "target")
        if is_over:
            await cluster.until_home("queue", "target", "b0")
            cluster.brokers["b1"].kill(power=True)
        sending = []
        for number, one in enumerate(connections):
            sending.append(asyncio.create_task(one.send("before", f"{number}", timeout=60)))
            await asyncio.sleep(0.003)
        if is_over:
            await asyncio.sleep(1)
            assert not any(one.done() for one in sending)
            await cluster.brokers["b1"].start()
        await asyncio.gather(*sending)
        sent = [f"{number}" for number in range(10)]
        # What was there before the bridge had left keeps it there until it is consumed.
        found: dict[str, list[Any]] = {"before": [], "target": []}
        for _ in range(3):
            for name, bodies in found.items():
                bodies += await drained(connections[0], name)
        assert {name: sorted(bodies) for name, bodies in found.items()} == {"before": sent, "target": sent}
        await cluster.until(lambda: says(cluster, claim, "applied"))
        assert await homes(cluster, "source", "before", "target") == ["b0"] * 3
        await until_open(cluster, "b0", "b1")
        for one in connections:
            await one.close()

    shown()


@pytest.mark.parametrize("name", ["target", "before"])
def test_an_order_that_comes_in_between_takes_over(name: str) -> None:
    """While etcd is asked for the home of one of those that go together, their broker is to be emptied."""

    @staged
    async def shown(stage: Stage) -> None:
        cluster = await _chained(stage)
        homes_of = cluster.member("b1").homes
        path = homes_of.view.layout.home("queue", name)

        async def order() -> None:
            await cluster.drain("b1")
            await asyncio.sleep(2)

        homes_of._etcd = AttentiveEtcd(homes_of._etcd, path, order)  # type: ignore[assignment]
        claim = await bridge(cluster, "over", "source", "target")
        await cluster.until(lambda: says(cluster, claim, "applied"))
        for end in ("before", "target"):
            await cluster.until_home("queue", end, "b0")
        await cluster.undrain("b1")
        await until_open(cluster, "b0", "b1")
        connection = await stage.connect(cluster.brokers["b1"])
        await connection.send("before", "once")
        assert await drained(connection, "target") == ["once"]
        await connection.close()

    shown()


@staged
async def test_nothing_moves_to_a_broker_that_is_being_emptied_and_what_it_gives_away_is_followed(
    stage: Stage,
) -> None:
    cluster = await apart(stage, {"source": "b0", "target": "b1"}, brokers=3)
    connection = await stage.connect(cluster.brokers["b0"])
    await connection.send("source", "kept")
    await cluster.drain("b0")
    await asyncio.sleep(1)
    claim = await bridge(cluster, "over", "source", "target")
    await asyncio.sleep(10)
    assert await homes(cluster, "source", "target") == ["b0", "b1"]
    assert await drained(connection, "source") == ["kept"]
    await cluster.until(lambda: says(cluster, claim, "applied"))
    assert len(set(await homes(cluster, "source", "target"))) == 1
    await connection.close()


@staged
async def test_a_broker_stops_at_once_in_the_middle(stage: Stage) -> None:
    cluster = await _chained(stage)
    instead(cluster, HomeKey("queue", "target"), refuses=False)
    claim = await bridge(cluster, "over", "source", "target")
    await cluster.until(lambda: cluster.member("b1").homes.has_doubts)
    began_s = stage.loop.time()
    await cluster.brokers["b1"].stop()
    assert stage.loop.time() - began_s < 5
    assert cluster.brokers["b1"].left() == []
    await cluster.brokers["b1"].start()
    await cluster.until(lambda: says(cluster, claim, "applied"))
    await until_open(cluster, "b0", "b1")


@staged
async def test_what_is_left_behind_closes_no_other_end_that_holds_messages(stage: Stage) -> None:
    cluster = await apart(stage, {"source": "b0", "before": "b1", "target": "b1", "other": "b1"})
    connection = await stage.connect(cluster.brokers["b1"])
    await connection.send("other", "kept")
    into = await bridge(cluster, "x-into", "before", "target")
    await cluster.until(lambda: says(cluster, into, "applied"))
    etcd = instead(cluster, HomeKey("queue", "before"), refuses=False)
    claim = await bridge(cluster, "over", "source", "target", "other")
    await cluster.until_home("queue", "target", "b0")
    await cluster.until(lambda: cluster.member("b1").homes.has_doubts)
    sending = asyncio.create_task(connection.send("before", "once", timeout=60))
    for _ in range(5):
        await connection.send("other", "open", timeout=2)
        await asyncio.sleep(1)
    assert not sending.done()
    etcd.has_room = True
    await sending
    await connection.send("other", "open", timeout=2)
    assert await homes(cluster, "before", "target", "other") == ["b0", "b0", "b1"]
    await until_open(cluster, "b1")
    assert await drained(connection, "other") == ["kept"] + ["open"] * 6
    await cluster.until(lambda: says(cluster, claim, "applied"))
    assert await drained(connection, "target") == ["once"]
    await connection.close()


@staged
async def test_what_is_being_deleted_stays_where_that_is_carried_out(stage: Stage) -> None:
    """Its new home would delete it once more, with what has come since."""
    cluster = await apart(stage, _ENDS)
    key, connection = LAYOUT.config(Claim("Queue", "target")), await stage.connect(cluster.brokers["b0"])
    claim = await bridge(cluster, "over", "source", "target")
    deleting = Deleting(policy="delete", uid="request-1")
    manifest = document("Queue", "target")
    record = ConfigRecord(manifest=manifest, generation=99, owner=OWNER, deleting=deleting)
    await cluster.client.put(key, record.encode())
    await cluster.until(lambda: says(cluster, Claim("Queue", "target"), "deleted"))
    await asyncio.sleep(10)
    assert await homes(cluster, "source", "target") == ["b0", "b1"]
    await connection.send("target", "since")
    await asyncio.sleep(10)
    await cluster.client.delete(key)
    assert await drained(connection, "target") == ["since"]
    await cluster.until(lambda: says(cluster, claim, "applied"))
    await connection.close()
