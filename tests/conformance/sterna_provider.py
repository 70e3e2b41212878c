"""The suite's provider over Sterna: a real broker in a process of its own, by the Python SDK over gRPC."""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import signal
from collections.abc import Callable, Sequence
from typing import Any

import sterna
import sterna.admin
from sterna import AcknowledgeMode, DeliveryMode, errors
from sterna.inventory import Resource

from tests.conformance.provider import Destination, Held, Message, Mode, Queue, Refusal, Topic
from tests.running import RunningBroker, manifest
from tests.waiting import eventually

PATIENCE_S = 10.0

#: Clients may create what is called `any.…`, and nothing else.
MANIFESTS = (
    manifest("Queue", "any-queue", "name: 'any.>'"),
    manifest("Topic", "any-topic", "name: 'any.>'"),
    manifest("Broker", "conformance", "flowControl: true"),
)

_MODES = {
    Mode.AUTO: AcknowledgeMode.AUTO,
    Mode.CLIENT: AcknowledgeMode.CLIENT,
    Mode.DUPS_OK: AcknowledgeMode.DUPS_OK,
    Mode.NONE: AcknowledgeMode.NONE,
    Mode.EXPLICIT: AcknowledgeMode.EXPLICIT_CLIENT,
    Mode.EXPLICIT_DUPS_OK: AcknowledgeMode.EXPLICIT_CLIENT_DUPS_OK,
    Mode.TRANSACTED: AcknowledgeMode.TRANSACTED,
}

_PROPERTIES = {
    "expiration": "expirationMs",
    "maxmsgs": "maxMessages",
    "maxbytes": "maxBytes",
    "flowControl": "flowControlBytes",
    "redeliveryDelay": "redeliveryDelayMs",
    "sender_name": "senderName",
    "sender_name_enforced": "senderNameEnforced",
}
_OUR_PROPERTIES = {ours: name for name, ours in _PROPERTIES.items()}

_REFUSALS: dict[type[BaseException], Refusal] = {
    errors.InvalidNameError: Refusal.INVALID_NAME,
    errors.InvalidSelectorError: Refusal.INVALID_SELECTOR,
    errors.InvalidMessageError: Refusal.INVALID_MESSAGE,
    errors.InvalidArgumentError: Refusal.INVALID_VALUE,
    errors.ConversionError: Refusal.CONVERSION,
    errors.UnauthenticatedError: Refusal.NOT_ADMITTED,
    errors.LimitExceededError: Refusal.TOO_MUCH,
    errors.NotAllowedError: Refusal.NOT_ALLOWED,
    errors.NoSuchDestinationError: Refusal.NO_SUCH_DESTINATION,
    errors.NoSuchSubscriptionError: Refusal.NO_SUCH_SUBSCRIPTION,
    errors.DestinationFullError: Refusal.FULL,
    errors.InUseError: Refusal.IN_USE,
    errors.ConflictError: Refusal.CONFLICT,
    errors.ClosedError: Refusal.CLOSED,
    errors.TransactionRolledBackError: Refusal.ROLLED_BACK,
}


def _ours(destination: Destination) -> sterna.Destination:
    return sterna.Queue(destination.name) if isinstance(destination, Queue) else sterna.Topic(destination.name)


def _options(how: dict[str, Any]) -> dict[str, Any]:
    translated = dict(how)
    if "delivery_mode" in how:
        translated["delivery_mode"] = DeliveryMode[how["delivery_mode"]]
    for name in ("reply_to", "destination"):
        if isinstance(how.get(name), Destination):
            translated[name] = _ours(how[name])
    return translated


class SternaProducer:
    """See provider.Producer."""

    def __init__(self, producer: sterna.Producer) -> None:
        self._producer = producer

    async def send(self, body: Any = None, **how: Any) -> sterna.Sent:
        return await self._producer.send(body, timeout=PATIENCE_S, **_options(how))

    async def send_soon(self, body: Any = None, *, on_completion: Callable[[Any], None], **how: Any) -> None:
        await self._producer.send_soon(body, on_completion=on_completion, **_options(how))

    async def close(self) -> None:
        await self._producer.close()


class SternaConsumer:
    """See provider.Consumer."""

    def __init__(self, consumer: sterna.Consumer) -> None:
        self._consumer = consumer

    async def receive(self) -> Message:
        message = await self._consumer.receive(PATIENCE_S)
        assert message is not None, f"nothing came within {PATIENCE_S} s"
        return message

    async def receive_for(self, timeout_ms: float) -> Message | None:
        return await self._consumer.receive(timeout_ms / 1000)

    def receive_no_wait(self) -> Message | None:
        return self._consumer.receive_nowait()

    async def close(self) -> None:
        await self._consumer.close()


