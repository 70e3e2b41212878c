"""A watch tells everything once, whatever happens to the member it is at."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from functools import partial
from pathlib import Path

import pytest
from sterna_etcd import (
    Batch,
    Condition,
    Etcd,
    Got,
    Layout,
    Put,
    RevisionWentBackError,
    StoreIdentity,
    StoreReplacedError,
    UnclaimedError,
    Watch,
)
from sterna_etcd.identity import TOKENS_MAX
from sterna_etcd.records import ClaimRecord
from sterna_etcd.values import Operation, Transacted

from tests.etcd.conftest import Connect
from tests.etcds import RunningEtcd
from tests.waiting import eventually


class Follower:
    """The state that a watch's batches add up to, and the batches."""

    def __init__(self, watch: Watch) -> None:
        self.watch = watch
        self.batches: list[Batch] = []
        self.state: dict[str, bytes] = {}

    async def run(self) -> None:
        async for batch in self.watch.batches():
            self.batches.append(batch)
            for event in batch.events:
                if event.current is None:
                    assert event.key in self.state, "a deletion of what was never there"
                    del self.state[event.key]
                else:
                    self.state[event.key] = event.current.value


@asynccontextmanager
async def following(watch: Watch) -> AsyncIterator[Follower]:
    follower = Follower(watch)
    task = asyncio.create_task(follower.run())
    try:
        await eventually(lambda: follower.batches and watch.fault is None, what="the watch")
        yield follower
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


async def same(follower: Follower, etcd: Etcd, prefix: str, timeout_s: float = 15.0) -> None:
    """Until the follower has what etcd has.

    It is asked again each time: a member that was frozen may still carry out what it was asked before.
    """

    async def is_same() -> bool:
        listed = await etcd.list_all(prefix)
        return follower.state == {pair.key: pair.value for pair in listed.values}

    await eventually(is_same, timeout_s=timeout_s, what="all that etcd has at the follower")


async def test_a_store_in_which_nothing_changes_is_not_taken_for_a_frozen_one(
    etcd: Callable[..., RunningEtcd], client: Connect, prefix: str
) -> None:
    quiet = client(await asyncio.to_thread(etcd))
    await quiet.put(prefix + "a", b"1")
    watch = quiet.watch(prefix, idle_ms=1_000)
    asked = 0
    write = watch._write

    async def counted(call: object, request: object) -> None:
        nonlocal asked
        asked += 1
        await write(call, request)

    watch._write = counted  # type: ignore[method-assign]
    async with following(watch) as follower:
        faults: list[object] = []
        watch.on_fault = faults.append
        # The first request opens the watch; each further one asks for a sign of life, and the one before has come.
        await eventually(lambda: asked >= 4 or faults, what="signs of life")
        assert faults == []
        await quiet.put(prefix + "b", b"2")
        await same(follower, quiet, prefix)
        assert [event.key for batch in follower.batches[1:] for event in batch.events] == [prefix + "b"]


async def test_it_lists_and_then_follows(shared: RunningEtcd, client: Connect, prefix: str) -> None:
    etcd = client(shared)
    await etcd.put(prefix + "a", b"1")
    async with following(etcd.watch(prefix)) as follower:
        assert follower.state == {prefix + "a": b"1"}
        assert follower.batches[0].is_listing
        await etcd.put(prefix + "b", b"2")
        await etcd.delete(prefix + "a")
        await same(follower, etcd, prefix)
    assert not any(batch.is_listing for batch in follower.batches[1:])


async def test_one_revision_is_one_batch(shared: RunningEtcd, client: Connect, prefix: str) -> None:
    etcd = client(shared)
    for number in range(50):
        await etcd.put(f"{prefix}{number}", b"")
    async with following(etcd.watch(prefix)) as follower:
        await etcd.delete(prefix, is_prefix=True)
        await same(follower, etcd, prefix)
        assert [len(batch.events) for batch in follower.batches] == [50, 50]


