"""Connect, send, receive. Start a broker first: sterna broker --config examples/broker --data DATA."""

import asyncio
import sys

import sterna


async def main(url: str) -> None:
    async with sterna.connect(url) as connection:
        sent = await connection.send("orders", "one coffee", properties={"table": 7})
        consumer = await connection.consumer("orders")
        message = await consumer.receive(timeout=10)
        assert message is not None
        print(f"{message.body} for table {message.properties['table']}, confirmed as {sent.durability!r}")


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:2] or ["sterna://127.0.0.1:7222"]))
