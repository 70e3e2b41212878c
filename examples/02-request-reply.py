"""Ask and answer. The reply travels over a temporary queue that the connection makes for itself."""

import asyncio
import sys

import sterna


async def main(url: str) -> None:
    async with sterna.connect(url) as clerk, sterna.connect(url) as client:

        async def answer(question: sterna.Message) -> None:
            await clerk.reply(question, question.text.upper())

        await clerk.consumer("questions", listener=answer)
        reply = await client.request("questions", "is anybody there?", timeout=10)
        print(reply.text)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:2] or ["sterna://127.0.0.1:7222"]))