async def test_it_resumes_where_it_was_when_etcd_was_away(
    etcd: Callable[..., RunningEtcd], client: Connect, prefix: str
) -> None:
    running = await asyncio.to_thread(etcd)
    one, other = client(running), client(running)
    async with following(one.watch(prefix)) as follower:
        await other.put(prefix + "a", b"1")
        await same(follower, other, prefix)
        await asyncio.to_thread(running.first.kill)
        await eventually(lambda: follower.watch.fault is not None, what="a fault")
        await asyncio.to_thread(running.restart, running.first)
        await other.put(prefix + "b", b"2")
        await other.delete(prefix + "a")
        await same(follower, other, prefix)
        await eventually(lambda: follower.watch.fault is None, what="no fault")
    assert not any(batch.is_listing for batch in follower.batches[1:])


async def test_it_survives_a_compaction_of_what_it_missed(
    etcd: Callable[..., RunningEtcd], client: Connect, prefix: str
) -> None:
    running = await asyncio.to_thread(etcd)
    watcher, writer = client(running), client(running)
    for name in "abc":
        await writer.put(prefix + name, b"1")
    watch = watcher.watch(prefix)
    async with following(watch) as follower:
        # Its stream breaks, and mostly it is not back before the compaction.
        await asyncio.to_thread(running.first.kill)
        await asyncio.to_thread(running.restart, running.first)
        revision = 0
        for change in (b"2", b"3"):
            revision = await writer.put(prefix + "a", change)
        await writer.delete(prefix + "b")
        revision = await writer.put(prefix + "d", b"4")
        await writer.compact(revision)
        await same(follower, writer, prefix)
    # Either it was quick enough to see every change, or it listed again; the sum is the same, and "c" came once.
    assert sum(event.key == prefix + "c" for batch in follower.batches for event in batch.events) == 1


async def test_a_resumption_below_the_compaction_lists_again(
    etcd: Callable[..., RunningEtcd], client: Connect, prefix: str
) -> None:
    running = await asyncio.to_thread(etcd)
    reader = client(running)
    for name in "abc":
        await reader.put(prefix + name, b"1")
    watch = reader.watch(prefix)
    first = watch.batches()
    listed = await anext(first)
    assert len(listed.events) == 3
    # Before the stream is opened: what it would resume from is compacted.
    await reader.put(prefix + "a", b"2")
    await reader.delete(prefix + "b")
    await reader.compact(await reader.put(prefix + "d", b"3"))
    again = await anext(first)
    assert again.is_listing
    assert {(event.key[-1], event.current is None) for event in again.events} == {
        ("a", False),
        ("b", True),
        ("d", False),
    }
    await first.aclose()


async def test_an_emptied_etcd_deletes_nothing(etcd: Callable[..., RunningEtcd], client: Connect, prefix: str) -> None:
    running = await asyncio.to_thread(etcd)
    one, other = client(running), client(running)
    for number in range(5):
        await other.put(f"{prefix}{number}", b"")
    async with following(one.watch(prefix)) as follower:
        before = dict(follower.state)
        await asyncio.to_thread(running.first.kill)
        await asyncio.to_thread(running.first.wipe)
        await asyncio.to_thread(running.restart, running.first)
        await eventually(lambda: isinstance(follower.watch.fault, RevisionWentBackError), what="the fault")
        assert follower.state == before


