"""`python -m bench.operator`: how fast the operator is, and how much memory it takes, on a real API server and etcd.

1. N queues created, updated and deleted (with a policy that needs the finalizer): how long until all are ready, ready
   in the new generation, gone.
2. K Secrets that nobody refers to: what they cost the operator that runs.
3. M objects that are ready, and a cold start: how long until the operator has looked at all of them, its memory then,
   and how long a queue takes that is created meanwhile. They are made ready by this program, not by the operator: in
   the API server's etcd and the cluster's stands what would stand there. The servers are the real ones for 75,000, too.
4. The same M objects, looked at without cause: the processor time of one such look, and the memory then.
5. Beside these M, for so many minutes, queues that come, change and go, each under a name that was never there before:
   the memory at the begin and at the end. What the operator would keep of what is gone shows there.

Of the first part the operator's process counts its writes to the API server as well: what one queue costs is asserted
by `tests/operator/test_write_counts.py`. Brokers are played by the tests' double, so that what is measured is the
operator; one operator process, one API server and one etcd share the machine with it.
"""

import argparse
import asyncio
import json
import os
import statistics
import sys
import tempfile
import time  # noqa: TID251 - measures real time
import uuid
from collections.abc import Awaitable, Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any

from sterna_etcd import Claim, Etcd, EtcdSettings, Put
from sterna_etcd.records import ConfigRecord, HomeRecord, ObjectStatus, Owner
from sterna_operator import conditions as operator_conditions
from sterna_operator.kube import STERNA_API, Kube, Ref, load_configuration
from sterna_resources.reading import from_object
from sterna_resources.topology import TopologyResource

from bench.machine import conditions
from tests.etcds import RunningEtcd
from tests.operator.broker_double import BrokerDouble
from tests.operator.operators import RunningOperator
from tests.operator.worlds import World
from tests.support.api_server import ApiServer, programs
from tests.support.kinds import install_kinds

RESULTS = Path(__file__).parent / "results" / "operator.json"
_WHERE = "one operator process, an API server, an etcd and a double of a broker on one machine"
_AT_ONCE = 16
# Looks follow each other as soon as this: the first is awaited, the second measured.
_LOOK_EVERY_S = 20.0
_PAUSE_S = 0.25
# etcd takes 128 operations in one transaction, and an object has three keys.
_FILLED_AT_ONCE = 40
# So many queues come, change and go together, for the growth.
_WAVE = 200


def main() -> int:
    """Measures, and prints a JSON object for each part."""
    parser = argparse.ArgumentParser(prog="python -m bench.operator", description=__doc__)
    parser.add_argument("--queues", type=int, default=1_000, help="N: created, updated, deleted")
    parser.add_argument("--cold", type=int, default=10_000, help="M: there at a cold start; 0 leaves that out")
    parser.add_argument("--secrets", type=int, default=10_000, help="K: Secrets of others; 0 leaves that out")
    parser.add_argument("--growth", type=int, default=0, metavar="MINUTES", help="how long queues come and go")
    parser.add_argument("--write", action="store_true", help=f"keep the figures in {RESULTS.name}")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="sterna-bench-") as name:
        folder = Path(name)
        for part in ("api", "etcd", "operator"):
            (folder / part).mkdir()
        with ApiServer(folder / "api", programs()) as server, RunningEtcd(folder / "etcd") as store:
            install_kinds(server)
            asyncio.run(_measure(server, store.urls, folder / "operator", options))
    return 0


async def _measure(server: ApiServer, urls: str, folder: Path, options: argparse.Namespace) -> None:
    world = World(server, urls)
    kube = Kube(await load_configuration(server.kubeconfig))
    # A program of its own: its memory is measured, and a fork shares that.
    flags = {"namespaces": [world.namespace], "lease_namespace": world.namespace, "lease_duration_s": 15.0}
    operator = RunningOperator(folder, server.kubeconfig, is_forked=False, **flags)
    try:
        world.make_cluster()
        async with BrokerDouble(urls, world.etcd_name) as broker:
            await asyncio.to_thread(operator.start)
            found: dict[str, Any] = {"conditions": {**conditions(folder), "where": _WHERE}}
            parts: dict[str, tuple[Callable[..., Awaitable[dict[str, Any]]], int]] = {
                "changes": (_changes, options.queues),
                "secrets": (_secrets, options.secrets),
                "cold": (partial(_cold, broker), options.cold),
                "looks": (_looks, options.cold),
                "growth": (_growth, options.growth),
            }
            for name, (part, count) in parts.items():
                if count:
                    load = os.getloadavg()[0]
                    figures = await part(world, kube, operator, count)
                    found[name] = {**figures, "load_before": round(load, 1), "load_after": round(os.getloadavg()[0], 1)}
                    print(json.dumps(found[name], indent=2), flush=True)
            if options.write:
                await asyncio.to_thread(RESULTS.write_text, json.dumps(found, indent=2) + "\n")
    finally:
        operator.stop()
        await kube.close()
        await world.close()


