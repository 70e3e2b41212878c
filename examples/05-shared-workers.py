"""Three workers share a subscription: each message goes to one of them, and is acknowledged when its work is done."""

import asyncio
import sys
from collections import Counter

import sterna
from sterna import AcknowledgeMode, Topic

JOBS = 30


async def work(consumer: sterna.Consumer, done: Counter[str], name: str, finished: asyncio.Event) -> None:
    async for message in consumer:
        async with message:  # acknowledged at the end of the block, given back if it raises
            done[name] += 1
        if done.total() == JOBS:
            finished.set()


async def main(url: str) -> None:
    done: Counter[str] = Counter()
    finished = asyncio.Event()
    async with sterna.connect(url) as connection:
        workers = []
        for number in range(3):
            consumer = await connection.consumer(
                Topic("jobs"), shared="workers", acknowledge_mode=AcknowledgeMode.EXPLICIT_CLIENT, prefetch=2
            )
            workers.append(asyncio.create_task(work(consumer, done, f"worker {number}", finished)))
        async with await connection.producer(Topic("jobs")) as producer:
            for job in range(JOBS):
                await producer.send_soon({"job": job})
        await finished.wait()
    await asyncio.gather(*workers)  # their loops end with the connection
    print(f"{done.total()} jobs done by {len(done)} workers")


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:2] or ["sterna://127.0.0.1:7222"]))
