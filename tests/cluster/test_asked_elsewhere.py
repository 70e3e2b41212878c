"""Any broker of a cluster is asked for anything: none says of what lives on another one that it holds nothing."""

import asyncio
import json

import pytest
import sterna
from sterna import admin, errors
from sterna_etcd.layout import Claim

from tests.cli.processes import Command
from tests.cluster.conftest import Cluster, Connect, Operator, document


async def _made(two: Cluster, operator: Operator, connect: Connect) -> None:
    """A queue and a durable subscription on b1, each with what was sent to it through b0."""
    manifests = [
        document("Queue", "orders", broker="b1"),
        document("Queue", "by-clients", name="by.>"),
        document("Topic", "prices", broker="b1"),
        document("DurableSubscription", "audit", topic="prices", clientId="auditor"),
    ]
    async with admin.connect(two.url("b0")) as there:
        await there.apply("\n---\n".join(map(json.dumps, manifests)))
    await operator.until(Claim("Queue", "orders"), "applied")
    await operator.until(Claim("DurableSubscription", "auditor/audit"), "applied")
    connection = await connect(two.url("b0"))
    for number in range(3):
        await connection.send("orders", f"order {number}")
    await connection.send(sterna.Topic("prices"), "a price")
    await connection.send("by.a.client", "made where it was sent")


async def test_whichever_broker_is_asked_the_one_that_has_it_answers(
    two: Cluster, operator: Operator, connect: Connect
) -> None:
    await _made(two, operator, connect)
    for broker in ("b0", "b1"):
        async with admin.connect(two.url(broker)) as there:
            orders = await there.resource("Queue", "orders")
            assert (orders.statistics.messages, orders.home) == (3, "")
            for name in ("audit", "auditor/audit"):
                assert (await there.resource("DurableSubscription", name)).statistics.messages == 1
            assert (await there.resource("Topic", "prices")).statistics.messages == 1
            assert (await there.resource("Queue", "by.a.client")).statistics.messages == 1
            with pytest.raises(errors.NoSuchDestinationError):
                await there.resource("Queue", "missing")


async def test_while_its_broker_is_away_nobody_says_that_it_holds_nothing(
    two: Cluster, operator: Operator, connect: Connect
) -> None:
    await _made(two, operator, connect)
    two.brokers["b1"].kill()
    async with admin.connect(two.url("b0"), timeout=5) as there:
        with pytest.raises(errors.UnreachableError):
            await there.resource("Queue", "orders")
        with pytest.raises(errors.UnreachableError):
            await there.resource("DurableSubscription", "audit")


async def test_a_list_names_the_home_of_what_lives_elsewhere_and_no_figures(
    two: Cluster, operator: Operator, connect: Connect
) -> None:
    await _made(two, operator, connect)
    async with admin.connect(two.url("b0")) as there:
        (orders,) = await there.resources("Queue", "orders")
        (audit,) = await there.resources("DurableSubscription")
        for one in (orders, audit):
            assert one.home == "b1"
            with pytest.raises(errors.MovedError, match="lives on the broker 'b1'"):
                _ = one.statistics
        assert orders.manifest["spec"]["broker"] == "b1"
    async with admin.connect(two.url("b1")) as there:
        (orders,) = await there.resources("Queue", "orders")
        assert (orders.statistics.messages, orders.home) == (3, "")


async def test_the_command_line_counts_where_it_is_and_says_where_that_is(
    two: Cluster, operator: Operator, connect: Connect
) -> None:
    await _made(two, operator, connect)
    _, shown, _ = await _run(two, "get", "queue", "orders", "-o", "json")
    assert json.loads(shown)["status"]["statistics"]["messages"] == 3
    _, listed, _ = await _run(two, "get", "queues", "-o", "json")
    (orders,) = [row["status"] for row in json.loads(listed) if row["status"]["name"] == "orders"]
    assert orders["home"] == "b1"
    assert "statistics" not in orders
    code, table, _ = await _run(two, "get", "queues")
    assert code == 0
    assert "HOME" in table.splitlines()[0]
    (row,) = [line.split() for line in table.splitlines() if "orders" in line]
    assert row == ["orders", "static", "b1"]
    # Nobody is asked whether an empty queue may go.
    code, _, said = await _run(two, "delete", "queue", "orders")
    assert code == 2
    assert "holds 3 messages" in said


async def _run(two: Cluster, *arguments: str) -> tuple[int, str, str]:
    """A command at b0: its exit code, and what it printed and complained of."""

    def run() -> tuple[int, str, str]:
        with Command(*arguments, "--server", two.url("b0")) as command:
            command.end_input()
            return command.wait(), "".join(command.out), "".join(command.err)

    return await asyncio.to_thread(run)
