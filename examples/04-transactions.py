"""Take a message and send what follows from it, both or neither."""

import asyncio
import sys

import sterna


async def main(url: str) -> None:
    async with sterna.connect(url) as connection, await connection.session(transacted=True) as session:
        await connection.send("payments", {"amount": 12.5, "currency": "EUR"})
        payments = await session.consumer("payments")
        ledger = await session.producer("ledger")

        try:
            async with session.transaction():
                payment = await payments.receive(timeout=10)
                assert payment is not None
                await ledger.send(f"booked {payment.body.get_double('amount')}")
                raise RuntimeError("the power went")
        except RuntimeError as error:
            print(f"rolled back: {error}")

        async with session.transaction():
            payment = await payments.receive(timeout=10)
            assert payment is not None
            await ledger.send(f"booked {payment.body.get_double('amount')}")
            print(f"again: {payment.redelivered}")

        entry = await (await connection.consumer("ledger")).receive(timeout=10)
        print(entry.body if entry else "nothing was booked")


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:2] or ["sterna://127.0.0.1:7222"]))
