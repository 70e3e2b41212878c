"""Backlogs: filling queues fast with raw frames, and acknowledging a part of what is in them."""

import grpc
import sterna

from bench.broker import Broker
from bench.raw import RawProducer, message_bytes

_WINDOW = 8_192


async def fill(broker: Broker, counts: dict[str, int]) -> None:
    """Put so many persistent messages of 1 KB into each of these queues, all of them confirmed."""
    message = message_bytes()
    async with grpc.aio.insecure_channel(f"127.0.0.1:{broker.port}") as channel:
        for queue, count in counts.items():
            producer = await RawProducer.open(channel, queue)
            await producer.publish(message, count, _WINDOW)
            await producer.close()


async def acknowledge(broker: Broker, queues: list[str], count: int) -> None:
    """Take and acknowledge the first `count` messages of each of these queues."""
    async with sterna.connect(broker.url) as connection:
        for queue in queues:
            session = await connection.session(sterna.AcknowledgeMode.CLIENT)
            consumer = await session.consumer(sterna.Queue(queue))
            message = None
            for _ in range(count):
                message = await consumer.receive(timeout=30)
            if message is not None:
                await message.acknowledge()
            await session.close()
