"""Clients' ledgers when links break, brokers are lost and senders do not wait: each message has one identity."""

from __future__ import annotations

import asyncio
import errno
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
import sterna
import xxhash
from sterna import AcknowledgeMode, Ledger, errors, ledger
from sterna._proto.sterna.v1 import messaging_pb2 as pb

from tests.support import ledgers
from tests.world.stage import Stage, staged


def _folder(stage: Stage) -> Path:
    return stage._folder / "ledger"


def _checksum(body: str) -> bytes:
    return xxhash.xxh3_128_digest(body.encode())


@staged
async def test_what_was_sent_and_confirmed_is_written_down_with_its_checksum(stage: Stage) -> None:
    folder = _folder(stage)
    connection = await stage.connect(await stage.broker(), ledger=folder, client_id="billing")
    producer = await connection.producer("q")
    sent = [await producer.send(body) for body in ("one", "two")]
    await connection.close()
    found = ledgers.sent(folder)
    assert list(found) == [one.message_id for one in sent]
    assert [one.checksum for one in found.values()] == [_checksum("one"), _checksum("two")]
    assert [(one.destination, one.destination_kind) for one in found.values()] == [("q", "queue")] * 2
    assert ledgers.confirmed(folder) == set(found)
    (file,) = ledgers.files(folder)
    assert file.name.startswith("billing-")
    reading = ledger.read(file)
    kinds = [one.kind for one in reading]
    assert reading.is_closed
    # Before the next message leaves, what the broker said of the first is there.
    assert kinds == ["link", "producer", "sent", "confirmed", "sent", "confirmed"]


@staged
async def test_nothing_leaves_before_it_is_written_down_and_nobody_is_told_before(stage: Stage) -> None:
    folder = _folder(stage)
    connection = await stage.connect(await stage.broker(), ledger=folder)
    link = connection._lifeline._link
    assert link is not None
    write, seen = link._call.write, {"publish": 0, "acknowledge": 0}

    async def watched(batch: bytes) -> None:
        for frame in pb.ClientBatch.FromString(batch).frames:
            if frame.HasField("publish"):
                numbers = range(
                    frame.publish.first_sequence, frame.publish.first_sequence + len(frame.publish.messages)
                )
                assert set(numbers) <= {one.number for one in ledgers.sent(folder).values()}
                seen["publish"] += len(numbers)
            elif frame.HasField("acknowledge"):
                (ranges,) = [one.ranges for one in frame.acknowledge.sets]
                known = {(one.first, one.last) for one in ledgers.of(folder, ledger.Acknowledging)}
                assert {(one.first, one.last or one.first) for one in ranges} <= known
                seen["acknowledge"] += 1
        await write(batch)

    link._call.write = watched
    producer = await connection.producer("q")
    told: list[bool] = []

    def tell(sent: sterna.Sent | errors.SternaError) -> None:
        assert isinstance(sent, sterna.Sent)
        told.append(sent.message_id in ledgers.confirmed(folder))

    for number in range(50):
        await producer.send_soon(str(number), on_completion=tell)
        await asyncio.sleep(0.001 * (number % 3))
    await producer.flush()
    consumer = await connection.consumer("q")
    for _ in range(50):
        assert await consumer.receive(5) is not None
    await connection.close()
    assert told == [True] * 50
    assert seen["publish"] == 50
    assert seen["acknowledge"] > 0


@staged
async def test_what_is_sent_again_after_a_break_has_one_identity(stage: Stage) -> None:
    folder = _folder(stage)
    connection = await stage.connect(await stage.broker(), ledger=folder)
    producer = await connection.producer("q")
    await producer.send("before")
    for link in stage.network.links:
        link.stall(3600)
    under_way = asyncio.create_task(producer.send("under way"))
    await asyncio.sleep(0.1)
    assert len(ledgers.sent(folder)) == 2
    await stage.broken(connection)
    sent = await under_way
    await producer.send("after")
    await connection.close()
    found = ledgers.sent(folder)
    assert [one.checksum for one in found.values()] == [_checksum(body) for body in ("before", "under way", "after")]
    assert list(found)[1] == sent.message_id
    (again,) = ledgers.of(folder, ledger.Again)
    assert list(ledgers.ids(again)) == [sent.message_id]
    assert ledgers.confirmed(folder) == set(found)
    assert len(ledgers.of(folder, ledger.Link)) == 2


