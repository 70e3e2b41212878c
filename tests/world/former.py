"""What stands in for what was mended at the broker's face and at the SDK's: each as it was before."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Coroutine, Iterable
from typing import Any

import sterna
from sterna import errors
from sterna._feeds import Feed
from sterna._homes import Homes
from sterna._link import Link
from sterna._machines.consuming import ConsumerState
from sterna._machines.producing import Producing
from sterna._parts import part_of
from sterna.messages import Message, made_of
from sterna_broker.cluster import homes
from sterna_broker.cluster.desk import ClusterDesk
from sterna_broker.cluster.leaving import ElsewhereError, Leaving
from sterna_broker.contract import messaging
from sterna_broker.server.connect import Call
from sterna_broker.server.internal_stream import InternalStream, Pieces
from sterna_etcd import EtcdError, HomeKey
from sterna_etcd.records import HomeRecord

from tests.world.engines import SteppedEngine

_room = Producing.has_room


def asks_for_all(self: Producing, size: int) -> bool:
    """5: a message waits until all of it is within the credit."""
    return _room(self, size) and (self.closed is not None or size <= self.bytes_left)


def grants_none(self: Producing) -> None:
    """5: and each is looked at."""
    self.budget = 0


def ends_silently(_: Any) -> None:
    """7: the end of a listener is told to nobody."""


def spawns(self: Homes, work: Coroutine[Any, Any, None], _given_up: Callable[[], None]) -> asyncio.Task[None]:
    """9: what is cancelled on its way to another broker tells nobody."""
    task = asyncio.create_task(work, name="sterna-following")
    self._tasks[task] = None
    task.add_done_callback(lambda done: self._tasks.pop(task, None))
    return task


def pieces(_: Pieces, deliveries: Iterable[Any]) -> list[Any]:
    """10: pieces of a large body are taken for messages."""
    return list(deliveries)


async def replies(self: sterna.Connection, request: Message, body: Any = None, **options: Any) -> Any:
    """13: a reply to an asker that has gone is an error, which gives the request back."""
    if request.reply_to is None:
        raise errors.InvalidArgumentError("the message names no place for replies", subject="reply_to")
    known_by = request.message_id if request.correlation_id is None else request.correlation_id
    options.setdefault("correlation_id", known_by)
    home = self._homes.of(part_of(made_of(request)[0].session).lifeline).connection
    return await home.send(request.reply_to, body, **options)


_cut = Link._cut


def keeps_channel(self: Link) -> None:
    """15: the channel of a connection that was closed stays open."""
    _cut(self)


async def serves(self: Call) -> None:
    """16: the engine's close stands behind an await."""
    reader = asyncio.create_task(self._read(), name=f"read-{self.stream}")
    self._task = asyncio.create_task(self._write(), name=f"write-{self.stream}")
    try:
        await asyncio.wait((reader, self._task), return_when=asyncio.FIRST_COMPLETED)
        if reader.done() and not self._task.done():
            self._pump.touch()
            asyncio.get_running_loop().call_soon(self._finish)
            await asyncio.wait((self._task,))
    finally:
        for task in (reader, self._task):
            task.cancel()
        await asyncio.gather(reader, self._task, return_exceptions=True)
        self._pump.close(self.stream)
    if self.cut_off is not None:
        raise self.cut_off
    for task in (reader, self._task):
        if not task.cancelled() and (error := task.exception()) is not None:
            raise error


def sends_whatever(self: InternalStream, *frames: Any) -> None:
    """17: what is too large for a frame ends the stream of all who call at the same time."""
    if self._ended is not None:
        raise self._ended
    self._pump.handle(self.stream, messaging.ClientBatch(frames=frames).SerializeToString())


def by_subject(self: Any) -> dict[tuple[str, str], Any]:
    """19: a durable subscription is known by its object's name alone."""
    return {(entry.resource.kind, entry.resource.subject): entry for entry in self.entries.values()}


_delivered = Feed.on_deliver


def delivers(self: Feed, deliver: Any) -> None:
    """20: the broker's time comes once, with Welcome."""
    if deliver.time_ms:
        deliver.time_ms = self.part.lifeline.broker_time_ms()
    _delivered(self, deliver)


def notes_ends(self: ConsumerState, deliveries: Any, sent_ms: int) -> None:
    """20: and what has expired is judged by it."""
    for one in deliveries:
        if one.expiration_ms:
            self._deadlines[one.sequence] = self._now_ms() + one.expiration_ms - sent_ms


_destination = ClusterDesk.destination


async def answers_at_once(self: ClusterDesk, kind: Any, name: str) -> Any:
    """22a: an opening is answered by what was so before it waited, wherever the home has gone meanwhile."""
    late: Any = await _destination(self, kind, name)
    if isinstance(late, dict):
        return late
    objects = self._objects()
    return {"ok": {**objects.effective(kind, name).values, "static": objects.destination(kind, name) is not None}}


def compares_nothing(*_: Any) -> None:
    """22b, 22c: what the engine serves is not compared with the homes."""


def is_never_stray(*_: Any) -> bool:
    """22d: what is left of names that live elsewhere is not counted."""
    return False


def has_no_rival(*_: Any) -> None:
    """23: whoever has the incarnation of the registration once, has it for good."""


_GONE = json.dumps(
    {
        "code": "NO_SUCH_DESTINATION",
        "subject": "destination",
        "message": "The destination was deleted.",
        "remedy": "",
        "retryable": False,
        "addresses": [],
    }
)


def deletes(
    self: SteppedEngine, kind: str, name: str, with_messages: bool, client_id: str = "", reason: str = ""
) -> int:
    """24: what a bridge leads to is not made again when it is deleted."""
    told = reason or ("" if kind == "durable" else _GONE)
    deleted: int = self._engine.delete(kind, name, with_messages, client_id, told)
    return deleted


def has_no_targets(_: Any) -> dict[Any, str]:
    """24: and by no configuration."""
    return {}


async def restores_nothing(_: Any) -> None:
    """24: nor for an administrator."""


def holds_nothing(*_: Any) -> bool:
    """25: what is refused for now has failed."""
    return False


async def gives_up(self: homes.Homes, key: HomeKey, broker: str, leave: Callable[[], bool], *, is_bound: bool) -> None:
    """2205: where etcd does not answer whether it has given a home away, that is ours."""
    stored = self.view.homes.get(key)
    if stored is None or stored.record.broker != self.name or self.is_leaving(key):
        return
    leaving = self._leaving[key] = Leaving(broker, stored.revision, [], is_bound=is_bound)
    try:
        if leave():
            record = HomeRecord(broker=broker, static=stored.record.static) if broker else None
            await self._change(key, record, leaving)
    except (EtcdError, ElsewhereError):
        pass
    finally:
        self._leaving.pop(key).told.set()
