"""The Admin service: what the command line and the console do, one method a call.

Configuration is asked of and changed through LiveConfiguration; what things hold now, of the engine. A resource is
known by its destination's name (queues, topics) or its object's name (the others).
"""

import asyncio
import contextlib
import json
from collections.abc import AsyncGenerator
from typing import Any

import structlog
from sterna_resources import names
from sterna_resources.kinds import KINDS, suggestion

from sterna_broker.cluster.desk import ClusterDesk
from sterna_broker.configuration.applied import OWNER
from sterna_broker.configuration.live import LiveConfiguration, Outcome
from sterna_broker.configuration.objects import Entry
from sterna_broker.contract import admin, messaging
from sterna_broker.pump import Pump
from sterna_broker.refusals import RefusedError
from sterna_broker.server import browsing
from sterna_broker.server.listing import ENGINE_KINDS, Listing
from sterna_broker.server.rows import fill
from sterna_broker.statistics import StatisticsSource
from sterna_broker.whole import to_its_end

_log = structlog.get_logger(part="admin")

_CHANGES = {
    "unchanged": admin.Applied.UNCHANGED,
    "created": admin.Applied.CREATED,
    "configured": admin.Applied.CONFIGURED,
    "refused": admin.Applied.REFUSED,
}


class Administration:
    """The handlers of the service."""

    def __init__(
        self, pump: Pump, live: LiveConfiguration, statistics: StatisticsSource, desk: ClusterDesk | None = None
    ) -> None:
        self._pump = pump
        self._desk = desk
        self._live = live
        self._statistics = statistics
        self._listing = Listing(pump, live, desk.other_home if desk is not None else lambda *_: "")

    async def list(self, request: admin.ListRequest) -> admin.ListResponse:
        """A page of the resources of a kind."""
        return self._listing.page(request, _known_kind(request.kind))

    async def get(self, request: admin.GetRequest) -> admin.Resource:
        """One resource by name; what it holds is known where it lives."""
        kind = _known_kind(request.kind)
        if kind in ENGINE_KINDS:
            entry, row = await self._found(kind, request.name)
            self._check_here(kind, request.name, entry)
            resource = self._listing.of(kind, request.name, entry, row)
        else:
            resource = self._listing.one(kind, request.name)
        if resource is None:
            raise _no_such(kind, request.name)
        return resource

    async def apply(self, request: admin.ApplyRequest) -> admin.ApplyResponse:
        """Makes the described resources so: all, or none when one is refused."""
        how = {"dry_run": request.dry_run, "create_only": request.create_only}
        texts = [(request.source or "manifest", request.manifests)]
        texts += [(file.source or "manifest", file.manifests) for file in request.files]
        outcomes = await self._live.apply_all(texts, **how)
        self._pump.touch()
        if not request.dry_run:
            await self._pump.durable()
        return admin.ApplyResponse(applied=[_applied(outcome) for outcome in outcomes])

    async def delete(self, request: admin.DeleteRequest) -> admin.DeleteResponse:
        """Deletes a resource, with what it holds only if told so."""
        kind = _known_kind(request.kind)
        entry, row = await self._found(kind, request.name)
        if entry is None and row is None:
            raise _no_such(kind, request.name)
        revision = 0 if entry is None else await self._live.prepare_delete(entry)
        held = await to_its_end(self._delete(kind, entry, row, revision, with_messages=request.with_messages))
        await self._pump.durable()
        _log.info("deleted", kind=kind, name=request.name, messages=held, actor=OWNER)
        return admin.DeleteResponse(messages=held)

    async def _found(self, kind: str, name: str) -> tuple[Entry | None, dict[str, Any] | None]:
        """What the configuration and the engine have of it, once it is not about to leave, or to come.

        Raises:
            RefusedError: MOVED, where it is not here.
        """
        row = self._listing.row(kind, name)
        if self._desk is not None and row is None:
            # It may be on its way to another broker, or have come here just now.
            await self._desk.stays(kind, name)
            await self._live.settled()
            self._check_here(kind, name, self._live.objects.named(kind, name))
            await self._live.follows(kind, name, lambda: self._listing.row(kind, name) is not None)
            row = self._listing.row(kind, name)
        entry = self._live.objects.named(kind, name)
        if row is None:
            self._check_here(kind, name, entry)
        return entry, row

    async def _delete(
        self, kind: str, entry: Entry | None, row: dict[str, Any] | None, revision: int, *, with_messages: bool
    ) -> int:
        """Deletes what is there in the engine and in the configuration; how many messages went with it."""
        held = 0
        if row is not None:
            # The engine first: it refuses while messages remain, and then nothing has changed.
            word, client_id = ENGINE_KINDS[kind], str(row.get("client_id", ""))
            held = self._pump.tick().delete(word, str(row["name"]), with_messages, client_id)
            self._live.discard(word, str(row["name"]), client_id)
            self._pump.touch()
        if entry is not None:
            await self._live.delete(entry, revision)
            self._pump.touch()
        elif kind in ("Queue", "Topic"):
            # Where a bridge leads to it, it is to be there all the same.
            await self._live.restore()
            self._pump.touch()
        await self._live.has_room()
        return held

    async def purge(self, request: admin.PurgeRequest) -> admin.PurgeResponse:
        """Drops all messages of a queue, a topic's subscriptions, a durable subscription, or a name of delayed ones."""
        what, client_id = request.WhichOneof("what"), ""
        if what == "queue":
            kind, name = "Queue", request.queue
        elif what == "topic":
            kind, name = "Topic", request.topic
        elif what == "durable":
            kind, name, client_id = "DurableSubscription", request.durable.name, request.durable.client_id
        else:
            raise RefusedError("INVALID_ARGUMENT", "what", "Nothing is named.", "Name a queue, a topic or a durable.")
        await self._until_here(kind, name, client_id)
        count = self._pump.tick().purge(what, name, client_id)
        self._pump.touch()
        await self._pump.durable()
        _log.info("purged", kind=what, name=name, client_id=client_id, messages=count, actor=OWNER)
        return admin.PurgeResponse(messages=count)

    async def browse(self, request: admin.BrowseRequest) -> AsyncGenerator[admin.BrowseResponse, None]:
        """Looks at messages without taking them."""
        if request.WhichOneof("what") == "queue":
            await self._until_here("Queue", request.queue)
        elif request.WhichOneof("what") == "durable":
            await self._until_here("DurableSubscription", request.durable.name, request.durable.client_id)
        async with contextlib.aclosing(browsing.browse(self._pump, request)) as answers:
            async for answer in answers:
                yield answer

    async def get_statistics(self, _request: admin.StatisticsRequest) -> admin.Statistics:
        """What the broker as a whole is and does."""
        return self._statistics.message()

    async def list_connections(self, _request: admin.ListConnectionsRequest) -> admin.ListConnectionsResponse:
        """Who is connected."""
        rows: list[dict[str, Any]] = json.loads(self._pump.tick().connections())
        response = admin.ListConnectionsResponse()
        for index, row in enumerate(rows):
            if str(row.get("peer", "")).startswith("internal:"):
                continue
            fill(response.connections.add(), row)
            if index % 500 == 499:
                await asyncio.sleep(0)
        return response

    async def close_connection(self, request: admin.CloseConnectionRequest) -> admin.CloseConnectionResponse:
        """Closes a connection as the broker would a broken one."""
        if not self._pump.tick().close_connection(request.id, request.reason or "closed by an administrator"):
            message = f"There is no connection {request.id}."
            raise RefusedError("CLOSED", "id", message, "List the connections: it may have gone by itself.")
        self._pump.touch()
        _log.info("connection_closed", connection=request.id, actor=OWNER)
        return admin.CloseConnectionResponse()

    async def _until_here(self, kind: str, name: str, client_id: str = "") -> None:
        """Waits for what has come here just now; what is here and lives elsewhere by now is refused, too.

        Raises:
            RefusedError: MOVED.
        """
        if self._desk is None:
            return
        listed = name
        if kind == "DurableSubscription":
            listed = f"{client_id}/{name}"
        elif name.startswith(names.DELAYED_TOPIC_PREFIX):
            kind, listed = "Topic", name.removeprefix(names.DELAYED_TOPIC_PREFIX)
        elif kind == "Queue":
            listed = name.removeprefix(names.DELAYED_QUEUE_PREFIX)
        await self._found(kind, listed)
        self._check_here(kind, listed, None)

    def _check_here(self, kind: str, name: str, entry: Entry | None) -> None:
        """Refuses what lives on another broker of the cluster, saying where (MOVED).

        Raises:
            RefusedError: MOVED.
        """
        if self._desk is not None and (moved := self._desk.elsewhere(kind, name, entry)):
            raise moved


