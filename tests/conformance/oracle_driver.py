"""Drives a provider for the tests of the oracle, and says what is to be seen in the oracle's words.

It decides nothing and knows no rule. `test_oracle.py` has drivers that lie, which the oracle must find.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.conformance.oracle_backlog import Backlog, Consumer, Draft, Item, Properties, Seen
from tests.conformance.provider import (
    PRESERVE_UNDELIVERED,
    UNDELIVERED,
    Connection,
    Destination,
    Message,
    Mode,
    Provider,
    Queue,
    Refusal,
    Session,
    Topic,
)
from tests.conformance.provider import Consumer as RealConsumer

LONG_MS = 3_600_000
_POLICIES = {"default": "default", "discardOld": "discardOld", "reject": "rejectIncoming"}


@dataclass(eq=False)
class Client:
    """A connection with one session, and what its application has of it."""

    connection: Connection
    session: Session
    mode: str
    consumers: dict[Consumer, RealConsumer] = field(default_factory=dict)
    messages: dict[Item, Message] = field(default_factory=dict)


class Driver:
    """One provider, with names that no other run uses."""

    def __init__(self, provider: Provider, word: str) -> None:
        self.provider = provider
        self.word = word
        self.names: dict[str, Destination] = {}

    # --- Destinations

    async def define(self, name: str, kind: type[Destination], properties: Properties) -> None:
        """A static destination."""
        self.names[name] = kind(f"{self.word}.{name}")
        wanted: dict[str, Any] = {
            "maxmsgs": properties.maxmsgs,
            "maxbytes": properties.maxbytes,
            "maxRedelivery": properties.max_redelivery,
            "exclusive": properties.exclusive,
            "expiration": properties.expiration and LONG_MS,
        }
        given = {name: value for name, value in wanted.items() if value}
        await self.provider.define(self.names[name], overflowPolicy=_POLICIES[properties.overflow], **given)

    def client_id(self, is_named: bool) -> str:
        """Of the client that has the durable subscription of its own; the others have none."""
        return self.word if is_named else ""

    async def delete(self, name: str) -> None:
        """With all that it holds."""
        await self.provider.delete(self.names[name])

    async def purge(self, backlog: Backlog) -> int:
        """All of a queue or a durable subscription; how many."""
        if backlog.is_queue:
            return await self.provider.purge(self.names[backlog.name])
        return await self.provider.purge_durable(self._durable(backlog), client_id=self._owner(backlog))

    # --- Clients

    async def connect(self, mode: str, *, is_named: bool) -> Client:
        """A client with a session."""
        connection = await self.provider.connect(client_id=self.client_id(is_named))
        return Client(connection, await connection.session(Mode[mode]), mode)

    async def send(self, client: Client, name: str, draft: Draft) -> bool:
        """Whether it was accepted; else the destination is full."""
        how: dict[str, Any] = {"priority": draft.priority, "delivery_mode": draft.mode}
        properties = {**draft.properties, "word": self.word}
        if draft.preserves:
            properties[PRESERVE_UNDELIVERED] = True
        if draft.time_to_live:
            how["time_to_live_ms"] = LONG_MS if draft.time_to_live == "long" else 1
        return await self._is_accepted(client.session.send(self.names[name], draft.body, properties=properties, **how))

    async def acknowledge(self, client: Client, item: Item, *, alone: bool) -> None:
        """What it has in hand, as its session's mode says, or that message alone."""
        await client.messages[item].acknowledge(alone=alone)

    async def commit(self, client: Client) -> bool:
        """Whether it was committed; else it was rolled back as something is full."""
        return await self._is_accepted(client.session.commit())

    async def _is_accepted(self, attempt: Coroutine[Any, Any, Any]) -> bool:
        try:
            await attempt
        except Exception as error:
            if self.provider.refusal_of(error) in (Refusal.FULL, Refusal.ROLLED_BACK):
                return False
            raise
        return True

    async def open(self, client: Client, consumer: Consumer, source: str) -> None:
        """A consumer, of a queue or of a subscription that is named as the backlog."""
        backlog = consumer.backlog
        how: dict[str, Any] = {"prefetch": consumer.prefetch, "selector": consumer.selector}
        if not backlog.is_queue:
            how["selector"] = backlog.selector
            if backlog.name in ("durable", "group"):
                how["durable"] = self._durable(backlog)
            if backlog.name in ("shared", "group"):
                how["shared"] = f"{self.word}-{backlog.name}"
        client.consumers[consumer] = await client.session.consumer(self.names[source], **how)

    async def receive(self, client: Client, consumer: Consumer, *, waits: bool) -> tuple[Message, Seen] | None:
        """The next message: one that must come is waited for."""
        real = client.consumers[consumer]
        message = await real.receive() if waits else real.receive_no_wait()
        return None if message is None else (message, self.seen(message))

    async def close_consumer(self, client: Client, consumer: Consumer) -> None:
        """And what it had fetched goes back."""
        await client.consumers.pop(consumer).close()

    async def unsubscribe(self, client: Client, backlog: Backlog) -> None:
        """A durable subscription ends."""
        await client.session.unsubscribe(self._durable(backlog))

    async def restart(self, under_way: Sequence[Coroutine[Any, Any, Any]], rounds: int, *, is_kill: bool) -> list[bool]:
        """Ends the server some rounds of our loop after these calls were made; which were answered."""
        tasks = [asyncio.ensure_future(one) for one in under_way]
        for _ in range(rounds):
            await asyncio.sleep(0)
        await self.provider.fall(crash=is_kill)
        await self.provider.restart(crash=is_kill)
        answers = await asyncio.gather(*tasks, return_exceptions=True)
        return [not isinstance(one, BaseException) and one is not False for one in answers]

    # --- What is to be seen

    def seen(self, message: Message) -> Seen:
        """A message in the oracle's words."""
        return Seen(
            message.body, message.priority, message.redelivered, message.delivery_count, message.expiration_ms != 0
        )

    async def look(self, backlog: Backlog, selector: str = "") -> list[Seen]:
        """All that is there, for whoever looks."""
        provider = self.provider
        found: Sequence[Message]
        if backlog.keeps_undelivered:
            found = await provider.browse(UNDELIVERED, f"word = '{self.word}'")
        elif backlog.is_queue:
            queue = self.names[backlog.name]
            assert isinstance(queue, Queue)
            found = await provider.browse(queue, selector)
        else:
            found = await provider.browse_durable(self._durable(backlog), client_id=self._owner(backlog))
        return [self.seen(message) for message in found]

    async def figures(self, backlog: Backlog) -> tuple[int, int, int]:
        """How many messages are there, how many of them are with consumers, and how many consumers there are."""
        if backlog.is_queue:
            held = await self.provider.held(self.names[backlog.name])
        else:
            held = await self.provider.held_by_durable(self._durable(backlog), client_id=self._owner(backlog))
        return held.messages, held.delivered, held.consumers

    async def of_topic(self, name: str) -> int:
        """How many messages all subscriptions to a topic have together."""
        topic = self.names[name]
        assert isinstance(topic, Topic)
        return (await self.provider.held(topic)).messages

    def _durable(self, backlog: Backlog) -> str:
        return f"{self.word}-{backlog.name}"

    def _owner(self, backlog: Backlog) -> str:
        return self.client_id(backlog.name == "durable")
