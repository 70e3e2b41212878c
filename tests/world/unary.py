"""Applications without a session: people with grpcurl, who make single calls, and consoles that look at queues."""

from __future__ import annotations

import asyncio
from typing import Any

import grpc
import sterna
import sterna.admin
from sterna import DeliveryMode, Queue, _channels, errors
from sterna._proto.sterna.v1 import message_pb2, messaging_pb2
from sterna.messages import Message

from tests.world.facts import Sending
from tests.world.programs import BODIES_LARGE, BODY_OF_MANY, Application, CutError, body_of

_ERROR = "sterna-error-bin"
#: More than a frame takes, which a unary call's message has to fit in.
_TOO_LARGE = 1_100_000


async def caller(app: Application, connection: sterna.Connection, steps: int) -> None:
    """Sends several messages at the same time, one of which may be too large, and receives and acknowledges some."""
    del connection
    address = app.url.removeprefix("sterna://").partition("+")[0]
    channel = _channels.make_channel(address, None, [])
    try:
        for _ in range(steps // 4 + 1):
            if app.is_over:
                break
            queue = app.random.choice(app.queues)
            if app.random.random() < 0.5:
                count = app.random.randrange(1, 6)
                await asyncio.gather(*(_send(app, channel, queue) for _ in range(count)))
            else:
                await _receive(app, channel, queue)
            await app.pause()
    finally:
        await channel.close()


async def _called(app: Application, channel: Any, method: str, request: Any) -> Any:
    answer = getattr(messaging_pb2, f"{method}Response")
    call = channel.unary_unary(
        f"/sterna.v1.Messaging/{method}", lambda made: made.SerializeToString(), answer.FromString
    )

    async def called() -> Any:
        return await call(request, timeout=60.0)

    try:
        return await app.call(f"unary {method}", called())
    except grpc.aio.UsageError as error:
        raise CutError from error


async def _send(app: Application, channel: Any, queue: str) -> None:
    sending = app.sending(queue, app.key(), DeliveryMode.PERSISTENT)
    is_large = app.random.random() < 0.1
    text = sending.key + " " + "x" * _TOO_LARGE if is_large else body_of(app.random, sending.key, large=False)
    request = messaging_pb2.SendRequest(
        destination=message_pb2.Destination(kind=message_pb2.QUEUE, name=queue), message=message_pb2.Message(text=text)
    )
    try:
        await _called(app, channel, "Send", request)
    except CutError:
        sending.outcome = "unknown"
    except grpc.RpcError as error:
        sending.outcome = "unknown"
        if (told := _told(error)) is not None:
            _judge(app, sending, told, is_large=is_large)
    else:
        sending.outcome = "confirmed"


def _judge(app: Application, sending: Sending, told: Any, *, is_large: bool) -> None:
    code = messaging_pb2.ErrorCode.Name(told.code)
    if code == "LIMIT_EXCEEDED" and told.subject == "frame_bytes":
        sending.outcome = "refused"
        if not is_large:
            app.facts.odd.append(f"{app.name}: a small message was refused for another's size: {told.message}")
    elif not told.retryable:
        # As by the SDK: an error says that nothing took effect.
        sending.outcome = "refused"


def _told(error: grpc.RpcError) -> Any:
    """The contract's error; None: the network's."""
    metadata: Any = error.trailing_metadata() or ()
    for key, value in metadata:
        if key == _ERROR:
            return messaging_pb2.Error.FromString(value)
    return None


async def _receive(app: Application, channel: Any, queue: str) -> None:
    request = messaging_pb2.ReceiveRequest(
        destination=message_pb2.Destination(kind=message_pb2.QUEUE, name=queue),
        max_messages=app.random.randrange(1, 6),
        wait_ms=500,
        lease_ms=app.random.choice((1_000, 5_000)),
    )
    name, began_s = app.key(), app.now_s()
    try:
        answer = await _called(app, channel, "Receive", request)
    except (CutError, grpc.RpcError):
        return
    if app.now_s() - began_s >= request.lease_ms / 1000:
        return  # an answer that comes so late is of a lease that may have ended: nobody works on what it has
    place: Any = _Place(queue)
    taken = {}
    for one in answer.messages:
        if len(one.delivery.uploaded) < one.delivery.uploaded_bytes:
            app.facts.odd.append(f"{app.name} was handed a piece of a body for a message")
            return
        taken[one.receipt] = app.handed(Message(place, one.delivery, 0), name)
    if not taken or app.random.random() < 0.2:
        return
    if app.random.random() < 0.2:
        await app.pause()
    for handing in taken.values():
        app.taken(handing, "maybe")
    try:
        done = await _called(app, channel, "Acknowledge", messaging_pb2.AcknowledgeRequest(receipts=list(taken)))
    except (CutError, grpc.RpcError):
        return
    for receipt, handing in taken.items():
        if receipt not in done.expired:
            app.taken(handing, "yes")


class _Place:
    """Where a message was received without a session."""

    def __init__(self, name: str) -> None:
        self.destination = Queue(name)


async def looker(app: Application, connection: sterna.Connection, steps: int) -> None:
    """Browses, by a session or as a console does, which takes nothing."""
    for _ in range(steps // 10 + 1):
        if app.is_over:
            break
        queue = app.random.choice(app.queues)
        try:
            await app.call("browse", _by_session(connection, queue))
            # Not cut: what the admin client had opened then is left to the garbage collector, which does not run here.
            await app.call("look", _as_console(app, queue), may_cut=False)
        except CutError:
            pass
        await app.pause()


async def _by_session(connection: sterna.Connection, queue: str) -> int:
    count = 0
    async with connection.browser(Queue(queue)) as browser:
        async for _ in browser:
            count += 1
    return count


async def _as_console(app: Application, queue: str) -> None:
    try:
        async with sterna.admin.connect(app.url) as admin:
            async for message in admin.browse_queue(queue):
                body = str(message.body)
                key, _, filling = body.partition(" ")
                if key not in app.facts.sendings or len(filling) not in (
                    *range(200),
                    *BODIES_LARGE,
                    BODY_OF_MANY,
                    _TOO_LARGE,
                ):
                    app.facts.odd.append(f"{app.name} was shown what nobody sent so: {len(body)} of {body[:40]!r}")
    except errors.NoSuchDestinationError:
        pass  # nobody has sent to it yet, or it was deleted