@staged
async def test_what_was_under_way_to_a_store_that_was_lost_is_in_doubt(stage: Stage) -> None:
    folder = _folder(stage)
    broker = await stage.broker()
    connection = await stage.connect(broker, ledger=folder)
    producer = await connection.producer("q")
    kept = await producer.send("confirmed")
    for link in stage.network.links:
        link.stall(3600)
    under_way = asyncio.create_task(producer.send("under way"))
    await asyncio.sleep(0.1)
    restored = asyncio.Event()
    connection.on_restored(lambda _: restored.set())
    broker.kill()
    broker.replace_disk()
    await broker.start()
    stage.break_links()
    await restored.wait()
    await asyncio.wait((under_way,))
    assert isinstance(under_way.exception(), errors.UnknownProducerError)
    new = await producer.send("new")
    await connection.close()
    (doubt,) = ledgers.of(folder, ledger.InDoubt)
    (doubtful,) = ledgers.ids(doubt)
    assert doubtful not in {kept.message_id, new.message_id}
    assert ledgers.sent(folder)[doubtful].checksum == _checksum("under way")
    assert ledgers.confirmed(folder) == {kept.message_id, new.message_id}
    assert len({one.producer.link.store for one in ledgers.sent(folder).values()}) == 2


@staged
async def test_what_its_sender_does_not_wait_for_is_written_down_all_the_same(stage: Stage) -> None:
    folder = _folder(stage)
    connection = await stage.connect(await stage.broker(), ledger=folder)
    producer = await connection.producer("q")
    sending = asyncio.create_task(producer.send("cancelled"))
    await asyncio.sleep(0)
    sending.cancel()
    await asyncio.wait((sending,))
    assert sending.cancelled()
    await producer.flush()
    await connection.close()
    (found,) = ledgers.sent(folder).values()
    assert found.checksum == _checksum("cancelled")
    assert ledgers.confirmed(folder) == {found.message_id}


@staged
async def test_the_outcome_of_each_transaction_is_written_down(stage: Stage) -> None:
    folder = _folder(stage)
    connection = await stage.connect(await stage.broker(), ledger=folder)
    await connection.send("in", "work")
    session = await connection.session(transacted=True)
    consumer, producer = await session.consumer("in"), await session.producer("q")
    assert await consumer.receive(5) is not None
    await producer.send("committed")
    await session.commit()
    await producer.send("rolled back")
    await session.rollback()
    await producer.send("lost")
    await stage.broken(connection)
    with pytest.raises(errors.TransactionRolledBackError):
        await session.commit()
    await connection.close()
    outcomes = [(one.transaction, one.outcome) for one in ledgers.of(folder, ledger.TransactionRecord)]
    assert outcomes == [(1, "asked"), (1, "taken"), (2, "undone"), (3, "undone")]
    told = {one.checksum: one.transaction for one in ledgers.sent(folder).values()}
    assert told == {_checksum("work"): 0, _checksum("committed"): 1, _checksum("rolled back"): 2, _checksum("lost"): 3}
    (taken,) = [one for one in ledgers.of(folder, ledger.Acknowledging) if one.transaction]
    assert (taken.transaction, taken.first, taken.last) == (1, 1, 1)
    assert taken.session == ledgers.of(folder, ledger.TransactionRecord)[0].session


@staged
async def test_a_commit_whose_answer_did_not_come_is_in_doubt(stage: Stage) -> None:
    folder = _folder(stage)
    connection = await stage.connect(await stage.broker(), ledger=folder)
    session = await connection.session(transacted=True)
    producer = await session.producer("q")
    await producer.send("doubtful")
    for link in stage.network.links:
        link.stall(3600)
    committing = asyncio.create_task(session.commit())
    await asyncio.sleep(0.1)
    await stage.broken(connection)
    await asyncio.wait((committing,))
    assert isinstance(committing.exception(), errors.TransactionInDoubtError)
    await connection.close()
    outcomes = [(one.transaction, one.outcome) for one in ledgers.of(folder, ledger.TransactionRecord)]
    assert outcomes == [(1, "asked"), (1, "lost")]