def _known_kind(kind: str) -> str:
    if kind in KINDS:
        return kind
    hint = suggestion(kind, list(KINDS))
    raise RefusedError("INVALID_ARGUMENT", "kind", f"There is no kind '{kind}'{hint}.", f"One of {', '.join(KINDS)}.")


def _no_such(kind: str, name: str) -> RefusedError:
    code = "NO_SUCH_SUBSCRIPTION" if kind == "DurableSubscription" else "NO_SUCH_DESTINATION"
    return RefusedError(code, name[:256], f"There is no {kind} '{name[:256]}'.", f"List the {KINDS[kind].PLURAL}.")


def _applied(outcome: Outcome) -> admin.Applied:
    applied = admin.Applied(
        kind=outcome.kind,
        name=outcome.name,
        change=_CHANGES[outcome.change],
        changes=outcome.changes,
        warnings=outcome.warnings,
    )
    if outcome.refusal is not None:
        applied.error.CopyFrom(outcome.refusal.error)
    elif outcome.problems:
        first = outcome.problems[0]
        applied.error.CopyFrom(
            messaging.Error(
                code=messaging.INVALID_ARGUMENT,
                subject=first.field,
                message="\n".join(str(problem) for problem in outcome.problems),
                remedy="Correct the manifest and apply it again; docs/reference/manifests.md describes every field.",
            )
        )
    return applied