async def _growth(world: World, kube: Kube, operator: RunningOperator, minutes: int) -> dict[str, Any]:
    """In MiB, after each wave; the first tenth of these is the warming up of the allocator, and counts for nothing."""
    there = len(await kube.list(STERNA_API, "Queue", world.namespace, only_metadata=True))
    began, memory = time.monotonic(), list[int]()
    while time.monotonic() - began < minutes * 60:
        names = [f"g-{len(memory)}-{number}" for number in range(_WAVE)]
        for most in (1, 2):
            await _each(names, lambda name, most=most: kube.apply(_queue(world, name, maxMessages=most)))  # type: ignore[misc]
        await _each(names, lambda name: _until(lambda: _is_ready(world, kube, name)))
        await _each(names, partial(_remove, world, kube))
        await _until(lambda: _count_is(world, kube, there))
        memory.append(_memory_mib(operator))
    counted = memory[len(memory) // 10 :]
    quarter = max(1, len(counted) // 4)
    return {
        "growth_minutes": round((time.monotonic() - began) / 60, 1),
        "growth_objects": there,
        "growth_came_and_went": len(memory) * _WAVE,
        "growth_memory_first_quarter_mib": round(statistics.median(counted[:quarter]), 1),
        "growth_memory_last_quarter_mib": round(statistics.median(counted[-quarter:]), 1),
        "growth_memory_mib": [min(counted), max(counted)],
        "growth_memory_peak_mib": _memory_mib(operator, "VmHWM"),
    }


async def _remove(world: World, kube: Kube, name: str) -> None:
    """As people do: whatever it is by then."""
    ref = Ref(STERNA_API, "Queue", world.namespace, name)
    found = await kube.get(ref)
    if found is not None:
        await kube.delete(ref, found["metadata"]["uid"], None)


async def _changes(world: World, kube: Kube, operator: RunningOperator, count: int) -> dict[str, Any]:
    names = [f"q-{number}" for number in range(count)]
    figures: dict[str, Any] = {"queues": count, "memory_idle_mib": _memory_mib(operator)}
    written = _writes(operator)
    for what, most in (("create_s", 1), ("update_s", 2)):
        began = time.monotonic()
        await _each(names, lambda name, most=most: kube.apply(_queue(world, name, maxMessages=most)))  # type: ignore[misc]
        figures[f"{what.removesuffix('_s')}_requests_s"] = round(time.monotonic() - began, 1)
        await _until(lambda most=most: _all_ready(world, kube, count, most))  # type: ignore[misc]
        figures[what] = round(time.monotonic() - began, 1)
        figures[f"{what.removesuffix('_s')}_cpu_s"] = _cpu_s(operator)
        figures[f"{what.removesuffix('_s')}_writes_each"] = round((_writes(operator) - written) / count, 2)
        written = _writes(operator)
    figures["memory_mib"] = _memory_mib(operator)
    began = time.monotonic()
    await _each(names, partial(_remove, world, kube))
    await _until(lambda: _count_is(world, kube, 0))
    figures["delete_cpu_s"] = _cpu_s(operator)
    figures["delete_s"] = round(time.monotonic() - began, 1)
    figures["delete_writes_each"] = round((_writes(operator) - written) / count, 2)
    return figures


async def _secrets(world: World, kube: Kube, operator: RunningOperator, count: int) -> dict[str, Any]:
    before_mib, before_s = _memory_mib(operator), _cpu_s(operator)

    async def make(name: str) -> None:
        metadata = {"name": name, "namespace": world.namespace}
        data = {"password": "c2VjcmV0" * 64}
        await kube.create({"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "data": data})

    await _each([f"s-{number}" for number in range(count)], make)
    return {
        "foreign_secrets": count,
        "secrets_memory_before_mib": before_mib,
        "secrets_memory_after_mib": _memory_mib(operator),
        "secrets_cpu_s": round(_cpu_s(operator) - before_s, 1),
    }


async def _cold(
    broker: BrokerDouble, world: World, kube: Kube, operator: RunningOperator, count: int
) -> dict[str, Any]:
    await asyncio.to_thread(operator.terminate)
    # What the double would say of them is written with them.
    broker.is_late = True
    filling = time.monotonic()
    await _fill(world, kube, broker.name, count)
    filled_s = time.monotonic() - filling
    broker.is_late = False
    began = time.monotonic()
    await asyncio.to_thread(operator.start)
    started_s = time.monotonic() - began
    new = time.monotonic()
    await kube.apply(_queue(world, "new", policy="retain"))
    await _until(lambda: _is_ready(world, kube, "new"))
    new_s, new_cpu_s = time.monotonic() - new, _cpu_s(operator)
    await _until(lambda: _has_looked_at(world, operator, count))
    through_s = time.monotonic() - began
    return {
        "cold_objects": count,
        "cold_filled_s": round(filled_s, 1),
        "cold_watching_s": round(started_s, 1),
        "cold_new_ready_s": round(new_s, 2),
        "cold_new_ready_cpu_s": new_cpu_s,
        "cold_through_s": round(through_s, 1),
        "cold_cpu_s": _cpu_s(operator),
        "cold_memory_mib": _memory_mib(operator),
        "cold_memory_peak_mib": _memory_mib(operator, "VmHWM"),
    }


async def _fill(world: World, kube: Kube, broker: str, count: int) -> None:
    """Objects that are ready, with what stands in the cluster's etcd of each.

    One goes through the API server, with its status, and stands in the server's etcd afterwards. The others are written
    there, as copies of it with names and uids of their own: the API server, which watches its etcd, has them like any
    other. Through its requests 75,000 take half an hour of a busy machine.
    """
    ref = Ref(STERNA_API, "Queue", world.namespace, "c-0")
    assert await kube.create(_queue(world, ref.name, policy="retain")) is not None
    ready = operator_conditions.ready("Applied", f"lives on broker {broker}")
    written = operator_conditions.written(ready, (), 1, int(time.time() * 1000))
    status = {"observedGeneration": 1, "conditions": written, "claim": ref.name, "home": broker}
    await kube.merge_patch(ref, {"status": status}, "status")
    prefix = f"/registry/sterna.dev/queues/{world.namespace}/"
    server = Etcd(EtcdSettings.of_urls(world.server.etcd_url))
    found = (await server.get(f"{prefix}{ref.name}")).found
    assert found is not None
    for first in range(0, count, _FILLED_AT_ONCE):
        objects = [_copy(found.value, number) for number in range(first, min(first + _FILLED_AT_ONCE, count))]
        puts = [Put(f"{prefix}{one['metadata']['name']}", json.dumps(one).encode()) for one in objects]
        await server.transact([], puts)
        await world.client.transact([], [put for one in objects for put in _keys(world, broker, one)])
    await server.close()
    await _until(lambda: _count_is(world, kube, count))


async def _looks(world: World, kube: Kube, operator: RunningOperator, count: int) -> dict[str, Any]:
    """What is there already, looked at again: after `_cold`."""
    await asyncio.to_thread(operator.terminate)
    operator.flags |= {"resync_s": _LOOK_EVERY_S, "resync_rate": count, "clusters_s": 3600.0}
    await asyncio.to_thread(operator.start)
    # A look may begin while the cold start goes on, and is one with it then.
    await _until(lambda: _has_looked_at(world, operator, 2 * count))
    cpu_s = _cpu_s(operator)
    await _until(lambda: _has_looked_at(world, operator, 3 * count))
    return {
        "look_objects": count,
        "look_cpu_s": round(_cpu_s(operator) - cpu_s, 1),
        "look_memory_peak_mib": _memory_mib(operator, "VmHWM"),
    }


def _copy(value: bytes, number: int) -> dict[str, Any]:
    copy: dict[str, Any] = json.loads(value)
    copy["metadata"]["name"] = copy["status"]["claim"] = f"c-{number}"
    if number:
        copy["metadata"]["uid"] = str(uuid.uuid4())
    return copy


def _keys(world: World, broker: str, object: dict[str, Any]) -> list[Put]:
    metadata, layout = object["metadata"], world.layout
    claim, uid = Claim("Queue", metadata["name"]), metadata["uid"]
    owner = Owner(by="operator", namespace=metadata["namespace"], name=metadata["name"], uid=uid)
    resource = from_object(object)
    assert isinstance(resource, TopologyResource)
    record = ConfigRecord(manifest=resource.broker_document(), owner=owner, generation=1)
    said = ObjectStatus(uid=uid, generation=1, home=broker, state="applied")
    return [
        Put(layout.config(claim), record.encode()),
        Put(layout.object_status(claim, broker), said.encode()),
        Put(layout.home("queue", claim.name), HomeRecord(broker=broker, static=True).encode()),
    ]


def _queue(world: World, name: str, policy: str = "delete", **spec: Any) -> dict[str, Any]:
    full = {"clusterRef": {"name": "mq"}, "deletionPolicy": policy, **spec}
    return {
        "apiVersion": STERNA_API,
        "kind": "Queue",
        "metadata": {"name": name, "namespace": world.namespace},
        "spec": full,
    }


async def _each(names: Iterable[str], do: Callable[[str], Awaitable[Any]]) -> None:
    gate = asyncio.Semaphore(_AT_ONCE)

    async def one(name: str) -> None:
        async with gate:
            await do(name)

    await asyncio.gather(*(one(name) for name in names))


async def _all_ready(world: World, kube: Kube, count: int, most: int | None) -> bool:
    found = await kube.list(STERNA_API, "Queue", world.namespace)
    ready = [one for one in found if _ready(one) and (most is None or one["spec"].get("maxMessages") == most)]
    return len(ready) >= count


async def _has_looked_at(world: World, operator: RunningOperator, count: int) -> bool:
    figures = await asyncio.to_thread(world.metrics, operator.address)
    return figures.get('sterna_operator_reconcile_seconds_count{kind="Queue"}', 0.0) >= count


async def _count_is(world: World, kube: Kube, count: int) -> bool:
    return len(await kube.list(STERNA_API, "Queue", world.namespace, only_metadata=True)) == count


async def _is_ready(world: World, kube: Kube, name: str) -> bool:
    found = await kube.get(Ref(STERNA_API, "Queue", world.namespace, name))
    return found is not None and _ready(found)


def _ready(one: dict[str, Any]) -> bool:
    conditions = {condition["type"]: condition for condition in one.get("status", {}).get("conditions", ())}
    ready = conditions.get("Ready", {})
    return bool(ready.get("status") == "True" and ready["observedGeneration"] == one["metadata"]["generation"])


async def _until(check: Callable[[], Awaitable[bool]], timeout_s: float = 1_800.0) -> None:
    deadline = time.monotonic() + timeout_s
    while not await check():
        if time.monotonic() > deadline:
            raise TimeoutError("not reached")
        await asyncio.sleep(_PAUSE_S)


def _memory_mib(operator: RunningOperator, field: str = "VmRSS") -> int:
    assert operator.process is not None
    status = Path(f"/proc/{operator.process.pid}/status").read_text()
    line = next(line for line in status.splitlines() if line.startswith(f"{field}:"))
    return round(int(line.split()[1]) / 1024)


def _writes(operator: RunningOperator) -> int:
    """How often the operator has written to the API server so far, its Lease left out."""
    return sum(one.startswith(("PATCH ", "POST ", "PUT ", "DELETE ")) for one in operator.writes)


def _cpu_s(operator: RunningOperator) -> float:
    """The processor time that the operator has used so far."""
    assert operator.process is not None
    parts = Path(f"/proc/{operator.process.pid}/stat").read_text().rpartition(")")[2].split()
    return round((int(parts[11]) + int(parts[12])) / os.sysconf("SC_CLK_TCK"), 1)


if __name__ == "__main__":
    sys.exit(main())
