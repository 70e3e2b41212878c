"""The operator killed right after each single write, to Kubernetes or to etcd: what comes of it is always the same.

Each story is told once undisturbed, which shows how many writes it takes. Then it is told again for each of them, some
at a time: the operator kills itself after that write, another one is started, and the story is told on. At every
checkpoint, and at the end, all objects of the API server and all keys in etcd must be the same each time.

And two operators at once: the one that leads freezes in the middle of its work, right after a write, the other takes
over, and the first wakes up while that works. It must end without having changed anything.

Of all writes a share is taken, which the seed draws (tests/support/seeds.py), and all with `make test-all`, which takes
a quarter of an hour.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from tests.etcds import RunningEtcd
from tests.operator.kubelet import install_surroundings
from tests.operator.lookouts import Lookout
from tests.operator.stories import REAL, Story, Tellings, audits, cluster, losses, topology, trying
from tests.operator.tales import Tale, check_followed
from tests.support.api_server import ApiServer
from tests.support.seeds import share

pytestmark = [
    pytest.mark.slow_callbacks(60_000),
    pytest.mark.timeout(1_800),
]

# Of all writes about one in so many is taken where not all are.
SAMPLE = 6
# So many times it is tried to have an operator die after a write, and for such a share of them it may never come about.
TRIES = 3
MISSED_MAX = 0.1
# A frozen leader is followed when its Lease has run out, which takes its time.
FREEZE_SAMPLE = 12
LEASE_S = 6.0

MakeTellings = Callable[..., Tellings]


@pytest.fixture
async def lookout(kinds: ApiServer) -> AsyncIterator[Lookout]:
    install_surroundings(kinds)
    async with Lookout(kinds) as made:
        yield made


@pytest.fixture
def topologies(kinds: ApiServer, store: RunningEtcd, lookout: Lookout, tmp_path: Path) -> Tellings:
    return Tellings(kinds, store, lookout, tmp_path, topology, only_etcd=True)


@pytest.fixture
def clusters(kinds: ApiServer, store: RunningEtcd, lookout: Lookout, tmp_path: Path) -> Tellings:
    return Tellings(kinds, store, lookout, tmp_path, cluster, **REAL)


def _numbered(writes: list[str]) -> list[tuple[str, int]]:
    """Each write with how often it had been made by then. Which it is in order differs from telling to telling."""
    counts: Counter[str] = Counter()
    found = []
    for write in writes:
        counts[write] += 1
        found.append((write, counts[write]))
    return found


async def _told_after(
    tellings: Tellings, undisturbed: Tale, fatal: list[tuple[str, int]], how: str, **disturbed: Any
) -> None:
    """Told again for each of these writes: what `how` says happens to the operator right after it."""
    missed = set(fatal)
    # What is said of an object in between may be said more often in one telling than in another: what was not written
    # so often is tried again. And so is a leader that lost its Lease, on a slow machine, before it was to freeze.
    for _ in range(TRIES):
        async with asyncio.TaskGroup() as group:
            tasks = {
                one: group.create_task(tellings.tell(undisturbed, how, fatal=one, **disturbed))
                for one in fatal
                if one in missed
            }
        missed -= {one for one, task in tasks.items() if task.result().deaths or task.result().freezes}
    print(
        f"{tellings.name}: {len(undisturbed.writes())} writes, of {len(fatal)} nobody was {how} after {sorted(missed)}"
    )
    assert len(missed) <= max(1, len(fatal) * MISSED_MAX)
    assert not [write for write, count in missed if count == 1], f"nobody was {how} right after these"


async def _after_each(tellings: Tellings, undisturbed: Tale) -> None:
    """Told again for each write of the undisturbed telling: the operator dies right after it."""
    check_followed(undisturbed.writes())
    fatal = share(_numbered(undisturbed.writes()), SAMPLE, f"killed in {tellings.name}")
    await _told_after(tellings, undisturbed, fatal, "killed")


async def test_topologies_end_the_same_whatever_write_the_operator_dies_after(topologies: Tellings) -> None:
    undisturbed = await topologies.tell(None)
    assert len(undisturbed.writes()) > 50
    await _after_each(topologies, undisturbed)


async def test_clusters_end_the_same_whatever_write_the_operator_dies_after(clusters: Tellings) -> None:
    undisturbed = await clusters.tell(None)
    assert len(undisturbed.writes()) > 80
    assert undisturbed.endings["end"]["noted"] == {
        "restarts": {"mq-broker-0": 1, "mq-broker-1": 1},
        "two brokers away": [],
    }
    await _after_each(clusters, undisturbed)


@pytest.mark.parametrize("story", [losses, trying])
async def test_what_few_clusters_go_through_ends_the_same_whatever_write_the_operator_dies_after(
    kinds: ApiServer, store: RunningEtcd, lookout: Lookout, tmp_path: Path, story: Story
) -> None:
    tellings = Tellings(kinds, store, lookout, tmp_path, story, **REAL)
    undisturbed = await tellings.tell(None)
    assert len(undisturbed.writes()) > 15
    await _after_each(tellings, undisturbed)


@pytest.fixture
def audited(kinds: ApiServer, store: RunningEtcd, lookout: Lookout, tmp_path: Path) -> Tellings:
    return Tellings(kinds, store, lookout, tmp_path, audits, only_etcd=True, audit_image="localhost/audit:1")


async def test_audits_end_the_same_whatever_write_the_operator_dies_after(audited: Tellings) -> None:
    undisturbed = await audited.tell(None)
    assert len(undisturbed.writes()) > 20
    await _after_each(audited, undisturbed)


async def test_audits_end_the_same_when_a_leader_that_was_frozen_wakes_beside_another(audited: Tellings) -> None:
    undisturbed = await audited.tell(None)
    await _frozen_after_some(audited, undisturbed)


async def test_clusters_end_the_same_when_a_leader_that_was_frozen_wakes_beside_another(clusters: Tellings) -> None:
    await _frozen_after_some(clusters, await clusters.tell(None))


async def _frozen_after_some(tellings: Tellings, undisturbed: Tale) -> None:
    """Told again for some writes of the undisturbed telling: the operator freezes right after it, and wakes later."""
    fatal = share(_numbered(undisturbed.writes()), FREEZE_SAMPLE, "frozen")
    await _told_after(tellings, undisturbed, fatal, "frozen", is_freezing=True, lease_duration_s=LEASE_S)
