"""What etcd does for Sterna, case by case: each passes on the model and on a real one.

`tests/world/test_etcd_model.py` runs them on the model, `tests/etcd/test_model_cases.py` on a real etcd.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from typing import Any, Final, Protocol

import pytest
from sterna_etcd import (
    CompactedError,
    Delete,
    Etcd,
    Get,
    InvalidRequestError,
    Layout,
    LeaseNotFoundError,
    Put,
    RevisionWentBackError,
    StoreIdentity,
    StoreReplacedError,
    UnavailableError,
    Watch,
    absent,
    create_revision,
    equals,
    mod_revision,
    unchanged_since,
    wire,
)
from sterna_etcd.proto import etcd_pb2 as pb
from sterna_etcd.watch import Batch


class Place(Protocol):
    """Where a case is shown: an etcd of one member, and what can be done to it."""

    prefix: str

    def client(self, **settings: Any) -> Etcd:
        """A client of it."""

    async def kill(self) -> None:
        """SIGKILL."""

    async def start(self) -> None:
        """Starts it again, with what it has."""

    async def wipe(self) -> None:
        """Empties it; not while it runs."""

    async def copy(self) -> None:
        """Keeps a copy; not while it runs."""

    async def restore(self) -> None:
        """Puts the copy in its place; not while it runs."""


async def until(check: Callable[[], Any], timeout_s: float = 30.0) -> None:
    """Waits for a condition, by the loop's clock."""
    loop = asyncio.get_running_loop()
    deadline_s = loop.time() + timeout_s
    while not ((answer := check()) if not asyncio.iscoroutinefunction(check) else (answer := await check())):
        assert loop.time() < deadline_s, f"it did not come true: {answer!r}"
        await asyncio.sleep(0.02)


class Follower:
    """The state that a watch's batches add up to, and the batches. Ends with its block."""

    def __init__(self, watch: Watch) -> None:
        self.watch = watch
        self.batches: list[Batch] = []
        self.state: dict[str, bytes] = {}

    async def __aenter__(self) -> Follower:
        self._task = asyncio.create_task(self._run())
        await until(lambda: self.batches and self.watch.fault is None)
        return self

    async def __aexit__(self, *_: object) -> None:
        self._task.cancel()
        await asyncio.wait((self._task,))

    async def _run(self) -> None:
        async for batch in self.watch.batches():
            self.batches.append(batch)
            for event in batch.events:
                if event.current is None:
                    assert event.key in self.state, "a deletion of what was never there"
                    del self.state[event.key]
                else:
                    self.state[event.key] = event.current.value

    async def same(self, etcd: Etcd) -> None:
        """Until it has what etcd has."""

        async def is_same() -> bool:
            listed = await etcd.list_all(self.watch.prefix)
            return self.state == {pair.key: pair.value for pair in listed.values}

        await until(is_same)


async def put_and_got(place: Place) -> None:
    """A key's revisions and version; a key that is made anew begins anew."""
    etcd, key = place.client(), place.prefix + "a"
    assert (await etcd.get(key)).found is None
    first = await etcd.put(key, b"one")
    second = await etcd.put(key, b"two")
    found = (await etcd.get(key)).found
    assert found is not None
    assert (found.value, found.create_revision, found.mod_revision, found.version) == (b"two", first, second, 2)
    assert second == first + 1
    assert await etcd.delete(key) == 1
    assert await etcd.delete(key) == 0
    assert (await etcd.get(key)).revision == second + 1, "what removes nothing is no revision"
    third = await etcd.put(key, b"three")
    found = (await etcd.get(key)).found
    assert found is not None
    assert (found.create_revision, found.version) == (third, 1)


async def ranges(place: Place) -> None:
    """Pages are of one revision, and of nothing beside the prefix."""
    etcd = place.client()
    names = [f"{place.prefix}{number:03}" for number in range(25)]
    for name in (*names, place.prefix[:-1], place.prefix[:-1] + "0"):
        await etcd.put(name, name.encode())
    assert [pair.key for pair in (await etcd.list_all(place.prefix, page=10)).values] == names
    assert [pair.key for pair in (await etcd.list_all(names[5], until=names[8])).values] == names[5:8]
    before = await etcd.get(names[0])
    await etcd.put(names[0], b"later")
    request = pb.RangeRequest(key=names[0].encode(), revision=before.revision)
    assert (await etcd.call(wire.RANGE, request)).kvs[0].value == names[0].encode()
    assert await etcd.delete(place.prefix, is_prefix=True) == 25