@pytest.mark.parametrize("kind", ["emptied", "foreign", "restored"])
async def test_the_identity_tells_what_became_of_etcd(
    etcd: Callable[..., RunningEtcd], client: Connect, tmp_path: Path, kind: str
) -> None:
    layout = Layout("c1")
    running = await asyncio.to_thread(etcd)
    one = client(running)
    identity = StoreIdentity(layout)
    await identity.verify(one, 1)
    await asyncio.to_thread(running.first.kill)
    await asyncio.to_thread(running.first.copy_to, tmp_path / "copy")
    await asyncio.to_thread(running.restart, running.first)
    for _ in range(10):
        identity.note(await one.put(layout.prefix + "x", b""))
    known = identity.known
    await asyncio.to_thread(running.first.kill)
    if kind == "restored":
        await asyncio.to_thread(running.first.restore_from, tmp_path / "copy")
    else:
        await asyncio.to_thread(running.first.wipe)
    await asyncio.to_thread(running.restart, running.first)
    other = client(running)
    for _ in range(20 if kind != "restored" else 1):
        await other.put("/elsewhere", b"")
    if kind == "foreign":
        await StoreIdentity(layout).verify(other, 2)
    with pytest.raises(StoreReplacedError) as caught:
        await identity.verify(other, 3)
    assert caught.value.kind == kind
    assert identity.known == known
    if kind != "restored":
        # Nor is anything written there: transactions are still on condition of the store that is remembered.
        assert not (await other.transact(identity.conditions(), [Put(layout.prefix + "y", b"")])).succeeded


class Meanwhile:
    """A client whose answer to a first question is on its way while something else happens."""

    def __init__(self, etcd: Etcd, happens: Callable[[], Awaitable[None]]) -> None:
        self._etcd = etcd
        self._happens: Callable[[], Awaitable[None]] | None = happens

    async def get(self, key: str) -> Got:
        """See Etcd."""
        got = await self._etcd.get(key)
        happens, self._happens = self._happens, None
        if happens is not None:
            await happens()
        return got

    async def transact(
        self, conditions: list[Condition], then: list[Operation], otherwise: list[Operation]
    ) -> Transacted:
        """See Etcd."""
        return await self._etcd.transact(conditions, then, otherwise)


async def test_what_is_heard_while_etcd_is_asked_makes_no_doubt(shared: RunningEtcd, client: Connect) -> None:
    layout, one = Layout("meanwhile"), client(shared)
    identity = StoreIdentity(layout, member=("broker", "b0"))

    async def first() -> None:
        await identity.verify(one, 1)

    # Two tasks begin at once: the one that was quicker has made the identity.
    await identity.verify(Meanwhile(one, first), 2)

    async def later() -> None:
        identity.note(await one.put(layout.prefix + "x", b""))
        await identity.renew(one, 3)

    await identity.verify(Meanwhile(one, later), 4)
    await identity.renew(Meanwhile(one, later), 5)


async def test_a_restored_copy_is_noticed_although_it_was_written_to_since(
    etcd: Callable[..., RunningEtcd], client: Connect, tmp_path: Path
) -> None:
    layout, running = Layout("c1"), await asyncio.to_thread(etcd)
    identity = StoreIdentity(layout, member=("broker", "b0"))
    await identity.renew(client(running), 1)
    await asyncio.to_thread(running.first.kill)
    await asyncio.to_thread(running.first.copy_to, tmp_path / "copy")
    await asyncio.to_thread(running.restart, running.first)
    await identity.renew(client(running), 2)
    known = identity.known
    assert known is not None
    await asyncio.to_thread(running.first.kill)
    await asyncio.to_thread(running.first.restore_from, tmp_path / "copy")
    await asyncio.to_thread(running.restart, running.first)
    other = client(running)
    while await other.put("/elsewhere", b"") <= known.revision:
        pass
    with pytest.raises(StoreReplacedError) as caught:
        await identity.verify(other, 3)
    assert caught.value.kind == "restored"
    # Nor does it begin anew: the memory stays, and nothing is left in the copy.
    with pytest.raises(StoreReplacedError):
        await identity.renew(other, 4)
    assert identity.known == known


