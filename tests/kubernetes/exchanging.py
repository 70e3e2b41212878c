"""A few messages from outside of the cluster, counted by nobody; `load` is what counts."""

import sterna


async def send_numbers(url: str, queue: str, count: int) -> None:
    """Sends 0, 1, 2, … to a queue."""
    async with sterna.connect(url) as connection:
        for number in range(count):
            await connection.send(queue, str(number))


async def receive_bodies(url: str, queue: str, count: int) -> list[str]:
    """Receives and acknowledges so many messages; their bodies, in order."""
    async with sterna.connect(url) as connection:
        consumer = await connection.consumer(queue)
        bodies = []
        for _ in range(count):
            message = await consumer.receive(timeout=60)
            assert message is not None
            await message.acknowledge()
            bodies.append(str(message.body))
        return bodies
