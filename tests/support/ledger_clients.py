"""Programs with ledgers, for tests that kill them, fork them or leave them no disk."""

from __future__ import annotations

import asyncio
import json
import os
import resource
import sys
from pathlib import Path
from typing import Any

import sterna
from sterna import Ledger, errors

QUEUE = "ledger.clients"


def _say(said: Any) -> None:
    sys.stdout.write(json.dumps(said) + "\n")
    sys.stdout.flush()


async def _send_on(url: str, folder: str) -> None:
    """Sends until it is killed, and says so when many are confirmed."""
    connection = await sterna.connect(url, ledger=Ledger(folder, rotate_bytes=40_000))
    producer = await connection.producer(QUEUE)
    for number in range(10_000_000):
        await producer.send_soon(f"{number} {'x' * (number % 100)}")
        if number == 5_000:
            _say("going")


async def _send_on_a_full_disk(url: str, folder: str) -> None:
    """Sends until the ledger's file cannot grow any more; says what each send came to."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, resource.RLIM_INFINITY))
    connection = await sterna.connect(url, ledger=folder)
    ends: list[str] = []
    connection.on_closed(lambda closed: ends.append(type(closed.error).__name__))
    producer = await connection.producer(QUEUE)
    confirmed: list[str] = []
    try:
        while True:
            sent = await producer.send(str(len(confirmed)))
            confirmed.append(sent.message_id)
    except errors.LedgerError as error:
        later = type(await _failure(producer.send("later"))).__name__
        _say({"error": str(error), "later": later, "confirmed": confirmed, "ends": ends})
    await connection.close()


async def _failure(sending: Any) -> BaseException | None:
    try:
        await sending
    except errors.SternaError as error:
        return error
    return None


async def _send_without(url: str, folder: str) -> None:
    """The same with a ledger that is not required."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, resource.RLIM_INFINITY))
    reported: list[str] = []
    connection = await sterna.connect(url, ledger=Ledger(folder, required=False))
    connection.on_error(lambda error: reported.append(type(error).__name__))
    producer = await connection.producer(QUEUE)
    for number in range(2_000):
        await producer.send(str(number))
    await connection.close()
    _say({"reported": reported})


async def _fork(url: str, folder: str) -> None:
    """Forks in between; the child writes whatever it can."""
    connection = await sterna.connect(url, ledger=folder)
    producer = await connection.producer(QUEUE)
    sent = [(await producer.send("before")).message_id]
    await producer.send_soon("under way")
    book = connection._lifeline.options.book
    assert book is not None
    child = os.fork()
    if not child:
        book.acknowledged(1, 0)
        wrote = book.flush()
        os._exit(7 if wrote or book.failure is None else 0)
    _, status = await asyncio.to_thread(os.waitpid, child, 0)
    await producer.flush()
    sent.append((await producer.send("after")).message_id)
    await connection.close()
    _say({"child": os.waitstatus_to_exitcode(status), "sent": sent})


if __name__ == "__main__":
    programs = {"on": _send_on, "full": _send_on_a_full_disk, "without": _send_without, "fork": _fork}
    asyncio.run(programs[sys.argv[1]](sys.argv[2], str(Path(sys.argv[3]))))
