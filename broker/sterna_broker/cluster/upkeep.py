"""What the engine has, as the cluster's business needs it: which names exist, what they hold, taking them away."""

import asyncio
import json
from collections.abc import Callable, Iterator
from typing import Any

from sterna_core import Engine, EngineError
from sterna_etcd import Claim, HomeKey
from sterna_resources.resource import Resource

from sterna_broker.cluster.desk import error_of
from sterna_broker.pump import Pump
from sterna_broker.refusals import RefusedError

_PAGE = 5_000
_FEW = 250


class EngineView:
    """Asks the engine; on the loop's thread. `discard` is told what is deleted (word, name, client id)."""

    def __init__(self, pump: Pump, discard: Callable[[str, str, str], None]) -> None:
        self._pump = pump
        self._discard = discard

    def rows(self, kind: str) -> dict[str, dict[str, Any]]:
        """All queues, topics or durables by name (durables: client id, slash, name); "subscription": by number."""
        found: dict[str, dict[str, Any]] = {}
        for page in self._pages(kind, _PAGE):
            found |= page
        return found

    async def rows_by_and_by(self, kind: str) -> dict[str, dict[str, Any]]:
        """As `rows`, with a turn for others after each few hundred: what changes meanwhile may be missed."""
        found: dict[str, dict[str, Any]] = {}
        for page in self._pages(kind, _FEW):
            found |= page
            await asyncio.sleep(0)
        return found

    def _untimed(self) -> Engine:
        """The engine, for what does not depend on the time.

        At a start all that lives elsewhere is told before the time is: what expired while the broker was away must not
        be put aside where nobody is given it.
        """
        return self._pump.engine

    def _pages(self, kind: str, size: int) -> Iterator[dict[str, dict[str, Any]]]:
        after, is_full = "", True
        while is_full:
            page = {_name_of(kind, row): row for row in json.loads(self._untimed().list(kind, "", after, size))}
            yield page
            after, is_full = next(reversed(page), ""), len(page) == size

    def messages(self) -> int:
        """All messages that are here, each once: a topic's are those of its subscriptions, which may have several."""
        return _of_statistics(json.loads(self._pump.tick().statistics()))

    def subscribed(self) -> set[str]:
        """The topics and patterns that somebody subscribes to."""
        return {str(row["topic"]) for row in self.rows("subscription").values()}

    async def durable(self) -> None:
        """Until everything that was done so far is on disk.

        Raises:
            RefusedError: it will never be.
        """
        await self._pump.durable()

    def row(self, key: HomeKey) -> dict[str, Any] | None:
        """One destination; None: it does not exist."""
        rows = json.loads(self._untimed().list(key.kind, key.name, "", 1))
        return next((row for row in rows if row["name"] == key.name), None)

    def is_unused(self, key: HomeKey) -> bool:
        """Whether nothing lives under a name: no destination, or for a pattern, nobody who subscribes to it."""
        return key.name not in self.subscribed() if key.kind == "pattern" else self.row(key) is None

    def delete(self, claim: Claim, resource: Resource, *, with_messages: bool) -> int:
        """Deletes what an object describes; how many messages went with it. What does not exist has none.

        Raises:
            EngineError: it refuses: messages remain, or something else needs it.
        """
        word = {"Queue": "queue", "Topic": "topic", "DurableSubscription": "durable"}[claim.kind]
        client_id, name = "", resource.subject
        if word == "durable":
            client_id, _, name = claim.name.partition("/")
        try:
            count = self._pump.tick().delete(word, name, with_messages, client_id)
        except EngineError as error:
            if error.code in ("NO_SUCH_DESTINATION", "NO_SUCH_SUBSCRIPTION"):
                return 0
            raise
        self._discard(word, name, client_id)
        self._pump.touch()
        return count

    def leave(self, key: HomeKey, told: RefusedError) -> str:
        """Takes an empty destination out of here, telling who uses it `told`; why it stays, empty: it is gone."""
        try:
            self._pump.tick().delete(key.kind, key.name, False, "", json.dumps(error_of(told)))
        except EngineError as error:
            if error.code != "NO_SUCH_DESTINATION":
                return error.message
        finally:
            self._pump.touch()
        self._discard(key.kind, key.name, "")
        return ""

    def close_subscribers(self, topic: str, told: RefusedError) -> None:
        """Tells those who subscribe to this topic or pattern, and have got everything, `told`."""
        self._pump.tick().close_subscribers(topic, json.dumps(error_of(told)))
        self._pump.touch()

    def serve_elsewhere(self, key: HomeKey, told: RefusedError | None) -> None:
        """Serves a destination to nobody, telling who uses it `told`; or with None serves it again.

        One that is gone needs neither.
        """
        text = json.dumps(error_of(told)) if told else ""
        try:
            self._untimed().serve_elsewhere(key.kind, key.name, text)
        except EngineError as error:
            if error.code != "NO_SUCH_DESTINATION":
                raise
        self._pump.touch()

    def close_to_producers(self, key: HomeKey, reason: RefusedError | None) -> None:
        """Refuses, or takes again, what is sent to a destination; one that is gone needs neither."""
        text = json.dumps(error_of(reason)) if reason else ""
        try:
            self._pump.tick().close_to_producers(key.kind, key.name, text)
        except EngineError as error:
            if error.code != "NO_SUCH_DESTINATION":
                raise


def _name_of(kind: str, row: dict[str, Any]) -> str:
    match kind:
        case "durable":
            return f"{row['client_id']}/{row['name']}"
        case "subscription":
            return f"{row['source']:020}"
        case _:
            return str(row["name"])


def messages_of(row: dict[str, Any] | None) -> int:
    """How many messages a row's statistics tell of."""
    return _of_statistics(row["statistics"]) if row else 0


def at_stake(kind: str, row: dict[str, Any] | None) -> int:
    """How many messages a deletion would destroy: of a topic those of durable subscriptions to exactly it."""
    if kind != "Topic" or row is None:
        return messages_of(row)
    found = row["statistics"]
    return int(found.get("durable_messages", 0)) + int(found.get("durable_pending_messages", 0))


def _of_statistics(found: dict[str, Any]) -> int:
    """With what waits to come again or was sent in undecided transactions: whoever commits it has it confirmed."""
    parts = ("messages", "pending_messages", "redelivery_delayed_messages")
    return sum(int(found.get(part, 0)) for part in parts)
