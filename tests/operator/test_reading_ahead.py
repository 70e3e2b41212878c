"""While a large etcd is still being read: what is new is written all the same, and nothing that would need the rest.

A real etcd, whose listing the test holds up when it has come: it is old by the time that it is taken.
"""

import asyncio
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any, cast

import pytest
from sterna_etcd import Claim, Delete, Etcd, EtcdSettings, Layout, Put
from sterna_etcd.records import BrokerRecord, ConfigRecord, HomeRecord, ObjectStatus, Owner
from sterna_operator import conditions
from sterna_operator.apply import Applier
from sterna_operator.keys import Key
from sterna_operator.kinds.placed import PlacedKind
from sterna_operator.kinds.registry import kinds
from sterna_operator.objects import Objects
from sterna_operator.store import ClusterStore, FencedError, StaleError, UnusableError
from sterna_operator.view import Decision, View

from tests.etcds import RunningEtcd
from tests.support.own_names import own_name
from tests.waiting import eventually

CLUSTER = Key("MessagingCluster", "ns", "mq")


class Clusters:
    """The one cluster, and a leader who is sure of the lead."""

    def __init__(self, store: ClusterStore) -> None:
        self.store = store

    def get(self, _: Key) -> ClusterStore:
        return self.store

    def all(self) -> dict[Key, ClusterStore]:
        return {CLUSTER: self.store}

    def fault(self, _: Key) -> tuple[str, str] | None:
        error = self.store.fault or self.store.claim_fault
        return None if error is None else (error.reason, str(error))

    async def claimed(self, store: ClusterStore) -> None:
        async def confirm() -> None:
            pass

        if store.epoch is None:
            await store.claim(confirm)


class Reading:
    """An operator that has begun to read an etcd; `go_on` lets it read to the end."""

    def __init__(self, urls: str) -> None:
        self.layout = Layout(own_name("ahead"))
        self.etcd = Etcd(EtcdSettings.of_urls(urls))
        self.store = ClusterStore(self.layout.cluster, EtcdSettings.of_urls(urls))
        self.has_come, self._may_go_on = asyncio.Event(), asyncio.Event()
        objects = Objects()
        metadata = {"namespace": "ns", "name": "mq", "uid": "c", "resourceVersion": "1", "generation": 1}
        objects.put({"apiVersion": "a", "kind": "MessagingCluster", "metadata": metadata, "spec": {}})
        view = SimpleNamespace(clusters=Clusters(self.store), objects=objects, now_ms=lambda: 0)
        view.settings = SimpleNamespace(namespaces=("elsewhere",))
        self.view = cast("View", view)
        whole = self.store._client.list_all

        async def held(prefix: str, **how: Any) -> Any:
            found = await whole(prefix, **how)
            if prefix == self.layout.prefix:
                self.has_come.set()
                await self._may_go_on.wait()
            return found

        self.store._client.list_all = held  # type: ignore[method-assign]

    async def begin(self) -> None:
        broker = BrokerRecord(addresses=["sterna://nowhere:1"], version="0", incarnation="i", started_ms=1)
        await self.put(self.layout.broker("b-0"), broker.encode())
        self.store.start()
        await self.has_come.wait()

    async def go_on(self) -> None:
        """The listing is taken, and what has changed since."""
        self._may_go_on.set()
        revision = (await self.etcd.get(self.layout.prefix)).revision
        await eventually(lambda: self.store.is_usable)
        await self.put(self.layout.broker_status("none"), b"{}")
        await eventually(lambda: self.store.mirror.revision > revision)

    async def put(self, key: str, value: bytes) -> None:
        await self.etcd.transact([], [Put(key, value)])

    async def record(self, name: str) -> ConfigRecord | None:
        key = self.layout.config(Claim("Queue", name))
        found = (await self.etcd.get(key)).found
        return None if found is None else ConfigRecord.decode(key, found.value)

    async def decide(self, kind: str, name: str, **spec: Any) -> Decision:
        metadata = {"namespace": "ns", "name": name, "uid": f"uid-{name}", "resourceVersion": "2", "generation": 1}
        document = {"apiVersion": "sterna.dev/v1alpha1", "kind": kind, "metadata": metadata}
        made = kinds()[kind]
        assert isinstance(made, PlacedKind)
        return await made.decide(self.view, {**document, "spec": {"clusterRef": {"name": "mq"}, **spec}})

    async def execute(self, decision: Decision) -> None:
        applier = Applier(cast("Any", None), None, decision.store, lambda: None, is_ahead=decision.is_ahead)
        await applier.execute(decision.plan.steps)


@pytest.fixture
async def reading(store: RunningEtcd) -> AsyncIterator[Reading]:
    made = Reading(store.urls)
    yield made
    await made.store.close()
    await made.etcd.close()


def _reason(decision: Decision) -> str:
    assert decision.plan.status is not None
    return next(one.reason for one in decision.plan.status.conditions if one.type == conditions.READY)


