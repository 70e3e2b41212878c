"""`python -m bench.snapshots`: how fast snapshots are taken, what they weigh, and what senders pay for them.

No line of the benchmarks: it prints what it measures. Bodies of messages are random, so that nothing of a snapshot is
smaller than with real ones. The broker, the exporter and the sender share this machine.

- `cut`: a broker with so many messages queued takes its first cut, which is exported;
- `events`: as many more were sent and half of all taken since; the second cut is exported;
- `pair`: messages are sent alone, while one cut after another is taken, and while each is exported, too, in turns.
"""

import argparse
import asyncio
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time  # noqa: TID251 - measures real time
from collections import Counter
from pathlib import Path
from typing import Any

import grpc
import sterna.admin
from sterna._proto.sterna.v1 import message_pb2
from sterna.cuts import Cut
from sterna_audit.broker_source import BrokerSource
from sterna_audit.exporting import export
from sterna_audit.privacy import Privacy
from sterna_audit.snapshots.manifests import Manifest
from sterna_audit.snapshots.stores import Directory
from sterna_audit.snapshots.writing import WriterOptions

from bench import machine
from bench.broker import Broker
from bench.filling import acknowledge
from bench.raw import RawProducer, message_bytes
from bench.rig import Client, Rig, median

_WINDOW = 8_192
_BODY_BYTES = 200
_QUEUES = 20
_SENT = "bench.sent"
_COUNT = 300_000
_WAIT_S = 25.0
_OPTIONS = WriterOptions(Privacy("none"), None)


def main() -> int:
    """Measure, and print one line of JSON for each step."""
    parser = argparse.ArgumentParser(prog="python -m bench.snapshots", description=__doc__)
    parser.add_argument("--messages", type=int, default=1_000_000, help="how many are queued")
    parser.add_argument("--pairs", type=int, default=5, help="how often senders are measured")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="sterna-bench-") as folder:
        rig = Rig(Path(folder))
        with rig.broker() as broker:
            asyncio.run(_exports(broker, Path(folder) / "snapshots", options.messages))
            _senders(broker, Path(folder) / "beside", options.pairs)
    return 0


async def _exports(broker: Broker, root: Path, count: int) -> None:
    await _fill(broker, count)
    _say("cut", count, *await _exported(broker, root))
    await _fill(broker, count)
    each = count // _QUEUES
    await acknowledge(broker, _names(), each)
    _say("events", count * 2 - each * _QUEUES, *await _exported(broker, root))


def _names() -> list[str]:
    return [f"bench.snapshots.{number}" for number in range(_QUEUES)]


async def _fill(broker: Broker, count: int) -> None:
    whole = message_pb2.Message.FromString(message_bytes())
    whole.ClearField("body")
    properties = whole.SerializeToString()

    def another() -> bytes:
        # Fields may come in any order.
        return properties + message_pb2.Message(bytes=os.urandom(_BODY_BYTES)).SerializeToString()

    async with grpc.aio.insecure_channel(f"127.0.0.1:{broker.port}") as channel:
        for queue in _names():
            producer = await RawProducer.open(channel, queue)
            await producer.publish(properties, count // _QUEUES, _WINDOW, another=another)
            await producer.close()


async def _exported(broker: Broker, root: Path) -> tuple[tuple[float, float], int, Manifest]:
    """How long the cut took, and its export; its bytes on the broker's disk; what it is."""
    async with sterna.admin.connect(broker.url) as admin:
        begin = time.monotonic()
        cut = await _cut(admin)
        whole = time.monotonic()
        async with admin.hold_cut(cut) as held:
            found = await export(BrokerSource(held), Directory(root), _OPTIONS)
        return (whole - begin, time.monotonic() - whole), cut.bytes, found.manifest


async def _cut(admin: sterna.admin.Admin) -> Cut:
    while (cut := await admin.begin_cut(wait=_WAIT_S)) is None:
        pass
    return cut


def _say(step: str, queued: int, took_s: tuple[float, float], kept: int, manifest: Manifest) -> None:
    rows: Counter[str] = Counter()
    size: Counter[str] = Counter()
    for path, entry in manifest.files.items():
        for name in (path.partition("/")[0], f"{path.partition('/')[0]}/{entry.table}"):
            rows[name] += entry.rows
            size[name] += entry.bytes
    said = {
        "step": step,
        "queued": queued,
        "cut_s": round(took_s[0], 2),
        "export_s": round(took_s[1], 2),
        "queued_per_s": round(queued / took_s[1]),
        "rows_per_s": round((rows["state"] + rows["events"]) / took_s[1]),
        "kept_bytes": kept,
        "state_rows": rows["state"],
        "event_rows": rows["events"],
        "bytes_per_event": round(size["events"] / max(rows["events"], 1), 2),
        "bytes_a_row": {name: round(size[name] / rows[name], 2) for name in sorted(rows) if rows[name] > 1_000},
        "load": machine.load(),
    }
    sys.stdout.write(json.dumps(said) + "\n")
    sys.stdout.flush()


def _senders(broker: Broker, root: Path, pairs: int) -> None:
    runs: dict[str, list[float]] = {"alone": [], "cuts": [], "exports": []}
    costs: dict[str, list[float]] = {way: [] for way in runs}
    ways = list(runs)
    for number in range(pairs):
        for way in ways[number % 3 :] + ways[: number % 3]:
            rate, cpu_us = _sending(broker, root, way)
            runs[way].append(rate)
            costs[way].append(cpu_us)
        told: dict[str, Any] = {way: round(rates[-1]) for way, rates in runs.items()}
        told["broker_cpu_us"] = {way: each[-1] for way, each in costs.items()}
        sys.stdout.write(json.dumps({"pair": number + 1, **told, "load": machine.load()}) + "\n")
        sys.stdout.flush()
    shares = {
        f"{way}_share": round(median([one / alone for one, alone in zip(runs[way], runs["alone"], strict=True)]), 3)
        for way in ("cuts", "exports")
    }
    medians = {way: median(each) for way, each in costs.items()}
    sys.stdout.write(json.dumps({"alone": round(median(runs["alone"])), **shares, "broker_cpu_us": medians}) + "\n")


def _sending(broker: Broker, root: Path, way: str) -> tuple[float, float]:
    """Messages confirmed a second while something else goes on, and the broker's processor time for each, in µs."""
    client = Client("send_soon", url=broker.url, queue=_SENT, count=_COUNT, window=4_000, warm_up=20_000)
    beside = None
    if way != "alone":
        # At the lowest priority: it is on another machine where that matters.
        command = ["nice", "-n", "19", sys.executable, "-m", "bench.snapshots_beside", broker.url, str(root), way]
        beside = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert beside.stdout is not None
        beside.stdout.readline()
    before_s = broker.cpu_s()
    try:
        client.go()
        found: dict[str, Any] = client.result()
        cpu_us = (broker.cpu_s() - before_s) / _COUNT * 1e6
    finally:
        if beside is not None:
            beside.kill()
            beside.wait()
        shutil.rmtree(root, ignore_errors=True)
    asyncio.run(_purge(broker))
    return float(found["rate"]), round(cpu_us, 2)


async def _purge(broker: Broker) -> None:
    """Each run finds what the one before did."""
    async with sterna.admin.connect(broker.url) as admin:
        await admin.purge_queue(_SENT)


if __name__ == "__main__":
    sys.exit(main())
