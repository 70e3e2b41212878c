"""What a store of before holds and nobody can decode concerns no other message: it is handed out and shown as it is."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

from sterna._proto.sterna.v1 import message_pb2, messaging_pb2
from sterna.cli.messages import row
from sterna.messages import Message
from sterna_broker.contract import messaging
from sterna_broker.server import browsing, receiving
from sterna_broker.server.internal_stream import Pieces

_UNREADABLE = b"\x4a\x01\xff"  # a text that is no UTF-8
_GOOD = message_pb2.Message(text="good").SerializeToString()


def _delivery(sequence: int, message: bytes) -> Any:
    return messaging.Delivery(sequence=sequence, message=message)


def test_one_that_cannot_be_read_is_received_beside_the_others() -> None:
    deliveries = [_delivery(1, _GOOD), _delivery(2, _UNREADABLE), _delivery(3, _GOOD)]
    lease: Any = SimpleNamespace(id="lease", deliveries=deliveries)
    found = receiving._response(lease).messages
    assert [one.receipt for one in found] == ["lease-1", "lease-2", "lease-3"]
    assert [one.HasField("message") for one in found] == [True, False, True]
    assert found[1].delivery.message == _UNREADABLE


def test_one_that_cannot_be_read_is_shown_as_it_is() -> None:
    delivery = _delivery(1, _UNREADABLE + b"\x4a\x20" + bytes(32))
    before = delivery.message
    browsing._shorten(delivery, 10)
    assert delivery.message == before


def test_the_command_line_says_of_one_that_it_cannot_be_read() -> None:
    looked: Any = SimpleNamespace(destination=SimpleNamespace(name="q"))
    delivery = messaging_pb2.Delivery(sequence=7, message=_UNREADABLE, message_id="ID:x", reason="EXPIRED")
    delivery.destination.name, delivery.destination.kind = "q", message_pb2.QUEUE
    found = row(Message(looked, delivery, 0))
    assert (found["sequence"], found["bodyType"], found["reason"]) == (7, "unreadable", "EXPIRED")
    assert "cannot read the message" in found["body"]


def test_pieces_of_several_bodies_are_put_together() -> None:
    def piece(sequence: int, data: bytes, whole: int = 0) -> Any:
        return messaging.Delivery(sequence=sequence, uploaded=data, uploaded_bytes=whole)

    pieces = Pieces()
    assert pieces.whole([piece(1, b"ab", 5)]) == []
    found = pieces.whole([piece(1, b"cde"), _delivery(2, _GOOD), piece(3, b"x", 2)])
    assert [(one.sequence, one.uploaded) for one in found] == [(1, b"abcde"), (2, b"")]
    assert [one.uploaded for one in pieces.whole([piece(3, b"y")])] == [b"xy"]


def test_one_whose_bytes_are_lost_is_told_in_its_place_and_takes_no_credit() -> None:
    granted: list[Any] = []
    browser = object.__new__(browsing._Browser)
    browser.frames, browser._pieces = asyncio.Queue(), Pieces()
    browser._taken = browser._bytes = 0
    browser.session = 1
    browser.stream = SimpleNamespace(is_open=True, send=granted.append)  # type: ignore[assignment]
    error = messaging.Error(code=messaging.MESSAGE_DAMAGED, subject="source 12 sequence 34")
    browser._on_frame(messaging.ServerFrame(session=1, error=error))
    browser._on_frame(messaging.ServerFrame(deliver=messaging.Deliver(deliveries=[_delivery(35, _GOOD)])))
    found = [browser.frames.get_nowait(), browser.frames.get_nowait()]
    for deliveries in found:
        assert isinstance(deliveries, list)
        browser.took(deliveries)
    told = [(one.sequence, one.reason) for deliveries in found for one in deliveries or ()]  # type: ignore[union-attr]
    assert told == [(34, "DAMAGED"), (35, "")]
    assert granted[-1].credit.message_limit == 1 + browsing._WINDOW