async def test_a_new_queue_is_written_and_ready_before_all_is_read(reading: Reading) -> None:
    await reading.begin()
    decision = await reading.decide("Queue", "new")
    assert decision.is_ahead
    assert decision.plan.again_s == 0.25
    await reading.execute(decision)
    assert (await reading.record("new")) is not None
    # A broker answers, which no watch tells yet.
    said = ObjectStatus(uid="uid-new", generation=1, home="b-0", state="applied")
    await reading.put(reading.layout.object_status(Claim("Queue", "new"), "b-0"), said.encode())
    decision = await reading.decide("Queue", "new")
    assert (_reason(decision), decision.plan.steps, decision.plan.again_s) == ("Applied", (), None)
    await reading.go_on()
    decision = await reading.decide("Queue", "new")
    assert (_reason(decision), decision.plan.steps, decision.is_ahead) == ("Applied", (), False)


async def test_the_listing_that_comes_late_brings_nothing_back(reading: Reading) -> None:
    claim = Claim("Queue", "old")
    owner = Owner(by="operator", namespace="ns", name="old", uid="uid-old")
    before = ConfigRecord(manifest={"a": 1}, owner=owner, generation=1)
    key, home = reading.layout.config(claim), reading.layout.home("queue", "old")
    await reading.put(key, before.encode())
    await reading.put(home, HomeRecord(broker="b-0", static=True).encode())
    await reading.begin()
    # What the listing has is removed, and written anew.
    await reading.etcd.transact([], [Delete(key), Delete(home)])
    decision = await reading.decide("Queue", "old")
    assert reading.store.mirror.config(claim) is None
    await reading.execute(decision)
    mine = await reading.record("old")
    await reading.go_on()
    kept = reading.store.mirror.config(claim)
    assert kept is not None
    assert kept.record == mine
    assert reading.store.mirror.home("queue", "old") is None


async def test_what_has_changed_since_it_was_read_ahead_is_not_overwritten(reading: Reading) -> None:
    await reading.begin()
    decision = await reading.decide("Queue", "new")
    theirs = ConfigRecord(manifest={"a": 1}, owner=Owner(by="admin"), generation=1)
    await reading.put(reading.layout.config(Claim("Queue", "new")), theirs.encode())
    with pytest.raises(StaleError):
        await reading.execute(decision)
    assert await reading.record("new") == theirs
    assert _reason(await reading.decide("Queue", "new")) == "NameClaimed"


async def test_who_leads_no_more_writes_nothing_ahead(reading: Reading) -> None:
    await reading.begin()
    decision = await reading.decide("Queue", "new")
    await reading.put(reading.layout.operator_epoch, b"77")
    with pytest.raises(FencedError):
        await reading.execute(decision)
    assert await reading.record("new") is None


async def test_an_etcd_that_is_another_one_is_not_written_to_ahead(reading: Reading) -> None:
    await reading.begin()
    decision = await reading.decide("Queue", "new")
    await reading.etcd.transact([], [Delete(reading.layout.prefix, is_prefix=True)])
    with pytest.raises(UnusableError):
        await reading.execute(decision)
    assert await reading.record("new") is None


async def test_what_somebody_else_has_is_seen_ahead_too(reading: Reading) -> None:
    owner = Owner(by="operator", namespace="elsewhere", name="theirs", uid="x")
    await reading.put(
        reading.layout.config(Claim("Queue", "theirs")), ConfigRecord(manifest={}, owner=owner, generation=1).encode()
    )
    await reading.put(reading.layout.home("queue", "found"), HomeRecord(broker="b-0", static=False).encode())
    reading.view.settings.__dict__["namespaces"] = ("ns",)
    await reading.begin()
    assert _reason(await reading.decide("Queue", "theirs")) == "NameClaimed"
    assert _reason(await reading.decide("Queue", "found")) == "Exists"
    assert _reason(await reading.decide("Queue", "stored", store="ledger")) == "ReferenceMissing"
    await reading.put(
        reading.layout.config(Claim("Store", "ledger")), ConfigRecord(manifest={}, owner=owner, generation=1).encode()
    )
    assert _reason(await reading.decide("Queue", "stored", store="ledger")) == "Applying"


async def test_what_needs_the_rest_waits_for_it(reading: Reading) -> None:
    """Other destinations, of which there may be tens of thousands; and what is known of objects that are gone."""
    key = Key("Queue", "ns", "gone")
    owner = Owner(by="operator", namespace="ns", name="gone", uid="x")
    await reading.put(
        reading.layout.config(Claim("Queue", "gone")), ConfigRecord(manifest={}, owner=owner, generation=1).encode()
    )
    await reading.begin()
    needing = await reading.decide("DurableSubscription", "d", topic="prices", clientId="c")
    assert (_reason(needing), needing.is_ahead) == ("EtcdUnavailable", False)
    await reading.store.read_ahead(Claim("Queue", "gone"))
    for decision in await kinds()["Queue"].decide_gone(reading.view, key):
        with pytest.raises(UnusableError):
            await reading.execute(decision)
    assert await reading.record("gone") is not None