class SternaSession:
    """See provider.Session."""

    def __init__(self, session: sterna.Session) -> None:
        self._session = session
        self._anonymous: SternaProducer | None = None

    async def producer(self, destination: Destination | None = None, **defaults: Any) -> SternaProducer:
        target = None if destination is None else _ours(destination)
        return SternaProducer(await self._session.producer(target, **_options(defaults)))

    async def send(self, destination: Destination, body: Any = None, **how: Any) -> sterna.Sent:
        if self._anonymous is None:
            self._anonymous = await self.producer()
        return await self._anonymous.send(body, destination=destination, **how)

    async def consumer(self, source: Destination, **options: Any) -> SternaConsumer:
        if options.get("durable") and options.get("shared"):
            options["shared"] = True
        return SternaConsumer(await self._session.consumer(_ours(source), **options))

    async def commit(self) -> None:
        await self._session.commit()

    async def rollback(self) -> None:
        await self._session.rollback()

    async def recover(self) -> None:
        await self._session.recover()

    async def start(self) -> None:
        await self._session.start()

    async def stop(self) -> None:
        await self._session.stop()

    async def unsubscribe(self, name: str) -> None:
        await self._session.unsubscribe(name)

    async def close(self) -> None:
        await self._session.close()


class SternaConnection:
    """See provider.Connection."""

    def __init__(self, connection: sterna.Connection) -> None:
        self._connection = connection
        self.exceptions: list[sterna.Interrupted] = []
        connection.on_interrupted(self.exceptions.append)

    async def session(self, mode: Mode = Mode.AUTO, *, stopped: bool = False) -> SternaSession:
        return SternaSession(await self._connection.session(_MODES[mode], stopped=stopped))

    async def temporary(self, kind: type[Destination]) -> Destination:
        if kind is Queue:
            return Queue((await self._connection.temporary_queue()).name)
        return Topic((await self._connection.temporary_topic()).name)

    async def delete_temporary(self, destination: Destination) -> None:
        await self._connection.delete_temporary(_ours(destination))

    async def close(self) -> None:
        await self._connection.close(timeout_s=PATIENCE_S)

    async def vanish(self) -> None:
        lifeline = self._connection._lifeline
        assert lifeline._supervisor is not None
        lifeline._supervisor.cancel()  # it shall not come back
        assert lifeline._link is not None
        await lifeline._link.abort()

    async def end(self, patience_s: float = 5.0) -> None:
        """What is left after a test."""
        await self._connection.close(failed=True, timeout_s=patience_s)


