"""A queue's deadLetterQueue, and what is said of messages that nobody took."""

import json
from typing import Any

import aiohttp
import pytest
import sterna
from prometheus_client.parser import text_string_to_metric_families
from sterna_broker import losses

from tests.running import manifest
from tests.waiting import eventually

MANIFESTS = [
    manifest("Queue", "plain", "maxRedelivery: 2"),
    manifest("Queue", "system", "maxRedelivery: 2, deadLetterQueue: $sys.undelivered"),
    manifest("Queue", "named", "maxRedelivery: 2, deadLetterQueue: dead"),
    manifest("Queue", "pattern", "name: 'p.>', maxRedelivery: 2, deadLetterQueue: dead"),
    manifest("Queue", "dead"),
]


async def _exhaust(connection: sterna.Connection, name: str, **options: Any) -> None:
    await connection.send(name, f"of {name}", **options)
    async with await connection.session(sterna.AcknowledgeMode.INDIVIDUAL) as session:
        consumer = await session.consumer(name)
        for _ in range(2):
            message = await consumer.receive(10)
            assert message is not None
            message.release()
        await session.flush()


async def _destroyed(running: Any) -> dict[str, float]:
    async with aiohttp.ClientSession() as http, http.get(f"http://{running.monitor}/metrics") as response:
        page = await response.text()
    families = {family.name: family for family in text_string_to_metric_families(page)}
    return {sample.labels["reason"]: sample.value for sample in families["sterna_destroyed"].samples}


@pytest.mark.covers("EMS-DEST-A23", "EMS-MSG-A08")
async def test_what_cannot_be_delivered_goes_where_its_queue_or_its_sender_wants_it(node: Any) -> None:
    running = await node(MANIFESTS)
    async with sterna.connect(f"sterna://{running.messaging}") as connection:
        for name in ("plain", "system", "named", "p.a"):
            await _exhaust(connection, name)
        await _exhaust(connection, "plain", properties={"JMS_STERNA_PRESERVE_UNDELIVERED": True})
        await connection.send("named", "short", time_to_live_ms=1)
        found: dict[str, list[tuple[Any, str, str]]] = {"dead": [], "$sys.undelivered": []}
        for place, count in (("dead", 3), ("$sys.undelivered", 2)):
            consumer = await connection.consumer(place)
            for _ in range(count):
                message = await consumer.receive(10)
                assert message is not None, found
                found[place].append((message.body, message.reason, message.destination.name))
    assert sorted(found["dead"]) == [
        ("of named", "MAX_REDELIVERY", "named"),
        ("of p.a", "MAX_REDELIVERY", "p.a"),
        ("short", "EXPIRED", "named"),
    ]
    assert sorted(found["$sys.undelivered"]) == [
        ("of plain", "MAX_REDELIVERY", "plain"),
        ("of system", "MAX_REDELIVERY", "system"),
    ]
    # Of all these only the plain one that nobody wanted kept is gone.
    destroyed = await _destroyed(running)
    assert destroyed == {
        **dict.fromkeys(("damaged", "deleted", "discarded", "expired", "purged"), 0.0),
        "max_redelivery": 1.0,
    }


class Log:
    """Keeps what is logged."""

    def __init__(self) -> None:
        self.lines: list[dict[str, Any]] = []

    def warning(self, event: str, **fields: Any) -> None:
        """As structlog's."""
        self.lines.append({"event": event, **fields})


@pytest.fixture
def log(monkeypatch: pytest.MonkeyPatch) -> Log:
    """In the place of the module's logger."""
    kept = Log()
    monkeypatch.setattr(losses, "_log", kept)
    return kept


async def test_what_is_destroyed_is_logged_once_for_each_place(node: Any, log: Log) -> None:
    running = await node(MANIFESTS)
    async with sterna.connect(f"sterna://{running.messaging}") as connection:
        for _ in range(5):
            await _exhaust(connection, "plain")
        for _ in range(3):
            await connection.send("plain", "short", time_to_live_ms=1)

        async def expired() -> bool:
            return (await _destroyed(running))["expired"] == 3

        await eventually(expired)
        running._parts.losses.tell()
        running._parts.losses.tell()
    assert log.lines == [
        {"event": "messages_destroyed", "name": "plain", "reason": "max_redelivery", "messages": 5},
        {"event": "messages_destroyed", "name": "plain", "reason": "expired", "messages": 3},
    ]


def test_however_many_places_lose_messages_the_lines_are_bounded(log: Log) -> None:
    class Engine:
        def destroyed(self) -> str:
            places = [{"name": f"q{number}", "reason": "EXPIRED", "messages": number} for number in range(256)]
            return json.dumps({"totals": {}, "places": places, "elsewhere": 7})

    class Pump:
        def tick(self) -> Engine:
            return Engine()

    told = losses.Losses(Pump())  # type: ignore[arg-type]
    told.tell()
    told.tell()
    assert len(log.lines) == 21
    assert log.lines[0]["name"] == "q255"
    named = sum(line["messages"] for line in log.lines[:-1])
    assert log.lines[-1] == {"event": "more_messages_destroyed", "messages": sum(range(256)) + 7 - named}
