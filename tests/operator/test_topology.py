"""Queues and the like against a real API server and a real etcd, with a double in the place of brokers."""

import pytest
from sterna_etcd import Claim

from tests.operator.broker_double import BrokerDouble
from tests.operator.conftest import MakeOperator
from tests.operator.worlds import World
from tests.waiting import eventually

pytestmark = pytest.mark.slow_callbacks(5_000)


async def test_a_queue_becomes_ready_when_brokers_have_applied_it(world: World, operator: MakeOperator) -> None:
    world.make_cluster()
    operator()
    async with BrokerDouble(world.etcd_urls, world.etcd_name) as broker:
        broker.is_late = True
        made = world.queue("orders", maxMessages=10)
        record = await world.configured("Queue", "orders")
        assert record.manifest["spec"] == {"maxMessages": 10}
        assert record.owner.uid == made["metadata"]["uid"]
        await world.reason("Queue", "orders", "Applying")
        assert world.condition("Queue", "orders")["status"] == "False"
        broker.is_late = False
        await broker.report()
        ready = await world.ready("Queue", "orders", timeout_s=2.0)
        assert ready["status"]["home"] == "b-0"
        assert ready["status"]["observedGeneration"] == 1
        assert "finalizers" not in ready["metadata"]
        assert broker.applied[Claim("Queue", "orders")].generation == 1
    assert "Applied" in await eventually(lambda: world.events("orders"))
