"""The model of etcd does what a real one does (`tests/etcd/test_model_cases.py`), and what none can be made to do."""

from __future__ import annotations

import asyncio
from random import Random
from typing import Any

import pytest
from sterna_etcd import Etcd, EtcdSettings, UnavailableError, UnknownOutcomeError

from tests.world import etcd_model
from tests.world.etcd_cases import CASES, Case, Follower
from tests.world.etcd_store import Store
from tests.world.stage import Stage, staged


class Modelled:
    """A place that is the model's."""

    prefix = "/test/"

    def __init__(self, stage: Stage, members: int = 1) -> None:
        self.etcd = etcd_model.Etcd(stage.loop, stage.network, Random(1), members)
        self.etcd.start()
        self._clients: list[Etcd] = []
        self._copy = Store()

    def client(self, **settings: Any) -> Etcd:
        self._clients.append(Etcd(EtcdSettings.of_urls(self.etcd.urls, **settings)))
        return self._clients[-1]

    async def kill(self) -> None:
        self.etcd.kill()

    async def start(self) -> None:
        self.etcd.start()

    async def wipe(self) -> None:
        self.etcd.wipe()

    async def copy(self) -> None:
        self._copy = self.etcd.store.copied()

    async def restore(self) -> None:
        self.etcd.store.became(self._copy)

    async def close(self) -> None:
        """Ends what the case has made."""
        for client in self._clients:
            await client.close()
        self.etcd.kill()


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
def test_the_model_is_as_etcd(case: Case) -> None:
    @staged
    async def shown(stage: Stage) -> None:
        place = Modelled(stage)
        await case(place)
        await place.close()

    shown()


@staged
async def test_an_answer_that_is_lost_leaves_what_was_done(stage: Stage) -> None:
    place = Modelled(stage)
    etcd = place.client()
    place.etcd.lose_answers = 1
    with pytest.raises(UnknownOutcomeError):
        await etcd.put("/a", b"1")
    found = (await etcd.get("/a")).found
    assert found is not None
    assert found.value == b"1"
    place.etcd.lose_answers = 1
    lease = await etcd.lease(5)  # asked for again, it is the same
    assert list(place.etcd.store.leases) == [lease.id]
    await lease.stop()
    await place.close()


@staged
async def test_without_a_leader_nothing_is_done_and_watches_wait(stage: Stage) -> None:
    place = Modelled(stage, members=3)
    etcd, impatient = place.client(), place.client(timeout_ms=500)
    async with Follower(etcd.watch("/")) as follower:
        place.etcd.members[0].kill()
        await etcd.put("/a", b"1")
        await follower.same(etcd)
        place.etcd.members[1].kill()
        with pytest.raises(UnavailableError):
            await impatient.put("/b", b"1")
        await stage.until(lambda: follower.watch.fault is not None)
        place.etcd.start()
        await etcd.put("/c", b"1")
        await follower.same(etcd)
        assert sorted(follower.state) == ["/a", "/c"]
    await place.close()


@staged
async def test_a_lease_that_cannot_be_renewed_ends_at_both_sides(stage: Stage) -> None:
    place = Modelled(stage)
    etcd, other = place.client(), place.client()
    lease = await etcd.lease(5)
    await etcd.put("/a", b"1", lease=lease.id)
    place.etcd.has_leader = False
    await asyncio.sleep(4)
    assert lease.is_alive
    await asyncio.wait_for(lease.lost.wait(), 5)
    place.etcd.has_leader = True
    await asyncio.sleep(1)
    assert (await other.get("/a")).found is None
    await place.close()
