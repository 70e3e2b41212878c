"""A watch that does not end: it lists, follows, resumes where it was, and lists again when it must.

- First comes everything there is, as one batch; then every change, each revision's changes in one batch.
- When the stream breaks, the member freezes or loses its leader, another endpoint goes on from the revision that was
  seen last. A member that answers nothing, not even a request for progress, counts as frozen.
- When that revision has been compacted meanwhile, everything is listed again; the batch has what changed since, and a
  deletion for each key that is gone.
- Before a (re)opened stream is believed, `verify` is asked whether this is still the same etcd; and a revision that
  went back is never believed. While that is in doubt nothing is delivered, and it is asked again and again.

The watch remembers the keys it has told of (not their values): that is what the deletions are computed from.
"""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import grpc

from sterna_etcd import values
from sterna_etcd.endpoints import Endpoint, outliving_channel
from sterna_etcd.errors import CompactedError, EtcdError, NotDoneError, UnavailableError, Verdict, classified
from sterna_etcd.proto import etcd_pb2 as pb
from sterna_etcd.values import KeyValue

if TYPE_CHECKING:
    from sterna_etcd.client import Etcd

# Raises EtcdError when this etcd is not to be believed.
Verify = Callable[[], Awaitable[None]]

_RETRY_S = 0.2
# So many keys of a list are compared at once.
_PAUSE_EVERY = 2_000


class RevisionWentBackError(NotDoneError):
    """etcd is at an earlier revision than it was: it was emptied, or restored from an old copy."""


@dataclass(frozen=True, slots=True)
class Event:
    """A key's new state; `current` None: it is gone.

    `revision` is that of the change itself. A batch may tell of several changes of one key, and its revision is the
    last one's: a key that was removed and written again is not gone at the revision at which it was written. What a
    listing does not have any more is gone at the listing's revision: nobody knows better.
    """

    key: str
    current: KeyValue | None
    revision: int


@dataclass(frozen=True)
class Batch:
    """Changes that belong together. `is_listing`: found by listing, so that what happened in between is not told."""

    revision: int
    events: list[Event]
    is_listing: bool


