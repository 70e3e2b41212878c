"""A member that the network cuts off from the other two: it runs, clients reach it, and it must not be believed.

Neither killing nor freezing shows this: such a member takes connections, answers what it can answer alone, and streams
stand. Each test is done with the leader and with another member cut off, and clients use that member first.
"""

import asyncio
from collections import Counter
from collections.abc import Callable

import pytest
from sterna_etcd import Etcd, Got, NotDoneError, UnavailableError, UnknownOutcomeError

from tests.etcd.conftest import Connect
from tests.etcd.test_faults import assert_truth, member_named, write_number, write_numbers
from tests.etcd.test_watch import following, same
from tests.etcds import RunningEtcd
from tests.support.peer_network import PeerNetwork
from tests.waiting import eventually

# How long one callback takes is not what is looked at here, and three members elect on a machine that may be busy.
pytestmark = [pytest.mark.parametrize("which", ["leader", "follower"]), pytest.mark.slow_callbacks(30_000)]


class Divided:
    """Three members, and the one that is to be cut off."""

    def __init__(self, running: RunningEtcd, network: PeerNetwork, victim: int) -> None:
        self.network = network
        self.victim = running.members[victim].url
        self.others = [member.url for member in running.members if member.url != self.victim]
        self.victim_first = ",".join([self.victim, *self.others])
        self.number = victim

    async def cut_off(self, witness: Etcd) -> None:
        """Cuts the member off; returns once the two others have a leader among them."""
        await asyncio.to_thread(self.network.cut_off, self.number)

        async def is_led() -> bool:
            """Whether something can be written without it."""
            try:
                await witness.put("/led", b"")
            except (NotDoneError, UnknownOutcomeError):
                return False
            return True

        await eventually(is_led, timeout_s=60, what="a leader of the two others")

    async def heal(self) -> None:
        """Everybody hears everybody."""
        await asyncio.to_thread(self.network.heal)


def _answers(etcd: Etcd, key: str = "/first") -> Callable[[], asyncio.Future[Got | None]]:
    """A key's state as soon as `etcd` answers."""

    async def ask() -> Got | None:
        try:
            return await etcd.get(key)
        except UnavailableError:
            return None

    return lambda: asyncio.ensure_future(ask())


@pytest.fixture
async def divided(etcd: Callable[..., RunningEtcd], client: Connect, which: str) -> Divided:
    network = PeerNetwork()
    running = await asyncio.to_thread(lambda: etcd(3, network=network))
    await client(running, timeout_ms=30_000).put("/first", b"")
    leader, others = await member_named(client(running), running)
    victim = leader if which == "leader" else others[0]
    return Divided(running, network, running.members.index(victim))


async def test_writes_and_watches_go_on_at_the_others(divided: Divided, client: Connect, prefix: str) -> None:
    etcd, follows, rest = client(divided.victim_first), client(divided.victim_first), client(",".join(divided.others))
    stop = asyncio.Event()
    async with following(follows.watch(prefix)) as follower:
        writing = asyncio.create_task(write_numbers(etcd, prefix, stop))
        await eventually(lambda: len(follower.state) > 20, timeout_s=30, what="some writes")
        await divided.cut_off(rest)
        count = len(follower.state)
        await eventually(lambda: len(follower.state) > count + 100, timeout_s=60, what="writes without the member")
        await divided.heal()
        count = len(follower.state)
        await eventually(lambda: len(follower.state) > count + 100, timeout_s=60, what="writes with all members")
        stop.set()
        outcomes = await writing
        await same(follower, rest, prefix, timeout_s=60)
        # Each key was written once, so it is told once, in the order of its revision, and nothing was missed.
        told = Counter(event.key for batch in follower.batches for event in batch.events)
        assert set(told.values()) == {1}
        revisions = [batch.revision for batch in follower.batches]
        assert revisions == sorted(revisions)
        assert [batch.is_listing for batch in follower.batches].count(True) == 1
    await assert_truth(rest, prefix, outcomes)


async def test_the_member_alone_answers_nothing_old(divided: Divided, client: Connect, prefix: str) -> None:
    alone, rest = client(divided.victim, timeout_ms=2_000), client(",".join(divided.others))
    key = prefix + "a"
    await alone.put(key, b"old")
    await divided.cut_off(rest)
    await rest.put(key, b"new")
    with pytest.raises(UnavailableError):
        await alone.get(key)
    with pytest.raises(UnavailableError):
        await alone.list_all(prefix)
    with pytest.raises((UnavailableError, UnknownOutcomeError)):
        await alone.put(prefix + "b", b"")
    # Whoever knows the others, too, gets what is true.
    all_three = client(divided.victim_first, timeout_ms=30_000)
    got = await all_three.get(key)
    assert got.found is not None
    assert got.found.value == b"new"
    await divided.heal()
    answered = await eventually(_answers(alone, key), timeout_s=60, what="the member among the others again")
    assert answered is not None
    assert answered.found is not None
    assert answered.found.value == b"new"


async def test_what_the_member_was_given_alone_ends_as_it_was_told(
    divided: Divided, client: Connect, prefix: str
) -> None:
    """A leader writes down what it is given, and may never hand it on: that is "unknown", and "not done" is certain."""
    alone, rest = client(divided.victim, timeout_ms=1_000), client(",".join(divided.others))
    await alone.put(prefix + "0", b"")
    await asyncio.to_thread(divided.network.cut_off, divided.number)
    outcomes: Counter[str] = Counter()
    for number in range(1, 9):
        await write_number(alone, prefix, number, outcomes)
    assert outcomes["done"] == 0
    assert outcomes["unknown"] + outcomes["not done"] == 8
    # What reaches the others when the network is whole again was "unknown".
    await divided.heal()
    await eventually(_answers(alone), timeout_s=60, what="the member among the others again")
    await assert_truth(rest, prefix, outcomes)


async def test_a_lease_lives_on_at_the_others(divided: Divided, client: Connect, prefix: str) -> None:
    etcd, rest = client(divided.victim_first), client(",".join(divided.others))
    lease = await etcd.lease(12)
    await etcd.put(prefix + "a", b"", lease=lease.id)
    await divided.cut_off(rest)
    began = asyncio.get_running_loop().time()
    await eventually(lambda: asyncio.get_running_loop().time() - began > 25 or lease.lost.is_set(), timeout_s=60)
    assert lease.is_alive
    assert (await rest.get(prefix + "a")).found is not None
    await divided.heal()
    await lease.revoke()
    assert (await rest.get(prefix + "a")).found is None
