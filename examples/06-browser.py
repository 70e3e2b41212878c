"""Look at a queue without taking anything, with a selector."""

import asyncio
import sys

import sterna


async def main(url: str) -> None:
    async with sterna.connect(url) as connection:
        for weight in (3, 30, 300):
            await connection.send("parcels", f"{weight} kg", properties={"weight": weight})
        async for parcel in connection.browser("parcels", selector="weight > 10"):
            print(parcel.body)
        consumer = await connection.consumer("parcels")
        left = 0
        while await consumer.receive(timeout=0.5):
            left += 1
        print(f"{left} still there")


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:2] or ["sterna://127.0.0.1:7222"]))
