"""`python -m bench.operator`: how fast the operator is, and how much memory it takes, on a real API server and etcd.

1. N queues created, updated and deleted (with a policy that needs the finalizer): how long until all are ready, ready
   in the new generation, gone.
2. K Secrets that nobody refers to: what they cost the operator that runs.
3. M objects that are ready, and a cold start: how long until the operator has looked at all of them, its memory then,
   and how long a queue takes that is created meanwhile.

Brokers are played by the tests' double, so that what is measured is the operator; one operator process, one API server
and one etcd share the machine with it.
"""

import argparse
import asyncio
import json
import os
import sys
import tempfile
import time  # noqa: TID251 - measures real time
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path
from typing import Any

from sterna_operator.kube import STERNA_API, Kube, Ref, load_configuration

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
_PAUSE_S = 0.25


def main() -> int:
    """Measures, and prints a JSON object for each part."""
    parser = argparse.ArgumentParser(prog="python -m bench.operator", description=__doc__)
    parser.add_argument("--queues", type=int, default=1_000, help="N: created, updated, deleted")
    parser.add_argument("--cold", type=int, default=10_000, help="M: there at a cold start; 0 leaves that out")
    parser.add_argument("--secrets", type=int, default=10_000, help="K: Secrets of others; 0 leaves that out")
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
        async with BrokerDouble(urls, world.etcd_name):
            await asyncio.to_thread(operator.start)
            found: dict[str, Any] = {"conditions": {**conditions(folder), "where": _WHERE}}
            for part, count in ((_changes, options.queues), (_secrets, options.secrets), (_cold, options.cold)):
                if count:
                    load = os.getloadavg()[0]
                    figures = await part(world, kube, operator, count)
                    found[part.__name__.strip("_")] = {**figures, "load_before": round(load, 1)}
                    print(json.dumps(found[part.__name__.strip("_")], indent=2), flush=True)
            if options.write:
                await asyncio.to_thread(RESULTS.write_text, json.dumps(found, indent=2) + "\n")
    finally:
        operator.stop()
        await kube.close()
        await world.close()


async def _changes(world: World, kube: Kube, operator: RunningOperator, count: int) -> dict[str, Any]:
    names = [f"q-{number}" for number in range(count)]
    figures: dict[str, Any] = {"queues": count, "memory_idle_mib": _memory_mib(operator)}
    for what, most in (("create_s", 1), ("update_s", 2)):
        began = time.monotonic()
        await _each(names, lambda name, most=most: kube.apply(_queue(world, name, maxMessages=most)))  # type: ignore[misc]
        figures[f"{what.removesuffix('_s')}_requests_s"] = round(time.monotonic() - began, 1)
        await _until(lambda most=most: _all_ready(world, kube, count, most))  # type: ignore[misc]
        figures[what] = round(time.monotonic() - began, 1)
        figures[f"{what.removesuffix('_s')}_cpu_s"] = _cpu_s(operator)
    figures["memory_mib"] = _memory_mib(operator)
    began = time.monotonic()

    async def remove(name: str) -> None:
        found = await kube.get(Ref(STERNA_API, "Queue", world.namespace, name))
        if found is not None:
            # As people do: whatever it is by then.
            await kube.delete(Ref(STERNA_API, "Queue", world.namespace, name), found["metadata"]["uid"], None)

    await _each(names, remove)
    await _until(lambda: _count_is(world, kube, 0))
    figures["delete_cpu_s"] = _cpu_s(operator)
    figures["delete_s"] = round(time.monotonic() - began, 1)
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


async def _cold(world: World, kube: Kube, operator: RunningOperator, count: int) -> dict[str, Any]:
    names = [f"c-{number}" for number in range(count)]
    await _each(names, lambda name: kube.apply(_queue(world, name, policy="retain")))
    await _until(lambda: _all_ready(world, kube, count, None))
    operator.terminate()
    began = time.monotonic()
    await asyncio.to_thread(operator.start)
    started_s = time.monotonic() - began
    new = time.monotonic()
    await kube.apply(_queue(world, "new", policy="retain"))
    await _until(lambda: _is_ready(world, kube, "new"))
    new_s = time.monotonic() - new
    await _until(lambda: _has_looked_at(world, operator, count))
    through_s = time.monotonic() - began
    return {
        "cold_objects": count,
        "cold_watching_s": round(started_s, 1),
        "cold_new_ready_s": round(new_s, 2),
        "cold_through_s": round(through_s, 1),
        "cold_cpu_s": _cpu_s(operator),
        "cold_memory_mib": _memory_mib(operator),
        "cold_memory_peak_mib": _memory_mib(operator, "VmHWM"),
    }


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


def _cpu_s(operator: RunningOperator) -> float:
    """The processor time that the operator has used so far."""
    assert operator.process is not None
    parts = Path(f"/proc/{operator.process.pid}/stat").read_text().rpartition(")")[2].split()
    return round((int(parts[11]) + int(parts[12])) / os.sysconf("SC_CLK_TCK"), 1)


if __name__ == "__main__":
    sys.exit(main())