class Watch:
    """See the module. Iterate over `batches()`; `fault` says what is wrong now, None when it follows."""

    def __init__(self, client: "Etcd", prefix: str, until: str, verify: Verify | None, idle_s: float) -> None:
        self.prefix = prefix
        self.until = until
        self.fault: EtcdError | None = UnavailableError("etcd: not asked yet")
        self.revision = 0
        self.on_fault: Callable[[EtcdError | None], None] | None = None
        self._client = client
        self._verify = verify
        self._idle_s = idle_s
        self._known: dict[str, int] = {}
        self._listed = False
        self._doubted = False

    def seed(self, known: dict[str, int], revision: int) -> None:
        """What the caller has from before, keys with their revisions: the first listing tells what is different."""
        self._known = dict(known)
        self.revision = revision

    def doubt(self) -> None:
        """What was told last is not to be believed: everything is verified and listed again before more is told."""
        self._listed = False
        self._doubted = True

    async def batches(self) -> AsyncGenerator[Batch, None]:
        """Runs until it is closed; failures of etcd only make it wait."""
        while True:
            try:
                if not self._listed:
                    yield await self._list()
                async with aclosing(self._follow()) as following:
                    async for batch in following:
                        yield batch
                        if self._doubted:
                            break
                self._doubted = False
            except CompactedError:
                self._listed = False
                continue
            except EtcdError as error:
                self._note(error)
                if not isinstance(error, UnavailableError):
                    # This endpoint answers, and not as it should; another one may be right.
                    self._client.leave_current()
            await asyncio.sleep(_RETRY_S)

    def _note(self, fault: EtcdError | None) -> None:
        changed = str(fault) != str(self.fault)
        self.fault = fault
        if changed and self.on_fault is not None:
            self.on_fault(fault)

    async def _list(self) -> Batch:
        await self._check()
        listed = await self._client.list_all(self.prefix, until=self.until)
        if listed.revision < self.revision:
            raise _went_back(listed.revision, self.revision)
        known: dict[str, int] = {}
        changed: list[Event] = []
        for number, pair in enumerate(listed.values):
            if number % _PAUSE_EVERY == _PAUSE_EVERY - 1:
                # There may be hundreds of thousands: others have their turn.
                await asyncio.sleep(0)
            known[pair.key] = pair.mod_revision
            if self._known.get(pair.key) != pair.mod_revision:
                changed.append(Event(pair.key, pair, pair.mod_revision))
        events = [Event(key, None, listed.revision) for key in self._known if key not in known]
        events += changed
        self._known = known
        self.revision, self._listed = listed.revision, True
        return Batch(listed.revision, events, is_listing=True)

    async def _check(self) -> None:
        if self._verify is not None:
            await self._verify()

    async def _follow(self) -> AsyncGenerator[Batch, None]:
        endpoint, call = await self._client.open_watch()
        reading: asyncio.Task[Any] | None = None
        try:
            await self._write(call, pb.WatchRequest(create_request=self._create_request()))
            asked = False
            # Nothing may come for long that would have the doubt noticed: then the next sign of life does.
            while not self._doubted:
                reading = reading or asyncio.create_task(call.read(), name="etcd-watch-read")
                done, _ = await asyncio.wait((reading,), timeout=self._idle_s)
                if not done:
                    if asked:
                        raise UnavailableError(f"etcd: {endpoint.url} has gone silent")
                    asked = True
                    await self._write(call, pb.WatchRequest(progress_request=pb.WatchProgressRequest()))
                    continue
                asked = False
                if reading.cancelled():
                    # Its channel was closed, for another with a newer certificate.
                    raise UnavailableError(f"etcd: the connection to {endpoint.url} was closed")
                response = reading.result()
                reading = None
                if response is grpc.aio.EOF:
                    raise UnavailableError(f"etcd: {endpoint.url} ended the watch")
                batch = await self._take(response)
                if batch is not None:
                    yield batch
        except grpc.aio.AioRpcError as error:
            raise self._broken(endpoint, error) from error
        except (asyncio.InvalidStateError, TimeoutError) as error:
            # The call had ended when it was written to, or takes nothing any more.
            self._client.leave(endpoint)
            raise UnavailableError(f"etcd: {endpoint.url} ended the watch") from error
        except UnavailableError:
            self._client.leave(endpoint)
            raise
        finally:
            call.cancel()
            if reading is not None:
                reading.cancel()
                await asyncio.gather(reading, return_exceptions=True)

    async def _write(self, call: Any, request: Any) -> None:
        ended = UnavailableError("etcd: the connection of a watch was closed")
        async with asyncio.timeout(self._idle_s):
            with outliving_channel(ended):
                await call.write(request)

    def _create_request(self) -> Any:
        return pb.WatchCreateRequest(
            key=self.prefix.encode(),
            range_end=self.until.encode() if self.until else values.prefix_end(self.prefix),
            # Not the one after it: while that does not exist yet, etcd answers no request for progress, and a store in
            # which nothing changes would look like a member that has frozen. What comes again is passed over.
            start_revision=self.revision,
            progress_notify=True,
        )

    def _broken(self, endpoint: Endpoint, error: grpc.aio.AioRpcError) -> EtcdError:
        verdict, failure = classified(error)
        if verdict is Verdict.AUTHENTICATE:
            self._client.forget_token()
        else:
            self._client.leave(endpoint)
        return failure if isinstance(failure, NotDoneError) else UnavailableError(f"etcd: {error.details()}")

    async def _take(self, response: Any) -> Batch | None:
        if response.canceled:
            if response.compact_revision:
                raise CompactedError("etcd: the watch's revision is compacted", response.compact_revision)
            if "token" in response.cancel_reason or "auth" in response.cancel_reason:
                self._client.forget_token()
            raise UnavailableError(f"etcd canceled the watch: {response.cancel_reason or 'no reason given'}")
        if response.created:
            await self._believe(response.header.revision)
            self._note(None)
            return None
        if not response.events:
            # Progress that etcd tells of a watch by itself covers all events before it. Progress that was asked for
            # (it comes under the number -1) is taken as a sign of life only.
            if response.watch_id >= 0:
                self.revision = max(self.revision, response.header.revision)
            return None
        events = []
        for one in response.events:
            if one.kv.mod_revision <= self.revision:
                continue
            pair = values.key_value(one.kv)
            if one.type == pb.Event.DELETE:
                self._known.pop(pair.key, None)
                events.append(Event(pair.key, None, one.kv.mod_revision))
            else:
                self._known[pair.key] = pair.mod_revision
                events.append(Event(pair.key, pair, one.kv.mod_revision))
        if not events:
            return None
        # Not the header's revision: while the watch catches up, that is ahead of what has been told.
        self.revision = max(self.revision, response.events[-1].kv.mod_revision)
        return Batch(self.revision, events, is_listing=False)

    async def _believe(self, revision: int) -> None:
        """Asks whether this is the same etcd, and whether it has gone on since."""
        await self._check()
        if revision < self.revision:
            # A member may lag behind; a linearizable read tells that from an etcd that has gone back.
            got = await self._client.get(self.prefix)
            if got.revision < self.revision:
                raise _went_back(got.revision, self.revision)


def _went_back(now: int, before: int) -> RevisionWentBackError:
    return RevisionWentBackError(
        f"etcd is at revision {now} and was at {before}: it was emptied, or restored from an old copy"
    )