async def transactions(place: Place) -> None:
    """One branch, whole, at one revision."""
    etcd, a, b = place.client(), place.prefix + "a", place.prefix + "b"
    first = await etcd.transact([absent(a)], [Put(a, b"1"), Put(b, b"1"), Get(a)])
    assert first.succeeded
    found = first.results[2]
    assert found is not None
    assert not isinstance(found, int)
    assert (found.value, found.mod_revision) == (b"1", first.revision)
    assert {pair.mod_revision for pair in (await etcd.list_all(place.prefix)).values} == {first.revision}
    again = await etcd.transact([absent(a)], [Put(a, b"2")], [Get(a), Get(place.prefix + "none")])
    assert (again.succeeded, again.revision) == (False, first.revision)
    assert again.results[1] is None
    done = await etcd.transact([mod_revision(a, first.revision), equals(a, b"1")], [Delete(a), Put(b, b"2")])
    assert done.results == [1, None]
    assert not (await etcd.transact([equals(a, b"1")], [Put(a, b"3")])).succeeded
    assert (await etcd.transact([create_revision(b, first.revision)], [])).succeeded


async def unchanged(place: Place) -> None:
    """Whether anything below a prefix was written since; a key that was removed is not seen."""
    etcd = place.client()
    assert (await etcd.transact([unchanged_since(place.prefix, 0)], [])).succeeded, "of nothing everything holds"
    revision = await etcd.put(place.prefix + "a", b"")
    assert (await etcd.transact([unchanged_since(place.prefix, revision)], [])).succeeded
    assert not (await etcd.transact([unchanged_since(place.prefix, revision - 1)], [])).succeeded
    await etcd.put(place.prefix + "b", b"")
    assert not (await etcd.transact([unchanged_since(place.prefix, revision)], [])).succeeded
    await etcd.delete(place.prefix + "b")
    assert (await etcd.transact([unchanged_since(place.prefix, revision)], [])).succeeded


async def refusals(place: Place) -> None:
    """What etcd refuses was not done."""
    etcd, a = place.client(), place.prefix + "a"
    with pytest.raises(InvalidRequestError, match="duplicate key"):
        await etcd.transact([], [Put(a, b"1"), Put(a, b"2")])
    with pytest.raises(InvalidRequestError, match="duplicate key"):
        await etcd.transact([], [Delete(place.prefix, is_prefix=True), Put(a, b"2")])
    with pytest.raises(InvalidRequestError, match="too many operations"):
        await etcd.transact([], [Put(f"{a}{number}", b"") for number in range(129)])
    for size in (1_700_000, 3_000_000):
        with pytest.raises(InvalidRequestError, match="large"):
            await etcd.put(a, bytes(size))
    with pytest.raises(LeaseNotFoundError):
        await etcd.transact([], [Put(a, b""), Put(a + "b", b"", lease=77)])
    with pytest.raises(LeaseNotFoundError):
        await etcd.revoke(77)
    with pytest.raises(InvalidRequestError, match="key is not provided"):
        await etcd.put("", b"")
    assert (await etcd.list_all(place.prefix)).values == []


async def compaction(place: Place) -> None:
    """What was before it is gone, and said to be."""
    etcd, a, b = place.client(), place.prefix + "a", place.prefix + "b"
    first = await etcd.put(a, b"1")
    await etcd.put(b, b"1")
    await etcd.delete(b)
    last = await etcd.put(a, b"2")
    await etcd.compact(last)
    for revision in (last, last - 1):
        with pytest.raises(CompactedError):
            await etcd.compact(revision)
    with pytest.raises(CompactedError):
        await etcd.call(wire.RANGE, pb.RangeRequest(key=a.encode(), revision=first))
    with pytest.raises(InvalidRequestError, match="future revision"):
        await etcd.compact(last + 1000)
    assert [pair.value for pair in (await etcd.list_all(place.prefix)).values] == [b"2"]
    found = await etcd.call(wire.RANGE, pb.RangeRequest(key=a.encode(), revision=last))
    assert found.kvs[0].version == 2


