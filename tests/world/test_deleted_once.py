"""What an order has deleted is deleted once, although its record stays until whoever ordered it has heard of that."""

from __future__ import annotations

from sterna_etcd import Claim
from sterna_etcd.records import ConfigRecord, Deleting, ObjectStatus

from tests.world.clusters import LAYOUT, OWNER, document
from tests.world.stage import Stage, staged
from tests.world.test_clusters import drained

_CLAIM = Claim("Queue", "orders")


@staged
async def test_what_comes_after_a_deletion_outlives_a_start(stage: Stage) -> None:
    cluster = await stage.two("orders")
    connection = await stage.connect(cluster.brokers["b0"])
    await connection.send("orders", "goes")
    order = Deleting(policy="delete", uid="request")
    record = ConfigRecord(manifest=document("Queue", "orders", broker="b1"), generation=9, owner=OWNER, deleting=order)
    await cluster.client.put(LAYOUT.config(_CLAIM), record.encode())

    async def said() -> ObjectStatus | None:
        key = LAYOUT.object_status(_CLAIM, "b1")
        found = (await cluster.client.get(key)).found
        status = ObjectStatus.decode(key, found.value) if found is not None else None
        return status if status is not None and status.state == "deleted" else None

    assert (await cluster.until(said)).messages == 1
    await connection.send("orders", "comes after it")
    cluster.brokers["b1"].kill()
    await cluster.brokers["b1"].start()
    await cluster.until_live()
    revision = cluster.member("b1").link.view.revision
    await cluster.until(lambda: cluster.member("b1").applied_revision >= revision)
    # Whoever has ordered it is told the same.
    assert (await cluster.until(said)).messages == 1
    assert await drained(connection, "orders") == ["comes after it"]
    await connection.close()
