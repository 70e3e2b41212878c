"""The operator killed right after each single write, to Kubernetes or to etcd: what comes of it is always the same.

One story (objects made, changed, deleted by each policy, a password changed) is told once undisturbed, which shows how
many writes it takes. Then it is told again for each of them: the operator kills itself after the n-th write, another
one is started, and the story is told on. The end must be the same each time, with nothing left behind.

All of them take some minutes: an ordinary run does every fourth, STERNA_COMPLETE=1 all of them.
"""

import asyncio
import os
from pathlib import Path
from typing import Any

import pytest
from sterna_etcd.records import ConfigRecord, UserRecord

from tests.etcds import RunningEtcd
from tests.operator.broker_double import BrokerDouble
from tests.operator.operators import RunningOperator
from tests.operator.worlds import World
from tests.support.api_server import ApiServer
from tests.waiting import eventually

pytestmark = [pytest.mark.slow_callbacks(60_000), pytest.mark.timeout(600)]

# How the writes are shared out: each test of the module kills after every so-manieth write.
SHARES = 4
_OBJECTS = (("Store", "ledger"), ("Queue", "kept"), ("Topic", "prices"), ("Bridge", "copy"), ("User", "ann"))


class Tale:
    """One telling. `die_after` 0: nobody dies."""

    def __init__(self, server: ApiServer, store: RunningEtcd, folder: Path, die_after: int) -> None:
        self.world = World(server, store.urls)
        self.deaths = 0
        self.operator = RunningOperator(
            folder / self.world.namespace,
            server.kubeconfig,
            namespaces=[self.world.namespace],
            lease_namespace=self.world.namespace,
            lease_duration_s=3.0,
        )
        self.operator.launch(die_after)

    async def until(self, check: Any, what: str) -> Any:
        """Waits, and starts another operator when the first one has died."""

        async def look() -> Any:
            if self.operator.has_ended:
                assert self.operator.wait() == -9, self.operator.log[-3000:]
                self.deaths += 1
                await asyncio.to_thread(self.operator.start)
            found = check()
            return await found if asyncio.iscoroutine(found) else found

        return await eventually(look, timeout_s=60.0, what=what)

    def is_ready(self, kind: str, name: str) -> bool:
        """Whether it is ready in its present generation."""
        found = self.world.get(kind, name)
        ready = self.world.condition(kind, name)
        is_current = found is not None and ready.get("observedGeneration") == found["metadata"]["generation"]
        return bool(is_current and ready["status"] == "True")

    async def tell(self) -> None:
        """The story."""
        world = self.world
        world.make_cluster()
        async with BrokerDouble(world.etcd_urls, world.etcd_name) as broker:
            world.secret("her-password", "one")
            world.apply("Store", "ledger", {"mode": "sync"})
            world.queue("kept", store="ledger", maxMessages=1)
            world.queue("deleted", deletionPolicy="delete")
            world.queue("emptied", deletionPolicy="onlyIfEmpty")
            world.apply("Topic", "prices", {})
            world.apply("Bridge", "copy", {"source": {"topic": "prices"}, "targets": [{"queue": "kept"}]})
            world.apply("User", "ann", {"passwordSecret": {"name": "her-password"}, "revokeImmediately": True})
            for kind, name in (*_OBJECTS, ("Queue", "deleted"), ("Queue", "emptied")):
                await self.until(lambda kind=kind, name=name: self.is_ready(kind, name), f"{kind} {name} ready")
            world.queue("kept", store="ledger", maxMessages=2)
            world.secret("her-password", "two")
            broker.messages["emptied"] = 1
            world.delete("Queue", "deleted")
            world.delete("Queue", "emptied")
            await self.until(lambda: world.get("Queue", "deleted") is None, "the deleted queue gone")
            await self.until(lambda: world.condition("Queue", "emptied")["reason"] == "DeletionBlocked", "blocked")
            broker.messages.clear()
            await broker.report()
            await self.until(lambda: world.get("Queue", "emptied") is None, "the emptied queue gone")
            await self.until(self._ends_well, "the end of the story")

    async def _ends_well(self) -> bool:
        if not all(self.is_ready(kind, name) for kind, name in _OBJECTS):
            return False
        return bool((await self.ending())["users"] == {"ann": 1})

    async def ending(self) -> dict[str, Any]:
        """All that is left, without what must differ (uids, revisions, salts)."""
        layout, client = self.world.layout, self.world.client
        configs: dict[str, Any] = {}
        for pair in (await client.list_all(layout.configs)).values:
            record = ConfigRecord.decode(pair.key, pair.value)
            claim = layout.claim_of(pair.key)
            owner = f"{record.owner.by} {record.owner.name}"
            configs[f"{claim.kind} {claim.name}"] = (record.manifest["spec"], owner, record.generation, record.deleting)
        users = {
            layout.user_of(pair.key): len(UserRecord.decode(pair.key, pair.value).credentials)
            for pair in (await client.list_all(layout.users)).values
        }
        statuses = [
            layout.object_status_of(pair.key) for pair in (await client.list_all(layout.object_statuses)).values
        ]
        finalizers = {
            f"{kind} {name}": (self.world.get(kind, name) or {})["metadata"].get("finalizers")
            for kind, name in _OBJECTS
        }
        said = sorted(f"{one.claim.kind} {one.claim.name} {one.broker}" for one in statuses)
        return {"configs": configs, "users": users, "statuses": said, "finalizers": finalizers}

    async def close(self) -> None:
        """Ends the operator."""
        self.operator.stop()
        await self.world.close()


async def _told(server: ApiServer, store: RunningEtcd, folder: Path, die_after: int) -> tuple[Tale, dict[str, Any]]:
    tale = Tale(server, store, folder, die_after)
    try:
        await tale.tell()
        return tale, await tale.ending()
    except BaseException as error:
        error.add_note(f"killed after write {die_after}; the last operator said:\n{tale.operator.log[-3000:]}")
        raise
    finally:
        await tale.close()


@pytest.fixture(scope="module")
def undisturbed() -> dict[str, Any]:
    """The ending of the story when nobody dies, once somebody has told it."""
    return {}


@pytest.mark.parametrize("share", range(SHARES))
async def test_killed_after_any_write_the_end_is_the_same(
    kinds: ApiServer, store: RunningEtcd, tmp_path: Path, undisturbed: dict[str, Any], share: int
) -> None:
    if share and os.environ.get("STERNA_COMPLETE") != "1":
        pytest.skip("every fourth write is enough for each change; STERNA_COMPLETE=1 takes them all")
    if not undisturbed:
        tale, ending = await _told(kinds, store, tmp_path, 0)
        undisturbed.update(ending=ending, writes=len(tale.operator.writes))
    assert undisturbed["writes"] > 30
    assert undisturbed["ending"]["users"] == {"ann": 1}
    deaths = 0
    for die_after in range(1 + share, undisturbed["writes"] + 1, SHARES):
        tale, ending = await _told(kinds, store, tmp_path, die_after)
        assert ending == undisturbed["ending"], f"killed after write {die_after}"
        deaths += tale.deaths
    # Some of the last writes (events) may fall away in another telling; nearly all of them are reached.
    assert deaths >= undisturbed["writes"] // SHARES - 3
