"""Clusters: brokers in processes of their own around a real etcd, and connections that end with their test."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import grpc.aio  # noqa: F401 - loaded before any loop runs, since the tests bound how long a callback may take
import pytest
import sterna
import sterna._proto.sterna.v1.admin_pb2_grpc
import sterna._proto.sterna.v1.naming_pb2_grpc
from sterna_etcd import Claim, Etcd, EtcdSettings, Layout
from sterna_etcd.records import ConfigRecord, ObjectStatus, Owner

from tests.etcds import RunningEtcd
from tests.running import RunningBroker
from tests.waiting import eventually, eventually_blocking

NAME = "c1"
LAYOUT = Layout(NAME)


class Cluster:
    """An etcd and brokers around it, and what tests ask of them."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        self.folder = folder
        self.etcd = RunningEtcd(folder / "etcd")
        self.brokers: dict[str, RunningBroker] = {}
        self._stack = stack
        stack.callback(self.etcd.stop)

    def add(self, name: str, *, wait: bool = True, **flags: Any) -> RunningBroker:
        """A broker of the cluster, started; `wait`: until it serves, and is registered where etcd is up."""
        cluster = {"etcd": self.etcd.urls, "cluster": NAME}
        broker = RunningBroker(self.folder / name, None, name=name, cluster=cluster, **flags)
        self._stack.callback(broker.stop)
        self.brokers[name] = broker
        if not wait:
            broker.launch()
            return broker
        broker.start()
        if not self.etcd.first.has_ended:
            eventually_blocking(lambda: self._is_registered(name), timeout_s=30, what=f"{name} to be registered")
        return broker

    def _is_registered(self, name: str) -> bool:
        """Asked in JSON, since this is called where no event loop runs."""
        asked = {"key": base64.b64encode(LAYOUT.broker(name).encode()).decode()}
        request = Request(f"{self.etcd.first.url}/v3/kv/range", json.dumps(asked).encode())
        with urlopen(request, timeout=10) as answer:
            return bool(json.load(answer).get("kvs"))

    def url(self, *names: str) -> str:
        """Where clients connect to: these brokers, or the first."""
        chosen = names or tuple(self.brokers)[:1]
        return "sterna://" + "+".join(self.brokers[name].address for name in chosen)

    def client(self) -> Etcd:
        """A client of its etcd."""
        return Etcd(EtcdSettings.of_urls(self.etcd.urls))

    def readiness(self, name: str) -> dict[str, Any]:
        """What /readyz of a broker says."""
        with urlopen(f"{self.brokers[name].monitor}/readyz", timeout=5) as answer:
            found: dict[str, Any] = json.load(answer)
            return found

    def metrics(self, name: str) -> str:
        """What /metrics of a broker says."""
        with urlopen(f"{self.brokers[name].monitor}/metrics", timeout=5) as answer:
            text: str = answer.read().decode()
            return text


@pytest.fixture
def cluster(tier_etcd: None, tmp_path: Path) -> Iterator[Callable[..., Cluster]]:
    """Makes clusters of so many brokers (b0, b1, …), all of them started."""
    with ExitStack() as stack:

        def make(brokers: int = 2, **flags: Any) -> Cluster:
            made = Cluster(tmp_path, stack)
            made.etcd.start()
            for number in range(brokers):
                made.add(f"b{number}", **flags)
            return made

        yield make


@pytest.fixture
def two(cluster: Callable[..., Cluster]) -> Cluster:
    """Two brokers and an etcd of one member."""
    return cluster(2)


Connect = Callable[..., Awaitable[sterna.Connection]]


@pytest.fixture
async def connect() -> AsyncIterator[Connect]:
    """Opens connections; they are closed with the test."""
    opened: list[sterna.Connection] = []

    async def open_connection(url: str, **options: Any) -> sterna.Connection:
        opened.append(await sterna.connect(url, **options))
        return opened[-1]

    yield open_connection
    for connection in opened:
        await connection.close(failed=True, timeout_s=5)


def document(kind: str, name: str, /, **spec: Any) -> dict[str, Any]:
    """A manifest as a document."""
    return {"apiVersion": "sterna.dev/v1alpha1", "kind": kind, "metadata": {"name": name}, "spec": spec}


OPERATOR = Owner(by="operator", namespace="shop", name="orders", uid="uid-1")


class Operator:
    """Writes configuration as the operator does."""

    def __init__(self, etcd: Etcd) -> None:
        self.etcd = etcd

    async def put(self, manifest: dict[str, Any], claim: str = "", generation: int = 1, **record: Any) -> Claim:
        """Writes one object, claiming its own name unless told otherwise."""
        spec, metadata = manifest["spec"], manifest["metadata"]
        found = Claim(manifest["kind"], claim or spec.get("name") or metadata["name"])
        value = ConfigRecord(manifest=manifest, generation=generation, **{"owner": OPERATOR, **record})
        await self.etcd.put(LAYOUT.config(found), value.encode())
        return found

    async def status(self, claim: Claim) -> dict[str, ObjectStatus]:
        """What brokers say of an object, by broker."""
        listed = await self.etcd.list_all(LAYOUT.object_statuses_of(claim))
        return {
            LAYOUT.object_status_of(pair.key).broker: ObjectStatus.decode(pair.key, pair.value)
            for pair in listed.values
        }

    async def until(self, claim: Claim, state: str, generation: int = 1, timeout_s: float = 30.0) -> ObjectStatus:
        """Waits until a broker says that an object is in `state`."""

        async def look() -> list[ObjectStatus]:
            statuses = (await self.status(claim)).values()
            return [one for one in statuses if one.state == state and one.generation == generation]

        found: list[ObjectStatus] = await waited(look, timeout_s, f"{claim} {state}")
        return found[0]

    async def everywhere(self, claim: Claim) -> None:
        """Waits until every broker that is registered has applied an object, as all do with wildcard entries."""

        async def look() -> bool:
            listed = (await self.etcd.list_all(LAYOUT.brokers)).values
            applied = {name for name, one in (await self.status(claim)).items() if one.state == "applied"}
            return bool(listed) and applied >= {LAYOUT.broker_of(pair.key) for pair in listed}

        await waited(look, 30, f"{claim} applied by every broker")

    async def home(self, kind: str, name: str) -> str:
        """The broker that a destination lives on."""
        got = await self.etcd.get(LAYOUT.home(kind, name))
        return json.loads(got.found.value)["broker"] if got.found else ""


async def waited(look: Callable[[], Awaitable[Any]], timeout_s: float, what: str) -> Any:
    """`eventually`, for a coroutine function."""
    return await eventually(lambda: asyncio.ensure_future(look()), timeout_s=timeout_s, what=what)


@pytest.fixture
async def operator(two: Cluster) -> AsyncIterator[Operator]:
    """The operator of the cluster of two."""
    async with two.client() as etcd:
        yield Operator(etcd)
