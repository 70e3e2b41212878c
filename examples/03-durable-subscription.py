"""A durable subscription keeps what is published while nobody listens. It belongs to the connection's client id."""

import asyncio
import sys

import sterna
from sterna import Topic


async def main(url: str) -> None:
    async with sterna.connect(url, client_id="archive") as connection:
        await connection.consumer(Topic("news.>"), durable="everything")

    async with sterna.connect(url) as press:
        for headline in ("rain", "more rain"):
            await press.send(Topic("news.weather"), headline)

    async with sterna.connect(url, client_id="archive") as connection:
        async with await connection.consumer(Topic("news.>"), durable="everything") as consumer:
            while message := await consumer.receive(timeout=1):
                print(f"{message.destination.name}: {message.body}")
        await connection.unsubscribe("everything")


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:2] or ["sterna://127.0.0.1:7222"]))
