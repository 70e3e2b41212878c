"""What the broker ends in the same breath as it has opened it: whoever opens it is told, and nothing of it is kept."""

import asyncio
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
from sterna.producers import Producer, ProducerOptions
from sterna.sessions import Session


def _session() -> tuple[Session, Any]:
    """One on a connection whose link takes what a test gives it."""
    lifeline = connect("sterna://127.0.0.1:1")._lifeline
    link: Any = Link("127.0.0.1:1", lifeline._on_frame)
    lifeline._link = link
    lifeline._up.set()
    lifeline._supervisor = object()  # type: ignore[assignment] # it is only looked for
    session = Session(lifeline, AcknowledgeMode.AUTO)
    session._part.link = link
    return session, link


_GONE = pb.Error(code=pb.NO_SUCH_DESTINATION, message="it was deleted")


@pytest.mark.parametrize("is_answered", [True, False])
async def test_a_consumer_that_is_ended_right_behind_its_opening_is_none_of_the_sessions(is_answered: bool) -> None:
    session, link = _session()
    consumer = Consumer(session, Queue("orders"), ConsumerOptions())
    feed = consumer._feed
    adding = session._part.add(feed)
    adding.send(None)
    answer = pb.ServerFrame(reply=pb.Reply(request=1, consumer_opened=pb.ConsumerOpened(source=1, epoch=1)))
    closed = pb.ServerFrame(consumer_closed=pb.ConsumerClosed(consumer=feed.id, reason=_GONE))
    delivery = pb.Delivery(sequence=7, message=message_pb2.Message(text="x").SerializeToString())
    deliver = pb.ServerFrame(deliver=pb.Deliver(consumer=feed.id, deliveries=[delivery], epoch=1))
    for frame in (answer, deliver, closed) if is_answered else (closed, answer):
        link._handle(frame)
    with pytest.raises(errors.NoSuchDestinationError):
        adding.send(None)
    assert not session._part.feeds
    assert not session._part.state.consumers
    assert not feed.state.buffer
    assert feed.link is None


@pytest.mark.parametrize("is_answered", [True, False])
async def test_a_producer_that_is_ended_right_behind_its_opening_is_none_of_the_sessions(is_answered: bool) -> None:
    session, link = _session()
    producer = Producer(session, Queue("orders"), ProducerOptions())
    adding = session._part.add_producer(producer._sending)
    adding.send(None)
    answer = pb.ServerFrame(reply=pb.Reply(request=1, producer_opened=pb.ProducerOpened(incarnation=3)))
    closed = pb.ServerFrame(producer_closed=pb.ProducerClosed(producer=producer._lane.id, reason=_GONE))
    for frame in (answer, closed) if is_answered else (closed, answer):
        link._handle(frame)
    with pytest.raises(errors.NoSuchDestinationError):
        adding.send(None)
    assert not session._part.producers
    assert not session._part.lifeline.lanes


@pytest.mark.parametrize("name", ["", "import"])
async def test_a_producer_that_is_ended_for_now_right_behind_its_opening_is_opened_again(name: str) -> None:
    """Nobody at the broker knows it any more: what it took for open would hear of nothing that is sent."""
    session, link = _session()
    producer = Producer(session, Queue("orders"), ProducerOptions(name=name))
    adding = asyncio.create_task(session._part.add_producer(producer._sending))
    for ends in (True, True, False):
        asked: list[Any] = []
        async with asyncio.timeout(5):
            while not asked:
                await asyncio.sleep(0)
                asked = [one for one in pb.ClientBatch.FromString(link._take()).frames if one.HasField("open_producer")]
        opened = pb.ProducerOpened(incarnation=3)
        link._handle(pb.ServerFrame(reply=pb.Reply(request=asked[0].request, producer_opened=opened)))
        if ends:
            reason = pb.Error(code=pb.UNAVAILABLE, message="it lives nowhere for now", retryable=True)
            link._handle(pb.ServerFrame(producer_closed=pb.ProducerClosed(producer=producer._lane.id, reason=reason)))
    await adding
    assert not producer._lane.is_missing_on(link)
    assert session._part.lifeline.lanes == [producer._lane]


async def test_a_browser_that_is_closed_while_it_is_opened_is_none_of_the_sessions() -> None:
    session, link = _session()
    browser = session.browser("orders")
    adding = session._part.add(browser._feed)
    adding.send(None)
    await browser.close()
    opened = pb.ConsumerOpened(source=1, epoch=1)
    link._handle(pb.ServerFrame(reply=pb.Reply(request=1, consumer_opened=opened)))
    with pytest.raises(StopIteration):
        adding.send(None)
    assert not session._part.feeds


async def test_a_consumer_that_ends_while_it_is_closed_was_closed_by_its_application() -> None:
    session, _ = _session()
    feed = Consumer(session, Queue("orders"), ConsumerOptions())._feed
    for error in (errors.ClosedError("the consumer was closed"), errors.NoSuchDestinationError("it was deleted")):
        feed.fail(error)
    assert isinstance(feed.consumer.closed, errors.ClosedError)
    assert feed.closed is feed.consumer.closed


async def test_nothing_is_begun_behind_a_goodbye() -> None:
    """Who asks for a link would get one that takes nothing any more, again and again, and nobody else had a turn."""
    session, link = _session()
    lifeline: Any = session._part.lifeline
    link._finishing = True
    asking = asyncio.create_task(lifeline.ready())
    for _ in range(5):
        await asyncio.sleep(0)
    assert not asking.done()
    another: Any = Link("127.0.0.1:2", lifeline._on_frame)
    lifeline._link = another
    link.fail(errors.ConnectionLostError("it ended"))
    assert await asking is another
