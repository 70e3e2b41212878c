"""The process: what it says of its health, what ends it, what it can do without, and `sterna-operator plan`."""

import asyncio
import contextlib
import json
import os
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path

import pytest
from sterna_etcd import Claim
from sterna_operator.clusters import Clusters
from sterna_operator.keys import Key
from sterna_operator.liveness import Liveness
from sterna_operator.watching import DEAD_AFTER_S, WatchClock, Watched, watch_path
from sterna_operator.work_queue import Priority, WorkQueue

from tests.etcds import RunningEtcd
from tests.operator.broker_double import BrokerDouble
from tests.operator.conftest import MakeOperator
from tests.operator.operators import RunningOperator
from tests.operator.worlds import World
from tests.support.api_server import ApiServer
from tests.support.kinds import install_kinds
from tests.waiting import eventually

pytestmark = pytest.mark.slow_callbacks(30_000)

_ROOT = Path(__file__).parent.parent.parent


def _answer(address: str, path: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(f"http://{address}{path}", timeout=5) as response:
            return response.status, response.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


async def test_a_healthy_operator_says_so_and_shows_figures(world: World, operator: MakeOperator) -> None:
    world.make_cluster()
    running = operator()
    async with BrokerDouble(world.etcd_urls, world.etcd_name):
        world.queue("orders")
        await world.ready("Queue", "orders")
        assert _answer(running.address, "/healthz") == (200, "ok")
        assert _answer(running.address, "/readyz") == (200, "ok")
        # The last look at the queue may not be over yet.
        looked, waiting = 'reconcile_seconds_count{kind="Queue"}', 'queue_depth{priority="user_change"}'
        await eventually(lambda: world.metrics(running.address)[f"sterna_operator_{looked}"] >= 2.0)
        await eventually(lambda: world.metrics(running.address)[f"sterna_operator_{waiting}"] == 0.0)
        figures = world.metrics(running.address)
    assert figures["sterna_operator_leading"] == 1.0
    assert figures[f'sterna_operator_etcd_usable{{cluster="{world.etcd_name}"}}'] == 1.0
    path = watch_path(Watched("sterna.dev/v1alpha1", "Queue"), world.namespace)
    assert figures[f'sterna_operator_watch_age_seconds{{path="{path}"}}'] < 60.0


async def test_the_installed_program_leads_until_it_is_told_to_end(world: World, tmp_path: Path) -> None:
    """As people start it: the other tests' operators are forked, and begin behind the command."""
    world.make_cluster()
    ready = tmp_path / "ready"
    flags = {"kubeconfig": str(world.server.kubeconfig), "ready-file": str(ready), "listen": "127.0.0.1:0"}
    flags |= {"namespaces": world.namespace, "lease-namespace": world.namespace, "broker-image": "broker:1"}
    program = str(Path(sys.executable).with_name("sterna-operator"))
    command = [program, "run", *(f"--{key}={flags[key]}" for key in flags)]
    with (tmp_path / "log").open("wb") as log:
        running = await asyncio.create_subprocess_exec(*command, stdout=log, stderr=log, cwd=tmp_path)
    try:
        await eventually(lambda: ready.exists() and ready.read_text(), timeout_s=40, what="the operator's ready file")
        async with BrokerDouble(world.etcd_urls, world.etcd_name):
            world.queue("orders")
            await world.ready("Queue", "orders")
            assert _answer(json.loads(ready.read_text())["address"], "/healthz") == (200, "ok")
        running.terminate()
        async with asyncio.timeout(20):
            assert await running.wait() == 0, (tmp_path / "log").read_text()
    finally:
        with contextlib.suppress(ProcessLookupError):
            running.kill()
        await running.wait()


async def test_every_watch_is_heard_of_when_something_changes(world: World, operator: MakeOperator) -> None:
    world.make_cluster()
    running = operator()
    kinds = {"MessagingCluster": "messagingcluster", "Queue": "queue"}
    paths = {kind: watch_path(Watched("sterna.dev/v1alpha1", kind), world.namespace) for kind in kinds}

    def ages_s() -> dict[str, float]:
        figures = world.metrics(running.address)
        return {kind: figures[f'sterna_operator_watch_age_seconds{{path="{path}"}}'] for kind, path in paths.items()}

    async with BrokerDouble(world.etcd_urls, world.etcd_name):
        world.queue("orders")
        await world.ready("Queue", "orders")
        # No age can become less but by something that is heard.
        await eventually(
            lambda: min(ages_s().values()) > 2.0, timeout_s=60, what="watches that are silent for a moment"
        )
        for kind, name in (("MessagingCluster", "mq"), ("Queue", "orders")):
            before_s = ages_s()[kind]
            world.annotate(kind, name, {"touched": "yes"})
            await eventually(lambda k=kind, b=before_s: ages_s()[k] < b, timeout_s=60, what=f"{kind} heard of")  # type: ignore[misc]


class TestLiveness:
    """What counts as dead."""

    def made(self, clock: WatchClock, queue: WorkQueue, now: float) -> Liveness:
        class NoClusters(Clusters):
            def __init__(self) -> None:
                """None."""

            @property
            def ended(self) -> list[str]:
                return []

        return Liveness(clock, NoClusters(), queue, lambda: True, lambda: now)

    def test_a_watch_that_was_never_heard_of_is_dead_after_its_time(self) -> None:
        now = 1_000.0
        clock = WatchClock(clock=lambda: now)
        clock.expect(["/a", "/b"])
        liveness = self.made(clock, WorkQueue(), now)
        assert liveness.faults() == []
        now += DEAD_AFTER_S - 1
        clock.note("/a")
        now += 2
        assert liveness.faults() == ["watch is dead: /b"]

    def test_a_part_that_ended(self) -> None:
        liveness = self.made(WatchClock(), WorkQueue(), 0.0)
        liveness.ended.append("kopf")
        assert liveness.faults() == ["task ended: kopf"]

    def test_a_queue_that_stands_still(self) -> None:
        queue = WorkQueue(clock=lambda: 0.0)
        queue.add(Key("Queue", "ns", "a"), Priority.USER_CHANGE)
        queue.pop()
        assert self.made(WatchClock(), queue, 500.0).faults() == []
        queue.add(Key("Queue", "ns", "b"), Priority.USER_CHANGE)
        assert self.made(WatchClock(), queue, 500.0).faults() == ["nothing was taken from the queue for 500 s"]


async def test_without_our_kinds_it_says_what_to_install(own_api_server: ApiServer, tmp_path: Path) -> None:
    running = RunningOperator(tmp_path / "operator", own_api_server.kubeconfig)
    with pytest.raises(AssertionError):
        running.start()
    assert running.wait() != 0
    assert "install the chart sterna-crds first" in running.log


async def test_all_namespaces_when_none_are_named(
    own_api_server: ApiServer, store: RunningEtcd, tmp_path: Path
) -> None:
    """On a server where it meets nobody else's objects."""
    install_kinds(own_api_server)
    world = World(own_api_server, store.urls)
    world.make_cluster()
    running = RunningOperator(
        tmp_path / "operator", own_api_server.kubeconfig, namespaces=[], lease_namespace=world.namespace
    )
    try:
        running.start()
        async with BrokerDouble(world.etcd_urls, world.etcd_name):
            world.queue("orders")
            await world.ready("Queue", "orders")
    finally:
        running.stop()
        await world.close()


async def test_plan_shows_what_would_be_done_and_does_nothing(
    world: World, operator: MakeOperator, tmp_path: Path
) -> None:
    world.make_cluster()
    running = operator()
    async with BrokerDouble(world.etcd_urls, world.etcd_name):
        world.queue("orders", maxMessages=1)
        await world.ready("Queue", "orders")
    running.kill()
    file = tmp_path / "wanted.yaml"
    reference = "clusterRef: {name: mq}"
    head = "apiVersion: sterna.dev/v1alpha1\nkind: Queue\nmetadata: {name: %s}\nspec: {%s, %s}\n"
    file.write_text(
        "---\n".join(
            (head % ("orders", reference, "maxMessages: 5"), head % ("more", reference, "deletionPolicy: delete"))
        )
    )
    command = [sys.executable, "-m", "sterna_operator.main", "plan", "-f", str(file), "-n", world.namespace]
    command += ["--kubeconfig", str(world.server.kubeconfig)]
    rooms = os.pathsep.join(str(_ROOT / room) for room in ("operator", "etcd", "crds"))
    environment = {**os.environ, "PYTHONPATH": rooms}
    done = await asyncio.to_thread(
        subprocess.run, command, capture_output=True, text=True, timeout=60, check=False, env=environment
    )
    assert done.returncode == 0, done.stderr
    assert "1. update Queue 'orders': spec.maxMessages: 1 -> 5" in done.stdout
    assert "2. create Queue 'more'" in done.stdout
    assert (await world.configured("Queue", "orders")).manifest["spec"]["maxMessages"] == 1
    assert world.get("Queue", "more") is None


async def test_an_etcd_restored_from_an_old_copy_is_not_written_to(
    world: World, operator: MakeOperator, tmp_path: Path
) -> None:
    (tmp_path / "own").mkdir()
    with RunningEtcd(tmp_path / "own") as own:
        world.make_cluster(etcd={"endpoints": own.urls.split(",")})
        running = operator()
        async with BrokerDouble(own.urls, world.etcd_name):
            world.queue("before")
            await world.ready("Queue", "before")
        member = own.members[0]
        member.kill()
        member.copy_to(tmp_path / "copy")
        member.launch()
        async with BrokerDouble(own.urls, world.etcd_name):
            world.queue("after", maxMessages=1)
            await world.ready("Queue", "after")
            for number in range(2, 6):
                world.queue("after", maxMessages=number)
                await world.ready("Queue", "after")
        member.kill()
        member.restore_from(tmp_path / "copy")
        member.launch()
        world.queue("last")
        await world.reason("Queue", "last", "EtcdReplaced")
        async with BrokerDouble(own.urls, world.etcd_name) as broker:
            await eventually(lambda: Claim("Queue", "before") in broker.applied)
            assert Claim("Queue", "last") not in broker.applied
        assert not running.has_ended