async def test_a_member_that_remembers_fewer_tokens_than_it_left_knows_its_etcd(
    shared: RunningEtcd, client: Connect
) -> None:
    layout, one = Layout("tokens"), client(shared)
    identity = StoreIdentity(layout, member=("broker", "b0"))
    await identity.renew(one, 1)
    remembered = identity.known
    for _ in range(TOKENS_MAX - 1):
        await identity.renew(one, 1)
    await StoreIdentity(layout, remembered, ("broker", "b0")).verify(one, 1)
    # Another member's tokens, and a member without any, have nothing to do with it.
    await StoreIdentity(layout, member=("broker", "b1")).renew(one, 1)
    await StoreIdentity(layout).verify(one, 1)
    await identity.renew(one, 1)
    with pytest.raises(StoreReplacedError, match="an old copy itself"):
        await StoreIdentity(layout, remembered, ("broker", "b0")).verify(one, 1)


async def test_only_one_of_many_makes_the_identity(shared: RunningEtcd, client: Connect) -> None:
    layout = Layout("many")
    etcd = client(shared)
    identities = [StoreIdentity(layout) for _ in range(8)]
    await asyncio.gather(*(identity.verify(etcd, 1) for identity in identities))
    assert len({identity.known.id for identity in identities if identity.known}) == 1


async def test_it_ends_at_whatever_moment_it_is_cancelled(shared: RunningEtcd, client: Connect, prefix: str) -> None:
    """Among these moments are those at which what it waits for is done in the same turn of the loop."""
    for turns in range(80):
        follower = Follower(client(shared).watch(prefix))
        task = asyncio.create_task(follower.run())
        await eventually(partial(bool, follower.batches), what="the listing")
        for _ in range(turns):
            await asyncio.sleep(0)
        task.cancel()
        done, _ = await asyncio.wait((task,), timeout=20)
        assert done, f"cancelled {turns} turns of the loop after the listing, it runs on"


# Whose a place is

_CLAIM = ClaimRecord(operator="a/op", namespace="ns", name="mq", uid="uid-1")


async def test_a_member_uses_no_place_that_nobody_has_claimed_or_another_cluster_has(
    shared: RunningEtcd, client: Connect
) -> None:
    layout, one = Layout("owned"), client(shared)
    identity = StoreIdentity(layout, member=("broker", "b0"), owner="uid-1")
    with pytest.raises(UnclaimedError, match="nobody has claimed it"):
        await identity.verify(one, 1)
    assert (await one.get(layout.identity)).found is None, "nothing is written there"
    await one.put(layout.operator_claim, _CLAIM.encode())
    await identity.renew(one, 1)
    assert (await one.transact(identity.conditions(), [Put(layout.prefix + "x", b"1")])).succeeded
    stranger = StoreIdentity(layout, identity.known, ("broker", "b1"), "uid-2")
    with pytest.raises(StoreReplacedError, match="belongs to MessagingCluster ns/mq") as caught:
        await stranger.verify(one, 1)
    assert caught.value.kind == "claimed"
    assert not (await one.transact(stranger.conditions(), [Put(layout.prefix + "x", b"2")])).succeeded
    unsure = StoreIdentity(layout, identity.known, owner="")
    with pytest.raises(UnclaimedError, match="has not been told"):
        await unsure.verify(one, 1)


async def test_a_place_that_is_claimed_by_another_takes_no_write_any_more(shared: RunningEtcd, client: Connect) -> None:
    layout, one = Layout("taken"), client(shared)
    await one.put(layout.operator_claim, _CLAIM.encode())
    identity = StoreIdentity(layout, member=("broker", "b0"), owner="uid-1")
    await identity.verify(one, 1)
    await one.put(layout.operator_claim, _CLAIM.model_copy(update={"uid": "uid-2"}).encode())
    # Nobody has looked since: etcd itself refuses.
    assert not (await one.transact(identity.conditions(), [Put(layout.prefix + "x", b"1")])).succeeded
    with pytest.raises(StoreReplacedError, match="uid-2"):
        await identity.renew(one, 2)
    # Handed over to another operator it still is the same cluster's.
    await one.put(layout.operator_claim, _CLAIM.model_copy(update={"operator": "b/op"}).encode())
    await identity.renew(one, 3)
    assert (await one.transact(identity.conditions(), [Put(layout.prefix + "x", b"1")])).succeeded