@staged
async def test_what_was_received_and_acknowledged_is_written_down_with_its_flag(stage: Stage) -> None:
    folder = _folder(stage)
    connection = await stage.connect(await stage.broker(), ledger=folder)
    sent = [await connection.send("q", str(number)) for number in range(3)]
    session = await connection.session(AcknowledgeMode.INDIVIDUAL)
    consumer = await session.consumer("q")
    messages = [await consumer.receive(5) for _ in range(3)]
    first, second, third = (one for one in messages if one is not None)
    assert await first.acknowledge()
    second.release()
    again = await consumer.receive(5)
    assert again is not None
    assert again.redelivered
    assert await again.acknowledge()
    assert third.message_id == sent[2].message_id
    browser = session.browser("q")
    assert [one.body async for one in browser] == ["2"]
    await connection.close()
    ids = [one.message_id for one in sent]
    received = [(one.message_id, one.is_redelivered, one.delivery_count) for one in ledgers.of(folder, ledger.Received)]
    assert received == [(ids[0], False, 1), (ids[1], False, 1), (ids[2], False, 1), (ids[1], True, 2)]
    acknowledging = ledgers.of(folder, ledger.Acknowledging)
    assert [(one.first, one.last) for one in acknowledging] == [(1, 1), (2, 2)]
    answers = {one.number: one.outcome for one in ledgers.of(folder, ledger.Acknowledged)}
    assert [answers[one.number] for one in acknowledging] == ["taken", "taken"]
    (consumed,) = ledgers.of(folder, ledger.Consumer)
    assert {one.source for one in acknowledging} == {consumed.source}


@staged
async def test_what_a_session_acknowledges_by_itself_was_received_before(stage: Stage) -> None:
    folder = _folder(stage)
    connection = await stage.connect(await stage.broker(), ledger=folder)
    for number in range(5):
        await connection.send("q", str(number))
    consumer = await connection.consumer("q")
    for _ in range(5):
        assert await consumer.receive(5) is not None
    await connection.close()
    seen: set[int] = set()
    for one in ledgers.records(folder):
        if isinstance(one, ledger.Received):
            seen.add(one.sequence)
        elif isinstance(one, ledger.Acknowledging):
            assert set(range(one.first, one.last + 1)) <= seen
    assert seen == {1, 2, 3, 4, 5}


@staged
async def test_a_consumer_that_acknowledges_nothing_is_written_down_within_a_second(stage: Stage) -> None:
    folder = _folder(stage)
    connection = await stage.connect(await stage.broker(), ledger=folder)
    await connection.send("q", "one")
    consumer = await (await connection.session(AcknowledgeMode.CLIENT)).consumer("q")
    assert await consumer.receive(5) is not None
    await asyncio.sleep(1)
    assert len(ledgers.of(folder, ledger.Received)) == 1
    await connection.close()


@staged
async def test_each_file_has_all_names_that_it_uses_however_often_it_is_rotated(stage: Stage) -> None:
    folder = _folder(stage)
    kept = Ledger(folder, rotate_bytes=4096)
    connection = await stage.connect(await stage.broker(), ledger=kept)
    anonymous = await (await connection.session()).producer()
    producer = await connection.producer("many")
    for number in range(3_000):
        await producer.send_soon(str(number))
        if number % 10 == 0:
            await anonymous.send_soon(str(number), destination=f"other.{number % 30}")
    await producer.flush()
    await anonymous.flush()
    await connection.close()
    assert len(ledgers.files(folder)) > 3
    found = ledgers.sent(folder)
    many = [one.checksum for one in found.values() if one.destination == "many"]
    assert many == [_checksum(str(number)) for number in range(3_000)]
    assert len([one for one in found.values() if one.destination == "other.0"]) == 100
    assert ledgers.confirmed(folder) == set(found)
    assert len({ledger.read(file).head["ledger"] for file in ledgers.files(folder)}) == 1


