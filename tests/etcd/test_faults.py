"""Three members, one of them killed or frozen: what was answered holds, and the errors of the rest tell the truth."""

import asyncio
from collections import Counter
from collections.abc import Callable

import pytest
from sterna_etcd import Etcd, NotDoneError, UnavailableError, UnknownOutcomeError

from tests.etcd.conftest import Connect
from tests.etcd.test_watch import following, same
from tests.etcds import Member, RunningEtcd
from tests.waiting import eventually


async def member_named(etcd: Etcd, running: RunningEtcd) -> tuple[Member, list[Member]]:
    """The leader, and the others."""
    statuses = {}
    for member in running.members:
        status = await etcd_of(member).status()
        statuses[status.header.member_id] = (member, status.leader)
    leader = statuses[next(iter(statuses.values()))[1]][0]
    return leader, [member for member in running.members if member is not leader]


def etcd_of(member: Member) -> Etcd:
    from sterna_etcd import EtcdSettings

    return Etcd(EtcdSettings.of_urls(member.url))


async def write_number(etcd: Etcd, prefix: str, number: int, outcomes: Counter[str]) -> None:
    """Creates one key, and notes its outcome: how many there are of each, and which number had which."""
    try:
        await etcd.put(f"{prefix}{number}", b"")
        outcome = "done"
    except UnknownOutcomeError:
        outcome = "unknown"
    except NotDoneError:
        outcome = "not done"
    outcomes[outcome] += 1
    outcomes[f"{outcome} {number}"] += 1


async def write_numbers(etcd: Etcd, prefix: str, stop: asyncio.Event) -> Counter[str]:
    """Creates keys until told to stop; each outcome must be true afterwards."""
    outcomes: Counter[str] = Counter()
    number = 0
    while not stop.is_set():
        number += 1
        await write_number(etcd, prefix, number, outcomes)
        await asyncio.sleep(0)
    return outcomes


async def assert_truth(etcd: Etcd, prefix: str, outcomes: Counter[str]) -> None:
    """What was done is there; what was not done is not."""
    present = {pair.key.removeprefix(prefix) for pair in (await etcd.list_all(prefix)).values}
    done = {name.partition(" ")[2] for name in outcomes if name.startswith("done ")}
    not_done = {name.removeprefix("not done ") for name in outcomes if name.startswith("not done ")}
    assert done <= present
    assert not not_done & present


@pytest.mark.parametrize("fault", ["kill", "freeze"])
@pytest.mark.parametrize("which", ["leader", "used"])
async def test_a_member_less_costs_no_answered_write(
    three: RunningEtcd, client: Connect, prefix: str, fault: str, which: str
) -> None:
    etcd, witness = client(three), client(three)
    await etcd.put(prefix + "0", b"")
    leader, _ = await member_named(etcd, three)
    victim = leader if which == "leader" else three.members[0]
    stop = asyncio.Event()
    async with following(witness.watch(prefix)) as follower:
        writing = asyncio.create_task(write_numbers(etcd, prefix, stop))
        await eventually(lambda: len(follower.state) > 20, what="some writes")
        await asyncio.to_thread(getattr(victim, fault))
        count = len(follower.state)
        # Writes go on, and the watch sees them, without the member.
        await eventually(lambda: len(follower.state) > count + 100, timeout_s=30, what="writes without the member")
        stop.set()
        outcomes = await writing
        if fault == "freeze":
            victim.thaw()
        others = ",".join(member.url for member in three.members if member is not victim)
        rest = client(others)
        await same(follower, rest, prefix)
        await assert_truth(rest, prefix, outcomes)
    assert outcomes["done"] > 100


async def test_without_a_majority_nothing_is_believed(three: RunningEtcd, client: Connect, prefix: str) -> None:
    etcd = client(three, timeout_ms=4_000)
    await etcd.put(prefix + "a", b"1")
    for member in three.members[1:]:
        await asyncio.to_thread(member.kill)
    with pytest.raises((UnavailableError, UnknownOutcomeError)):
        await etcd.put(prefix + "b", b"2")
    with pytest.raises(UnavailableError):
        await etcd.get(prefix + "a")
    for member in three.members[1:]:
        member.launch()

    async def has_a() -> bool:
        """Whether it can be read."""
        try:
            return (await etcd.get(prefix + "a")).found is not None
        except NotDoneError:
            return False

    await eventually(has_a, timeout_s=30, what="the majority back")


async def test_a_lease_outlives_the_member_it_was_granted_by(three: RunningEtcd, client: Connect, prefix: str) -> None:
    etcd = client(three)
    lease = await etcd.lease(10)
    await etcd.put(prefix + "a", b"", lease=lease.id)
    await asyncio.to_thread(three.members[0].kill)
    began = asyncio.get_running_loop().time()
    await eventually(lambda: asyncio.get_running_loop().time() - began > 15, timeout_s=40)
    assert lease.is_alive
    assert (await etcd.get(prefix + "a")).found is not None
    await lease.revoke()


async def test_a_lease_is_lost_by_our_own_clock(three: RunningEtcd, client: Connect) -> None:
    etcd = client(three)
    lease = await etcd.lease(2)
    for member in three.members:
        member.freeze()
    clock = asyncio.get_running_loop().time
    began = looked = clock()
    longest_s = 0.0

    def is_lost() -> bool:
        nonlocal looked, longest_s
        looked, before = clock(), looked
        longest_s = max(longest_s, looked - before)
        return lease.lost.is_set()

    await eventually(is_lost, timeout_s=20, what="the lease to be lost")
    # Where this process was held up for so long, the lease could notice nothing earlier.
    assert looked - began <= 3 + longest_s
    for member in three.members:
        member.thaw()
    await lease.stop()


async def test_a_client_that_is_closed_ends_what_hangs_and_nobody_elses_task(
    etcd: Callable[..., RunningEtcd], prefix: str
) -> None:
    """With CancelledError gRPC says, too, that a channel was closed: whoever waited was not asked to end."""
    running = etcd()
    client = etcd_of(running.first)
    await client.put(prefix + "a", b"")
    running.first.freeze()
    asked = {
        "read": asyncio.create_task(client.get(prefix + "a")),
        "write": asyncio.create_task(client.put(prefix + "a", b"1")),
        "lease": asyncio.create_task(client.keep_alive(1, 10.0)),
    }
    to_end = asyncio.create_task(client.get(prefix + "b"))
    await asyncio.wait(asked.values(), timeout=0.2)
    assert not any(task.done() for task in asked.values())
    to_end.cancel()
    await client.close()
    done, _ = await asyncio.wait([*asked.values(), to_end], timeout=10)
    assert len(done) == 4
    running.first.thaw()
    assert {name: type(task.exception()) for name, task in asked.items()} == {
        "read": UnavailableError,
        "write": UnknownOutcomeError,
        "lease": UnavailableError,
    }
    assert to_end.cancelled(), "this one was asked to end"
    with pytest.raises(UnavailableError, match="closed"):
        await client.get(prefix + "a")
