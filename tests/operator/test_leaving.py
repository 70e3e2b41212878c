"""An operator that is told to stop lets go of its own namespace when that is being deleted, and only then."""

import pytest

from tests.operator.broker_double import BrokerDouble
from tests.operator.conftest import MakeOperator
from tests.operator.worlds import World

pytestmark = pytest.mark.slow_callbacks(30_000)


@pytest.mark.parametrize("goes", [True, False], ids=["namespace goes", "namespace stays"])
async def test_finalizers_go_with_the_namespace(world: World, operator: MakeOperator, goes: bool) -> None:
    world.make_cluster()
    running = operator()
    async with BrokerDouble(world.etcd_urls, world.etcd_name):
        for number, policy in enumerate(("retain", "delete", "onlyIfEmpty")):
            world.queue(f"q{number}", deletionPolicy=policy)
            await world.ready("Queue", f"q{number}")
        if goes:
            # Kubernetes begins with the pods; no object in it has been deleted yet when the operator has to stop.
            assert world.server.request("DELETE", f"/api/v1/namespaces/{world.namespace}").ok
        assert running.terminate() == 0
    found = [world.get("Queue", f"q{number}") for number in range(3)]
    held = [bool(one and one["metadata"].get("finalizers")) for one in found]
    assert held == ([False, False, False] if goes else [False, True, True])