async def leases(place: Place) -> None:
    """A lease keeps its keys as long as it is kept, and takes them along at one revision."""
    etcd, a, b = place.client(), place.prefix + "a", place.prefix + "b"
    lease = await etcd.lease(2)
    for key in (a, b):
        await etcd.put(key, b"", lease=lease.id)
    await asyncio.sleep(5)  # longer than it would live by itself
    assert lease.is_alive
    found = (await etcd.get(a)).found
    assert found is not None
    assert found.lease == lease.id
    async with Follower(etcd.watch(place.prefix)) as follower:
        await lease.revoke()
        await until(lambda: not follower.state)
        assert [len(batch.events) for batch in follower.batches] == [2, 2]
    with pytest.raises(LeaseNotFoundError):
        await etcd.put(a, b"", lease=lease.id)
    other = await etcd.lease(2)
    await etcd.put(a, b"", lease=other.id)
    await etcd.put(a, b"of nobody")
    await etcd.put(b, b"", lease=other.id)
    await other.stop()

    async def has_ended() -> bool:
        return (await etcd.get(b)).found is None

    await until(has_ended)
    assert (await etcd.get(a)).found is not None, "what was written since without it does not hang on it"


async def lease_of_somebody_else(place: Place) -> None:
    """One that was revoked elsewhere is lost; a repeated grant is the same lease."""
    etcd = place.client()
    lease = await etcd.lease(2)
    with pytest.raises(InvalidRequestError, match="lease already exists"):
        await etcd.call(wire.LEASE_GRANT, pb.LeaseGrantRequest(TTL=2, ID=lease.id))
    await etcd.revoke(lease.id)
    async with asyncio.timeout(10):
        await lease.lost.wait()
    assert await etcd.keep_alive(lease.id, 5.0) == 0
    await lease.stop()


async def a_lease_over_a_restart(place: Place) -> None:
    """While etcd is away nothing ends; afterwards each lease has all of its time again."""
    etcd = place.client()
    lease = await etcd.lease(3)
    await etcd.put(place.prefix + "a", b"", lease=lease.id)
    await lease.stop()
    await place.kill()
    await asyncio.sleep(4)
    await place.start()
    assert (await etcd.get(place.prefix + "a")).found is not None

    async def has_ended() -> bool:
        return (await etcd.get(place.prefix + "a")).found is None

    await until(has_ended)


async def watching(place: Place) -> None:
    """It lists, then tells each revision's changes as one."""
    etcd = place.client()
    for number in range(20):
        await etcd.put(f"{place.prefix}{number}", b"")
    await etcd.put(place.prefix[:-1] + "0", b"beside")
    async with Follower(etcd.watch(place.prefix)) as follower:
        assert follower.batches[0].is_listing
        await etcd.transact([], [Put(place.prefix + "x", b"1"), Put(place.prefix + "y", b"1")])
        await follower.same(etcd)
        await etcd.delete(place.prefix, is_prefix=True)
        await follower.same(etcd)
        assert [len(batch.events) for batch in follower.batches] == [20, 2, 22]
        assert not any(batch.is_listing for batch in follower.batches[1:])


async def quiet(place: Place) -> None:
    """A store in which nothing changes answers the requests for progress."""
    etcd = place.client()
    await etcd.put(place.prefix + "a", b"1")
    watch = etcd.watch(place.prefix, idle_ms=500)
    async with Follower(watch) as follower:
        faults: list[object] = []
        watch.on_fault = faults.append
        await asyncio.sleep(4)
        assert faults == []
        await etcd.put(place.prefix + "b", b"2")
        await follower.same(etcd)
        assert [event.key for batch in follower.batches[1:] for event in batch.events] == [place.prefix + "b"]


