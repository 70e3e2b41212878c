"""The client processes of the benchmarks: `python -m bench.clients ROLE SETTINGS`.

Each connects, prints `ready`, waits for a line on stdin, runs its load and prints what it measured as one line of JSON.
So what is measured begins when all are ready, and no process measures another's start.
"""

import asyncio
import contextlib
import json
import sys
import time  # noqa: TID251 - measures real time
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

import grpc
import sterna
from sterna._loop import run as run_loop
from sterna._measuring.loads import Load, Until, consume, send_awaiting, send_pipelined

from bench.raw import RawProducer, Sent, message_bytes

# How far ahead a consumer may be sent: enough for the broker to fill frames while the client works.
PREFETCH = 8_192


async def _send_soon(
    url: str,
    queue: str,
    count: int,
    window: int,
    warm_up: int = 0,
    delivery_mode: str = "PERSISTENT",
    ledger: str | None = None,
) -> dict[str, Any]:
    async with sterna.connect(url, ledger=ledger) as connection:
        await _ready()
        mode, target = sterna.DeliveryMode[delivery_mode], sterna.Queue(queue)
        if warm_up:
            await send_pipelined(connection, target, Until(warm_up), window=window, delivery_mode=mode)
        return await _run(send_pipelined(connection, target, Until(count), window=window, delivery_mode=mode))


async def _send(
    url: str, queue: str, count: int, warm_up: int = 0, tasks: int = 1, connections: int = 1
) -> dict[str, Any]:
    async with contextlib.AsyncExitStack() as stack:
        opened = [await stack.enter_async_context(sterna.connect(url)) for _ in range(connections)]
        await _ready()
        target = sterna.Queue(queue)
        if warm_up:
            await send_awaiting(opened, target, warm_up, tasks=tasks)
        return await _run(send_awaiting(opened, target, count, tasks=tasks))


async def _receive(url: str, queue: str, count: int) -> dict[str, Any]:
    async with sterna.connect(url) as connection, await connection.session() as session:
        await _ready()
        consumer = await session.consumer(sterna.Queue(queue), prefetch=PREFETCH)
        result = await _run(consume(session, consumer, Until(count)))
    if result["messages"] != count:
        raise RuntimeError(f"received {result['messages']} of {count} messages")
    return result


async def _raw(url: str, queue: str, count: int, window: int, warm_up: int, batch_frames: int) -> dict[str, Any]:
    async with grpc.aio.insecure_channel(url.removeprefix("sterna://")) as channel:
        producer = await RawProducer.open(channel, queue)
        await _ready()
        message = message_bytes()
        await producer.publish(message, warm_up, window, batch_frames)
        result = await _run(producer.publish(message, count, window, batch_frames))
        await producer.close()
    return result


async def _ready() -> None:
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    await asyncio.to_thread(sys.stdin.readline)


async def _run(running: Awaitable[Load | Sent]) -> dict[str, Any]:
    """Run a load; what it did, and the processor time that it took here."""
    begin = time.process_time()
    load = await running
    cpu_s = time.process_time() - begin
    return {
        "messages": load.messages,
        "seconds": round(load.seconds, 4),
        "rate": load.messages / load.seconds,
        "latency_us": load.latencies.summary() if isinstance(load, Load) else {},
        "cpu_us": round(cpu_s / load.messages * 1e6, 2),
    }


_ROLES: dict[str, Callable[..., Coroutine[Any, Any, dict[str, Any]]]] = {
    "send_soon": _send_soon,
    "send": _send,
    "receive": _receive,
    "raw": _raw,
}

if __name__ == "__main__":
    outcome = run_loop(_ROLES[sys.argv[1]](**json.loads(sys.argv[2])))
    sys.stdout.write(json.dumps(outcome) + "\n")
