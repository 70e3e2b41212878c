"""The engine ends the stream that unary calls share: nobody is left waiting, for a confirmation or for credit."""

import asyncio
from typing import Any

import pytest
from sterna_broker.contract import message, messaging
from sterna_broker.refusals import RefusedError
from sterna_broker.server.sending import Sender

_QUEUE = message.Destination(kind=message.QUEUE, name="orders")


class Engine:
    """An engine that has nothing to say, and ends every stream."""

    def take_output(self, stream: int, limit: int) -> bytes | None:
        return None

    def is_closing(self, stream: int) -> bool:
        return True


class Pump:
    """Takes whatever it is handed."""

    is_running = True

    def __init__(self) -> None:
        self.engine = Engine()
        self.handled = 0

    def open(self, port: object, peer: str, *, internal: bool) -> int:
        return 1

    def handle(self, stream: int, batch: bytes) -> None:
        self.handled += 1

    def close(self, stream: int) -> None:
        pass


@pytest.mark.parametrize("ends", ["by the engine", "as the broker stops"])
@pytest.mark.parametrize("waits_for", ["credit", "a confirmation"])
async def test_a_call_ends_with_the_stream(waits_for: str, ends: str) -> None:
    """What was handed over may be stored: then it is not said to be refused."""
    pump: Any = Pump()
    sender = Sender(pump)
    if waits_for == "credit":
        sender._take_credit(messaging.ProducerCredit(sequence_limit=1))
        sender._next_sequence = 2
    call = asyncio.create_task(sender.send(_QUEUE, b"x"))
    await asyncio.sleep(0)
    assert (pump.handled, call.done()) == (0 if waits_for == "credit" else 1, False)
    if ends == "by the engine":
        sender._stream.wake()
    else:
        sender.close()
    with pytest.raises(RefusedError, match=r"the stream|stream was closed") as caught:
        await asyncio.wait_for(call, 10)
    is_unknown = caught.value.code == "UNAVAILABLE" and "is not known" in caught.value.message
    assert is_unknown == (waits_for == "a confirmation")