async def progress(place: Place) -> None:
    """A watch from a revision that does not exist yet gets no answer to a request for progress."""
    etcd = place.client()
    revision = await etcd.put(place.prefix + "a", b"1")
    for start, is_answered in ((revision, True), (revision + 1, False)):
        _, call = await etcd.open_watch()
        key = place.prefix.encode()
        create = pb.WatchCreateRequest(key=key, range_end=key[:-1] + b"0", start_revision=start)
        await call.write(pb.WatchRequest(create_request=create))
        assert (await call.read()).created
        if is_answered:
            assert [event.kv.mod_revision for event in (await call.read()).events] == [revision]
        await call.write(pb.WatchRequest(progress_request=pb.WatchProgressRequest()))
        reading = asyncio.create_task(call.read())
        done, _ = await asyncio.wait((reading,), timeout=2)
        assert bool(done) is is_answered
        if is_answered:
            assert (reading.result().watch_id, reading.result().header.revision >= revision) == (-1, True)
        call.cancel()
        reading.cancel()
        await asyncio.wait((reading,))


async def a_watch_below_the_compaction(place: Place) -> None:
    """It is canceled with the revision from which there is anything, and lists again."""
    etcd = place.client()
    for name in "abc":
        await etcd.put(place.prefix + name, b"1")
    async with aclosing(etcd.watch(place.prefix).batches()) as batches:
        assert len((await anext(batches)).events) == 3
        await etcd.put(place.prefix + "a", b"2")
        await etcd.delete(place.prefix + "b")
        await etcd.compact(await etcd.put(place.prefix + "d", b"3"))
        again = await anext(batches)
        assert again.is_listing
        found = {(event.key[-1], event.current is None) for event in again.events}
        assert found == {("a", False), ("b", True), ("d", False)}


async def a_watch_over_a_restart(place: Place) -> None:
    """It goes on where it was, without listing."""
    one, other = place.client(), place.client()
    async with Follower(one.watch(place.prefix)) as follower:
        await other.put(place.prefix + "a", b"1")
        await follower.same(other)
        await place.kill()
        await until(lambda: follower.watch.fault is not None)
        with pytest.raises(UnavailableError):
            await place.client(timeout_ms=500).get(place.prefix)
        await place.start()
        await other.put(place.prefix + "b", b"2")
        await other.delete(place.prefix + "a")
        await follower.same(other)
        await until(lambda: follower.watch.fault is None)
    assert not any(batch.is_listing for batch in follower.batches[1:])


async def emptied(place: Place) -> None:
    """An etcd that was emptied deletes nothing: its revision went back."""
    one, other = place.client(), place.client()
    for number in range(5):
        await other.put(f"{place.prefix}{number}", b"")
    async with Follower(one.watch(place.prefix)) as follower:
        before = dict(follower.state)
        await place.kill()
        await place.wipe()
        await place.start()
        await until(lambda: isinstance(follower.watch.fault, RevisionWentBackError))
        assert follower.state == before


async def restored(place: Place) -> None:
    """An older copy is known by the token that it does not have, although it was written to since."""
    layout, etcd = Layout("c1"), place.client()
    identity = StoreIdentity(layout, member=("broker", "b0"))
    await identity.renew(etcd, 1)
    await place.kill()
    await place.copy()
    await place.start()
    await identity.renew(etcd, 2)
    known = identity.known
    assert known is not None
    await place.kill()
    await place.restore()
    await place.start()
    other = place.client()
    while await other.put("/elsewhere", b"") <= known.revision:
        pass
    with pytest.raises(StoreReplacedError) as caught:
        await identity.verify(other, 3)
    assert caught.value.kind == "restored"
    assert identity.known == known


Case = Callable[[Place], Awaitable[None]]

CASES: Final[tuple[Case, ...]] = (
    put_and_got,
    ranges,
    transactions,
    unchanged,
    refusals,
    compaction,
    leases,
    lease_of_somebody_else,
    a_lease_over_a_restart,
    watching,
    quiet,
    progress,
    a_watch_below_the_compaction,
    a_watch_over_a_restart,
    emptied,
    restored,
)
