"""What members say of themselves in etcd, what administrators do through them, and the users that they let in."""

import asyncio
import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import sterna
from argon2 import PasswordHasher
from sterna import admin, errors
from sterna.cli import application
from sterna_etcd import Claim
from sterna_etcd.records import (
    BrokerRecord,
    BrokerStatus,
    ConfigRecord,
    Credential,
    Deleting,
    Owner,
    UserRecord,
)

from tests.access.authorities import Authority
from tests.cluster.conftest import LAYOUT, OPERATOR, Cluster, Connect, Operator, document, waited
from tests.running import RunningBroker
from tests.waiting import eventually

Make = Callable[..., Cluster]


def text(document: dict[str, Any]) -> str:
    """A manifest as `apply` takes it."""
    return json.dumps(document)


async def broker_status(operator: Operator, name: str) -> BrokerStatus | None:
    """What a broker says of itself."""
    key = LAYOUT.broker_status(name)
    found = (await operator.etcd.get(key)).found
    return BrokerStatus.decode(key, found.value) if found else None


def _digest(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()


async def until_both_applied(operator: Operator, claim: Claim) -> None:
    """Until both brokers have taken an object as it stands now, wherever it lives."""
    written = (await operator.etcd.get(LAYOUT.config(claim))).found
    assert written is not None

    async def both() -> bool:
        found = [await broker_status(operator, name) for name in ("b0", "b1")]
        return all(one is not None and one.applied_revision >= written.mod_revision for one in found)

    await waited(both, 30, "both to have applied it")


async def test_a_member_says_which_certificate_it_shows(cluster: Make, tmp_path: Path) -> None:
    authority = Authority()
    certificate, key = authority.issue(tmp_path / "server")
    made = await asyncio.to_thread(cluster, 1, tls_cert=certificate, tls_key=key)
    async with made.client() as etcd:

        async def says(digest: str) -> bool:
            status = await broker_status(Operator(etcd), "b0")
            return status is not None and status.certificate == digest

        await waited(lambda: says(_digest(certificate)), 30, "the first certificate")
        authority.issue(tmp_path / "server")
        await waited(lambda: says(_digest(certificate)), 30, "the second one")


async def test_members_register_under_a_lease_and_leave(two: Cluster, operator: Operator) -> None:
    async def registered(name: str) -> BrokerRecord | None:
        found = (await operator.etcd.get(LAYOUT.broker(name))).found
        return BrokerRecord.decode(found.key, found.value) if found else None

    record: BrokerRecord = await waited(lambda: registered("b0"), 30, "b0")
    assert record.addresses == [f"sterna://{two.brokers['b0'].address}"]
    await waited(lambda: registered("b1"), 30, "b1")
    # Whoever stops says so; of whoever is killed the lease runs out.
    assert await asyncio.to_thread(two.brokers["b1"].terminate) == 0
    assert await registered("b1") is None
    await asyncio.to_thread(two.brokers["b0"].kill)

    async def is_gone() -> bool:
        return await registered("b0") is None

    await waited(is_gone, 60, "b0 to be gone")


async def test_a_second_broker_of_a_name_refuses_to_start_and_says_where_the_first_is(
    two: Cluster, operator: Operator, tmp_path: Path
) -> None:
    first = (await operator.etcd.get(LAYOUT.broker("b0"))).found
    assert first is not None
    second = RunningBroker(tmp_path / "second", None, name="b0", cluster={"etcd": two.etcd.urls, "cluster": "c1"})
    second.launch()
    process = second.process
    assert process is not None
    try:
        status = await asyncio.to_thread(process.wait, 90)
    finally:
        second.stop()
    assert status != 0
    assert two.brokers["b0"].address in second.stderr
    assert "--name" in second.stderr
    standing = (await operator.etcd.get(LAYOUT.broker("b0"))).found
    assert standing is not None
    assert BrokerRecord.decode(first.key, standing.value).incarnation == json.loads(first.value)["incarnation"]


async def test_a_name_is_free_again_when_its_lease_has_run_out(
    two: Cluster, operator: Operator, tmp_path: Path
) -> None:
    """A broker that lost its disk comes back with an empty one: not known, and alone."""
    await asyncio.to_thread(two.brokers["b1"].kill)
    second = RunningBroker(tmp_path / "second", None, name="b1", cluster={"etcd": two.etcd.urls, "cluster": "c1"})
    try:
        second.launch()
        await eventually(lambda: second.has_started, timeout_s=90, what="the newcomer to start")

        async def is_registered() -> bool:
            found = (await operator.etcd.get(LAYOUT.broker("b1"))).found
            return found is not None and second.address in found.value.decode()

        await waited(is_registered, 60, "the newcomer to be registered")
    finally:
        await asyncio.to_thread(second.stop)


async def test_a_member_says_what_it_has_applied_and_holds(two: Cluster, operator: Operator, connect: Connect) -> None:
    claim = await operator.put(document("Queue", "orders", broker="b1"))
    status = await operator.until(claim, "applied")
    assert (status.uid, status.generation, status.home) == ("uid-1", 1, "b1")
    await until_both_applied(operator, claim)
    connection = await connect(two.url())
    for _ in range(3):
        await connection.send("orders", "x")

    async def counted() -> bool:
        held = await broker_status(operator, "b1")
        return (await operator.status(claim))["b1"].messages == 3 and held is not None and held.messages == 3

    await waited(counted, 30, "the messages to be counted")
    await operator.put(
        document("Queue", "orders", broker="b1"), generation=2, deleting=Deleting(policy="delete", uid="r")
    )
    await operator.until(claim, "deleted", generation=2)
    await operator.etcd.delete(LAYOUT.config(claim))

    async def holds_nothing() -> bool:
        held = await broker_status(operator, "b1")
        return held is not None and held.messages == 0

    await waited(holds_nothing, 30, "what has gone with its messages to be counted no more")


async def test_what_a_durable_subscription_holds_is_told(two: Cluster, operator: Operator, connect: Connect) -> None:
    await operator.until(await operator.put(document("Topic", "prices", broker="b1")), "applied")
    durable = document("DurableSubscription", "audit", topic="prices", clientId="reader")
    claim = await operator.put(durable, claim="reader/audit")
    await operator.until(claim, "applied")
    await (await connect(two.url())).send(sterna.Topic("prices"), "kept")

    async def counted() -> bool:
        return (await operator.status(claim))["b1"].messages == 1

    await waited(counted, 30, "its message to be counted")


async def test_what_is_gone_has_no_status(two: Cluster, operator: Operator) -> None:
    claim = await operator.put(document("Queue", "orders"))
    await operator.until(claim, "applied")
    await operator.etcd.delete(LAYOUT.config(claim))

    async def none() -> bool:
        return not await operator.status(claim)

    await waited(none, 30, "no status")


async def test_an_administrators_change_holds_on_every_member(two: Cluster, operator: Operator) -> None:
    async with admin.connect(two.url("b0")) as there:
        manifest = document("Queue", "orders", broker="b1", maxMessages=3)
        (applied,) = await there.apply(text(manifest))
        assert applied.change == "created"
        (again,) = await there.apply(text(manifest))
        assert again.change == "unchanged"
    key = LAYOUT.config(Claim("Queue", "orders"))
    found = (await operator.etcd.get(key)).found
    assert found is not None
    record = ConfigRecord.decode(key, found.value)
    assert (record.owner.by, record.generation) == ("admin", 1)
    await operator.until(Claim("Queue", "orders"), "applied")
    async with admin.connect(two.url("b1")) as there:
        assert (await there.resource("Queue", "orders")).manifest["spec"]["maxMessages"] == 3
        await there.delete("Queue", "orders")
    assert (await operator.etcd.get(key)).found is None


async def test_what_the_operator_owns_is_refused_naming_the_owner(two: Cluster, operator: Operator) -> None:
    claim = await operator.put(document("Queue", "orders", broker="b0", maxMessages=3))
    await operator.until(claim, "applied")
    await until_both_applied(operator, claim)
    before = (await operator.etcd.get(LAYOUT.config(claim))).found
    for name in ("b0", "b1"):
        async with admin.connect(two.url(name)) as there:
            manifests = [document("Queue", "orders", broker="b0", maxMessages=4), document("Queue", f"other-{name}")]
            refused, left = await there.apply("\n---\n".join(map(text, manifests)))
            assert refused.change == "refused"
            assert refused.error is not None
            assert "shop/orders" in str(refused.error)
            # All or nothing.
            assert left.change == "unchanged", left.error
            # Each reason stands with its document, also behind one that is no manifest.
            wrong, refused = await there.apply("\n---\n".join(['{"kind": "Quue"}', text(manifests[0])]))
            assert "unknown kind 'Quue'" in str(wrong.error)
            assert "shop/orders" in str(refused.error)
            with pytest.raises(errors.OwnedError, match="shop/orders"):
                await there.delete("Queue", "orders")
    assert (await operator.etcd.get(LAYOUT.config(claim))).found == before
    assert (await operator.etcd.list_all(f"{LAYOUT.configs}Queue/other")).values == []


async def test_without_etcd_nothing_can_be_administered(two: Cluster, operator: Operator) -> None:
    claim = await operator.put(document("Queue", "orders"))
    await operator.until(claim, "applied")
    await asyncio.to_thread(two.etcd.first.kill)
    async with admin.connect(two.url("b0")) as there:
        with pytest.raises(errors.UnavailableError):
            await there.apply(text(document("Queue", "new")))
        assert [one.name for one in await there.resources("Queue", pattern="new")] == []


async def test_of_two_who_change_the_same_at_once_nobody_is_overwritten_unseen(
    two: Cluster, operator: Operator
) -> None:
    async with admin.connect(two.url("b0")) as one, admin.connect(two.url("b1")) as other:
        await one.apply(text(document("Queue", "orders", maxMessages=1)))
        done = 0
        for limit in range(2, 8):
            changes = [
                there.apply(text(document("Queue", "orders", maxMessages=limit * 10 + number)))
                for number, there in enumerate((one, other))
            ]
            answers = await asyncio.gather(*changes, return_exceptions=True)
            for answer in answers:
                if isinstance(answer, errors.ConflictError):
                    continue
                assert not isinstance(answer, BaseException)
                assert answer[0].change == "configured"
                done += 1
        key = LAYOUT.config(Claim("Queue", "orders"))
        found = (await operator.etcd.get(key)).found
        assert found is not None
        # Every change that was answered counted one generation: none was made over one that it had not seen.
        assert ConfigRecord.decode(key, found.value).generation == 1 + done


async def test_of_two_who_create_the_same_at_once_one_does(two: Cluster, operator: Operator) -> None:
    async with admin.connect(two.url("b0")) as one, admin.connect(two.url("b1")) as other:
        for number in range(4):
            answers = await asyncio.gather(
                *(
                    there.apply(text(document("Queue", f"q{number}", maxMessages=most)), create_only=True)
                    for most, there in ((1, one), (2, other))
                ),
                return_exceptions=True,
            )
            created = []
            for most, answer in enumerate(answers, 1):
                if isinstance(answer, errors.ConflictError):
                    continue  # the other one's came between
                assert not isinstance(answer, BaseException)
                if answer[0].change == "created":
                    created.append(most)
                else:
                    assert isinstance(answer[0].error, errors.AlreadyExistsError)
            assert len(created) == 1
            key = LAYOUT.config(Claim("Queue", f"q{number}"))
            found = (await operator.etcd.get(key)).found
            assert found is not None
            record = ConfigRecord.decode(key, found.value)
            assert (record.generation, record.manifest["spec"]["maxMessages"]) == (1, created[0])


async def test_more_objects_than_a_transaction_takes_are_planned_at_once_and_applied_file_by_file(
    cluster: Make, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made = await asyncio.to_thread(cluster, 1)
    manifests = tmp_path / "manifests"
    manifests.mkdir()
    for number in range(2):
        documents = [document("Queue", f"q{number}-{which}") for which in range(60)]
        (manifests / f"{number}.json").write_text(json.dumps(documents))

    async def run(command: str) -> tuple[int, str]:
        given = [command, "-f", str(manifests), "-s", made.url(), "-o", "json"]
        code = await asyncio.to_thread(application.run, given)
        return code, capsys.readouterr().out

    code, planned = await run("diff")
    assert (code, len(json.loads(planned))) == (7, 120)
    async with admin.connect(made.url()) as there:
        files = {str(file): file.read_text() for file in manifests.iterdir()}
        with pytest.raises(errors.LimitExceededError, match="120 objects are changed at once"):
            await there.apply(files)
        assert (await run("apply"))[0] == 0
        # What is there already counts for nothing.
        assert {one.change.value for one in await there.apply(files)} == {"unchanged"}


async def test_users_of_the_cluster_are_let_in_until_they_are_taken_out(cluster: Make) -> None:
    made = await asyncio.to_thread(cluster, 1, users_from_cluster=True)
    hasher = PasswordHasher(time_cost=1, memory_cost=8_192, parallelism=1)
    owner = Owner(by="operator", namespace="shop", name="alice", uid="u")

    async def opens(password: str) -> bool:
        try:
            connection = await sterna.connect(made.url(), user="alice", password=password, connect_attempts=1)
        except errors.UnauthenticatedError:
            return False
        await connection.close()
        return True

    async with made.client() as etcd:
        assert not await opens("first")
        user = UserRecord(credentials=[Credential(argon2=hasher.hash("first"))], owner=owner)
        revision = await etcd.put(LAYOUT.user("alice"), user.encode())
        operator = Operator(etcd)

        async def told() -> bool:
            status = await broker_status(operator, "b0")
            return status is not None and status.applied_revision >= revision

        await waited(told, 30, "the broker to have applied it")
        assert await opens("first")
        assert not await opens("second")
        broken = UserRecord(credentials=[Credential(argon2="$argon2id$broken")], owner=owner)
        await etcd.put(LAYOUT.user("alice"), broken.encode())
        refused = await operator.until(Claim("User", "alice"), "refused", generation=0)
        assert refused.uid == "u"
        assert not await opens("first")
        await etcd.put(LAYOUT.user("alice"), user.encode())
        await waited(lambda: opens("first"), 30, "alice to be let in")
        await etcd.delete(LAYOUT.user("alice"))

        async def shut() -> bool:
            return not await opens("first")

        await waited(shut, 30, "alice to be shut out")


@pytest.mark.covers("EMS-DEST-B12")
async def test_a_topic_is_deleted_by_its_home_with_what_durables_hold_of_it_or_once_they_are_empty(
    two: Cluster, operator: Operator, connect: Connect
) -> None:
    sender = await connect(two.url("b0"))
    for name in ("emptied", "deleted"):
        manifest = document("Topic", name, broker="b1")
        topic = await operator.put(manifest)
        await operator.until(topic, "applied")
        durable = document("DurableSubscription", name, topic=name, clientId="auditor")
        await operator.until(await operator.put(durable, claim=f"auditor/{name}"), "applied")
        for _ in range(3):
            await sender.send(sterna.Topic(name), "x")
        deleting = Deleting(policy="onlyIfEmpty", uid="request")
        await operator.put(manifest, generation=2, deleting=deleting, owner=OPERATOR)
        blocked = await operator.until(topic, "blocked", generation=2)
        assert (blocked.messages, blocked.reason) == (3, "InUse")
        async with admin.connect(two.url("b0")) as there:
            if name == "emptied":
                assert await there.purge_durable(name, client_id="auditor") == 3
                assert (await operator.until(topic, "deleted", generation=2)).messages == 0
            else:
                deleting = Deleting(policy="delete", uid="request")
                await operator.put(manifest, generation=3, deleting=deleting, owner=OPERATOR)
                assert (await operator.until(topic, "deleted", generation=3)).messages == 3
            assert (await there.resource("DurableSubscription", name)).statistics.messages == 0


async def test_a_static_durable_is_deleted_where_its_topic_lives(
    two: Cluster, operator: Operator, connect: Connect
) -> None:
    topic = await operator.put(document("Topic", "prices", broker="b1"))
    await operator.until(topic, "applied")
    manifest = document("DurableSubscription", "audit", topic="prices", clientId="auditor")
    claim = await operator.put(manifest, claim="auditor/audit")
    assert (await operator.until(claim, "applied")).home == "b1"
    await (await connect(two.url("b0"))).send(sterna.Topic("prices"), "kept")
    # Nobody else deletes it, by whatever name; and where it is not, it is said where it is.
    for broker in ("b0", "b1"):
        async with admin.connect(two.url(broker)) as there:
            for name in ("auditor/audit", "audit"):
                with pytest.raises(errors.OwnedError, match="belongs to the Kubernetes object"):
                    await there.delete("DurableSubscription", name, with_messages=True)
            assert [one.body async for one in there.browse_durable("audit", client_id="auditor")] == ["kept"]
    deleting = Deleting(policy="onlyIfEmpty", uid="request")
    await operator.put(manifest, claim="auditor/audit", generation=2, deleting=deleting, owner=OPERATOR)
    blocked = await operator.until(claim, "blocked", generation=2)
    assert (blocked.messages, blocked.uid) == (1, "request")
    deleting = Deleting(policy="delete", uid="request")
    await operator.put(manifest, claim="auditor/audit", generation=3, deleting=deleting, owner=OPERATOR)
    deleted = await operator.until(claim, "deleted", generation=3)
    assert deleted.messages == 1
