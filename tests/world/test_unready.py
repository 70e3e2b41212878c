"""Why a broker is not ready stands in etcd, from where the operator puts it into the cluster's status."""

from __future__ import annotations

from tests.world.stage import Stage, staged


@staged
async def test_the_reasons_of_readyz_are_told_to_the_cluster_and_taken_back(stage: Stage) -> None:
    cluster = await stage.cluster("b0", "b1")
    node = cluster.brokers["b1"].node
    assert node is not None
    assert node._parts is not None
    statistics = node._parts.statistics
    figures = statistics.engine
    full = {"out_of_space": False}
    statistics.engine = lambda: {**figures(), **full}  # type: ignore[method-assign]

    async def said(name: str) -> list[str]:
        status = await cluster.status(name)
        return [] if status is None else status.reasons

    async def is_unready() -> bool:
        return bool(await said("b1"))

    async def is_ready_again() -> bool:
        return not await is_unready()

    assert await said("b1") == []
    full["out_of_space"] = True
    await cluster.until(is_unready)
    assert await said("b1") == cluster.brokers["b1"].readyz()["reasons"]
    assert await said("b1") == ["the disk is full: messages can be consumed, not sent"]
    assert await said("b0") == []
    full["out_of_space"] = False
    await cluster.until(is_ready_again)
