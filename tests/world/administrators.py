"""Administrators: who empties and deletes queues, who makes bridges and durable subscriptions and takes them away."""

from __future__ import annotations

import asyncio

import sterna
import sterna.admin
from sterna import DeliveryMode, Queue, errors

from tests.running import manifest
from tests.world.facts import Sending
from tests.world.programs import Application, CutError


async def administrator(app: Application, connection: sterna.Connection, steps: int) -> None:
    """Empties or deletes a queue now and then: what was in it before is gone by order."""
    del connection
    async with sterna.admin.connect(app.url) as admin:
        for _ in range(steps // 8 + 1):
            await app.pause()
            queue = app.random.choice(app.queues)
            if app.is_over or app.random.random() < 0.5:
                break
            deletes = app.random.random() < 0.3
            app.facts.begin_to_empty(queue, deletes=deletes)
            try:
                if deletes:
                    await app.call("delete", admin.delete("Queue", queue, with_messages=True))
                else:
                    await app.call("purge", admin.purge_queue(queue))
            except (CutError, errors.SternaError):
                pass  # it may take effect all the same, a little later
            app.facts.has_emptied(queue, app.now_s() + 1.0)


async def configurer(app: Application, connection: sterna.Connection, steps: int) -> None:
    """Makes durable subscriptions by manifests and deletes them, by their objects' names or by what listings show."""
    del connection
    async with sterna.admin.connect(app.url) as admin:
        for _ in range(steps // 8 + 1):
            if app.is_over:
                break
            name = app.key()
            listed = f"client.{name}/{name}"
            spec = f"topic: weather, clientId: client.{name}, name: {name}"
            try:
                applied = await app.call("apply", admin.apply(manifest("DurableSubscription", name, spec)))
                if not all(one.error is None for one in applied):
                    return  # in a cluster only the operator does
                app.facts.configured[listed] = True
                await app.pause()
                if app.random.random() < 0.6:
                    app.facts.configured.pop(listed)
                    called = listed if app.random.random() < 0.5 else name
                    await app.call("delete durable", admin.delete("DurableSubscription", called, with_messages=True))
                    app.facts.configured[listed] = False
            except (CutError, errors.SternaError):
                app.facts.configured.pop(listed, None)
            await app.pause()


async def bridger(app: Application, connection: sterna.Connection, steps: int) -> None:
    """Bridges a queue to another one, which somebody deletes, and goes on sending."""
    source, target = f"from.{app.key()}", f"to.{app.key()}"
    spec = f"source: {{queue: {source}}}, targets: [{{queue: {target}}}]"
    async with sterna.admin.connect(app.url) as admin:
        applied = await app.call("apply", admin.apply(manifest("Bridge", app.key(), spec)))
        if not all(one.error is None for one in applied):
            return  # in a cluster only the operator does
        producer = await app.call("producer", connection.producer(Queue(source)))
        has_looked_s = 0.0
        for _ in range(steps // 3 + 1):
            if app.is_over:
                break
            what = "what is sent to a bridge's source is refused"
            try:
                if app.random.random() < 0.2:
                    what = "a bridge's target is missing"
                    await app.call("delete", admin.delete("Queue", target, with_messages=True))
                    what = "what is sent to a bridge's source is refused"
                await app.call("send over a bridge", producer.send("x"))
            except errors.NoSuchDestinationError as error:
                if "missing" in what and has_looked_s < app.now_s():
                    # Another broker makes it again, and hears of it by etcd.
                    has_looked_s = app.now_s() + 20
                    await asyncio.sleep(10)
                    continue
                app.facts.odd.append(f"{app.name}: {what}: {error}")
                return
            except CutError:
                continue


async def mortal(app: Application, connection: sterna.Connection, steps: int) -> None:
    """Sends what lives for a while only; clocks that are set back do not shorten that."""
    queue, lane = app.random.choice(app.queues), app.key()
    producer = await app.call("producer", connection.producer(Queue(queue)))
    for _ in range(steps):
        if app.is_over:
            break
        sending: Sending = app.sending(queue, lane, DeliveryMode.PERSISTENT)
        sending.lives_s = app.random.choice((0.05, 2_000.0, 2_000.0, 2_000.0))
        try:
            life_ms = round(sending.lives_s * 1000)
            await app.call("send mortal", producer.send(sending.key, time_to_live_ms=life_ms))
        except CutError:
            sending.outcome = "unknown"
        except errors.SternaError as error:
            sending.outcome = "refused" if app.is_certain(error) else "unknown"
            if connection.closed is not None:
                return
        else:
            sending.outcome = "confirmed"
        await app.pause()