class SternaProvider:
    """See provider.Provider. One for each test, over a broker that all tests of a session share."""

    def __init__(self, broker: RunningBroker, user: str = "", password: str = "") -> None:
        self._broker = broker
        self._credentials: Any = {"user": user, "password": password}
        self._connections: list[SternaConnection] = []
        self._admin: sterna.admin.Admin | None = None
        self._numbers = itertools.count(1)

    @property
    def _url(self) -> str:
        return f"sterna://{self._broker.address}"

    @property
    def _serves(self) -> bool:
        return self._broker.process is not None and self._broker.process.poll() is None

    async def _administrator(self) -> sterna.admin.Admin:
        if self._admin is None:
            self._admin = await sterna.admin.connect(self._url, **self._credentials).__aenter__()
        return self._admin

    async def end(self) -> None:
        """Closes all that a test has opened."""
        # With a server that has fallen there is nobody whose answer could be waited for.
        patience_s = 5.0 if self._serves else 0.0
        for connection in self._connections:
            await connection.end(patience_s)
        if self._admin is not None:
            await self._admin.__aexit__(None, None, None)
            self._admin = None

    async def connect(self, *, client_id: str = "", user: str = "", password: str = "") -> SternaConnection:
        credentials = {"user": user, "password": password} if user else self._credentials
        connection = SternaConnection(await sterna.connect(self._url, client_id=client_id, **credentials))
        self._connections.append(connection)
        return connection

    # --- Administration

    async def _apply(self, kind: str, name: str, spec: dict[str, Any]) -> None:
        document = {"apiVersion": "sterna.dev/v1alpha1", "kind": kind, "metadata": {"name": name}, "spec": spec}
        for applied in await (await self._administrator()).apply(json.dumps(document)):
            if applied.error is not None:
                raise applied.error

    async def define(self, destination: Destination, **properties: Any) -> None:
        spec = {_PROPERTIES.get(name, name): value for name, value in properties.items()}
        await self._apply(_kind(destination), _object_name(destination.name), {"name": destination.name, **spec})

    async def define_store(self, name: str, mode: str = "") -> None:
        await self._apply("Store", name.replace(".", "-"), {"name": name, **({"mode": mode} if mode else {})})

    async def define_bridge(self, source: Destination, *targets: Destination | tuple[Destination, str]) -> str:
        listed = []
        for target in targets:
            destination, selector = target if isinstance(target, tuple) else (target, "")
            listed.append({_kind(destination).lower(): destination.name, "selector": selector})
        name = f"{_object_name(source.name)}-{next(self._numbers)}"
        await self._apply("Bridge", name, {"source": {_kind(source).lower(): source.name}, "targets": listed})
        return name

    async def delete_bridge(self, name: str) -> None:
        await (await self._administrator()).delete("Bridge", name)

    async def define_durable(
        self, topic: Topic, name: str, *, client_id: str = "", selector: str = "", shared: bool = False
    ) -> None:
        spec: dict[str, Any] = {"topic": topic.name, "name": name, "selector": selector, "shared": shared}
        if client_id:
            spec["clientId"] = client_id
        await self._apply("DurableSubscription", f"d-{_object_name(client_id)}-{_object_name(name)}", spec)

    async def delete(self, destination: Destination) -> None:
        await (await self._administrator()).delete(_kind(destination), destination.name, with_messages=True)

    async def delete_empty(self, destination: Destination) -> None:
        await (await self._administrator()).delete(_kind(destination), destination.name)

    async def delete_durable(self, name: str, *, client_id: str = "") -> None:
        admin = await self._administrator()
        await admin.delete("DurableSubscription", f"{client_id}/{name}", with_messages=True)

    async def purge(self, destination: Destination) -> int:
        admin = await self._administrator()
        if isinstance(destination, Queue):
            return await admin.purge_queue(destination.name)
        return await admin.purge_topic(destination.name)

    async def purge_durable(self, name: str, *, client_id: str = "") -> int:
        return await (await self._administrator()).purge_durable(name, client_id=client_id)

    async def held(self, destination: Destination) -> Held:
        return _held(await (await self._administrator()).resource(_kind(destination), destination.name))

    async def held_by_durable(self, name: str, *, client_id: str = "") -> Held:
        admin = await self._administrator()
        return _held(await admin.resource("DurableSubscription", f"{client_id}/{name}"))

    async def effective(self, destination: Destination) -> dict[str, Any]:
        found = (await (await self._administrator()).resource(_kind(destination), destination.name)).effective
        return {_OUR_PROPERTIES.get(name, name): value["value"] for name, value in found.items()}

    async def names(self, kind: type[Destination], pattern: str = "") -> list[str]:
        admin = await self._administrator()
        found = await admin.resources(kind.__name__, pattern, temporaries=True, system=True)
        return [one.name for one in found]

    async def browse(self, queue: Queue, selector: str = "") -> Sequence[Message]:
        admin = await self._administrator()
        return [one async for one in admin.browse_queue(queue.name, selector=selector, limit=10_000)]

    async def browse_durable(self, name: str, *, client_id: str = "") -> Sequence[Message]:
        admin = await self._administrator()
        return [one async for one in admin.browse_durable(name, client_id=client_id, limit=10_000)]

    async def clients(self) -> list[str]:
        return [one.client_id for one in await (await self._administrator()).connections()]

    async def cut(self, client_id: str) -> None:
        admin = await self._administrator()
        [found] = [one for one in await admin.connections() if one.client_id == client_id]
        await admin.close_connection(found.id, reason="a test")

    async def stores(self) -> dict[str, tuple[str, int]]:
        found = (await (await self._administrator()).statistics()).stores
        return {one.name: (one.mode, one.messages) for one in found}

    async def fall(self, *, crash: bool = False) -> None:
        os.kill(self._broker.pid, signal.SIGKILL if crash else signal.SIGTERM)
        await asyncio.to_thread(self._broker.wait)

    async def restart(self, *, crash: bool = False) -> None:
        await self.end()
        self._connections.clear()
        if self._serves:
            await self.fall(crash=crash)
        # A fork takes as long as a busy machine makes it.
        await asyncio.to_thread(self._broker.launch)
        await eventually(lambda: self._broker.has_started, timeout_s=30, what="the broker to start again")

    def refusal_of(self, error: BaseException) -> Refusal | None:
        for kind in type(error).__mro__:
            if kind in _REFUSALS:
                return _REFUSALS[kind]
        return None


def _kind(destination: Destination) -> str:
    return type(destination).__name__


def _object_name(name: str) -> str:
    """A name for a manifest: it has to differ where the destination's does, and is seen by nobody."""
    plain = "".join(one if one.isascii() and one.isalnum() else "-" for one in name.lower()).strip("-")
    return f"{plain[:60].strip('-') or 'x'}-{_digest(name)}"


def _digest(name: str) -> str:
    import hashlib

    return hashlib.sha256(name.encode()).hexdigest()[:8]


def _held(resource: Resource) -> Held:
    found = resource.statistics
    return Held(
        waiting=found.flow_controlled_sessions,
        messages=found.messages,
        delivered=found.delivered_messages,
        origin=resource.origin.value,
        consumers=found.consumers,
        bytes=found.bytes,
        subscriptions=found.subscriptions,
        received=found.published_total,
        sent=found.delivered_total,
    )