@staged
async def test_connections_to_other_brokers_of_a_cluster_write_into_the_same_file(stage: Stage) -> None:
    folder = _folder(stage)
    cluster = await stage.two("orders", "b1")
    connection = await stage.connect(cluster.brokers["b0"], ledger=folder)
    sent = await connection.send("orders", "one")
    consumer = await connection.consumer("orders")
    assert await consumer.receive(5) is not None
    await cluster.placed("here", "b0")
    other = await connection.send("here", "two")
    await connection.close()
    assert len(ledgers.files(folder)) == 1
    found = ledgers.sent(folder)
    assert {id_: one.producer.link.broker for id_, one in found.items()} == {
        sent.message_id: "b1",
        other.message_id: "b0",
    }
    (received,) = ledgers.of(folder, ledger.Received)
    assert received.message_id == sent.message_id
    assert ledgers.confirmed(folder) == set(found)


@staged
async def test_a_body_that_goes_ahead_in_chunks_has_the_checksum_of_all_of_it(stage: Stage) -> None:
    folder = _folder(stage)
    connection = await stage.connect(await stage.broker(), ledger=folder)
    body = bytes(range(256)) * 3_000
    producer = await connection.producer("q")
    for link in stage.network.links:
        link.stall(3600)
    sending = asyncio.create_task(producer.send(body))
    await asyncio.sleep(0.1)
    await stage.broken(connection)
    await sending
    await connection.close()
    (found,) = ledgers.sent(folder).values()
    assert found.checksum == xxhash.xxh3_128_digest(body)
    assert found.size > len(body)


@staged
async def test_a_ledger_that_cannot_be_made_is_said_at_once(stage: Stage) -> None:
    broker = await stage.broker()
    with TemporaryDirectory() as folder:
        blocked = Path(folder) / "file"
        blocked.write_text("no folder")
        with pytest.raises(errors.LedgerError, match=str(blocked)):
            await stage.connect(broker, ledger=blocked)
    connection: sterna.Connection = await stage.connect(broker)
    await connection.close()


@staged
async def test_what_follows_its_queue_to_another_broker_has_an_answer_under_each_identity(stage: Stage) -> None:
    folder = _folder(stage)
    cluster = await stage.two("orders", "b0")
    connection = await stage.connect(cluster.brokers["b0"], ledger=folder)
    producer = await connection.producer("orders", window=20)
    moving = asyncio.create_task(cluster.give("queue", "orders", "b1"))
    for number in range(300):
        await producer.send_soon(str(number))
        await asyncio.sleep(0.001 * (number % 5))
    await moving
    await producer.flush()
    await connection.close()
    found, confirmed = ledgers.sent(folder), ledgers.confirmed(folder)
    assert {one.producer.link.broker for one in found.values()} == {"b0", "b1"}
    refused = [one for one in ledgers.of(folder, ledger.Refused) if one.code == errors.ErrorCode.MOVED]
    sent_elsewhere = {id_ for one in refused for id_ in ledgers.ids(one)} & found.keys()
    assert not any(one.is_final for one in refused)
    assert found.keys() - confirmed == sent_elsewhere - confirmed
    # Each is confirmed once, by one broker or the other.
    assert sorted(found[id_].checksum for id_ in confirmed) == sorted(_checksum(str(number)) for number in range(300))


@staged
async def test_a_ledger_that_fails_while_there_is_no_link_ends_the_connection_all_the_same(stage: Stage) -> None:
    broker = await stage.broker()
    connection = await stage.connect(broker, ledger=_folder(stage))
    ends: list[errors.SternaError | None] = []
    connection.on_closed(lambda closed: ends.append(closed.error))
    producer = await connection.producer("q")
    await producer.send("before")
    broker.kill()
    stage.break_links()
    await stage.until(lambda: not connection._lifeline._up.is_set())
    under_way = asyncio.create_task(producer.send("under way"))
    book = connection._lifeline.options.book
    assert book is not None
    book._fail(OSError(errno.ENOSPC, "", str(book._files.path)))
    await broker.start()
    async with asyncio.timeout(20):
        with pytest.raises(errors.LedgerError, match="No space left on device"):
            await under_way
    assert [type(one) for one in ends] == [errors.LedgerError]
    await connection.close()
