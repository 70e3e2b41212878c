"""Reads, writes, transactions and leases against one real member."""

import asyncio

import pytest
from sterna_etcd import (
    CompactedError,
    Delete,
    EtcdSettings,
    Get,
    InvalidRequestError,
    LeaseNotFoundError,
    Put,
    SettingsError,
    UnavailableError,
    absent,
    equals,
    mod_revision,
)

from tests.etcd.conftest import Connect
from tests.etcds import RunningEtcd, free_ports
from tests.waiting import eventually


async def test_what_is_put_is_got_with_its_revision(shared: RunningEtcd, client: Connect, prefix: str) -> None:
    etcd = client(shared)
    assert (await etcd.get(prefix + "a")).found is None
    revision = await etcd.put(prefix + "a", b"one")
    got = await etcd.get(prefix + "a")
    assert got.found is not None
    assert (got.found.value, got.found.mod_revision, got.found.version) == (b"one", revision, 1)
    assert got.revision >= revision


async def test_a_range_is_read_in_pages_at_one_revision(shared: RunningEtcd, client: Connect, prefix: str) -> None:
    etcd = client(shared)
    names = [f"{prefix}{number:03}" for number in range(25)]
    for name in names:
        await etcd.put(name, name.encode())
    listed = await etcd.list_all(prefix, page=10)
    assert [pair.key for pair in listed.values] == names
    assert [pair.value for pair in listed.values] == [name.encode() for name in names]
    assert await etcd.delete(prefix, is_prefix=True) == 25
    assert (await etcd.list_all(prefix)).values == []


async def test_names_beside_the_prefix_are_not_listed(shared: RunningEtcd, client: Connect, prefix: str) -> None:
    etcd = client(shared)
    for name in (prefix, prefix + "x", prefix[:-1], prefix[:-1] + "0"):
        await etcd.put(name, b"")
    assert [pair.key for pair in (await etcd.list_all(prefix)).values] == [prefix, prefix + "x"]


async def test_a_transaction_does_one_branch_whole(shared: RunningEtcd, client: Connect, prefix: str) -> None:
    etcd = client(shared)
    first = await etcd.transact([absent(prefix + "a")], [Put(prefix + "a", b"1")], [Get(prefix + "a")])
    assert first.succeeded
    second = await etcd.transact([absent(prefix + "a")], [Put(prefix + "a", b"2")], [Get(prefix + "a")])
    assert not second.succeeded
    [found] = second.results
    assert found is not None
    assert not isinstance(found, int)
    assert found.value == b"1"
    third = await etcd.transact(
        [mod_revision(prefix + "a", first.revision), equals(prefix + "a", b"1")],
        [Delete(prefix + "a"), Put(prefix + "b", b"")],
    )
    assert third.succeeded
    assert third.results == [1, None]
    assert [pair.key for pair in (await etcd.list_all(prefix)).values] == [prefix + "b"]


async def test_what_etcd_refuses_was_not_done(shared: RunningEtcd, client: Connect, prefix: str) -> None:
    etcd = client(shared)
    with pytest.raises(InvalidRequestError, match="duplicate key"):
        await etcd.transact([], [Put(prefix + "a", b"1"), Put(prefix + "a", b"2")])
    for size in (1_700_000, 3_000_000):
        with pytest.raises(InvalidRequestError, match="large"):
            await etcd.put(prefix + "large", bytes(size))
    assert (await etcd.list_all(prefix)).values == []


async def test_a_compacted_revision_is_told_apart(shared: RunningEtcd, client: Connect, prefix: str) -> None:
    etcd = client(shared)
    revision = 0
    for _ in range(3):
        revision = await etcd.put(prefix + "a", b"")
    await etcd.compact(revision)
    with pytest.raises(CompactedError):
        await etcd.compact(revision - 1)


async def test_a_lease_keeps_its_keys_until_it_is_revoked(shared: RunningEtcd, client: Connect, prefix: str) -> None:
    etcd = client(shared)
    lease = await etcd.lease(8)
    await etcd.put(prefix + "a", b"", lease=lease.id)
    began = asyncio.get_running_loop().time()
    # Longer than it would live by itself.
    await eventually(lambda: asyncio.get_running_loop().time() - began > 12, timeout_s=40)
    assert lease.is_alive
    assert (await etcd.get(prefix + "a")).found is not None
    await lease.revoke()
    assert (await etcd.get(prefix + "a")).found is None
    with pytest.raises(LeaseNotFoundError):
        await etcd.put(prefix + "a", b"", lease=lease.id)


async def test_a_lease_that_was_revoked_by_somebody_else_is_lost(
    shared: RunningEtcd, client: Connect, prefix: str
) -> None:
    etcd = client(shared)
    lease = await etcd.lease(2)
    await etcd.revoke(lease.id)
    await asyncio.wait_for(lease.lost.wait(), 5)
    assert not lease.is_alive
    await lease.stop()


async def test_nobody_listening_is_not_done(client: Connect) -> None:
    [port] = free_ports(1)
    etcd = client(f"http://127.0.0.1:{port}", timeout_ms=500)
    with pytest.raises(UnavailableError):
        await etcd.put("/a", b"")


@pytest.mark.parametrize(
    ("urls", "options", "words"),
    [
        pytest.param("", {}, "no endpoint", id="none"),
        pytest.param("localhost:2379", {}, "is no endpoint", id="no-scheme"),
        pytest.param("http://a:1,https://b:1", {}, "all http or all https", id="mixed"),
        pytest.param("http://a:1", {"user": "u"}, "no password", id="user-without-password"),
    ],
)
def test_settings_that_make_no_sense_are_refused(urls: str, options: dict[str, str], words: str) -> None:
    with pytest.raises(SettingsError, match=words):
        EtcdSettings.of_urls(urls, **options)
