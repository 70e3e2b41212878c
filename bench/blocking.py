"""How fast `send_soon` is in the blocking twin, beside the asynchronous one, against a broker in a process of its own.

`python -m bench.blocking` prints both and how many times slower the blocking one is: it hands messages over to the
loop's thread, which is what it should not do one by one.
"""

from __future__ import annotations

import tempfile
import time  # noqa: TID251 - measures real time
from pathlib import Path

import sterna
import sterna.blocking
from sterna._loop import run as run_loop

from bench.broker import Broker

QUEUE = "bench.blocking"
_MANIFEST = f"apiVersion: sterna.dev/v1alpha1\nkind: Queue\nmetadata: {{name: {QUEUE}}}\n"
_COUNT = 60_000
_ROUNDS = 3
_BODY = b"x" * 200
_MODE = sterna.DeliveryMode.NON_PERSISTENT


def _per_second(begin_s: float, count: int) -> float:
    return count / (time.perf_counter() - begin_s)


async def _asynchronous(url: str, count: int) -> float:
    async with sterna.connect(url) as connection:
        producer = await connection.producer(QUEUE, delivery_mode=_MODE)
        begin_s = time.perf_counter()
        for _ in range(count):
            await producer.send_soon(_BODY)
        await producer.flush()
        return _per_second(begin_s, count)


def _blocking(url: str, count: int) -> float:
    with sterna.blocking.connect(url) as connection:
        producer = connection.producer(QUEUE, delivery_mode=_MODE)
        begin_s = time.perf_counter()
        for _ in range(count):
            producer.send_soon(_BODY)
        producer.flush()
        return _per_second(begin_s, count)


def main() -> None:
    """Measures both in turn, and prints the best of each."""
    with tempfile.TemporaryDirectory() as folder:
        broker = Broker(Path(folder), _MANIFEST)
        broker.start()
        try:
            best = {"asynchronous": 0.0, "blocking": 0.0}
            for _ in range(_ROUNDS):
                best["asynchronous"] = max(best["asynchronous"], run_loop(_asynchronous(broker.url, _COUNT)))
                # A slow one takes as long with fewer.
                count = _COUNT if best["blocking"] > 20_000 else _COUNT // 6
                best["blocking"] = max(best["blocking"], _blocking(broker.url, count))
        finally:
            broker.stop()
    for name, rate in best.items():
        print(f"{name:14} {rate:10,.0f} messages/s")
    print(f"{best['asynchronous'] / best['blocking']:.1f} times slower")


if __name__ == "__main__":
    main()
