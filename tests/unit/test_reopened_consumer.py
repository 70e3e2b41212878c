"""A consumer that is opened on a new link: the first deliveries already belong to the new epoch."""

from typing import Any

import pytest
from sterna import errors
from sterna._link import Link
from sterna._proto.sterna.v1 import message_pb2
from sterna._proto.sterna.v1 import messaging_pb2 as pb
from sterna.connections import connect
from sterna.consumers import Consumer, ConsumerOptions
from sterna.destinations import Queue
from sterna.modes import AcknowledgeMode
from sterna.sessions import Session


async def test_deliveries_right_behind_the_reply_are_acknowledged_in_the_new_epoch() -> None:
    session = Session(connect("sterna://127.0.0.1:1")._lifeline, AcknowledgeMode.AUTO)
    consumer = Consumer(session, Queue("orders"), ConsumerOptions(prefetch=10))
    link: Any = Link("127.0.0.1:1", lambda _: None)
    for epoch in (1, 2):
        session._part.interrupted()
        session._part.link = link
        session._part.state.opened(epoch)
        session._part.link = link
        opening = consumer._feed.reopen(link)
        opening.send(None)
        opened = pb.ConsumerOpened(consumer=consumer._feed.id, source=epoch * 10, epoch=epoch)
        link._handle(pb.ServerFrame(reply=pb.Reply(request=epoch, consumer_opened=opened)))
        delivery = pb.Delivery(sequence=7, message=message_pb2.Message(text="x").SerializeToString())
        consumer._feed.on_deliver(pb.Deliver(consumer=consumer._feed.id, deliveries=[delivery], epoch=epoch))
        assert consumer.receive_nowait() is not None
        acknowledged = session._part.state.gather()
        assert acknowledged is not None
        assert {(one.source, one.epoch) for one in acknowledged.sets} == {(epoch * 10, epoch)}
        opening.close()


async def test_an_interruption_forgets_what_the_old_link_was_to_gather() -> None:
    session = Session(connect("sterna://127.0.0.1:1")._lifeline, AcknowledgeMode.AUTO)
    links: list[Any] = [Link("127.0.0.1:1", lambda _: None) for _ in range(2)]
    part = session._part
    for link in links:
        part.link = link
        part.ask()
        assert part.gather in link._gathering
        session._part.interrupted()


async def test_a_consumer_that_is_ended_before_its_opening_is_answered_is_not_opened_by_that_answer() -> None:
    session = Session(connect("sterna://127.0.0.1:1")._lifeline, AcknowledgeMode.AUTO)
    consumer = Consumer(session, Queue("orders"), ConsumerOptions())
    link: Any = Link("127.0.0.1:1", lambda _: None)
    session._part.link = link
    feed = consumer._feed
    session._part.link = link
    opening = feed.open(link)
    opening.send(None)
    feed.on_closed(errors.MovedError("it lives elsewhere"))
    opened = pb.ConsumerOpened(consumer=feed.id, source=1, epoch=1)
    link._handle(pb.ServerFrame(reply=pb.Reply(request=1, consumer_opened=opened)))
    with pytest.raises(errors.MovedError):
        opening.send(None)
    assert feed.link is None
